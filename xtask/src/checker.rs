//! Builds `irdma-check`, which starts where there is no libibverbs.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::inspect;
use crate::workspace::{cargo, read, run, target};

/// For tests: quickly.
pub fn quick() -> Result<PathBuf> {
    run(cargo("build").args(["--quiet", "--package", "irdma-check"]))?;
    let program = target().join("debug/irdma-check");
    inspect::starts_alone(&program)?;
    Ok(program)
}

/// For a package: small.
pub fn build() -> Result<PathBuf> {
    run(cargo("build").args(["--quiet", "--release", "--package", "irdma-check"]))?;
    let folder = target().join("provider");
    std::fs::create_dir_all(&folder)?;
    let stripped = folder.join("irdma-check");
    let mut strip = Command::new("strip");
    read(
        strip
            .args(["--remove-section", ".comment", "-o"])
            .arg(&stripped)
            .arg(target().join("release/irdma-check")),
    )?;
    inspect::starts_alone(&stripped)?;
    Ok(stripped)
}
