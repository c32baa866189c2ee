//! dpkg's diversion of the distribution's plugin: dpkg unpacks it under another name.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use super::steps::Steps;
use super::system::System;
use crate::workspace::read;

/// The diversion of one file.
pub struct Diversion<'system> {
    system: &'system System,
    path: PathBuf,
    kept: PathBuf,
}

impl<'system> Diversion<'system> {
    /// Of the file with that path, seen from the system's root.
    pub fn of(system: &'system System, path: &Path) -> Diversion<'system> {
        let mut kept = path.as_os_str().to_owned();
        kept.push(".distrib");
        Diversion { system, path: path.to_owned(), kept: kept.into() }
    }

    /// The file, as this process reaches it.
    pub fn file(&self) -> PathBuf {
        self.system.at(&self.path)
    }

    /// Where the distribution's then is, as this process reaches it.
    pub fn kept(&self) -> PathBuf {
        self.system.at(&self.kept)
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
        if !self.system.is_machine() {
            command.arg("--root").arg(self.system.root());
        }
        command
    }
}
