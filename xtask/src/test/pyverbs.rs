//! rdma-core's own Python tests with our provider, as far as they need nothing but this machine.

use anyhow::Result;

use super::session::{Counts, Session, Verdict};
use crate::pyverbs::{RUNS, Report, Suite};
use crate::sim::Provider;

/// The machine's own suite, on each device with ours.
pub fn check(session: &mut Session) {
    for run in RUNS.iter().filter(|run| run.suite == 44 && run.provider == Provider::Ours) {
        session.check_on_device("pyverbs", &run.name(), |simulator, folder| {
            let suite = match Suite::of_release(run.suite, simulator) {
                Ok(suite) => suite,
                Err(reason) => return Ok(Verdict::Skipped(format!("{reason:#}"))),
            };
            counted(run.carry_out(&suite, simulator, "", folder)?)
        });
    }
}

/// Which tests were skipped and why, `cargo xtask pyverbs` shows: there are hundreds.
fn counted(report: Report) -> Result<Verdict> {
    let failed = report.failed.into_iter().map(|(test, failure)| format!("{test}: {failure}"));
    Ok(Verdict::Counted(Counts { passed: report.passed, failed: failed.collect(), skipped: Vec::new() }))
}
