//! The figures in docs/performance.md, from one run of everything.

use std::fs;

use anyhow::{Context, Result};

use super::table::Table;
use crate::workspace::{read, root};
use std::process::Command;

/// Around what is written.
const BEGIN: &str = "<!-- written by `cargo xtask bench --document` -->\n";
const END: &str = "<!-- end -->\n";

/// Puts the figures into the document: beside the C provider of this machine and beside that of rdma-core 65.
pub fn write(machine: &Table, newest: &Table) -> Result<()> {
    let path = root().join("docs/performance.md");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let text = replaced(&text, &figures(&machine_release()?, &load()?, machine, newest))
        .with_context(|| format!("{} has no place for the figures", path.display()))?;
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// How busy the machine was when the times were taken.
fn load() -> Result<String> {
    let averages = fs::read_to_string("/proc/loadavg")?;
    let average = averages.split(' ').nth(2).context("no average of a quarter of an hour")?;
    let processors = std::thread::available_parallelism()?;
    Ok(format!(
        "on {processors} processors of average load {average}, of which about 1 is the measurement's own"
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
    fn what_is_between_the_marks_is_replaced_and_nothing_else() {
        let text = format!("before\n{BEGIN}\nold\n\n{END}after\n");
        let again = replaced(&text, "new\n").unwrap();
        assert_eq!(again, format!("before\n{BEGIN}\nnew\n\n{END}after\n"));
        assert_eq!(replaced(&again, "new\n").unwrap(), again);
        assert_eq!(replaced("no marks", "new\n"), None);
    }
}
