//! The stand-in for ice.ko, built against the headers of the guest's kernel with the compiler that
//! the kernel itself was built with.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::packages::Set;
use crate::newest;
use crate::workspace::{read, root, target};

/// The module for the kernel of that release.
pub fn build(release: &str) -> Result<PathBuf> {
    let toolchain = Set::Toolchain.unpacked()?;
    // The kernel's build leaves its products beside the sources.
    let folder = target().join("vm/ice");
    fs::create_dir_all(&folder)?;
    let sources = root().join("vm/ice");
    for entry in fs::read_dir(&sources).with_context(|| format!("cannot read {}", sources.display()))? {
        let entry = entry?;
        let copy = folder.join(entry.file_name());
        let content = fs::read(entry.path())?;
        // What has not changed is not built again.
        if fs::read(&copy).ok().as_ref() != Some(&content) {
            fs::write(&copy, content)?;
        }
    }
    let mut make = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        make.arg("--map-root-user");
    }
    make.args(["--mount", "sh", "-c", newest::IN_ROOT]).arg(&toolchain);
    make.args(["make", "--silent", "AWK=mawk", "-C", &format!("/usr/lib/modules/{release}/build")]);
    make.arg(format!("M={}", folder.display())).arg("modules");
    read(&mut make).context("the stand-in for ice.ko cannot be built")?;
    Ok(folder.join("ice.ko"))
}
