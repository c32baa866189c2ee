//! rdma-core 65: Debian forky's libraries in place of this machine's, and the plugin that is built for them.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Result, ensure};

use crate::{plugin, suites};

/// Puts the `/usr` of the root that is its first argument in the place of this machine's, and runs
/// the rest of its arguments.
pub const IN_ROOT: &str = "mount --bind \"$0/usr\" /usr && exec \"$@\"";

/// What programs on that release need.
pub struct Newest {
    /// The plugin for its libibverbs.
    pub plugin: PathBuf,
    root: PathBuf,
}

impl Newest {
    /// Fetches and builds it, with what rdma-core's Python tests run.
    pub fn build() -> Result<Newest> {
        Newest::with(suites::program_root)
    }

    /// Fetches and builds it, with what counts instructions.
    pub fn for_counting() -> Result<Newest> {
        Newest::with(suites::counting_root)
    }

    /// Fetches and builds it, with the root that `of_suite` makes.
    fn with(of_suite: impl FnOnce(&str) -> Result<PathBuf>) -> Result<Newest> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "rdma-core 65 needs root, to mount the file system that its programs see"
        );
        let plugin = plugin::build(Some(&suites::development_root("forky")?))?;
        Ok(Newest { plugin: plugin.library, root: of_suite("forky")? })
    }

    /// The words in front of a program's that run it, and what it starts, on that release.
    pub fn words(&self) -> Vec<OsString> {
        let words = ["unshare", "--mount", "sh", "-c", IN_ROOT].map(OsString::from);
        words.into_iter().chain([self.root.clone().into_os_string()]).collect()
    }
}
