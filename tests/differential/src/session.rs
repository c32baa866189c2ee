//! The course of a comparison: programs, differences, what is made of them, the summary.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::Options;
use crate::compare::{Outcome, compare};
use crate::faults;
use crate::generate::generate;
use crate::laws;
use crate::program::Program;
use crate::random::Random;
use crate::shrink::shrink;
use crate::side::{Provider, Side};

/// Different differences after which a run ends: they are looked at one by one anyway.
const ENOUGH: usize = 5;

/// Programs in which every known fault that the device can show should have been met.
const MANY: u64 = 10_000;

/// Both providers.
struct Pair<'a> {
    ours: Side,
    c: Side,
    options: &'a Options,
    generation: u8,
    /// How often each known fault was met.
    met: BTreeMap<&'static str, u64>,
}

impl Pair<'_> {
    /// Runs a program on both.
    fn run(&mut self, program: &Program) -> Result<Outcome> {
        let text = serde_json::to_string(program)?;
        self.ours.send(&text)?;
        self.c.send(&text)?;
        let (mut ours, c) = (self.ours.trace()?, self.c.trace()?);
        if self.options.verbose {
            println!("ours:\n{ours}C:\n{c}");
        }
        if self.options.plant {
            ours = planted(&ours);
        }
        if let Some(broken) = laws::broken(program, &ours) {
            let report = format!("ours by itself: {broken}\n{ours}");
            return Ok(Outcome::Different { signature: broken.law.to_owned(), report });
        }
        Ok(compare(program, (self.generation, self.options.release), [&ours, &c], &mut self.met))
    }
}

/// Changes a bit of the first immediate that is posted.
fn planted(trace: &str) -> String {
    let changed = |line: &str| match line.split_once(" q0=0x") {
        Some((before, after)) if line.starts_with("wqe ") => {
            let (word, rest) = after.split_once(' ').unwrap_or((after, ""));
            let word = u64::from_str_radix(word, 16).unwrap_or_default() ^ 1 << 5;
            format!("{before} q0={word:#x} {rest}")
        }
        _ => line.to_owned(),
    };
    trace.lines().map(|line| changed(line) + "\n").collect()
}

/// That of the device, as its options say it.
fn generation(options: &Options) -> Result<u8> {
    let mut words = options.device.iter().skip_while(|word| *word != "--gen").skip(1);
    words.next().map_or(Ok(2), |word| word.parse().context("--gen takes a number"))
}

/// Runs all programs.
pub fn run(options: &Options) -> Result<ExitCode> {
    let mut pair = Pair {
        ours: Side::new(options, Provider::Ours)?,
        c: Side::new(options, Provider::C)?,
        options,
        generation: generation(options)?,
        met: BTreeMap::new(),
    };
    if let Some(file) = &options.replay {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let program = serde_json::from_str(&text)?;
        let outcome = pair.run(&program)?;
        return Ok(match outcome {
            Outcome::Different { report, .. } => {
                print!("{report}");
                ExitCode::FAILURE
            }
            outcome => {
                println!("{outcome:?}; known faults: {:?}", pair.met);
                ExitCode::SUCCESS
            }
        });
    }
    let began = Instant::now();
    let (mut steps, mut cut) = (0, 0);
    let mut known = BTreeSet::new();
    for seed in options.seed..options.seed.saturating_add(options.programs) {
        let done = seed - options.seed;
        if done > 0 && done.is_multiple_of(MANY) {
            println!("{done} of {} programs", options.programs);
        }
        let program = generate(&mut Random::new(seed), pair.generation);
        steps += program.len();
        match pair.run(&program)? {
            Outcome::Equal => {}
            Outcome::Cut => cut += 1,
            Outcome::Different { signature, .. } => {
                if known.insert(signature.clone()) {
                    show(&mut pair, seed, program, &signature)?;
                } else {
                    println!("again: seed {seed}");
                }
                if known.len() >= ENOUGH {
                    println!("that is enough");
                    break;
                }
            }
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{} programs, {steps} steps, {} kinds of difference, {cut} cut short by a fault of the C provider, \
         {:.0} programs/s",
        options.programs,
        known.len(),
        options.programs as f64 / seconds
    );
    for (fault, count) in &pair.met {
        println!("{count:>9} times: {fault}");
    }
    if options.programs >= MANY {
        // It may be there no more, or hidden behind others; or it is of another device.
        for fault in faults::names(options.release).filter(|fault| !pair.met.contains_key(fault)) {
            println!("    never: {fault}");
        }
    }
    Ok(if known.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Shrinks a program with a difference and prints it.
fn show(pair: &mut Pair<'_>, seed: u64, program: Program, signature: &str) -> Result<()> {
    // Only programs as generated count.
    let met = pair.met.clone();
    let shortest = shrink(
        program,
        &mut |program| matches!(pair.run(program), Ok(Outcome::Different { signature: found, .. }) if found == signature),
    );
    println!("DIFFERENT seed {seed}, {} steps left:", shortest.len());
    for (number, step) in shortest.iter().enumerate() {
        println!("  {number}: {step:?}");
    }
    if let Outcome::Different { report, .. } = pair.run(&shortest)? {
        println!("{report}");
    }
    println!("to be run again: --replay FILE with\n{}\n", serde_json::to_string(&shortest)?);
    pair.met = met;
    Ok(())
}
