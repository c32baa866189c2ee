//! The table of the architecture's rooms: one for each crate.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, ensure};

use super::findings::same;
use super::markdown::{Document, spans};
use crate::workspace::root;

/// Whether the folders of the table with a crate are those of the workspace.
pub fn check() -> Result<()> {
    let table = Document::read("docs/architecture.md")?.section("Rooms")?.tables().remove(0);
    let mut said = BTreeSet::new();
    for row in &table.rows {
        let [folder, crates] = [spans(&row[0]), spans(&row[1])];
        let folder = folder.first().context("a room without a folder")?.trim_end_matches('/').to_owned();
        let Some(name) = crates.first() else { continue };
        let manifest = manifest_of(&folder);
        let text =
            fs::read_to_string(root().join(&manifest)).with_context(|| format!("cannot read {manifest}"))?;
        let is_named = text.lines().any(|line| line == format!("name = \"{name}\""));
        ensure!(is_named, "docs/architecture.md calls the crate of {folder} {name}");
        said.insert(folder);
    }
    same("docs/architecture.md", &members(&fs::read_to_string(root().join("Cargo.toml"))?), &said)
}

/// The manifest of the crate whose room is a folder: the plugin's is at the top.
fn manifest_of(folder: &str) -> String {
    if folder == "src" { "Cargo.toml".to_owned() } else { format!("{folder}/Cargo.toml") }
}

/// The workspace's members and the package at its top, by the folders of their sources.
fn members(manifest: &str) -> BTreeSet<String> {
    let list =
        manifest.split_once("members = [").map_or("", |(_, rest)| rest.split(']').next().unwrap_or_default());
    list.split('"').skip(1).step_by(2).chain(["src"]).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_those_of_the_manifest() {
        let manifest = "[workspace]\nmembers = [\n    \"a\",\n    \"b/c\",\n]\ndefault-members = [\".\"]\n";
        assert_eq!(Vec::from_iter(members(manifest)), ["a", "b/c", "src"]);
    }
}
