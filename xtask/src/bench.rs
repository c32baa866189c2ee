//! `cargo xtask bench`: what a verb costs, beside the C provider.

mod accepted;
mod callgrind;
pub mod document;
mod measure;
mod opening;
mod recount;
mod table;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::newest::Newest;
use crate::packages;
use crate::sim::{Provider, Simulator};
use crate::workspace::target;
pub use accepted::Accepted;
pub use measure::Program;
use measure::{Figures, Set};
pub use opening::check_memory;
use table::{Memory, Row, Table};

/// What is measured.
#[derive(clap::Args)]
pub struct Options {
    /// Write the table to this file as well
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Generations of the device
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,2,3",
          value_parser = clap::value_parser!(u8).range(1..=3))]
    r#gen: Vec<u8>,
    /// Count instructions only
    #[arg(long)]
    instructions: bool,
    /// Beside rdma-core 65, whose C provider knows GEN3: both run on Debian forky's libraries
    #[arg(long)]
    with_65: bool,
    /// Make this provider's instruction counts those that `cargo xtask test` holds it to, and do nothing else
    #[arg(long, conflicts_with_all = ["json", "gen", "with_65"])]
    accept: bool,
    /// Measure everything, beside this machine's C provider and that of rdma-core 65, for docs/performance.md and
    /// docs/tuning.md; with --instructions the times in them stay as they are
    #[arg(long, conflicts_with_all = ["json", "gen", "with_65", "accept", "filter"])]
    document: bool,
    /// Measure loading the provider and opening a device instead, on GEN2
    #[arg(long, conflicts_with_all = ["json", "gen", "instructions", "with_65", "accept", "document", "filter"])]
    opening: bool,
    /// Measure only rows whose name contains this
    filter: Option<String>,
}

/// Measures and prints the table.
pub fn run(options: Options) -> Result<ExitCode> {
    packages::install(packages::BUILD.iter().chain(packages::DEMO).chain(packages::BENCH))?;
    let simulator = Simulator::build()?;
    let program = Program::build(&simulator, &target().join("bench"))?;
    let filter = options.filter.as_deref().unwrap_or_default();
    if options.accept {
        Accepted::load()?.replace(Accepted::measure(&program, filter)?).save()?;
        return Ok(ExitCode::SUCCESS);
    }
    if options.opening {
        opening::print(&program, &simulator.plugin().library)?;
        return Ok(ExitCode::SUCCESS);
    }
    if options.document {
        let machine = measure(&program, &[1, 2], "", options.instructions)?;
        print!("beside the C provider of this machine\n{}", machine.text());
        let newest = measure(&program.on(&Newest::for_counting()?), &[3], "", options.instructions)?;
        print!("\nbeside the C provider of rdma-core 65\n{}", newest.text());
        if options.instructions {
            document::recount(&machine, &newest)?;
        } else {
            document::write(&machine, &newest)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let program = if options.with_65 { program.on(&Newest::for_counting()?) } else { program };
    let table = measure(&program, &options.r#gen, filter, options.instructions)?;
    if table.is_empty() {
        bail!("no row has such a name");
    }
    print!("{}", table.text());
    if let Some(file) = options.json {
        fs::write(&file, table.json()).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Rows of those generations whose names contain `filter`; without a filter, what objects take as well.
fn measure(program: &Program, generations: &[u8], filter: &str, instructions_only: bool) -> Result<Table> {
    let mut table = Table::default();
    for &generation in generations {
        let c_knows = program.c_knows(generation);
        let timed = c_knows && !instructions_only;
        for &set in Set::of_generation(generation) {
            let ours = program.instructions(Provider::Ours, generation, set, filter)?;
            let c = if c_knows {
                program.instructions(Provider::C, generation, set, filter)?
            } else {
                Figures::default()
            };
            let ratios =
                if timed { program.time_ratios(generation, set, filter)? } else { Figures::default() };
            table.rows.extend(ours.iter().map(|(name, figure)| Row {
                name: name.to_owned(),
                generation,
                ours: Some(figure),
                c: c.of(name),
                time_ratio: ratios.of(name),
            }));
        }
        if timed {
            let ratios = program.thread_ratios(generation, filter)?;
            table.rows.extend(ratios.iter().map(|(name, ratio)| Row {
                name: name.to_owned(),
                generation,
                ours: None,
                c: None,
                time_ratio: Some(ratio),
            }));
        }
        if filter.is_empty() && !instructions_only {
            let ours = program.memory(Provider::Ours, generation)?;
            let c = if c_knows { program.memory(Provider::C, generation)? } else { Figures::default() };
            table.memory.extend(ours.iter().map(|(name, bytes)| Memory {
                name: name.to_owned(),
                generation,
                ours: bytes,
                c: c.of(name),
            }));
        }
    }
    Ok(table)
}
