//! The package for dpkg, which diverts the distribution's plugin.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{NAME, compress, date, filled, put, put_common, version};
use crate::checker;
use crate::layout::{Layout, triplet};
use crate::plugin::Plugin;
use crate::workspace::{read, root, target};

/// Packs a plugin: the same bytes for the same commit and plugin.
pub fn build(plugin: &Plugin, maintainer: &str) -> Result<PathBuf> {
    let architecture = read(Command::new("dpkg").arg("--print-architecture"))?;
    let architecture = architecture.trim();
    let version = version(plugin);
    let tree = target().join("package");
    let _ = fs::remove_dir_all(&tree);
    let installed = format!("/usr/lib/{}/libibverbs/libirdma-rdmav{}.so", triplet(), plugin.layout.pabi);
    let program = checker::build()?;
    let bytes = fs::metadata(&plugin.library)?.len() + fs::metadata(&program)?.len();
    let kibibytes = bytes.div_ceil(1024) + 16;
    let values = [
        ("PACKAGE", NAME),
        ("VERSION", &version),
        ("ARCHITECTURE", architecture),
        ("PLUGIN", &installed),
        ("MAINTAINER", maintainer),
        ("SIZE", &kibibytes.to_string()),
        ("DEPENDS", &dependencies(plugin.layout, &[&plugin.library, &program])?),
        ("BSD", &bsd()?),
    ];
    let from = |name: &str| filled(name, &values);
    put(&tree, &installed, &fs::read(&plugin.library)?, 0o644)?;
    put(&tree, "DEBIAN/control", from("deb/control")?.as_bytes(), 0o644)?;
    for script in ["preinst", "postinst", "postrm"] {
        put(&tree, &format!("DEBIAN/{script}"), from(&format!("deb/{script}"))?.as_bytes(), 0o755)?;
    }
    let documents = format!("usr/share/doc/{NAME}");
    put(&tree, &format!("{documents}/copyright"), from("deb/copyright")?.as_bytes(), 0o644)?;
    let changes = put(&tree, &format!("{documents}/changelog"), from("deb/changelog")?.as_bytes(), 0o644)?;
    compress(&[changes])?;
    put_common(&tree, &program, &installed, &format!("{installed}.distrib"))?;
    let sums = "find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum";
    let sums = read(Command::new("sh").current_dir(&tree).args(["-c", sums]))?;
    put(&tree, "DEBIAN/md5sums", sums.as_bytes(), 0o644)?;
    let package = target().join(format!("{NAME}_{version}_{architecture}.deb"));
    let mut pack = Command::new("dpkg-deb");
    pack.env("SOURCE_DATE_EPOCH", date()?).args(["--root-owner-group", "-Zxz", "--build"]);
    read(pack.arg(&tree).arg(&package))?;
    fs::remove_dir_all(&tree)?;
    Ok(package)
}

/// What must be there: a libibverbs of the layout, the driver file, and a C library that is new enough.
fn dependencies(layout: &Layout, objects: &[&Path]) -> Result<String> {
    let imports = read(Command::new("objdump").arg("--dynamic-syms").args(objects))?;
    let (major, minor) = newest_c_library(&imports).context("nothing of the C library is imported")?;
    let (first, next) = (layout.first, layout.last + 1);
    Ok(format!(
        "libibverbs1 (>= {first}), libibverbs1 (<< {next}~), ibverbs-providers, libc6 (>= {major}.{minor}), \
         libgcc-s1"
    ))
}

/// The newest `GLIBC_N.M` among imports.
fn newest_c_library(imports: &str) -> Option<(u32, u32)> {
    let versions = imports.split("GLIBC_").skip(1).filter_map(|rest| {
        let version = rest.split(|letter: char| !letter.is_ascii_digit() && letter != '.').next()?;
        let mut numbers = version.split('.');
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    });
    versions.max()
}

/// The two-clause licence as a paragraph of a copyright file.
fn bsd() -> Result<String> {
    let file = root().join("LICENSES/BSD-2-Clause.txt");
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let lines =
        text.trim().lines().map(|line| if line.is_empty() { " .".to_owned() } else { format!(" {line}") });
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_of_the_c_library_counts_as_numbers() {
        let imports = "0 DF *UND* 0 (GLIBC_2.2.5) read\n0 DF *UND* 0 (GLIBC_2.34) x\n0 (GLIBC_2.4) y\n";
        assert_eq!(newest_c_library(imports), Some((2, 34)));
        assert_eq!(newest_c_library("0 DF *UND* 0 (IBVERBS_1.1) ibv"), None);
    }
}
