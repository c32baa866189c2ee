//! The figures in docs/performance.md, from one run of everything, and in docs/tuning.md, which takes some of
//! them over.

use std::fs;

use anyhow::{Context, Result};

use super::recount::recounted;
use super::table::Table;
use crate::workspace::{read, root};
use std::process::Command;

/// What has them all.
const HAS_ALL: &str = "docs/performance.md";
/// What has figures of GEN2 in tables of its own.
pub const RETELLS: &str = "docs/tuning.md";

/// Around what is written.
const BEGIN: &str = "<!-- written by `cargo xtask bench --document` -->\n";
const END: &str = "<!-- end -->\n";

/// Puts the figures into the document: beside the C provider of this machine and beside that of rdma-core 65.
pub fn write(machine: &Table, newest: &Table) -> Result<()> {
    change(HAS_ALL, |text| {
        replaced(text, &figures(&machine_release()?, &load()?, machine, newest))
            .context("no place for the figures")
    })?;
    retell(machine)
}

/// The same for instructions alone.
pub fn recount(machine: &Table, newest: &Table) -> Result<()> {
    change(HAS_ALL, |text| recounted(&recounted(&recounted(text, 2, machine)?, 3, newest)?, 1, machine))?;
    retell(machine)
}

/// Changes a document.
fn change(path: &str, how: impl FnOnce(&str) -> Result<String>) -> Result<()> {
    let file = root().join(path);
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {path}"))?;
    fs::write(&file, how(&text).with_context(|| format!("in {path}"))?)
        .with_context(|| format!("cannot write {path}"))
}

/// Puts the figures of GEN2 where they are told a second time.
fn retell(machine: &Table) -> Result<()> {
    let figure = |name: &str| machine.rows.iter().find(|row| row.generation == 2 && row.name == name)?.ours;
    change(RETELLS, |text| retold(text, |name| figure(name).map(|figure| format!("{figure:.1}"))))
}

/// The document with the cells of its columns `instructions` as `figure` has them, by the first cell of their
/// rows.
pub fn retold(text: &str, figure: impl Fn(&str) -> Option<String>) -> Result<String> {
    let mut column = None;
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut cells: Vec<String> = line.split('|').map(|cell| cell.trim().to_owned()).collect();
        let is_row = line.starts_with('|');
        match column.filter(|_| is_row) {
            Some(column) if !line.starts_with("|--") => {
                let name = &cells[1];
                cells[column] = figure(name).with_context(|| format!("no figure for \"{name}\""))?;
                lines.push(cells.join(" | ").trim().to_owned());
            }
            _ => lines.push(line.to_owned()),
        }
        if !is_row {
            column = None;
        } else if column.is_none() {
            column = cells.iter().position(|cell| cell == "instructions");
        }
    }
    Ok(lines.join("\n") + "\n")
}

/// The day, and how busy the machine was, when the times were taken.
fn load() -> Result<String> {
    let averages = fs::read_to_string("/proc/loadavg")?;
    let average = averages.split(' ').nth(2).context("no average of a quarter of an hour")?;
    let processors = std::thread::available_parallelism()?;
    let date = read(Command::new("date").arg("+%F"))?;
    let date = date.trim();
    Ok(format!(
        "on {date}, on {processors} processors of average load {average}, of which about 1 is the measurement's own"
    ))
}

fn figures(release: &str, load: &str, machine: &Table, newest: &Table) -> String {
    format!(
        "Times were taken {load}.\n\n\
         ### GEN2, beside rdma-core {release}\n\n{}\n### GEN3, beside rdma-core 65\n\n{}\n\
         ### GEN1, beside rdma-core {release}\n\n{}\n\
         ### Memory, GEN2, beside rdma-core {release}\n\n{}\n### Memory, GEN3, beside rdma-core 65\n\n{}",
        machine.markdown(2),
        newest.markdown(3),
        machine.markdown(1),
        machine.memory_markdown(2),
        newest.memory_markdown(3),
    )
}

/// This machine's, such as 44.0.
fn machine_release() -> Result<String> {
    let version = read(Command::new("pkg-config").args(["--modversion", "libibverbs"]))?;
    // 1.14.44.0: the library's own version, then rdma-core's.
    let mut parts = version.trim().splitn(3, '.');
    parts.nth(2).map(str::to_owned).with_context(|| format!("libibverbs of an unknown version: {version}"))
}

/// The text with what is between both marks replaced.
fn replaced(text: &str, figures: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{figures}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_retold_where_a_table_asks_for_them() {
        let text = "# t\n\n| row | instructions | why |\n|---|--:|---|\n| a | 1.0 | so |\n\n| row | why |\n|--|--|\n| a | 1.0 |\n";
        let figure = |name: &str| (name == "a").then(|| "2.5".to_owned());
        assert_eq!(retold(text, figure).unwrap(), text.replace("| a | 1.0 | so", "| a | 2.5 | so"));
        assert!(retold(text, |_| None).is_err());
    }

    #[test]
    fn what_is_between_the_marks_is_replaced_and_nothing_else() {
        let text = format!("before\n{BEGIN}\nold\n\n{END}after\n");
        let again = replaced(&text, "new\n").unwrap();
        assert_eq!(again, format!("before\n{BEGIN}\nnew\n\n{END}after\n"));
        assert_eq!(replaced(&again, "new\n").unwrap(), again);
        assert_eq!(replaced("no marks", "new\n"), None);
    }
}
