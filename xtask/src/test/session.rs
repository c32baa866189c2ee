//! The course of a test run: checks, their outcomes, the summary.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::lanes::Share;
use crate::process::kill_left_over;
use crate::sim::Simulator;
use crate::workspace::target;

/// How long a check's programs may take to go away after it.
const GRACE: Duration = Duration::from_secs(10);

/// How a check that could be carried out ended.
pub enum Verdict {
    /// As it should.
    Passed,
    /// As it should, with this figure.
    Measured(f64),
    /// It could not be carried out here, for this reason.
    Skipped(String),
    /// Many checks in one, run by another runner.
    Counted(Counts),
}

/// What became of a group's checks.
#[derive(Default)]
pub struct Group {
    /// Their outcomes.
    pub counts: Counts,
    /// The time they took, one by one.
    pub time: Duration,
}

impl Group {
    /// Adds what became of others.
    pub fn add(&mut self, other: Group) {
        self.counts.passed += other.counts.passed;
        self.counts.failed.extend(other.counts.failed);
        self.counts.skipped.extend(other.counts.skipped);
        self.time += other.time;
    }
}

/// Outcomes of another runner's tests.
#[derive(Default)]
pub struct Counts {
    /// How many passed.
    pub passed: usize,
    /// What each failed one was.
    pub failed: Vec<String>,
    /// Why each skipped one was.
    pub skipped: Vec<String>,
}

/// A test run.
pub struct Session {
    /// The whole matrix, with more iterations.
    pub full: bool,
    filter: Option<String>,
    logs: PathBuf,
    groups: BTreeMap<String, Group>,
    simulator: Option<Result<Simulator, String>>,
    /// With the other lanes, if this is one.
    share: Option<Share>,
    /// How many checks there are, while they are counted instead of carried out.
    counted: Option<usize>,
}

impl Session {
    /// A run of the checks whose name contains `filter`.
    pub fn new(full: bool, filter: Option<String>) -> Result<Session> {
        let logs = target().join("test-logs");
        Ok(Session {
            full,
            filter,
            logs,
            groups: BTreeMap::new(),
            simulator: None,
            share: None,
            counted: None,
        })
    }

    /// That part of a run which falls to a lane.
    pub fn lane(full: bool, filter: Option<String>, share: Share) -> Result<Session> {
        Ok(Session { share: Some(share), ..Session::new(full, filter)? })
    }

    /// Whether the filter lets a check run.
    pub fn wants(&self, group: &str, name: &str) -> bool {
        self.filter.as_ref().is_none_or(|filter| format!("{group}/{name}").contains(filter.as_str()))
    }

    /// Whether a group is to run that takes too long for every run: it is named, or all are.
    pub fn is_asked_for(&self, group: &str) -> bool {
        self.full || self.filter.as_ref().is_some_and(|filter| filter.starts_with(group))
    }

    /// The software device, built when first asked for.
    pub fn simulator(&mut self) -> Result<&Simulator, String> {
        let built =
            self.simulator.get_or_insert_with(|| Simulator::build().map_err(|error| format!("{error:#}")));
        built.as_ref().map_err(|reason| format!("the software device could not be built: {reason}"))
    }

    /// Carries out one check unless the filter leaves it out. `check` gets a folder for its files.
    pub fn check(&mut self, group: &str, name: &str, check: impl FnOnce(&Path) -> Result<Verdict>) {
        if !self.wants(group, name) || !self.is_due(group, name) {
            return;
        }
        self.carry_out(group, name, check);
    }

    /// How many checks the filter leaves of those that `checks` would carry out.
    pub fn count(&mut self, checks: impl FnOnce(&mut Session)) -> usize {
        self.counted = Some(0);
        checks(self);
        self.counted.take().unwrap_or_default()
    }

    /// Whether no other lane has the check. One that cannot tell fails it.
    fn is_due(&mut self, group: &str, name: &str) -> bool {
        if let Some(count) = &mut self.counted {
            *count += 1;
            return false;
        }
        match self.share.as_mut().map_or(Ok(true), Share::claim) {
            Ok(is_ours) => is_ours,
            Err(error) => {
                self.note(group, name, Err(error), Duration::ZERO);
                false
            }
        }
    }

    fn carry_out(&mut self, group: &str, name: &str, check: impl FnOnce(&Path) -> Result<Verdict>) {
        let folder = self.logs.join(group).join(name.replace(|letter: char| !letter.is_alphanumeric(), "_"));
        let started = Instant::now();
        let _ = fs::remove_dir_all(&folder);
        let mut result = fs::create_dir_all(&folder).map_err(Into::into).and_then(|()| check(&folder));
        let left = kill_left_over(GRACE);
        if !left.is_empty() && result.is_ok() {
            result = Err(anyhow::anyhow!("left processes behind: {}", left.join(", ")));
        }
        self.note(group, name, result, started.elapsed());
    }

