//! What an installation has changed, noted before it does, for whoever repairs or undoes it.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

use super::site::Site;
use super::steps::{Content, Steps, draft_beside};

/// How our plugin gets the place of the distribution's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// dpkg diverts the distribution's: it unpacks it under another name, in upgrades too.
    Diversion,
    /// A driver file, which upgrades leave alone, names ours by its path and loads it first; the
    /// distribution's stays where it is, for releases that ours is not for.
    DriverFile,
}

/// An installation. Paths are seen from the system's root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// How.
    pub method: Method,
    /// Where our plugin is.
    pub plugin: PathBuf,
    /// The driver file that is made or changed.
    pub driver_file: Option<PathBuf>,
    /// Whether that one was there before.
    pub had_driver_file: bool,
    /// What else is put there, where nothing was: `irdma-check` and manual pages.
    pub added: Vec<PathBuf>,
    /// Folders that are made, outer ones first.
    pub folders: Vec<PathBuf>,
}

/// Its file.
pub const RECORD: &str = "record";

const FIRST_LINE: &str = "installation of the irdma provider, form 1";

impl Record {
    /// The name of a file of the installation's own.
    pub fn file(site: &Site, name: &str) -> PathBuf {
        site.at(&site.own).join(name)
    }

    /// That of the system; `None` if nothing is installed.
    pub fn read(site: &Site) -> Result<Option<Record>> {
        let file = Record::file(site, RECORD);
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| file.display().to_string()),
        };
        Record::parse(&text).map(Some).with_context(|| file.display().to_string())
    }

    /// Notes it.
    pub fn write(&self, site: &Site, steps: &mut Steps) -> Result<()> {
        let file = Record::file(site, RECORD);
        steps.replace(&file, &draft_beside(&file), &Content::new(self.text()))
    }

    fn text(&self) -> String {
        let method = match self.method {
            Method::Diversion => "diversion",
            Method::DriverFile => "driver-file",
        };
        let mut text = format!("{FIRST_LINE}\nmethod={method}\nplugin={}\n", self.plugin.display());
        if let Some(file) = &self.driver_file {
            let key = if self.had_driver_file { "changed" } else { "made" };
            text.push_str(&format!("{key}={}\n", file.display()));
        }
        for file in &self.added {
            text.push_str(&format!("added={}\n", file.display()));
        }
        for folder in &self.folders {
            text.push_str(&format!("folder={}\n", folder.display()));
        }
        text
    }

    fn parse(text: &str) -> Result<Record> {
        let mut lines = text.lines();
        ensure!(lines.next() == Some(FIRST_LINE), "it is not what this version writes");
        let (mut method, mut plugin, mut driver_file) = (None, None, None);
        let (mut added, mut folders) = (Vec::new(), Vec::new());
        let mut had_driver_file = false;
        for line in lines {
            let absolute = |value: &str| -> Result<PathBuf> {
                ensure!(value.starts_with('/') && !value.contains("/../"), "{line}: no absolute path");
                Ok(value.into())
            };
            match line.split_once('=') {
                Some(("method", "diversion")) => method = Some(Method::Diversion),
                Some(("method", "driver-file")) => method = Some(Method::DriverFile),
                Some(("plugin", value)) => plugin = Some(absolute(value)?),
                Some((key @ ("changed" | "made"), value)) => {
                    driver_file = Some(absolute(value)?);
                    had_driver_file = key == "changed";
                }
                Some(("added", value)) => added.push(absolute(value)?),
                Some(("folder", value)) => folders.push(absolute(value)?),
                _ => bail!("unknown line {line}"),
            }
        }
        let (method, plugin) = (method.context("no method")?, plugin.context("no plugin")?);
        Ok(Record { method, plugin, driver_file, had_driver_file, added, folders })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for method in [Method::Diversion, Method::DriverFile] {
            for (driver_file, had_driver_file) in [(None, false), (Some("/etc/x"), false), (Some("/x"), true)]
            {
                let record = Record {
                    method,
                    plugin: "/usr/lib64/libirdma-rdmav34.so".into(),
                    driver_file: driver_file.map(PathBuf::from),
                    had_driver_file,
                    added: vec!["/usr/local/bin/a".into()],
                    folders: vec!["/etc/a b".into(), "/etc/a b/c".into()],
                };
                assert_eq!(Record::parse(&record.text()).unwrap(), record);
            }
        }
    }

    #[test]
    fn anything_else_is_refused() {
        let with = |line: &str| format!("{FIRST_LINE}\nmethod=diversion\nplugin=/a\n{line}\n");
        for text in [
            String::new(),
            "form 2\n".to_owned(),
            FIRST_LINE.to_owned(),
            with("folder=relative"),
            with("folder=/a/../b"),
            with("what=ever"),
        ] {
            assert!(Record::parse(&text).is_err(), "{text}");
        }
    }
}
