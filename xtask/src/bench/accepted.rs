//! The instruction counts that this provider is held to: `benches/instructions.txt`.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::measure::{Program, Set};
use crate::sim::Provider;
use crate::workspace::root;

/// How much more than accepted is let pass: compilers differ a little.
const MARGIN: f64 = 1.03;

const HEADING: &str = "\
# Instructions per operation of this provider, generation of the device, row.
# `cargo xtask test instructions` fails on a row that takes more than 3 % above its figure.
# `cargo xtask bench --accept` writes this file.
";

/// A row on a generation.
type Key = (u8, String);

/// Figures of rows, in the order of the table.
pub struct Accepted(Vec<(Key, f64)>);

/// What is held: the rows about push pages cost the same on both generations that have them, and those of the
/// sets that are left out take long.
const HELD: [(u8, Set); 4] = [(1, Set::Usual), (2, Set::Usual), (2, Set::Pushing), (3, Set::Usual)];

impl Accepted {
    fn path() -> PathBuf {
        root().join("benches/instructions.txt")
    }

    /// As committed.
    pub fn load() -> Result<Accepted> {
        let path = Accepted::path();
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Accepted::parse(&text)
    }

    /// As they are now, of the rows whose names contain `filter`.
    pub fn measure(program: &Program, filter: &str) -> Result<Accepted> {
        let mut rows = Vec::new();
        for (generation, set) in HELD {
            let figures = program.instructions(Provider::Ours, generation, set, filter)?;
            rows.extend(figures.iter().map(|(name, figure)| ((generation, name.to_owned()), figure)));
        }
        Ok(Accepted(rows))
    }

    /// Lines of a figure, a generation and a name.
    fn parse(text: &str) -> Result<Accepted> {
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
        lines
            .map(|line| {
                let (figure, row) = line.trim().split_once(' ').context("a line with a figure alone")?;
                let (generation, name) = row.trim().split_once(' ').context("a line without a name")?;
                let figure = figure.parse().with_context(|| format!("no number: {line}"))?;
                let generation = generation.parse().with_context(|| format!("no generation: {line}"))?;
                Ok(((generation, name.trim().to_owned()), figure))
            })
            .collect::<Result<_>>()
            .map(Accepted)
    }

    fn of(&self, key: &Key) -> Option<f64> {
        self.0.iter().find(|(own, _)| own == key).map(|(_, figure)| *figure)
    }

    /// With the figures of what was measured; what was not stays.
    pub fn replace(self, measured: Accepted) -> Accepted {
        if self.0.iter().all(|(key, _)| measured.of(key).is_some()) {
            return measured;
        }
        // A part was measured: the order is that of the file.
        let mut all = self;
        all.0.iter_mut().for_each(|(key, figure)| *figure = measured.of(key).unwrap_or(*figure));
        let new: Vec<_> = measured.0.into_iter().filter(|(key, _)| all.of(key).is_none()).collect();
        all.0.extend(new);
        all
    }

    fn text(&self) -> String {
        let mut text = HEADING.to_owned();
        for ((generation, name), figure) in &self.0 {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{figure:>8.1}  {generation}  {name}");
        }
        text
    }

    /// Writes the file.
    pub fn save(&self) -> Result<()> {
        let path = Accepted::path();
        fs::write(&path, self.text()).with_context(|| format!("cannot write {}", path.display()))
    }

    /// What is worse than accepted or has no figure, and what is better by as much.
    pub fn compare(&self, measured: &Accepted) -> Comparison {
        let mut comparison = Comparison::default();
        for (key, accepted) in &self.0 {
            let (generation, name) = key;
            let row = format!("GEN{generation}, {name}");
            match measured.of(key) {
                None => comparison.worse.push(format!("{row}: not measured any more, {accepted:.1} before")),
                Some(now) if now > accepted * MARGIN => {
                    comparison.worse.push(format!("{row}: {now:.1}, accepted {accepted:.1}"));
                }
                Some(now) if now * MARGIN < *accepted => {
                    comparison.better.push(format!("{row}: {now:.1}, accepted {accepted:.1}"));
                }
                Some(_) => {}
            }
        }
        for (key, now) in measured.0.iter().filter(|(key, _)| self.of(key).is_none()) {
            let (generation, name) = key;
            comparison.better.push(format!("GEN{generation}, {name}: {now:.1}, new"));
        }
        comparison
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// Measured figures against accepted ones, a line each.
#[derive(Default)]
pub struct Comparison {
    /// Failures.
    pub worse: Vec<String>,
    /// Worth to be accepted.
    pub better: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(rows: &[(u8, &str, f64)]) -> Accepted {
        let rows = rows.iter().map(|&(generation, name, figure)| ((generation, name.to_owned()), figure));
        Accepted(rows.collect())
    }

    fn accepted() -> Accepted {
        Accepted::parse("# comment\n   100.0  2  post_send: send\n    50.0  3  poll\n").unwrap()
    }

    #[test]
    fn three_percent_are_let_pass_and_no_more() {
        let comparison = accepted().compare(&figures(&[(2, "post_send: send", 103.0), (3, "poll", 48.6)]));
        assert!(comparison.worse.is_empty() && comparison.better.is_empty());
        let comparison = accepted().compare(&figures(&[(2, "post_send: send", 103.1), (3, "poll", 40.0)]));
        assert_eq!(comparison.worse, ["GEN2, post_send: send: 103.1, accepted 100.0"]);
        assert_eq!(comparison.better, ["GEN3, poll: 40.0, accepted 50.0"]);
    }

    #[test]
    fn a_row_that_is_gone_is_worse_and_a_new_one_is_mentioned() {
        // The same name on another generation is another row.
        let comparison = accepted().compare(&figures(&[(2, "post_send: send", 100.0), (2, "poll", 9.0)]));
        assert_eq!(comparison.worse, ["GEN3, poll: not measured any more, 50.0 before"]);
        assert_eq!(comparison.better, ["GEN2, poll: 9.0, new"]);
    }

    #[test]
    fn what_was_not_measured_stays() {
        let replaced = accepted().replace(figures(&[(3, "poll", 40.0), (3, "arm", 9.0)]));
        let again = Accepted::parse(&replaced.text()).unwrap();
        let expected = figures(&[(2, "post_send: send", 100.0), (3, "poll", 40.0), (3, "arm", 9.0)]);
        assert_eq!(again.0, expected.0);
    }

    #[test]
    fn a_line_that_is_none_is_an_error() {
        assert!(Accepted::parse("1.0").is_err());
        assert!(Accepted::parse("1.0  2").is_err());
        assert!(Accepted::parse("x  2  poll").is_err());
        assert!(Accepted::parse("1.0  x  poll").is_err());
    }
}
