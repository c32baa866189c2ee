//! What came of the tests, as a table.

use std::collections::BTreeMap;

use super::list::Outcome;
use super::python;
use crate::sim::Provider;

/// Outcomes by group and name, for each provider.
#[derive(Default)]
pub struct Report {
    groups: Vec<&'static str>,
    outcomes: BTreeMap<(&'static str, String), Vec<(Provider, Outcome)>>,
    /// What went wrong beside the tests.
    troubles: Vec<String>,
}

/// Passed, failed and skipped tests.
#[derive(Clone, Copy, Default)]
struct Counts([usize; 3]);

impl Counts {
    fn add(&mut self, outcome: &Outcome) {
        let column = match outcome {
            Outcome::Passed => 0,
            Outcome::Failed(_) => 1,
            Outcome::Skipped(_) => 2,
        };
        self.0[column] += 1;
    }
}

impl Report {
    /// Notes what came of a test.
    pub fn note(&mut self, group: &'static str, name: &str, provider: Provider, outcome: Outcome) {
        if !self.groups.contains(&group) {
            self.groups.push(group);
        }
        self.outcomes.entry((group, name.to_owned())).or_default().push((provider, outcome));
    }

    /// Whether it was noted what came of that test.
    pub fn knows(&self, group: &'static str, name: &str, provider: Provider) -> bool {
        let outcomes = self.outcomes.get(&(group, name.to_owned()));
        outcomes.is_some_and(|outcomes| outcomes.iter().any(|(one, _)| *one == provider))
    }

    /// Notes what went wrong beside the tests.
    pub fn trouble(&mut self, what: String) {
        println!("FAILED  {what}");
        self.troubles.push(what);
    }

    /// Passed tests, and what failed and was skipped with the reasons.
    pub fn counted(&self) -> (usize, Vec<String>, Vec<String>) {
        let (mut passed, mut failed, mut skipped) = (0, self.troubles.clone(), Vec::new());
        for ((group, name), outcomes) in &self.outcomes {
            for (provider, outcome) in outcomes {
                match outcome {
                    Outcome::Passed => passed += 1,
                    Outcome::Failed(reason) => failed.push(format!("{provider}/{group}/{name}: {reason}")),
                    Outcome::Skipped(reason) => skipped.push(format!("{provider}/{group}/{name}: {reason}")),
                }
            }
        }
        (passed, failed, skipped)
    }

    /// Prints the table and what failed or was skipped; says whether nothing failed.
    pub fn print(&self, providers: &[Provider]) -> bool {
        print!("\n{:<14}", "");
        providers.iter().for_each(|provider| print!(" | {:>28}", provider.to_string()));
        print!("\n{:<14}", "");
        providers.iter().for_each(|_| print!(" | {:>8} {:>9} {:>9}", "passed", "failed", "skipped"));
        println!();
        for group in &self.groups {
            print!("{group:<14}");
            for provider in providers {
                let mut counts = Counts::default();
                let of_group = self.outcomes.iter().filter(|((name, _), _)| name == group);
                let outcomes = of_group.flat_map(|(_, outcomes)| outcomes);
                outcomes.filter(|(one, _)| one == provider).for_each(|(_, outcome)| counts.add(outcome));
                let [passed, failed, skipped] = counts.0;
                print!(" | {passed:>8} {failed:>9} {skipped:>9}");
            }
            println!();
        }
        let (passed, failed, skipped) = self.counted();
        let is_of_python = |line: &&String| line.contains(&format!("/{}/", python::GROUP));
        // Of those there are many; their causes were printed by number.
        skipped.iter().filter(|line| !is_of_python(line)).for_each(|line| println!("skipped: {line}"));
        failed.iter().for_each(|line| println!("failed: {}", line.lines().next().unwrap_or_default()));
        println!("{passed} passed, {} failed, {} skipped", failed.len(), skipped.len());
        failed.is_empty() && passed > 0
    }
}
