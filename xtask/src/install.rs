//! `cargo xtask install` and `uninstall`: our plugin in the place of the distribution's, and back.

mod changes;
mod diversion;
mod elf;
mod record;
mod site;
mod stage;
mod steps;
mod system;
#[cfg(test)]
mod tests;
mod tools;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use rustix::fs::Mode;

use crate::{checker, inspect, package, packages, plugin};
use changes::Parcel;
use site::Site;
use steps::Steps;
use system::System;

/// What to do where the plugin cannot be built from here.
const NAME_IT: &str =
    "no plugin for it can be built here; --plugin names one that `cargo xtask build --root DIR` has built";

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
    #[command(flatten)]
    stage: stage::Options,
    /// A plugin that was built before, instead of one that is built now
    #[arg(long, value_name = "FILE")]
    plugin: Option<PathBuf>,
    /// An irdma-check that was built before, instead of one that is built now
    #[arg(long, value_name = "FILE")]
    checker: Option<PathBuf>,
}

/// Installs.
pub fn install(options: &Options) -> Result<ExitCode> {
    let Place { prefix, destdir } = &options.place;
    if let Some(stage) = options.stage.wanted()? {
        return stage.fill(destdir, prefix.as_deref(), options);
    }
    let system = System::find(destdir, prefix.as_deref())?;
    println!("libibverbs {}: layout {}", system.version, system.layout.number);
    // Before the time that building takes.
    let folder = tools::folder(prefix.as_deref());
    changes::refuse(&system, &tools::paths(&folder))?;
    let plugin = match &options.plugin {
        Some(file) => file.clone(),
        None => {
            packages::install(packages::BUILD)?;
            plugin::of_layout(system.layout).context(NAME_IT)?.library
        }
    };
    for path in put(&system, &plugin, &options.checker()?, &folder)? {
        println!("installed {}", system.at(&path).display());
    }
    Ok(ExitCode::SUCCESS)
}

impl Options {
    fn checker(&self) -> Result<PathBuf> {
        match &self.checker {
            Some(file) => Ok(file.clone()),
            None => checker::build(),
        }
    }
}

/// Puts a plugin, and an `irdma-check` with the manual pages below `folder`, in their places; says where that is,
/// seen from the system's root.
fn put(system: &System, plugin: &Path, checker: &Path, folder: &Path) -> Result<Vec<PathBuf>> {
    let read = |file: &Path| {
        let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        elf::refuse_another(file, &bytes, system.machine)?;
        Ok::<_, anyhow::Error>(bytes)
    };
    let (bytes, program) = (read(plugin)?, read(checker)?);
    inspect::symbols(plugin, system.layout)
        .with_context(|| format!("{} is not for this libibverbs", plugin.display()))?;
    let (place, replaced) = (changes::place(system), changes::replaced(system));
    let tools = tools::tools(folder, program, package::pages(&place, Some(&replaced), &system.drivers)?);
    let parcel = Parcel { plugin: &bytes, tools: &tools };
    let _lock = lock(system)?;
    // What is made is for every user of the system.
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let record = changes::install(system, &parcel, &mut Steps::all(), |file| check_by_loading(system, file))?;
    Ok([record.plugin].into_iter().chain(record.added).collect())
}

/// Uninstalls.
pub fn uninstall(place: &Place) -> Result<ExitCode> {
    let mut was_installed = false;
    for site in Site::all(&place.destdir, place.prefix.as_deref())? {
        let _lock = lock(&site)?;
        was_installed |= changes::uninstall(&site, &mut Steps::all())?;
    }
    if was_installed {
        println!("everything is as it was before the installation");
    } else {
        println!("nothing is installed");
    }
    Ok(ExitCode::SUCCESS)
}

/// One installation at a time.
fn lock(site: &Site) -> Result<File> {
    let root = File::open(site.root())?;
    root.try_lock().context("another installation is under way")?;
    Ok(root)
}

/// Loads the plugin into a program of the system, which has it register at the system's libibverbs.
fn check_by_loading(system: &System, file: &Path) -> Result<()> {
    // As the system's programs see them. Below a prefix, the loader would not find that libibverbs by itself.
    let seen = |path: &Path| Ok::<_, anyhow::Error>(Path::new("/").join(path.strip_prefix(system.root())?));
    let (library, plugin) = (seen(&system.library)?, seen(file)?);
    let mut command = Command::new("/usr/bin/env");
    if !system.is_machine() {
        let has_programs =
            ["env", "true"].iter().all(|name| system.root().join("usr/bin").join(name).exists());
        let missing =
            if has_programs { "the rights of root" } else { "programs in its /usr/bin (env, true)" };
        if !has_programs || !rustix::process::geteuid().is_root() {
            println!("not loaded for a check in {}: that takes {missing}", system.root().display());
            return Ok(());
        }
        command = Command::new("chroot");
        command.arg(system.root()).arg("/usr/bin/env");
    }
    let objects = format!("LD_PRELOAD={}:{}", library.display(), plugin.display());
    command.arg(objects).args(["LD_BIND_NOW=1", "true"]);
    let output = command.output().context("cannot start a program that loads the plugin")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && said.is_empty(), "the plugin does not load: {}", said.trim_end());
    Ok(())
}
