//! `cargo xtask install` and `uninstall`: our plugin in the place of the distribution's, and back.

mod changes;
mod diversion;
mod record;
mod steps;
mod system;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use crate::{inspect, packages, plugin};
use steps::Steps;
use system::System;

/// Where to install.
#[derive(clap::Args)]
pub struct Place {
    /// The libibverbs that is installed below this folder, instead of the system's
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,
    /// A system whose root is this folder, instead of this machine
    #[arg(long, value_name = "DIR", default_value = "/")]
    destdir: PathBuf,
}

/// What to install, and where.
#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    place: Place,
    /// A plugin that was built before, instead of one that is built now
    #[arg(long, value_name = "FILE")]
    plugin: Option<PathBuf>,
}

impl Place {
    fn system(&self) -> Result<System> {
        System::find(&self.destdir, self.prefix.as_deref())
    }
}

/// Installs.
pub fn install(options: &Options) -> Result<ExitCode> {
    let system = options.place.system()?;
    println!("libibverbs {}: layout {}", system.version, system.layout.number);
    // Before the time that building takes.
    changes::refuse(&system)?;
    let plugin = match &options.plugin {
        Some(file) => file.clone(),
        None => {
            packages::install(packages::BUILD)?;
            plugin::of_layout(system.layout)?.library
        }
    };
    let path = put(&system, &plugin)?;
    println!("installed {}", system.at(&path).display());
    Ok(ExitCode::SUCCESS)
}

/// Puts the plugin in that file in its place on the system whose root is a folder.
pub fn into(root: &Path, plugin: &Path) -> Result<PathBuf> {
    put(&System::find(root, None)?, plugin)
}

/// Puts a plugin in its place; says where that is, seen from the system's root.
fn put(system: &System, plugin: &Path) -> Result<PathBuf> {
    inspect::symbols(plugin, system.layout)
        .with_context(|| format!("{} is not for this libibverbs", plugin.display()))?;
    let bytes = fs::read(plugin).with_context(|| plugin.display().to_string())?;
    let _lock = lock(system)?;
    let record = changes::install(system, &bytes, &mut Steps::all(), |file| check_by_loading(system, file))?;
    Ok(record.plugin)
}

/// Uninstalls.
pub fn uninstall(place: &Place) -> Result<ExitCode> {
    if take_back(&place.system()?)? {
        println!("everything is as it was before the installation");
    } else {
        println!("nothing is installed");
    }
    Ok(ExitCode::SUCCESS)
}

/// Undoes [`into`].
pub fn out_of(root: &Path) -> Result<bool> {
    take_back(&System::find(root, None)?)
}

/// Undoes an installation; says whether there was one.
fn take_back(system: &System) -> Result<bool> {
    let _lock = lock(system)?;
    changes::uninstall(system, &mut Steps::all())
}

/// One installation at a time.
fn lock(system: &System) -> Result<File> {
    let root = File::open(system.root())?;
    root.try_lock().context("another installation is under way")?;
    Ok(root)
}

/// Loads the plugin into a program of the system, which has it register at the system's libibverbs.
fn check_by_loading(system: &System, file: &Path) -> Result<()> {
    // As the system's programs see it.
    let path = Path::new("/").join(file.strip_prefix(system.root())?);
    let mut command = Command::new("/usr/bin/env");
    if !system.is_machine() {
        let has_programs =
            ["env", "true"].iter().all(|name| system.root().join("usr/bin").join(name).exists());
        if !has_programs || !rustix::process::geteuid().is_root() {
            println!("not loaded for a check: that takes root, and programs in {}", system.root().display());
            return Ok(());
        }
        command = Command::new("chroot");
        command.arg(system.root()).arg("/usr/bin/env");
    }
    command.arg(format!("LD_PRELOAD={}", path.display())).args(["LD_BIND_NOW=1", "true"]);
    let output = command.output().context("cannot start a program that loads the plugin")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && said.is_empty(), "the plugin does not load: {}", said.trim_end());
    Ok(())
}
