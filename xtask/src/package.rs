//! `cargo xtask package`: the plugin as a package of Debian's or of RPM's kind.

pub mod deb;
pub mod rpm;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::plugin::{self, Plugin};
use crate::workspace::{read, root};
use crate::{inspect, packages};

/// The package's name.
pub const NAME: &str = "irdma-provider";

/// Which package.
#[derive(clap::Args)]
#[group(id = "package")]
pub struct Options {
    #[command(flatten)]
    plugin: plugin::Options,
    /// For Fedora, RHEL, SUSE and their relatives, instead of Debian and its
    #[arg(long)]
    rpm: bool,
}

/// Builds the plugin and packs it.
pub fn run(options: &Options) -> Result<ExitCode> {
    packages::install(packages::BUILD)?;
    let plugin = options.plugin.build()?;
    inspect::symbols(&plugin.library, plugin.layout)?;
    let package = if options.rpm { rpm::build(&plugin)? } else { deb::build(&plugin)? };
    println!("{}", package.display());
    Ok(ExitCode::SUCCESS)
}

/// The package's version: one can tell by it which releases of rdma-core it is for.
fn version(plugin: &Plugin) -> String {
    format!("{}+layout{}", env!("CARGO_PKG_VERSION"), plugin.layout.number)
}

/// A file of `packaging/`, with values in the place of their `@NAMES@`.
fn filled(name: &str, values: &[(&str, &str)]) -> Result<String> {
    let file = root().join("packaging").join(name);
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    Ok(values.iter().fold(text, |text, (name, value)| text.replace(&format!("@{name}@"), value)))
}

/// Writes a file of a package below `tree`, and the folders that it takes.
fn put(tree: &Path, path: &str, bytes: &[u8], mode: u32) -> Result<PathBuf> {
    let file = tree.join(path.trim_start_matches('/'));
    let folder = file.parent().context("a file lies in a folder")?;
    fs::create_dir_all(folder)?;
    // Whatever this user's mask is.
    for folder in folder.ancestors().take_while(|folder| folder.starts_with(tree)) {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    }
    fs::write(&file, bytes)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(mode))?;
    Ok(file)
}

/// Writes what packages of each kind have beside the plugin: `irdma-check`, and manual pages.
fn put_common(tree: &Path, program: &Path, values: &[(&str, &str)]) -> Result<()> {
    put(tree, "usr/bin/irdma-check", &fs::read(program)?, 0o755)?;
    let pages = [("irdma-provider.7", 7), ("irdma-check.1", 1)].map(|(page, section)| {
        put(tree, &format!("usr/share/man/man{section}/{page}"), filled(page, values)?.as_bytes(), 0o644)
    });
    compress(&pages.into_iter().collect::<Result<Vec<_>>>()?)
}

/// Compresses files, the same way each time.
fn compress(files: &[PathBuf]) -> Result<()> {
    read(Command::new("gzip").args(["--best", "--no-name"]).args(files)).map(|_| ())
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
