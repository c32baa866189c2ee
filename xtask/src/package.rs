//! `cargo xtask package`: the plugin as a Debian package.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::layout::{Layout, triplet};
use crate::plugin::{self, Plugin};
use crate::workspace::{read, root, target};
use crate::{inspect, packages};

/// The package's name.
pub const NAME: &str = "irdma-provider";

/// Builds the plugin and packs it.
pub fn run(options: &plugin::Options) -> Result<ExitCode> {
    packages::install(packages::BUILD)?;
    let plugin = options.build()?;
    inspect::symbols(&plugin.library, plugin.layout)?;
    println!("{}", build(&plugin)?.display());
    Ok(ExitCode::SUCCESS)
}

/// Packs a plugin: the same bytes for the same commit and plugin.
pub fn build(plugin: &Plugin) -> Result<PathBuf> {
    let architecture = read(Command::new("dpkg").arg("--print-architecture"))?;
    let version = format!("{}+layout{}", env!("CARGO_PKG_VERSION"), plugin.layout.number);
    let file = format!("{NAME}_{version}_{}.deb", architecture.trim());
    let tree = target().join("package");
    let _ = fs::remove_dir_all(&tree);
    let installed = format!("/usr/lib/{}/libibverbs/libirdma-rdmav{}.so", triplet(), plugin.layout.pabi);
    let fill = |text: &str| {
        let depends = dependencies(plugin.layout, &plugin.library)?;
        let kibibytes = fs::metadata(&plugin.library)?.len().div_ceil(1024) + 16;
        let text = text.replace("@PACKAGE@", NAME).replace("@VERSION@", &version);
        let text = text.replace("@ARCHITECTURE@", architecture.trim()).replace("@PLUGIN@", &installed);
        anyhow::Ok(text.replace("@SIZE@", &kibibytes.to_string()).replace("@DEPENDS@", &depends))
    };
    let from = |name: &str| fill(&fs::read_to_string(root().join("packaging").join(name))?);
    let put = |path: &str, bytes: &[u8], mode: u32| -> Result<PathBuf> {
        let file = tree.join(path.trim_start_matches('/'));
        let folder = file.parent().context("a file lies in a folder")?;
        fs::create_dir_all(folder)?;
        fs::write(&file, bytes)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(mode))?;
        Ok(file)
    };
    put(&installed, &fs::read(&plugin.library)?, 0o644)?;
    put("DEBIAN/control", from("control")?.as_bytes(), 0o644)?;
    put("DEBIAN/preinst", from("preinst")?.as_bytes(), 0o755)?;
    put("DEBIAN/postrm", from("postrm")?.as_bytes(), 0o755)?;
    let documents = format!("usr/share/doc/{NAME}");
    put(&format!("{documents}/copyright"), from("copyright")?.replace("@BSD@", &bsd()?).as_bytes(), 0o644)?;
    let changes = put(&format!("{documents}/changelog"), from("changelog")?.as_bytes(), 0o644)?;
    let page = put(&format!("usr/share/man/man7/{NAME}.7"), from("irdma-provider.7")?.as_bytes(), 0o644)?;
    read(Command::new("gzip").args(["--best", "--no-name"]).args([changes, page]))?;
    for folder in ["DEBIAN", "usr", "usr/lib", "usr/share", "usr/share/man", "usr/share/man/man7"] {
        fs::set_permissions(tree.join(folder), fs::Permissions::from_mode(0o755))?;
    }
    let package = target().join(file);
    let mut pack = Command::new("dpkg-deb");
    pack.env("SOURCE_DATE_EPOCH", date()?).args(["--root-owner-group", "-Zxz", "--build"]);
    read(pack.arg(&tree).arg(&package))?;
    fs::remove_dir_all(&tree)?;
    Ok(package)
}

/// What must be there: a libibverbs of the layout, the driver file, and a C library that is new enough.
fn dependencies(layout: &Layout, library: &Path) -> Result<String> {
    let imports = read(Command::new("objdump").arg("--dynamic-syms").arg(library))?;
    let (major, minor) = newest_c_library(&imports).context("the plugin imports nothing of the C library")?;
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

/// The date of everything in the package: `$SOURCE_DATE_EPOCH`, else that of the commit.
fn date() -> Result<String> {
    if let Ok(date) = std::env::var("SOURCE_DATE_EPOCH") {
        return Ok(date);
    }
    let mut log = Command::new("git");
    let date = read(log.current_dir(root()).args(["log", "-1", "--format=%ct"]));
    Ok(date.context("without git, SOURCE_DATE_EPOCH must name a date")?.trim().to_owned())
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
