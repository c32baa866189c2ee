//! The table of what came of the whole lists, in the documentation.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::LOGS;
use super::report::{Column, Report};
use crate::sim::Provider;
use crate::workspace::{root, target};

/// What stands before and behind the table.
const BEGIN: &str = "<!-- Written by `cargo xtask vm --table`. -->\n";
const END: &str = "<!-- End of what it writes. -->";

/// Every column.
const COLUMNS: &[Column] = &[(3, Provider::Ours), (3, Provider::C), (2, Provider::Ours), (2, Provider::C)];

/// Where the logs of a run are.
pub fn logs((generation, provider): Column) -> PathBuf {
    target().join(LOGS).join(format!("gen{generation}-{provider}"))
}

fn record(column: Column) -> PathBuf {
    logs(column).join("outcomes")
}

/// Keeps what came of the whole list, or of some tests of it that were run again.
pub fn keep(column: Column, report: &Report, is_whole: bool) -> Result<()> {
    let (file, new) = (record(column), report.record(column));
    let text = match fs::read_to_string(&file) {
        Ok(old) if !is_whole => merged(&old, &new),
        _ if is_whole => new,
        _ => return Ok(()),
    };
    Ok(fs::write(file, text)?)
}

/// The lines of `old`, those of the tests that `new` has too replaced, and what else `new` has.
fn merged(old: &str, new: &str) -> String {
    let test = |line: &str| line.split('\t').take(2).map(str::to_owned).collect::<Vec<_>>();
    let mut again: BTreeMap<_, _> = new.lines().map(|line| (test(line), line)).collect();
    let mut text = String::new();
    for line in old.lines() {
        text += again.remove(&test(line)).unwrap_or(line);
        text += "\n";
    }
    again.into_values().for_each(|line| text += &format!("{line}\n"));
    text
}

/// Puts the table of the lists that were kept into the documentation.
pub fn write() -> Result<()> {
    let mut report = Report::default();
    let mut columns = Vec::new();
    for &column in COLUMNS {
        match fs::read_to_string(record(column)) {
            Ok(text) => {
                report.recall(column, &text);
                columns.push(column);
            }
            Err(_) => println!("{} is not there: the whole list has not been run", record(column).display()),
        }
    }
    let page = root().join("docs/compatibility.md");
    let text = fs::read_to_string(&page)?;
    let (before, rest) =
        text.split_once(BEGIN).context("docs/compatibility.md has no place for the table")?;
    let (_, after) = rest.split_once(END).context("docs/compatibility.md has no end of the table")?;
    Ok(fs::write(page, format!("{before}{BEGIN}\n{}\n{END}{after}", report.markdown(&columns)))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_were_run_again_replace_what_came_of_them_before() {
        let old = "a\t1\tfailed\tx\na\t2\tpassed\t\n";
        let new = "a\t1\tpassed\t\nb\t1\tpassed\t\n";
        assert_eq!(merged(old, new), "a\t1\tpassed\t\na\t2\tpassed\t\nb\t1\tpassed\t\n");
    }
}
