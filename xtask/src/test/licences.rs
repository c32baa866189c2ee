//! Licences: this project's crates have its own, with their texts, and what they are built from may
//! be linked with it.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::tree;
use crate::workspace::{cargo, read, root};

/// This project's.
const OWN: &str = "BSD-2-Clause OR GPL-2.0-only";

/// Those that ask for no more than a notice.
const PERMISSIVE: &[&str] =
    &["0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "Unicode-3.0", "Unlicense", "Zlib"];

/// What a file says its licence by; in parts, as this file says nothing of its own.
const TAG: &str = concat!("SPDX-License-", "Identifier:");

/// Looks at every file that names its licence, and at every crate that is built here.
pub fn check() -> Result<()> {
    for name in OWN.split(" OR ") {
        let text = root().join(format!("LICENSES/{name}.txt"));
        ensure!(fs::metadata(&text).is_ok_and(|about| about.len() > 0), "there is no {}", text.display());
    }
    for path in tree::files("")? {
        let Ok(text) = fs::read_to_string(root().join(&path)) else { continue };
        for name in named(&text) {
            let is_there = root().join(format!("LICENSES/{name}.txt")).exists();
            ensure!(is_there, "{path} has the licence {name}, whose text is not in LICENSES");
        }
    }
    let notice = fs::read_to_string(root().join("REUSE.toml"))?;
    ensure!(notice.contains(OWN), "REUSE.toml names another licence than {OWN}");
    let mut metadata = cargo("metadata");
    metadata.args(["--quiet", "--locked", "--format-version", "1", "--filter-platform"]);
    metadata.arg(format!("{}-unknown-linux-gnu", std::env::consts::ARCH));
    let known: Value = serde_json::from_str(&read(&mut metadata)?)?;
    let packages = known["packages"].as_array().context("cargo names no packages")?;
    for package in packages {
        let licence = package["license"].as_str().unwrap_or("none");
        // Without a source it is this project's.
        let is_fine = if package["source"].is_null() { licence == OWN } else { is_permissive(licence) };
        ensure!(is_fine, "{} has the licence {licence}", package["name"]);
    }
    Ok(())
}

/// The licences that a file names as its own.
fn named(text: &str) -> Vec<&str> {
    let expressions = text.lines().filter_map(|line| line.split_once(TAG));
    let words = expressions.flat_map(|(_, expression)| expression.split_whitespace());
    words.filter(|word| !matches!(*word, "OR" | "AND" | "WITH" | "*/" | "-->")).collect()
}

/// Whether one of its alternatives is permissive in all its parts. A slash is an old way to write OR.
fn is_permissive(licence: &str) -> bool {
    let parts = licence.replace('/', " OR ").replace(['(', ')'], "");
    // An AND outside of brackets holds for all: its parts are all looked at.
    parts.split(" AND ").all(|part| part.split(" OR ").any(|name| PERMISSIVE.contains(&name.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_name_their_licences() {
        let text = format!("/* {TAG} GPL-2.0-only OR MIT */\n# no licence\n// {TAG} ISC\n");
        assert_eq!(named(&text), ["GPL-2.0-only", "MIT", "ISC"]);
    }

    #[test]
    fn one_permissive_alternative_is_enough() {
        for licence in ["MIT", "MIT/Apache-2.0", "GPL-3.0-only OR MIT", "(MIT OR Apache-2.0) AND Unicode-3.0"]
        {
            assert!(is_permissive(licence), "{licence}");
        }
        for licence in ["none", "", "GPL-3.0-only", "MIT AND GPL-3.0-only", "MPL-2.0", "MITX"] {
            assert!(!is_permissive(licence), "{licence}");
        }
    }
}
