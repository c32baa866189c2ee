//! Changes to a file system, one after the other: each is done whole or not at all.

use std::fs::{self, File, FileTimes, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::workspace::read;

/// Carries out changes; in tests, only so many of them.
pub struct Steps {
    left: usize,
    end: End,
}

/// How it ends before the change after those.
enum End {
    Error,
    #[cfg(test)]
    Kill,
}

/// Stands for a kill: nothing is undone.
#[derive(Debug)]
pub struct Killed;

impl std::fmt::Display for Killed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("killed")
    }
}

impl std::error::Error for Killed {}

impl Steps {
    /// Without an end.
    pub fn all() -> Steps {
        Steps { left: usize::MAX, end: End::Error }
    }

    /// As if killed before the change after so many.
    #[cfg(test)]
    pub fn first(count: usize) -> Steps {
        Steps { left: count, end: End::Error }
    }

    /// Has the system kill this process there.
    #[cfg(test)]
    pub fn until_kill(count: usize) -> Steps {
        Steps { left: count, end: End::Kill }
    }

    fn next(&mut self) -> Result<()> {
        match (self.left.checked_sub(1), &self.end) {
            (Some(left), _) => self.left = left,
            (None, End::Error) => return Err(Killed.into()),
            #[cfg(test)]
            (None, End::Kill) => {
                rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)?;
            }
        }
        Ok(())
    }

    /// Makes a folder.
    pub fn make_folder(&mut self, folder: &Path) -> Result<()> {
        if folder.is_dir() {
            return Ok(());
        }
        self.next()?;
        fs::create_dir(folder).with_context(|| format!("cannot make {}", folder.display()))
    }

    /// Removes a folder if it is there and empty.
    pub fn remove_empty_folder(&mut self, folder: &Path) -> Result<()> {
        if !folder.is_dir() {
            return Ok(());
        }
        self.next()?;
        match fs::remove_dir(folder) {
            Err(error) if error.kind() != ErrorKind::DirectoryNotEmpty => {
                Err(error).with_context(|| format!("cannot remove {}", folder.display()))
            }
            _ => Ok(()),
        }
    }

    /// Removes a file if it is there.
    pub fn remove(&mut self, file: &Path) -> Result<()> {
        if !is_there(file) {
            return Ok(());
        }
        self.next()?;
        fs::remove_file(file).with_context(|| format!("cannot remove {}", file.display()))
    }

    /// Gives a file a second name.
    pub fn link(&mut self, file: &Path, name: &Path) -> Result<()> {
        self.next()?;
        fs::hard_link(file, name)
            .with_context(|| format!("cannot keep {} as {}", file.display(), name.display()))
    }

    /// Moves a file, in place of what has that name.
    pub fn rename(&mut self, from: &Path, to: &Path) -> Result<()> {
        self.next()?;
        fs::rename(from, to)
            .with_context(|| format!("cannot move {} to {}", from.display(), to.display()))?;
        synchronize_folder(to);
        Ok(())
    }

    /// Puts a file with that content in the place of what has its name: whoever opens it sees
    /// the old or the new one, whole. `draft` is its name until then, on the same file system.
    pub fn replace(&mut self, file: &Path, draft: &Path, content: &Content) -> Result<()> {
        self.next()?;
        let mut write = || -> Result<()> {
            let mut out = File::create(draft)?;
            let (half, rest) = content.bytes.split_at(content.bytes.len() / 2);
            out.write_all(half)?;
            self.next()?;
            out.write_all(rest)?;
            out.set_permissions(Permissions::from_mode(content.mode))?;
            if let Some(times) = content.times {
                out.set_times(times)?;
            }
            out.sync_all()?;
            Ok(())
        };
        if let Err(error) = write() {
            if !error.is::<Killed>() {
                // Of a full disk, what comes next may need the room.
                let _ = fs::remove_file(draft);
            }
            return Err(error.context(format!("cannot write {}", draft.display())));
        }
        self.rename(draft, file)
    }

    /// Runs a command that changes something.
    pub fn run(&mut self, command: &mut Command) -> Result<String> {
        self.next()?;
        read(command)
    }
}

/// A file's content, and what else of it is kept.
#[derive(Clone)]
pub struct Content {
    /// Its bytes.
    pub bytes: Vec<u8>,
    mode: u32,
    times: Option<FileTimes>,
}

impl Content {
    /// A new file that everybody can read.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Content {
        Content { bytes: bytes.into(), mode: 0o644, times: None }
    }

    /// A new program that everybody can start.
    pub fn program(bytes: impl Into<Vec<u8>>) -> Content {
        Content { mode: 0o755, ..Content::new(bytes) }
    }

    /// That of a file, to put it back one day.
    pub fn of(file: &Path) -> Result<Content> {
        let read = || -> std::io::Result<Content> {
            let properties = fs::metadata(file)?;
            let times =
                FileTimes::new().set_modified(properties.modified()?).set_accessed(properties.accessed()?);
            let mode = properties.permissions().mode() & 0o7777;
            Ok(Content { bytes: fs::read(file)?, mode, times: Some(times) })
        };
        read().with_context(|| format!("cannot read {}", file.display()))
    }
}

/// Whether something has that name, even a link that leads nowhere.
pub fn is_there(file: &Path) -> bool {
    file.symlink_metadata().is_ok()
}

/// `FOLDER/.NAME.new` of `FOLDER/NAME`.
pub fn draft_beside(file: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(file.file_name().unwrap_or_default());
    name.push(".new");
    file.with_file_name(name)
}

/// So that a name survives a crash of the machine. Not every file system can, and none must.
fn synchronize_folder(file: &Path) {
    if let Some(folder) = file.parent().and_then(|folder| File::open(folder).ok()) {
        let _ = folder.sync_all();
    }
}
