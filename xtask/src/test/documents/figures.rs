//! Figures that are told twice: those of docs/tuning.md are the benchmark's in docs/performance.md.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Result, ensure};

use super::markdown::Document;
use crate::bench::document::{RETELLS, retold};
use crate::workspace::root;

/// The heading of the tables of GEN2; the release of the C provider follows.
const HEADING: &str = "GEN2, beside rdma-core";

/// Whether each figure is the one that was measured.
pub fn check() -> Result<()> {
    let text = fs::read_to_string(root().join(RETELLS))?;
    let measured = measured(&Document::read("docs/performance.md")?);
    ensure!(!measured.is_empty(), "docs/performance.md has no figures of GEN2");
    let right = retold(&text, |name| measured.get(name).cloned())?;
    let wrong: Vec<_> = text.lines().zip(right.lines()).filter(|(old, new)| old != new).collect();
    ensure!(wrong.is_empty(), "{RETELLS} has other figures than docs/performance.md: {wrong:?}");
    ensure!(text.contains("| instructions |"), "{RETELLS} has no figures");
    Ok(())
}

/// This provider's instructions of each row.
fn measured(document: &Document) -> BTreeMap<String, String> {
    let mut figures = BTreeMap::new();
    let sections = document.headings().into_iter().filter(|heading| heading.starts_with(HEADING));
    for section in sections.filter_map(|heading| document.section(&heading).ok()) {
        for table in section.tables() {
            let Some(ours) = table.column("ours") else { continue };
            figures.extend(table.rows.into_iter().map(|row| (row[0].clone(), row[ours].clone())));
        }
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_this_provider_on_gen2() {
        let text = "## Figures\n### GEN2, beside rdma-core 44.0\n| row | ours | C |\n|--|--|--|\n| a | 1.5 | 3.0 |\n\
                    ### GEN3, beside rdma-core 65\n| row | ours |\n|--|--|\n| a | 2.5 |\n";
        let figures = measured(&Document::of("t", text));
        assert_eq!(Vec::from_iter(figures), [("a".to_owned(), "1.5".to_owned())]);
    }
}
