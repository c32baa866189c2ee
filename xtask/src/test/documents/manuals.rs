//! Manual pages: that they are rendered without a warning, and what they explain.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::test::tree;
use crate::workspace::root;

/// Has groff render each page, with all warnings.
pub fn check() -> Result<()> {
    let mut pages = tree::files(".1")?;
    pages.extend(tree::files(".7")?);
    pages.retain(|page| page.starts_with("packaging/"));
    ensure!(pages.len() > 1, "there are no manual pages");
    for page in pages {
        ensure!(complaints(&root().join(&page))?.is_empty(), "{page}: {}", complaints(&root().join(&page))?);
    }
    Ok(())
}

/// What groff says about a page.
fn complaints(page: &Path) -> Result<String> {
    let mut groff = Command::new("groff");
    let output = groff.args(["-man", "-Tutf8", "-ww"]).arg(page).output().context("cannot start groff")?;
    ensure!(output.status.success() && !output.stdout.is_empty(), "groff renders nothing");
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The source of a page.
pub struct Manual(String);

impl Manual {
    /// Reads one by its path in the source tree.
    pub fn read(path: &str) -> Result<Manual> {
        fs::read_to_string(root().join(path)).map(Manual).with_context(|| format!("cannot read {path}"))
    }

    /// The words in bold by which a section's paragraphs are found (`.TP`).
    pub fn tags(&self, section: &str) -> BTreeSet<String> {
        let lines = self.0.lines().skip_while(|line| !is_heading(line, section)).skip(1);
        let lines: Vec<_> = lines.take_while(|line| !line.starts_with(".SH")).collect();
        let tags = lines.windows(2).filter(|pair| pair[0] == ".TP").map(|pair| pair[1]);
        tags.flat_map(bold).collect()
    }
}

fn is_heading(line: &str, section: &str) -> bool {
    line.strip_prefix(".SH").is_some_and(|title| title.trim().trim_matches('"') == section)
}

/// What a line sets in bold: all words of `.B`, every second of `.BR` and `.BI`.
fn bold(line: &str) -> Vec<String> {
    let line = line.replace("\\-", "-");
    let Some((request, words)) = line.split_once(' ') else { return Vec::new() };
    let step = match request {
        ".B" => 1,
        ".BR" | ".BI" => 2,
        _ => return Vec::new(),
    };
    words_of(words).into_iter().step_by(step).collect()
}

/// The arguments of a request; quotes hold spaces together.
fn words_of(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, part) in text.split('"').enumerate() {
        if index % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = ".TH T 1\n.SH OPTIONS\n.TP\n.BI \\-\\-file \" F\"\nIt.\n.TP\n.BR \\-h \", \" \\-\\-help\nHelp.\n\
                        .B bold\n.SH \"WHAT ELSE\"\n.TP\n.B one\nThat.\n";

    #[test]
    fn tags_are_those_of_their_section() {
        let manual = Manual(PAGE.to_owned());
        assert_eq!(Vec::from_iter(manual.tags("OPTIONS")), ["--file", "--help", "-h"]);
        assert_eq!(Vec::from_iter(manual.tags("WHAT ELSE")), ["one"]);
        assert!(manual.tags("NOTHING").is_empty());
    }

    #[test]
    fn a_request_that_groff_does_not_know_is_a_complaint() {
        let page = std::env::temp_dir().join(format!("irdma-manual-{}.1", std::process::id()));
        fs::write(&page, ".TH T 1\n.SH NAME\nt \\- a page\n").unwrap();
        assert_eq!(complaints(&page).unwrap(), "");
        fs::write(&page, ".TH T 1\n.SH NAME\nt \\- a page\n.NOSUCH\n").unwrap();
        let said = complaints(&page).unwrap();
        fs::remove_file(&page).unwrap();
        assert!(said.contains("NOSUCH"), "{said}");
    }
}
