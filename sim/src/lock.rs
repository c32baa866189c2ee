//! Who has a device's name: a file lock, which ends with the process that holds it.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::runtime::Folder;

/// A held lock. It lives on in every process that inherits the file.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the name of that folder, which is made if need be; `None` if a living process has it.
    pub fn take(folder: &Folder) -> Result<Option<Lock>> {
        loop {
            folder.create()?;
            let path = folder.lock_file();
            let file = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .open(&path)
                .with_context(|| format!("cannot open {}", path.display()))?;
            // SAFETY: no pointers.
            if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
                return Ok(None);
            }
            // Somebody may have removed the folder between our opening and locking.
            let current = std::fs::metadata(&path).is_ok_and(|now| {
                file.metadata().is_ok_and(|ours| (ours.ino(), ours.dev()) == (now.ino(), now.dev()))
            });
            if current {
                return Ok(Some(Lock { _file: file }));
            }
        }
    }

    /// Takes it as soon as its holder is gone; `None` if that takes longer than `limit`.
    pub fn take_within(folder: &Folder, limit: Duration) -> Result<Option<Lock>> {
        let end = Instant::now() + limit;
        loop {
            if let Some(lock) = Lock::take(folder)? {
                return Ok(Some(lock));
            }
            if Instant::now() >= end {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
