//! Which layout of the private provider ABI a libibverbs has.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, anyhow};

use crate::workspace::read;

#[allow(dead_code, reason = "the bindings use more of the table than the commands do")]
mod table {
    include!("../../rdma-core-sys/layouts.rs");
}

pub use table::Layout;

/// The layout of this machine's libibverbs, or of the one in an unpacked root.
pub fn layout_of(root: Option<&Path>) -> Result<&'static Layout> {
    let version = match root {
        None => read(Command::new("pkg-config").args(["--modversion", "libibverbs"]))?,
        Some(root) => version_in(root)?,
    };
    of_version(version.trim())
}

/// `Version:` of the pkg-config file in an unpacked root.
fn version_in(root: &Path) -> Result<String> {
    let libraries = root.join("usr/lib");
    let multiarch = fs::read_dir(&libraries).into_iter().flatten().flatten().map(|entry| entry.path());
    let text = multiarch
        .chain([root.join("usr/lib64")])
        .find_map(|folder| fs::read_to_string(folder.join("pkgconfig/libibverbs.pc")).ok())
        .with_context(|| format!("{} has no libibverbs.pc: is it an unpacked root?", root.display()))?;
    let version = text.lines().find_map(|line| line.strip_prefix("Version:"));
    version.map(str::to_owned).ok_or_else(|| anyhow!("libibverbs.pc of {} names no version", root.display()))
}

/// 1.14.44.0 is rdma-core 44.
fn of_version(version: &str) -> Result<&'static Layout> {
    let release = version.split('.').nth(2).and_then(|field| field.parse().ok());
    table::LAYOUTS
        .iter()
        .find(|layout| release.is_some_and(|release| (layout.first..=layout.last).contains(&release)))
        .ok_or_else(|| {
            let supported: Vec<String> =
                table::LAYOUTS.iter().map(|layout| format!("{} to {}", layout.first, layout.last)).collect();
            anyhow!(
                "libibverbs {version} is of an rdma-core that is not supported; supported: {}",
                supported.join(", ")
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_is_the_third_field() {
        assert_eq!(of_version("1.14.44.0").unwrap().number, 34);
        assert_eq!(of_version("1.14.56.1").unwrap().number, 34);
        assert_eq!(of_version("1.18.65.0").unwrap().number, 65);
    }

    #[test]
    fn unknown_release_is_refused_with_the_supported_ones() {
        for version in ["1.11.32.0", "1.99.999.0", "1.14", "", "a.b.c"] {
            let reason = of_version(version).unwrap_err().to_string();
            assert!(reason.contains("37 to 56"), "{reason}");
        }
    }
}
