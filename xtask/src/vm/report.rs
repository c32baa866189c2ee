//! What came of the tests, as a table.

use std::collections::BTreeMap;

use super::list::Outcome;
use super::python;
use crate::sim::Provider;

/// Where tests ran: a generation of the device, and a provider.
pub type Column = (u32, Provider);

/// Outcomes by group and name, for each column.
#[derive(Default)]
pub struct Report {
    groups: Vec<String>,
    outcomes: BTreeMap<(String, String), Vec<(Column, Outcome)>>,
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
    pub fn note(&mut self, group: &str, name: &str, column: Column, outcome: Outcome) {
        if !self.groups.iter().any(|known| known == group) {
            self.groups.push(group.to_owned());
        }
        self.outcomes.entry((group.to_owned(), name.to_owned())).or_default().push((column, outcome));
    }

    /// Whether it was noted what came of that test.
    pub fn knows(&self, group: &str, name: &str, column: Column) -> bool {
        let outcomes = self.outcomes.get(&(group.to_owned(), name.to_owned()));
        outcomes.is_some_and(|outcomes| outcomes.iter().any(|(one, _)| *one == column))
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
            for (column, outcome) in outcomes {
                let test = format!("{}/{group}/{name}", heading(*column));
                match outcome {
                    Outcome::Passed => passed += 1,
                    Outcome::Failed(reason) => failed.push(format!("{test}: {reason}")),
                    Outcome::Skipped(reason) => skipped.push(format!("{test}: {reason}")),
                }
            }
        }
        (passed, failed, skipped)
    }

    fn counts(&self, group: &str, column: Column) -> Counts {
        let mut counts = Counts::default();
        let of_group = self.outcomes.iter().filter(|((name, _), _)| name == group);
        let outcomes = of_group.flat_map(|(_, outcomes)| outcomes);
        outcomes.filter(|(one, _)| *one == column).for_each(|(_, outcome)| counts.add(outcome));
        counts
    }

    /// Prints the table and what failed or was skipped; says whether nothing failed.
    pub fn print(&self, columns: &[Column]) -> bool {
        print!("\n{:<14}", "");
        columns.iter().for_each(|column| print!(" | {:>28}", heading(*column)));
        print!("\n{:<14}", "");
        columns.iter().for_each(|_| print!(" | {:>8} {:>9} {:>9}", "passed", "failed", "skipped"));
        println!();
        for group in &self.groups {
            print!("{group:<14}");
            for column in columns {
                let [passed, failed, skipped] = self.counts(group, *column).0;
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

    /// What came of the tests in one column, one a line, for [`Report::recall`].
    pub fn record(&self, column: Column) -> String {
        let mut text = String::new();
        for group in &self.groups {
            for ((_, name), outcomes) in self.outcomes.iter().filter(|((of, _), _)| of == group) {
                for (_, outcome) in outcomes.iter().filter(|(one, _)| *one == column) {
                    let (word, reason) = match outcome {
                        Outcome::Passed => ("passed", ""),
                        Outcome::Failed(reason) => ("failed", reason.as_str()),
                        Outcome::Skipped(reason) => ("skipped", reason.as_str()),
                    };
                    let reason = reason.lines().next().unwrap_or_default().replace('\t', " ");
                    text += &format!("{group}\t{name}\t{word}\t{reason}\n");
                }
            }
        }
        text
    }

    /// Notes what was recorded.
    pub fn recall(&mut self, column: Column, record: &str) {
        for line in record.lines() {
            let [group, name, word, reason] = line.split('\t').collect::<Vec<_>>()[..] else { continue };
            let outcome = match word {
                "passed" => Outcome::Passed,
                "failed" => Outcome::Failed(reason.to_owned()),
                _ => Outcome::Skipped(reason.to_owned()),
            };
            self.note(group, name, column, outcome);
        }
    }

    /// The table in Markdown, and below it what failed or was skipped, by reason.
    pub fn markdown(&self, columns: &[Column]) -> String {
        let mut text = String::from("| tests |");
        columns.iter().for_each(|column| text += &format!(" {} |", heading(*column)));
        text += &format!("\n|---|{}\n", "---|".repeat(columns.len()));
        for group in &self.groups {
            text += &format!("| {group} |");
            for column in columns {
                let [passed, failed, skipped] = self.counts(group, *column).0;
                text += &format!(" {passed} / {failed} / {skipped} |");
            }
            text += "\n";
        }
        let mut reasons: BTreeMap<(&str, &str, &str), BTreeMap<Column, Vec<&str>>> = BTreeMap::new();
        for ((group, name), outcomes) in &self.outcomes {
            for (column, outcome) in outcomes {
                let (word, reason) = match outcome {
                    Outcome::Passed => continue,
                    Outcome::Failed(reason) => ("failed", reason),
                    Outcome::Skipped(reason) => ("skipped", reason),
                };
                let of_reason = reasons.entry((word, group, reason)).or_default();
                of_reason.entry(*column).or_default().push(name);
            }
        }
        for ((word, group, reason), of_columns) in reasons {
            let names: std::collections::BTreeSet<&str> = of_columns.values().flatten().copied().collect();
            let what = match names.len() {
                1 => names.into_iter().collect(),
                count => format!("{count} tests"),
            };
            let places: Vec<String> = of_columns.keys().map(|column| heading(*column)).collect();
            text += &format!("\n- {word}, {group}, {what} ({}): {reason}", places.join(", "));
        }
        text + "\n"
    }
}

fn heading((generation, provider): Column) -> String {
    format!("GEN{generation} {provider}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_recorded_makes_the_same_table() {
        let column = (3, Provider::Ours);
        let mut report = Report::default();
        report.note("tools", "one", column, Outcome::Passed);
        report.note("tools", "two", column, Outcome::Skipped("no\tsuch thing\nat all".to_owned()));
        report.note("tools", "three", column, Outcome::Failed("exit code 1: ".to_owned()));
        let mut again = Report::default();
        again.recall(column, &report.record(column));
        let table = again.markdown(&[column]);
        assert!(table.contains("| tools | 1 / 1 / 1 |"), "{table}");
        assert!(table.contains("- skipped, tools, two (GEN3 ours): no such thing\n"), "{table}");
        assert_eq!(again.record(column), report.record(column));
    }
}
