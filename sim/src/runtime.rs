//! Where devices keep their files: one folder per user, one below it per device.
//!
//! `$XDG_RUNTIME_DIR/irdma-sim`, or `/tmp/irdma-sim-<uid>`; only its owner may enter.

use std::ffi::CString;
use std::fmt;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};

/// Start of the names of programs' own devices.
const OWN_PREFIX: &str = "run-";

/// Name of a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(String);

impl Name {
    /// Longest name.
    const LONGEST: usize = 40;

    /// Name of the device that the launcher with that process number starts for its program.
    pub fn of_own_device(process: u32) -> Name {
        Name(format!("{OWN_PREFIX}{process}"))
    }

    /// Refuses a name that is kept for programs' own devices.
    pub fn refuse_reserved(&self) -> Result<()> {
        ensure!(
            !self.0.starts_with(OWN_PREFIX),
            "names that start with '{OWN_PREFIX}' belong to devices of single programs: choose another than '{self}'"
        );
        Ok(())
    }
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Name, String> {
        let plain = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
        if text.is_empty()
            || text.len() > Name::LONGEST
            || !text.chars().all(plain)
            || text.starts_with(['.', '-'])
        {
            return Err(format!(
                "a name has 1 to {} letters, digits, '-', '_' and '.', and starts with neither '-' nor '.'",
                Name::LONGEST
            ));
        }
        Ok(Name(text.to_owned()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Folder of a device.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// The folder of that name; need not exist.
    pub fn of(name: &Name) -> Result<Folder> {
        Ok(Folder(runtime_folder()?.join(&name.0)))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Held locked while the device process lives.
    pub fn lock_file(&self) -> PathBuf {
        self.0.join("lock")
    }

    /// Socket of the device process.
    pub fn socket(&self) -> PathBuf {
        self.0.join("socket")
    }

    /// What the device process has to say.
    pub fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    /// What the device is, in words.
    pub fn description(&self) -> PathBuf {
        self.0.join("description")
    }

    /// The device's files as they appear below `/`.
    pub fn tree(&self) -> PathBuf {
        self.0.join("tree")
    }

    /// Makes it, for its owner only.
    pub fn create(&self) -> Result<()> {
        private_folder(&self.0)
    }

    /// Removes what a killed process of that name has left, all but the lock, which the caller holds.
    pub fn clear(&self) -> Result<()> {
        for entry in fs::read_dir(&self.0)? {
            let path = entry?.path();
            if path == self.lock_file() {
                continue;
            }
            let removed = if path.symlink_metadata()?.is_dir() {
                fs::remove_dir_all(&path)
            } else {
                fs::remove_file(&path)
            };
            removed.with_context(|| format!("cannot remove {}", path.display()))?;
        }
        Ok(())
    }

    /// Removes all of it.
    pub fn remove(&self) {
        // What cannot be removed is in nobody's way: the lock is free.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Names of all folders there are.
pub fn names() -> Result<Vec<Name>> {
    let mut names: Vec<Name> = fs::read_dir(runtime_folder()?)?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    names.sort();
    Ok(names)
}

fn user() -> u32 {
    // SAFETY: no preconditions.
    unsafe { libc::geteuid() }
}

/// The user's folder, made if it is not there.
fn runtime_folder() -> Result<PathBuf> {
    let session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| {
        // A variable that came along with su or sudo may name another user's.
        folder.is_absolute() && fs::metadata(folder).is_ok_and(|metadata| metadata.uid() == user())
    });
    let folder = match session {
        Some(session) => session.join("irdma-sim"),
        None => PathBuf::from(format!("/tmp/irdma-sim-{}", user())),
    };
    private_folder(&folder)?;
    Ok(folder)
}

/// Makes a folder that only its owner may enter, or checks that an existing one is such.
fn private_folder(folder: &Path) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        result => result.with_context(|| format!("cannot make the folder {}", folder.display()))?,
    }
    let metadata = fs::symlink_metadata(folder)?;
    if !metadata.is_dir() || metadata.uid() != user() || metadata.mode() & 0o077 != 0 {
        bail!("{} is not a folder that belongs to this user alone (mode 0700)", folder.display());
    }
    Ok(())
}

/// A path for a system call.
pub fn c_path(path: &Path) -> Result<CString> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes()).with_context(|| format!("zero byte in {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_nowhere_else() {
        for good in ["a", "lab", "A-1_b.c", "0", &"x".repeat(40)] {
            assert_eq!(good.parse::<Name>().unwrap().to_string(), good);
        }
        for bad in ["", ".", "..", ".hidden", "-x", "a/b", "../a", "a b", "a\n", "ä", &"x".repeat(41)] {
            assert!(bad.parse::<Name>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn names_of_own_devices_cannot_be_started() {
        assert!(Name::of_own_device(12).refuse_reserved().is_err());
        assert!("runner".parse::<Name>().unwrap().refuse_reserved().is_ok());
    }

    #[test]
    fn a_folder_that_others_may_enter_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = std::env::temp_dir().join(format!("irdma-sim-test-{}", std::process::id()));
        private_folder(&folder).unwrap();
        private_folder(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o750)).unwrap();
        assert!(private_folder(&folder).is_err());
        fs::remove_dir(&folder).unwrap();
        std::os::unix::fs::symlink("/tmp", &folder).unwrap();
        assert!(private_folder(&folder).is_err());
        fs::remove_file(&folder).unwrap();
    }
}
