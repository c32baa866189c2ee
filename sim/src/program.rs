//! Whether a program can be run on the device: found, dynamic, of this machine, unprivileged.
//!
//! Checked before, because the loader ignores a preload library in silence.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::runtime::c_path;

/// The program does not exist.
#[derive(Debug)]
pub struct NotFound(OsString);

impl fmt::Display for NotFound {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: program not found", Path::new(&self.0).display())
    }
}

impl std::error::Error for NotFound {}

/// Scripts may be interpreted by scripts; the kernel stops here too.
const MOST_INTERPRETERS: usize = 4;

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;

/// Finds the program as a shell would, and checks it.
pub fn find(name: &OsStr) -> Result<PathBuf> {
    let path = if name.as_bytes().contains(&b'/') {
        Some(PathBuf::from(name)).filter(|path| path.exists())
    } else {
        let folders = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
        std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| is_executable(path))
    };
    let path = path.ok_or_else(|| NotFound(name.to_owned()))?;
    check(&path)?;
    Ok(path)
}

fn is_executable(path: &Path) -> bool {
    path.is_file()
        && c_path(path).is_ok_and(|path| {
            // SAFETY: the path is terminated.
            unsafe { libc::access(path.as_ptr(), libc::X_OK) == 0 }
        })
}

/// Says why a program cannot be run on the device, if it cannot.
fn check(program: &Path) -> Result<()> {
    let mut path = program.to_owned();
    for _ in 0..MOST_INTERPRETERS {
        ensure!(path.exists(), "{}: there is no interpreter {}", program.display(), path.display());
        ensure!(is_executable(&path), "{}: not an executable file", path.display());
        check_privileges(&path)?;
        let mut file = File::open(&path).with_context(|| {
            format!(
                "{}: not readable, so that it could not be debugged nor run on the device",
                path.display()
            )
        })?;
        match interpreter(&mut file) {
            Some(next) => path = next,
            None => return check_elf(&mut file).with_context(|| path.display().to_string()),
        }
    }
    bail!("{}: too many interpreters", program.display())
}

/// A program that gains privileges does not get our library.
fn check_privileges(path: &Path) -> Result<()> {
    let metadata = path.metadata()?;
    // SAFETY: no preconditions.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let gains_user = metadata.mode() & libc::S_ISUID != 0 && metadata.uid() != user;
    let gains_group = metadata.mode() & libc::S_ISGID != 0 && metadata.gid() != group;
    ensure!(
        !gains_user && !gains_group,
        "{}: a set-user-id or set-group-id program cannot be run on the device",
        path.display()
    );
    let name = c_path(path)?;
    // SAFETY: both strings are terminated, and no buffer is given.
    let capabilities =
        unsafe { libc::getxattr(name.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) };
    ensure!(
        capabilities <= 0 || user == 0,
        "{}: a program with file capabilities cannot be run on the device",
        path.display()
    );
    Ok(())
}

/// The program that interprets this one, if it is a script.
fn interpreter(file: &mut File) -> Option<PathBuf> {
    let mut line = [0; 256];
    let length = file.read(&mut line).ok()?;
    let line = line[..length].strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next()?.trim_ascii();
    let path = line.split(|byte| byte.is_ascii_whitespace()).next()?;
    Some(PathBuf::from(OsStr::from_bytes(path)))
}

/// Checks that the file is a program for this machine that is linked dynamically with the C library we know.
fn check_elf(file: &mut File) -> Result<()> {
    const INTERPRETER: u32 = 3;
    const PROGRAM_HEADER: usize = 56;
    let mut header = [0; 64];
    file.seek(SeekFrom::Start(0))?;
    let whole = file.read_exact(&mut header).is_ok();
    ensure!(whole && header.starts_with(b"\x7fELF"), "neither an ELF program nor a script");
    ensure!(header[4] == 2, "a 32-bit program cannot be run on the device");
    let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    ensure!(header[5] == 1 && half(18) == MACHINE, "a program for another machine");
    let table = u64::from_le_bytes(header[32..40].try_into()?);
    ensure!(half(56) == 0 || usize::from(half(54)) == PROGRAM_HEADER, "a damaged ELF program");
    for index in 0..u64::from(half(56)) {
        let mut entry = [0; PROGRAM_HEADER];
        let at = table.checked_add(index * PROGRAM_HEADER as u64).context("a damaged ELF program")?;
        file.seek(SeekFrom::Start(at))?;
        file.read_exact(&mut entry).context("a damaged ELF program")?;
        if u32::from_le_bytes(entry[..4].try_into()?) == INTERPRETER {
            let mut name = Vec::new();
            file.seek(SeekFrom::Start(u64::from_le_bytes(entry[8..16].try_into()?)))?;
            file.take(u64::from_le_bytes(entry[32..40].try_into()?).min(4096)).read_to_end(&mut name)?;
            let musl = name.windows(7).any(|part| part == b"ld-musl");
            ensure!(
                !musl,
                "a program linked with musl cannot be run on the device, only with the GNU C library"
            );
            return Ok(());
        }
    }
    bail!("a statically linked program cannot be run on the device: it loads no libraries")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// An executable file with that content.
    struct Sample(PathBuf);

    impl Sample {
        fn new(name: &str, content: &[u8]) -> Sample {
            let path = std::env::temp_dir().join(format!("irdma-sim-{name}-{}", std::process::id()));
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            Sample(path)
        }

        fn complaint(&self) -> String {
            format!("{:#}", check(&self.0).unwrap_err())
        }
    }

    impl Drop for Sample {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    /// A program of this machine with that many program headers, all of them zero.
    fn elf(class: u8, headers: u16) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1]);
        bytes[18..20].copy_from_slice(&MACHINE.to_le_bytes());
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56..58].copy_from_slice(&headers.to_le_bytes());
        bytes
    }

    #[test]
    fn programs_of_the_machine_are_accepted() {
        assert!(find(OsStr::new("sh")).is_ok());
        assert!(check(&std::env::current_exe().unwrap()).is_ok());
        let script = Sample::new("script", b"#! /bin/sh -e\nexit 0\n");
        assert!(check(&script.0).is_ok());
    }

    #[test]
    fn a_missing_program_is_told_from_other_errors() {
        for name in ["irdma-no-such-program", "/no/such/program"] {
            assert!(find(OsStr::new(name)).unwrap_err().is::<NotFound>(), "{name}");
        }
        assert!(!find(OsStr::new("/tmp")).unwrap_err().is::<NotFound>());
    }

    #[test]
    fn programs_that_would_not_load_the_library_are_refused() {
        let mut headers = elf(2, 1);
        headers.extend([0; 56]);
        assert!(Sample::new("static", &headers).complaint().contains("statically linked"));
        assert!(Sample::new("narrow", &elf(1, 0)).complaint().contains("32-bit"));
        assert!(Sample::new("cut", &elf(2, 9)).complaint().contains("damaged"));
        assert!(Sample::new("text", b"hello").complaint().contains("neither an ELF"));
        assert!(Sample::new("empty", b"").complaint().contains("neither an ELF"));
        let orphan = Sample::new("orphan", b"#!/no/such/interpreter\n").complaint();
        assert!(orphan.contains("there is no interpreter /no/such/interpreter"), "{orphan}");
        let mut other = elf(2, 0);
        other[18] = 3;
        assert!(Sample::new("other", &other).complaint().contains("another machine"));
        let own = std::env::temp_dir().join(format!("irdma-sim-loop-{}", std::process::id()));
        let script = Sample::new("loop", format!("#!{}\n", own.display()).as_bytes());
        assert!(script.complaint().contains("interpreters"));
    }
}
