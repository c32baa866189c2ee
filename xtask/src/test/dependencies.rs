//! What the crates are built from, and by: sources, the plugin's few dependencies, the compiler.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, ensure};

use super::session::{Session, Verdict};
use crate::workspace::{cargo, read, root};

/// All that is compiled into the plugin.
const IN_PLUGIN: &[&str] = &["bitflags", "irdma", "irdma-hw", "libc", "rdma-core-sys"];

/// Advisories are no part of it: they take a database from the network.
pub fn check(session: &mut Session) {
    session.check("code", "sources of dependencies", |_| sources().map(|()| Verdict::Passed));
    session.check("code", "dependencies of the plugin", |_| in_plugin().map(|()| Verdict::Passed));
    session.check("code", "the oldest compiler", |_| compiler());
}

/// Every crate that is not ours comes from the public registry, and its bytes are known.
fn sources() -> Result<()> {
    let lock = fs::read_to_string(root().join("Cargo.lock"))?;
    for package in lock.split("[[package]]").skip(1) {
        let Some(source) = package.lines().find_map(|line| line.strip_prefix("source = ")) else { continue };
        let is_registry = source.starts_with("\"registry+") && source.ends_with("/crates.io-index\"");
        ensure!(is_registry && package.contains("\nchecksum = "), "of another source: {}", package.trim());
    }
    Ok(())
}

/// The plugin has no dependency that nobody has thought about.
fn in_plugin() -> Result<()> {
    let mut tree = cargo("tree");
    tree.args(["--locked", "--package", "irdma", "--edges", "normal", "--prefix", "none", "--format", "{p}"]);
    let listing = read(&mut tree)?;
    let found: BTreeSet<&str> = listing.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let expected: BTreeSet<&str> = IN_PLUGIN.iter().copied().collect();
    ensure!(found == expected, "the plugin has {found:?}");
    Ok(())
}

/// Everything here is built by the oldest compiler that the manifest promises.
fn compiler() -> Result<Verdict> {
    let manifest = fs::read_to_string(root().join("Cargo.toml"))?;
    let promised = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "));
    let promised = promised.context("the workspace has no rust-version")?.trim_matches('"');
    let readme = fs::read_to_string(root().join("README.md"))?;
    ensure!(
        readme.contains(&format!("Rust {promised}")),
        "the README promises another compiler than {promised}"
    );
    let version = read(&mut cargo("--version"))?;
    let version = version.split_whitespace().nth(1).context("cargo says no version")?;
    if version == promised || version.starts_with(&format!("{promised}.")) {
        return Ok(Verdict::Passed);
    }
    Ok(Verdict::Skipped(format!("this one is {version}, so that nothing says whether {promised} will do")))
}