    /// As [`Session::check`], for what runs on the software device.
    pub fn check_on_device(
        &mut self,
        group: &str,
        name: &str,
        check: impl FnOnce(&Simulator, &Path) -> Result<Verdict>,
    ) {
        if !self.wants(group, name) || !self.is_due(group, name) {
            return;
        }
        // Out of the session for the time of the check, which has the session for itself.
        if let Err(reason) = self.simulator() {
            self.note(group, name, Err(anyhow::anyhow!(reason)), Duration::ZERO);
            return;
        }
        let Some(Ok(simulator)) = self.simulator.take() else { return };
        self.carry_out(group, name, |folder| check(&simulator, folder));
        self.simulator = Some(Ok(simulator));
    }

    fn note(&mut self, group: &str, name: &str, result: Result<Verdict>, elapsed: Duration) {
        let seconds = elapsed.as_secs_f64();
        let Group { counts, time } = self.groups.entry(group.to_owned()).or_default();
        *time += elapsed;
        match result {
            Ok(Verdict::Passed) => {
                counts.passed += 1;
                println!("ok      {group}/{name}  {seconds:.1} s");
            }
            Ok(Verdict::Measured(figure)) => {
                counts.passed += 1;
                println!("ok      {group}/{name}: {figure:.3}  {seconds:.1} s");
            }
            Ok(Verdict::Skipped(reason)) => {
                println!("skipped {group}/{name}: {reason}");
                counts.skipped.push(format!("{name}: {reason}"));
            }
            Ok(Verdict::Counted(inner)) => {
                let word = if inner.failed.is_empty() { "ok     " } else { "FAILED " };
                let (passed, failed, skipped) = (inner.passed, inner.failed.len(), inner.skipped.len());
                println!(
                    "{word} {group}/{name}  {passed} passed, {failed} failed, {skipped} skipped  {seconds:.1} s"
                );
                for failure in &inner.failed {
                    println!("    {failure}");
                }
                counts.passed += inner.passed;
                counts.failed.extend(inner.failed.into_iter().map(|failure| format!("{name}: {failure}")));
                counts.skipped.extend(inner.skipped.into_iter().map(|reason| format!("{name}: {reason}")));
            }
            Err(error) => {
                println!("FAILED  {group}/{name}  {seconds:.1} s\n    {error:#}");
                counts.failed.push(format!("{name}: {error:#}"));
            }
        }
    }

    /// Takes over what became of checks elsewhere.
    pub fn add(&mut self, name: &str, group: Group) {
        self.groups.entry(name.to_owned()).or_default().add(group);
    }

    /// The end of a lane: leaves what it has found to the run that started it.
    pub fn hand_over(self) -> Result<()> {
        let groups: Vec<_> = self.groups.iter().map(|(name, group)| (name.as_str(), group)).collect();
        self.share.as_ref().context("not a lane")?.leave(&groups)
    }

    /// Prints the summary; says whether nothing failed.
    pub fn conclude(self) -> bool {
        let first_line = |text: &String| text.lines().next().unwrap_or_default().to_owned();
        println!("\n{:<20} {:>7} {:>7} {:>8} {:>9}", "", "passed", "failed", "skipped", "time");
        let (mut passed, mut failed, mut skipped) = (0, 0, 0);
        for (group, Group { counts, time }) in &self.groups {
            let time = time.as_secs_f64();
            println!(
                "{group:<20} {:>7} {:>7} {:>8} {time:>7.1} s",
                counts.passed,
                counts.failed.len(),
                counts.skipped.len()
            );
            passed += counts.passed;
            failed += counts.failed.len();
            skipped += counts.skipped.len();
        }
        for (group, Group { counts, .. }) in &self.groups {
            for reason in &counts.skipped {
                println!("skipped: {group}/{}", first_line(reason));
            }
        }
        for (group, Group { counts, .. }) in &self.groups {
            for failure in &counts.failed {
                println!("failed: {group}/{}", first_line(failure));
            }
        }
        if failed > 0 {
            println!("The output of every program is under {}.", self.logs.display());
        }
        if passed + failed + skipped == 0 {
            println!("No check has such a name.");
        }
        println!("{passed} passed, {failed} failed, {skipped} skipped");
        failed == 0 && passed > 0
    }
}
