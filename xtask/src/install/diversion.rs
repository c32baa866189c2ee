//! dpkg's diversion of the distribution's plugin: dpkg unpacks it under another name.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use super::site::Site;
use super::steps::Steps;

use crate::workspace::read;

/// The diversion of one file.
pub struct Diversion<'site> {
    site: &'site Site,
    path: PathBuf,
    kept: PathBuf,
}

impl<'site> Diversion<'site> {
    /// Of the file with that path, seen from the system's root.
    pub fn of(site: &'site Site, path: &Path) -> Diversion<'site> {
        Diversion { site, path: path.to_owned(), kept: Diversion::kept_beside(path) }
    }

    /// Where the distribution's file of that path then is, seen from the system's root.
    pub fn kept_beside(path: &Path) -> PathBuf {
        let mut kept = path.as_os_str().to_owned();
        kept.push(".distrib");
        kept.into()
    }

    /// The file, as this process reaches it.
    pub fn file(&self) -> PathBuf {
        self.site.at(&self.path)
    }

    /// Where the distribution's then is, as this process reaches it.
    pub fn kept(&self) -> PathBuf {
        self.site.at(&self.kept)
    }

    /// Whether dpkg has it; an error if it has another of the same file.
    pub fn is_registered(&self) -> Result<bool> {
        let owner = read(self.command().arg("--listpackage").arg(&self.path))?;
        if owner.trim().is_empty() {
            return Ok(false);
        }
        let to = read(self.command().arg("--truename").arg(&self.path))?;
        if owner.trim() == "LOCAL" && Path::new(to.trim()) == self.kept {
            return Ok(true);
        }
        let who = match owner.trim() {
            "LOCAL" => "somebody".to_owned(),
            package => format!("the package {package}"),
        };
        bail!("{} is diverted already, by {who} to {}", self.path.display(), to.trim())
    }

    /// Registers it; the file stays where it is.
    pub fn register(&self, steps: &mut Steps) -> Result<()> {
        self.change("--add", steps)
    }

    /// Takes it back; the file stays where it is.
    pub fn remove(&self, steps: &mut Steps) -> Result<()> {
        self.change("--remove", steps)
    }

    fn change(&self, action: &str, steps: &mut Steps) -> Result<()> {
        let mut command = self.command();
        command.args(["--local", "--no-rename", "--divert"]).arg(&self.kept);
        steps.run(command.arg(action).arg(&self.path)).map(|_| ())
    }

    fn command(&self) -> Command {
        let mut command = Command::new("dpkg-divert");
        command.env("LC_ALL", "C");
        if !self.site.is_machine() {
            command.arg("--root").arg(self.site.root());
        }
        command
    }
}
