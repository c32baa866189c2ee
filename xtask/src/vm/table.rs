//! The table of what came of the whole lists, in the documentation.

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

/// Keeps what came of a whole list.
pub fn keep(column: Column, report: &Report) -> Result<()> {
    Ok(fs::write(record(column), report.record(column))?)
}

/// Puts the table of the lists that were kept into the documentation.
pub fn write() -> Result<()> {
    let mut report = Report::default();
    for &column in COLUMNS {
        let file = record(column);
        let text = fs::read_to_string(&file).with_context(|| {
            format!("{} is not there: the whole list has not been run for it", file.display())
        })?;
        report.recall(column, &text);
    }
    let page = root().join("docs/compatibility.md");
    let text = fs::read_to_string(&page)?;
    let (before, rest) =
        text.split_once(BEGIN).context("docs/compatibility.md has no place for the table")?;
    let (_, after) = rest.split_once(END).context("docs/compatibility.md has no end of the table")?;
    Ok(fs::write(page, format!("{before}{BEGIN}\n{}\n{END}{after}", report.markdown(COLUMNS)))?)
}
