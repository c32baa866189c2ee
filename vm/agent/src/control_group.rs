//! All processes of a run, those that left its session too: a control group.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Where the guest has control groups mounted.
const MOUNT: &str = "/sys/fs/cgroup";

/// How often a group is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// The control group of a run.
pub struct ControlGroup {
    folder: PathBuf,
}

impl ControlGroup {
    /// An empty one.
    pub fn new(run: u32) -> Result<ControlGroup> {
        let folder = Path::new(MOUNT).join(format!("run-{run}"));
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(ControlGroup { folder })
    }

    /// The file that a process becomes a member by writing to.
    pub fn members_file(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    fn members(&self) -> u32 {
        fs::read_to_string(self.members_file()).unwrap_or_default().lines().count() as u32
    }

    /// Kills all members.
    pub fn kill(&self) {
        let _ = fs::write(self.folder.join("cgroup.kill"), "1");
    }

    /// Waits up to `grace` for the last member's end; kills those that are left and tells how many.
    pub fn clear(&self, grace: Duration) -> u32 {
        let started = Instant::now();
        while self.members() > 0 && started.elapsed() < grace {
            thread::sleep(LOOK);
        }
        let left_over = self.members();
        if left_over > 0 {
            self.kill();
            // Who is in the kernel for good stays there: the harness sees that by what it tries next.
            let killed = Instant::now();
            while self.members() > 0 && killed.elapsed() < Duration::from_secs(10) {
                thread::sleep(LOOK);
            }
        }
        let _ = fs::remove_dir(&self.folder);
        left_over
    }
}
