//! Builds `irdma-check`, which starts where there is no libibverbs.

use std::path::PathBuf;

use anyhow::Result;

use crate::workspace::{cargo, run, target};
use crate::{inspect, shipped};

/// For tests: quickly.
pub fn quick() -> Result<PathBuf> {
    run(cargo("build").args(["--quiet", "--package", "irdma-check"]))?;
    let program = target().join("debug/irdma-check");
    inspect::starts_alone(&program)?;
    Ok(program)
}

/// For a package: small.
pub fn build() -> Result<PathBuf> {
    // Apart from what is built with other flags, or each build would undo the other's.
    let built = target().join("shipped");
    let mut build = cargo("build");
    build.args(["--quiet", "--release", "--package", "irdma-check"]);
    run(build.env("CARGO_TARGET_DIR", &built).env("RUSTFLAGS", shipped::flags()))?;
    let folder = target().join("provider");
    std::fs::create_dir_all(&folder)?;
    let stripped = folder.join("irdma-check");
    shipped::strip(&built.join("release/irdma-check"), &stripped)?;
    inspect::starts_alone(&stripped)?;
    Ok(stripped)
}
