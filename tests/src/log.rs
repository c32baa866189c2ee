//! What a provider says in the log.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// The lines logged since it was made, by this process.
pub struct Log {
    path: PathBuf,
    _file: File,
}

/// An empty file of this process.
fn empty_file() -> (PathBuf, File) {
    let path = std::env::temp_dir().join(format!("irdma-verbs-log-{}", std::process::id()));
    let file = File::options().create(true).append(true).open(&path).expect("a file for the log");
    (path, file)
}

impl Log {
    /// Libibverbs' log of all up to that level. Before the first call of libibverbs.
    pub fn of_libibverbs(level: u32) -> Log {
        let (path, file) = empty_file();
        // SAFETY: the program has one thread yet, and libibverbs has not looked at its environment.
        unsafe {
            std::env::set_var("VERBS_LOG_LEVEL", level.to_string());
            std::env::set_var("VERBS_LOG_FILE", &path);
        }
        Log { path, _file: file }
    }

    /// What this project's provider writes to standard error up to that level. Before the first device is
    /// opened; whatever else is written to standard error is among it.
    pub fn of_standard_error(level: &str) -> Log {
        let (path, file) = empty_file();
        // SAFETY: the program has one thread yet; both descriptors are open.
        unsafe {
            std::env::set_var("IRDMA_DEBUG", level);
            assert_eq!(libc::dup2(file.as_raw_fd(), libc::STDERR_FILENO), libc::STDERR_FILENO);
        }
        Log { path, _file: file }
    }

    /// The lines so far.
    pub fn lines(&self) -> Vec<String> {
        // SAFETY: writes out what the C library's streams still hold.
        unsafe { libc::fflush(std::ptr::null_mut()) };
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Runs `attempt`, which must log one line with all of `words`, and no other.
    #[track_caller]
    pub fn expect<T>(&self, words: &[&str], attempt: impl FnOnce() -> T) -> T {
        let before = self.lines().len();
        let result = attempt();
        let lines = self.lines().split_off(before);
        let has_all = |line: &String| words.iter().all(|word| line.contains(word));
        assert!(matches!(&lines[..], [line] if has_all(line)), "one line with {words:?}: {lines:#?}");
        result
    }

    /// The file it is in.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // It may be gone.
        let _ = std::fs::remove_file(&self.path);
    }
}
