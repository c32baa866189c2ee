//! Builds the plugin for one rdma-core and puts it where a person finds it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::layout::{Layout, layout_of};
use crate::workspace::{cargo, read, root, run, target};

/// A plugin that was built.
pub struct Plugin {
    /// What it was built for.
    pub layout: &'static Layout,
    /// `libirdma-rdmavNN.so`, stripped.
    pub library: PathBuf,
    /// The same with its symbols.
    pub unstripped: PathBuf,
}

impl Plugin {
    /// What `RDMAV_DRIVERS` and a driver file take: the path without `-rdmavNN.so`.
    pub fn driver(&self) -> PathBuf {
        self.library.with_file_name("libirdma")
    }
}

/// Builds for this machine's libibverbs, or for the one in the unpacked distribution at `other`.
pub fn build(other: Option<&Path>) -> Result<Plugin> {
    let layout = layout_of(other)?;
    let mut command = cargo("build");
    command.args(["--quiet", "--release", "--package", "irdma"]);
    let mut built = target();
    if let Some(other) = other {
        let other = other.canonicalize().with_context(|| format!("no folder {}", other.display()))?;
        // Apart from this machine's, or each build would undo the other's.
        built = built.join(format!("layout-{}", layout.number));
        command.env("CARGO_TARGET_DIR", &built).env("IRDMA_RDMA_CORE_ROOT", other);
    }
    run(&mut command)?;
    let unstripped = built.join("release/libirdma.so");

    let folder = target().join("provider").join(layout.number.to_string());
    fs::create_dir_all(&folder)?;
    let library = folder.join(format!("libirdma-rdmav{}.so", layout.pabi));
    // A running program may have the old file mapped: make a new one and move it there.
    let fresh = folder.join("libirdma.new");
    read(Command::new("strip").arg("--strip-unneeded").arg("-o").arg(&fresh).arg(&unstripped))?;
    fs::rename(&fresh, &library)?;
    fs::copy(root().join("irdma.driver"), folder.join("irdma.driver"))?;
    Ok(Plugin { layout, library, unstripped })
}
