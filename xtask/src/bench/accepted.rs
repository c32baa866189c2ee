//! The instruction counts that this provider is held to: `benches/instructions.txt`.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::measure::Figures;
use crate::workspace::root;

/// How much more than accepted is let pass: compilers differ a little.
const MARGIN: f64 = 1.03;

const HEADING: &str = "\
# Instructions per operation of this provider, on a device of the second generation.
# `cargo xtask test instructions` fails on a row that takes more than 3 % above its figure.
# `cargo xtask bench --instructions --accept` writes this file.
";

/// Accepted figures, in the order of the table.
pub struct Accepted(Vec<(String, f64)>);

impl Accepted {
    /// The generation that the figures are of.
    pub const GENERATION: u8 = 2;

    fn path() -> PathBuf {
        root().join("benches/instructions.txt")
    }

    /// As committed.
    pub fn load() -> Result<Accepted> {
        let path = Accepted::path();
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Accepted::parse(&text)
    }

    /// Lines of a figure and a name.
    fn parse(text: &str) -> Result<Accepted> {
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
        lines
            .map(|line| {
                let (figure, name) = line.trim().split_once(' ').context("a line without a name")?;
                let figure = figure.parse().with_context(|| format!("no number: {line}"))?;
                Ok((name.trim().to_owned(), figure))
            })
            .collect::<Result<_>>()
            .map(Accepted)
    }

    /// With the figures of what was measured; what was not stays.
    pub fn replace(self, measured: &Figures) -> Accepted {
        let mut rows: Vec<_> = measured.iter().map(|(name, figure)| (name.to_owned(), figure)).collect();
        if self.0.iter().any(|(name, _)| measured.of(name).is_none()) {
            // A part was measured: the order is that of the file.
            let mut all = self.0;
            all.iter_mut().for_each(|(name, figure)| *figure = measured.of(name).unwrap_or(*figure));
            rows.retain(|(name, _)| all.iter().all(|(own, _)| own != name));
            all.append(&mut rows);
            return Accepted(all);
        }
        Accepted(rows)
    }

    fn text(&self) -> String {
        let mut text = HEADING.to_owned();
        for (name, figure) in &self.0 {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{figure:>8.1}  {name}");
        }
        text
    }

    /// Writes the file.
    pub fn save(&self) -> Result<()> {
        let path = Accepted::path();
        fs::write(&path, self.text()).with_context(|| format!("cannot write {}", path.display()))
    }

    /// What is worse than accepted or has no figure, and what is better by as much.
    pub fn compare(&self, measured: &Figures) -> Comparison {
        let mut comparison = Comparison::default();
        for (name, accepted) in &self.0 {
            match measured.of(name) {
                None => comparison.worse.push(format!("{name}: not measured any more, {accepted:.1} before")),
                Some(now) if now > accepted * MARGIN => {
                    comparison.worse.push(format!("{name}: {now:.1}, accepted {accepted:.1}"));
                }
                Some(now) if now * MARGIN < *accepted => {
                    comparison.better.push(format!("{name}: {now:.1}, accepted {accepted:.1}"));
                }
                Some(_) => {}
            }
        }
        for (name, now) in measured.iter() {
            if self.0.iter().all(|(own, _)| own != name) {
                comparison.better.push(format!("{name}: {now:.1}, new"));
            }
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

    fn figures(rows: &[(&str, f64)]) -> Figures {
        rows.iter().map(|(name, figure)| ((*name).to_owned(), *figure)).collect()
    }

    fn accepted() -> Accepted {
        Accepted::parse("# comment\n   100.0  post_send: send\n    50.0  poll\n").unwrap()
    }

    #[test]
    fn three_percent_are_let_pass_and_no_more() {
        let comparison = accepted().compare(&figures(&[("post_send: send", 103.0), ("poll", 48.6)]));
        assert!(comparison.worse.is_empty() && comparison.better.is_empty());
        let comparison = accepted().compare(&figures(&[("post_send: send", 103.1), ("poll", 40.0)]));
        assert_eq!(comparison.worse, ["post_send: send: 103.1, accepted 100.0"]);
        assert_eq!(comparison.better, ["poll: 40.0, accepted 50.0"]);
    }

    #[test]
    fn a_row_that_is_gone_is_worse_and_a_new_one_is_mentioned() {
        let comparison = accepted().compare(&figures(&[("post_send: send", 100.0), ("arm", 9.0)]));
        assert_eq!(comparison.worse, ["poll: not measured any more, 50.0 before"]);
        assert_eq!(comparison.better, ["arm: 9.0, new"]);
    }

    #[test]
    fn a_part_that_was_measured_replaces_that_part() {
        let replaced = accepted().replace(&figures(&[("poll", 40.0), ("arm", 9.0)]));
        let again = Accepted::parse(&replaced.text()).unwrap();
        let expected = [("post_send: send", 100.0), ("poll", 40.0), ("arm", 9.0)]
            .map(|(name, figure)| (name.to_owned(), figure));
        assert_eq!(again.0, expected);
    }

    #[test]
    fn a_line_that_is_none_is_an_error() {
        assert!(Accepted::parse("1.0").is_err());
        assert!(Accepted::parse("x  poll").is_err());
    }
}
