//! What came of a run, and how it is shown.

use std::collections::BTreeMap;
use std::process::ExitCode;

use super::Run;
use super::failures::{failure_of, missed_failure_of};
use super::skips::skip_of;
use super::suite::Outcome;
use crate::sim::Provider;

/// What came of the tests of a run.
#[derive(Default)]
pub struct Report {
    /// How many passed.
    pub passed: usize,
    /// Tests that failed though nothing is known against them, with how.
    pub failed: Vec<(String, String)>,
    /// Tests that were skipped, by cause.
    pub skipped: BTreeMap<String, Vec<String>>,
    /// Tests that failed as expected, with the cause.
    pub expected: Vec<(String, &'static str)>,
}

impl Report {
    /// Judges the outcomes of a run.
    pub fn of(run: &Run, outcomes: BTreeMap<String, Outcome>) -> Report {
        let mut report = Report::default();
        for (test, outcome) in outcomes {
            match outcome {
                Outcome::Passed => match missed_failure_of(run, &test) {
                    Some(known) => {
                        report.failed.push((test, format!("passes, contrary to its row ({})", known.cause)));
                    }
                    None => report.passed += 1,
                },
                Outcome::Skipped(reason) => {
                    let cause = match skip_of(run, &test, &reason) {
                        Some(known) => known.cause.to_owned(),
                        // What the C provider lacks is its own affair.
                        None if run.provider == Provider::C => format!("C provider: {reason}"),
                        None => {
                            report.failed.push((test, format!("skipped for no known reason: {reason}")));
                            continue;
                        }
                    };
                    report.skipped.entry(cause).or_default().push(test);
                }
                Outcome::Failed(failure) => match failure_of(run, &test, &failure) {
                    Some(known) => report.expected.push((test, known.cause)),
                    None => report.failed.push((test, failure)),
                },
            }
        }
        report
    }

    /// How many tests were skipped.
    pub fn skipped_count(&self) -> usize {
        self.skipped.values().map(Vec::len).sum()
    }

    /// Shows it; with `each`, every test that was skipped.
    pub fn print(&self, each: bool) {
        let (failed, expected) = (self.failed.len(), self.expected.len());
        let (passed, skipped) = (self.passed, self.skipped_count());
        println!("  {passed} passed, {failed} failed, {expected} failed as expected, {skipped} skipped");
        for (test, failure) in &self.failed {
            println!("  FAILED {test}: {failure}");
        }
        for (test, cause) in &self.expected {
            println!("  failed as expected: {test} ({cause})");
        }
        let mut causes: Vec<_> = self.skipped.iter().collect();
        causes.sort_by_key(|(_, tests)| std::cmp::Reverse(tests.len()));
        for (cause, tests) in causes {
            println!("  skipped {:>4}  {cause}", tests.len());
            if each {
                tests.iter().for_each(|test| println!("                  {test}"));
            }
        }
    }
}

/// Prints the table of all runs; the exit code.
pub fn conclude(reports: &[(String, Report)]) -> ExitCode {
    println!("\n{:<44} {:>7} {:>7} {:>9} {:>8}", "", "passed", "failed", "expected", "skipped");
    for (name, report) in reports {
        println!(
            "{name:<44} {:>7} {:>7} {:>9} {:>8}",
            report.passed,
            report.failed.len(),
            report.expected.len(),
            report.skipped_count()
        );
    }
    let failed = reports.iter().any(|(_, report)| !report.failed.is_empty());
    let passed: usize = reports.iter().map(|(_, report)| report.passed).sum();
    if passed == 0 {
        println!("No test has passed: is there one of such a name?");
    }
    if failed || passed == 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
