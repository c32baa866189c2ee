//! Random programs on both providers, compared: that they are equal, and that a difference would be found.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::session::{Session, Verdict};
use crate::differential;
use crate::process;

/// What is compared: name, options of the device, programs. With `--full`, ten times as many.
const RUNS: [(&str, &[&str], u64); 4] = [
    ("GEN2 over RoCE", &[], 1500),
    ("GEN2 with push pages", &["--push", "8"], 150),
    ("GEN2 over iWARP", &["--transport", "iwarp"], 500),
    ("GEN1", &["--gen", "1", "--transport", "iwarp"], 500),
];

/// Programs that are enough for a planted difference to be met, in the first one that posts.
const PLANTED: u64 = 5;

/// Steps that a post needs: a protection domain, a completion queue, a queue pair, the post itself.
const SHORTEST: usize = 4;

/// How long a run may take on a busy machine, in seconds per thousand programs.
const PATIENCE: u64 = 300;

/// Every run.
pub fn check(session: &mut Session) {
    let times = if session.full { 10 } else { 1 };
    for (name, device, programs) in RUNS {
        session.check_on_device("differential", name, |simulator, folder| {
            let programs = programs * times;
            let mut command = differential::command(simulator, &simulator.plugin().library, programs, 1)?;
            let device: Vec<String> = device.iter().map(|&option| option.to_owned()).collect();
            command.args(differential::device_options(&device));
            let limit = Duration::from_secs(PATIENCE * programs.div_ceil(1000));
            let finished = process::run(&mut command, &folder.join("output"), limit)?;
            ensure!(finished.succeeded(), "{}\n{}", finished.explain(), finished.output);
            Ok(Verdict::Passed)
        });
    }
    session.check_on_device("differential", "a planted difference is found", |simulator, folder| {
        let mut command = differential::command(simulator, &simulator.plugin().library, PLANTED, 1)?;
        command.arg("--plant").args(differential::device_options(&[]));
        let limit = Duration::from_secs(PATIENCE);
        let finished = process::run(&mut command, &folder.join("output"), limit)?;
        ensure!(!finished.succeeded(), "nothing was found: {}", finished.output);
        let left = steps_left(&finished.output)?;
        ensure!(left <= SHORTEST, "the shortest program has {left} steps, {SHORTEST} suffice");
        Ok(Verdict::Passed)
    });
}

/// Steps of the shortest program that was found: `DIFFERENT seed 1, 4 steps left:`.
fn steps_left(output: &str) -> Result<usize> {
    let line =
        output.lines().find(|line| line.starts_with("DIFFERENT seed ")).context("no difference is shown")?;
    let (_, after) = line.split_once(", ").context("a comma behind the seed")?;
    let (number, _) = after.split_once(' ').context("a number of steps")?;
    Ok(number.parse()?)
}
