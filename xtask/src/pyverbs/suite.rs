//! A suite of tests, and how it is run: the interpreter, the libraries and the plugin that belong to it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::Run;
use crate::newest::Newest;
use crate::process::{self, Finished};
use crate::sim::Simulator;
use crate::suites;
use crate::workspace::{read, root};

/// Longest time that the whole suite may take on one device.
const LIMIT: Duration = Duration::from_secs(400);

/// A release of rdma-core with its tests.
pub struct Suite {
    /// `tests/` of its source.
    folder: PathBuf,
    /// Words in front of a program that have it run on the suite's release, if that is not this machine's.
    words: Vec<OsString>,
    /// The plugin for its libibverbs.
    plugin: PathBuf,
}

/// What came of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It passed.
    Passed,
    /// It was left out, for this reason.
    Skipped(String),
    /// It failed, ended the interpreter or did not end, in this manner.
    Failed(String),
}

impl Suite {
    /// That of 44, which is this machine's rdma-core, or that of 65, with the interpreter and the
    /// libraries of the distribution that has it.
    pub fn of_release(release: u32, simulator: &Simulator) -> Result<Suite> {
        match release {
            44 => Suite::of_machine(simulator),
            65 => Suite::newest(),
            _ => bail!("there is no suite {release} here"),
        }
    }

    fn of_machine(simulator: &Simulator) -> Result<Suite> {
        let version = read(Command::new("pkg-config").args(["--modversion", "libibverbs"]))?;
        ensure!(version.contains(".44."), "suite 44 is Debian 12's; here is libibverbs {}", version.trim());
        let folder = suites::python_tests("bookworm")?;
        Ok(Suite { folder, words: Vec::new(), plugin: simulator.plugin().library.clone() })
    }

    fn newest() -> Result<Suite> {
        let newest = Newest::build()?;
        let folder = suites::python_tests("forky")?;
        Ok(Suite { folder, words: newest.words(), plugin: newest.plugin })
    }

    /// Runs the tests whose names contain `word`. Their output goes to `logs`.
    pub fn run(
        &self,
        simulator: &Simulator,
        run: &Run,
        word: &str,
        logs: &Path,
    ) -> Result<BTreeMap<String, Outcome>> {
        let results = logs.join("results");
        fs::create_dir_all(logs)?;
        fs::write(&results, "")?;
        let mut notes = Notes::default();
        // A test that ends the interpreter must not hide those behind it.
        for attempt in 1.. {
            let mut command = self.command(simulator, run);
            command.arg(&self.folder).arg(&results);
            command.args(["--containing", word]);
            command.args(notes.last.iter().flat_map(|test| ["--after", test]));
            let finished = process::run(&mut command, &logs.join(format!("output-{attempt}")), LIMIT)?;
            let before = notes.last.take();
            notes = Notes::read(&results)?;
            if notes.has_ended {
                break;
            }
            if notes.last == before || notes.last.is_none() {
                bail!("the tests do not start: {}", finished.explain());
            }
            notes.end_abruptly(&finished);
        }
        Ok(notes.outcomes)
    }

    /// The interpreter with the runner, up to the runner's arguments.
    fn command(&self, simulator: &Simulator, run: &Run) -> Command {
        let mut command = simulator.run_with(run.provider, &self.plugin);
        command.args(["--gen", &run.generation.to_string()]);
        command.args(run.kernel.iter().flat_map(|kernel| ["--kernel", kernel])).arg("--");
        command.args(&self.words);
        let programs = root().join("tests/programs");
        let mut path = programs.join("tools").into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        command.env("PATH", path).args(["/usr/bin/python3", "-B"]).arg(programs.join("suite.py"));
        command
    }
}

/// What the runner has noted.
#[derive(Default)]
struct Notes {
    outcomes: BTreeMap<String, Outcome>,
    /// The test that was begun last.
    last: Option<String>,
    /// Whether all tests were run.
    has_ended: bool,
}

/// What came of each test, of what the runner has noted of a whole suite.
pub fn outcomes(text: &str) -> Result<BTreeMap<String, Outcome>> {
    let notes = Notes::parse(text)?;
    ensure!(notes.has_ended, "the tests did not come to their end");
    Ok(notes.outcomes)
}

impl Notes {
    fn read(results: &Path) -> Result<Notes> {
        let text = fs::read_to_string(results)?;
        Notes::parse(&text).with_context(|| format!("{} is not what the runner writes", results.display()))
    }

    fn parse(text: &str) -> Result<Notes> {
        let mut notes = Notes::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split('\t').collect();
            let (test, outcome) = match words[..] {
                ["end"] => {
                    notes.has_ended = true;
                    continue;
                }
                ["run", test] => {
                    notes.last = Some(test.to_owned());
                    continue;
                }
                ["pass", test] => (test, Outcome::Passed),
                ["skip", test, reason] => (test, Outcome::Skipped(reason.to_owned())),
                ["fail", test, reason] => (test, Outcome::Failed(reason.to_owned())),
                _ => bail!("{line}"),
            };
            // Of several failures, the first counts.
            let known = notes.outcomes.entry(test.to_owned()).or_insert_with(|| outcome.clone());
            if !matches!(known, Outcome::Failed(_)) {
                *known = outcome;
            }
        }
        Ok(notes)
    }

    /// The interpreter has ended in or right behind the test that was begun last.
    fn end_abruptly(&mut self, finished: &Finished) {
        let end = match finished.status {
            Some(status) => format!("the interpreter ended: {status}"),
            None => "the interpreter did not end".to_owned(),
        };
        if let Some(test) = &self.last {
            self.outcomes.insert(test.clone(), Outcome::Failed(end));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_read_from_the_runners_lines() {
        let text = "run\ta\npass\ta\nrun\tb\nskip\tb\tnot here\nrun\tc\nfail\tc\tfirst\nfail\tc\tsecond\n\
                    run\td\npass\td\n";
        let notes = Notes::parse(text).unwrap();
        let expected = [
            ("a", Outcome::Passed),
            ("b", Outcome::Skipped("not here".to_owned())),
            ("c", Outcome::Failed("first".to_owned())),
            ("d", Outcome::Passed),
        ];
        assert!(notes.outcomes.into_iter().eq(expected.map(|(test, outcome)| (test.to_owned(), outcome))));
        assert_eq!((notes.last.as_deref(), notes.has_ended), (Some("d"), false));
        assert!(Notes::parse("end\n").unwrap().has_ended);
        assert!(Notes::parse("passed\tx\n").is_err());
    }
}
