//! rdma-core's own Python tests in the guest, judged by the tables of `cargo xtask pyverbs`.

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::fleet::Fleet;
use super::kernel_log;
use super::list::Outcome;
use super::report::Report;
use crate::pyverbs::{self, Run};
use crate::sim::Provider;

/// Name of their group.
pub const GROUP: &str = "python";

/// Seconds that all of them may take.
const LIMIT: u32 = 900;

/// Runs the tests whose names contain `word`; what comes of them is noted in `report`.
pub fn run(
    fleet: &mut Fleet,
    word: &str,
    generation: u32,
    provider: Provider,
    logs: &Path,
    report: &mut Report,
) -> Result<()> {
    let column = (generation, provider);
    let limit = LIMIT * fleet.slowness;
    let guest = &mut fleet.guests[0];
    let before = guest.kernel(0).len();
    let finished = guest.run(&format!("python-suite '{word}'"), limit)?;
    fs::write(logs.join("python-results.log"), &finished.output)?;
    fs::write(logs.join("python-output.log"), guest.run("cat /tmp/python-suite", 60)?.output)?;
    let outcomes = match pyverbs::outcomes(&finished.output) {
        Ok(outcomes) => outcomes,
        Err(error) => {
            report.note(GROUP, "all", column, Outcome::Failed(format!("{error:#}")));
            return Ok(());
        }
    };
    if let Some(line) = kernel_log::trouble(guest.kernel(before), &[]) {
        report.note(GROUP, "the kernel's log", column, Outcome::Failed(format!("the kernel says: {line}")));
    }
    let run = Run { suite: 65, provider, generation, kernel: None, real_kernel: true };
    let tests = outcomes.keys().cloned().collect::<Vec<_>>();
    let judged = pyverbs::Report::of(&run, outcomes);
    judged.print(false);
    for (cause, skipped) in &judged.skipped {
        let note = |test| report.note(GROUP, test, column, Outcome::Skipped(cause.clone()));
        skipped.iter().map(String::as_str).for_each(note);
    }
    for (test, cause) in &judged.expected {
        let reason = format!("fails as expected: {cause}");
        report.note(GROUP, test, column, Outcome::Skipped(reason));
    }
    for (test, failure) in &judged.failed {
        report.note(GROUP, test, column, Outcome::Failed(failure.clone()));
    }
    for test in &tests {
        if !report.knows(GROUP, test, column) {
            report.note(GROUP, test, column, Outcome::Passed);
        }
    }
    Ok(())
}
