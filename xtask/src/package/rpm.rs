//! The package for rpm, which has no diversions: the driver file names our plugin, beside the
//! distribution's, by its path.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use super::{NAME, date, filled, put, put_common, version};
use crate::plugin::Plugin;
use crate::workspace::{read, root, target};
use crate::{checker, packages};

/// Where our plugin goes: beside libibverbs' folder of plugins, which is the distribution's.
pub const FOLDER: &str = "/usr/lib64/irdma-provider";

/// Packs a plugin: the same bytes for the same commit and plugin.
pub fn build(plugin: &Plugin, maintainer: &str) -> Result<PathBuf> {
    packages::install(packages::RPM)?;
    let version = version(plugin);
    let name = format!("libirdma-rdmav{}.so", plugin.layout.pabi);
    let installed = format!("{FOLDER}/{name}");
    let work = target().join("package-rpm");
    let _ = fs::remove_dir_all(&work);
    let files = work.join("files");
    let licenses = root().join("LICENSES");
    let values = [
        ("PACKAGE", NAME),
        ("VERSION", &version),
        ("FILES", &files.to_string_lossy()),
        ("LICENSES", &licenses.to_string_lossy()),
        ("FOLDER", FOLDER),
        ("PLUGIN", &installed),
        ("MAINTAINER", maintainer),
        ("FIRST", &plugin.layout.first.to_string()),
        ("NEXT", &(plugin.layout.last + 1).to_string()),
    ];
    put(&files, &installed, &fs::read(&plugin.library)?, 0o755)?;
    put_common(&files, &checker::build()?, &installed, &format!("/usr/lib64/libibverbs/{name}"))?;
    let specification = put(&work, "package.spec", filled("rpm/package.spec", &values)?.as_bytes(), 0o644)?;
    let made = pack(&specification, &work)?;
    let package = target().join(made.file_name().unwrap_or_default());
    fs::rename(made, &package)?;
    fs::remove_dir_all(&work)?;
    Ok(package)
}

/// Has rpmbuild make the one package of a specification, in the folder `work`: the same bytes each time.
pub fn pack(specification: &Path, work: &Path) -> Result<PathBuf> {
    let made = work.join("made");
    let mut rpmbuild = Command::new("rpmbuild");
    rpmbuild.args(["-bb", "--quiet", "--target"]).arg(format!("{}-linux", std::env::consts::ARCH));
    let mut define = |macros: &str| {
        rpmbuild.arg("--define").arg(macros);
    };
    define(&format!("_topdir {}", work.display()));
    define(&format!("_rpmdir {}", made.display()));
    // Nothing of the machine that it is built on, and no step that this one's rpm adds.
    define("_buildhost packages.invalid");
    define("_vendor %{nil}");
    define("use_source_date_epoch_as_buildtime 1");
    define("clamp_mtime_to_source_date_epoch 1");
    define("debug_package %{nil}");
    define("__os_install_post %{nil}");
    define("_build_id_links none");
    // What the oldest rpm that has libibverbs of these layouts unpacks.
    define("_binary_payload w9.xzdio");
    read(rpmbuild.env("SOURCE_DATE_EPOCH", date()?).arg(specification))?;
    let folder = made.join(std::env::consts::ARCH);
    let found = fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    ensure!(found.len() == 1, "rpmbuild made {} packages", found.len());
    Ok(found[0].clone())
}
