//! The code by itself: its form, its lints, its unit tests.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use super::licences;
use super::session::{Counts, Session, Verdict};
use crate::process::run;
use crate::suites::{self, SUITES};
use crate::workspace::cargo;

/// A build from nothing takes its time.
const BUILD_LIMIT: Duration = Duration::from_secs(20 * 60);

/// rustfmt, clippy, unit tests, and the comparison with rdma-core's own headers.
pub fn check(session: &mut Session) {
    session.check("code", "rustfmt", |folder| pass(cargo("fmt").args(["--all", "--check"]), folder));
    session.check("code", "clippy", |folder| {
        let mut clippy = cargo("clippy");
        clippy.args(["--quiet", "--workspace", "--all-targets", "--", "--deny", "warnings"]);
        pass(&mut clippy, folder)
    });
    session.check("code", "documentation", |folder| {
        let mut document = cargo("doc");
        document.args(["--quiet", "--workspace", "--no-deps"]);
        pass(document.env("RUSTDOCFLAGS", "--deny warnings"), folder)
    });
    session.check("code", "licences", |_| licences::check().map(|()| Verdict::Passed));
    session.check("code", "unit tests", |folder| {
        // The bindings' test of the headers and the verbs programs have groups of their own.
        let mut tests = cargo("test");
        tests.args(["--workspace", "--no-fail-fast"]);
        tests.args(["--exclude", "irdma-tests", "--exclude", "rdma-core-sys"]);
        counted(&mut tests, folder)
    });
    for (suite, _) in SUITES {
        session.check("headers", suite, |_| match suites::source(suite) {
            Ok(_) => Ok(Verdict::Passed),
            Err(reason) => Ok(Verdict::Skipped(format!("{reason:#}"))),
        });
    }
    session.check("headers", "bindings", |folder| {
        // Each structure and function as the releases' own headers have it.
        let mut tests = cargo("test");
        tests.args(["--package", "rdma-core-sys", "--", "--nocapture"]);
        counted(tests.env("IRDMA_RDMA_CORE_SOURCES", suites::sources_folder()), folder)
    });
}

/// A command that is to succeed.
fn pass(command: &mut Command, folder: &Path) -> Result<Verdict> {
    let finished = run(command, &folder.join("output"), BUILD_LIMIT)?;
    if !finished.succeeded() {
        bail!("{}", finished.explain());
    }
    Ok(Verdict::Passed)
}

/// A command whose output sums up tests as cargo test does.
pub fn counted(command: &mut Command, folder: &Path) -> Result<Verdict> {
    let finished = run(command, &folder.join("output"), BUILD_LIMIT)?;
    let counts = count(&finished.output);
    if !finished.succeeded() && counts.failed.is_empty() {
        bail!("{}", finished.explain());
    }
    if counts.passed + counts.failed.len() + counts.skipped.len() == 0 {
        bail!("{} ran no test", finished.command);
    }
    Ok(Verdict::Counted(counts))
}

/// Sums up `test result: ok. 3 passed; 1 failed; 0 ignored ...`, with names and reasons from
/// `test NAME ... FAILED` and `test NAME ... ignored, REASON`, and `skipped: REASON`.
///
/// An ignored test whose reason begins with "run by" is a part of another test.
fn count(output: &str) -> Counts {
    let mut counts = Counts::default();
    let (mut failed, mut ignored, mut reasons_given) = (0, 0, 0);
    for line in output.lines() {
        if let Some(result) = line.strip_prefix("test result:") {
            let number = |word: &str| {
                let part = result.split(';').find(|part| part.trim_end().ends_with(word));
                part.and_then(|part| part.split_whitespace().rev().nth(1)?.parse().ok()).unwrap_or(0)
            };
            counts.passed += number("passed");
            failed += number("failed");
            ignored += number("ignored");
        } else if let Some(reason) = line.strip_prefix("skipped: ") {
            counts.skipped.push(reason.to_owned());
        } else if let Some((name, outcome)) = test_line(line) {
            match outcome.split_once(", ").unwrap_or((outcome, "")) {
                ("FAILED", _) => counts.failed.push(name.to_owned()),
                ("ignored", reason) => {
                    reasons_given += 1;
                    if !reason.starts_with("run by") {
                        counts.skipped.push(format!("{name}: {reason}"));
                    }
                }
                _ => {}
            }
        }
    }
    // What a test writes may get between its name and its outcome.
    counts.failed.resize_with(failed, || "a test whose name the output does not show".to_owned());
    counts
        .skipped
        .extend(vec!["a test is ignored".to_owned(); usize::saturating_sub(ignored, reasons_given)]);
    counts
}

/// Name and outcome of `test NAME ... OUTCOME`.
fn test_line(line: &str) -> Option<(&str, &str)> {
    let (name, outcome) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    Some((name.trim_end(), outcome))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_several_binaries_add_up() {
        let output = "running 3 tests\ntest a ... ok\ntest b ... ignored, run by a\ntest c ... ok\n\
            test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
            skipped: no headers of 56.1\ntest d::e   ... FAILED\ntest f ... ignored, needs a card\n\
            test g ... words in between\n\
            test result: FAILED. 4 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";
        let counts = count(output);
        assert_eq!(counts.passed, 6);
        assert_eq!(counts.failed, ["d::e", "a test whose name the output does not show"]);
        assert_eq!(counts.skipped, ["no headers of 56.1", "f: needs a card"]);
    }
}
