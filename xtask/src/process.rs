//! Programs with a time-out whose output is kept, and no process left behind.
//!
//! xtask makes itself the reaper of its orphans, so that everything a program
//! starts stays among xtask's descendants, wherever it was forked from.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, WaitOptions};

use crate::workspace::shown;

/// How often a running program is looked at.
const LOOK: Duration = Duration::from_millis(2);

/// Makes this process the parent of every orphan below it.
pub fn adopt_orphans() -> Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .context("cannot become the reaper of the programs to be started")
}

/// A program that was started, its output going to a file.
pub struct Running {
    child: Child,
    command: String,
    log: PathBuf,
    started: Instant,
}

/// What became of a program.
pub struct Finished {
    /// As typed.
    pub command: String,
    /// Its exit status; `None` if it ran out of time and was killed.
    pub status: Option<ExitStatus>,
    /// Standard output and standard error.
    pub output: String,
    /// From start to end.
    pub elapsed: Duration,
}

impl Running {
    /// Starts `command` without standard input, writing both outputs to `log`.
    pub fn start(command: &mut Command, log: &Path) -> Result<Running> {
        if let Some(folder) = log.parent() {
            fs::create_dir_all(folder)?;
        }
        let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let started = Instant::now();
        let child = command.spawn().with_context(|| format!("cannot start {}", shown(command)))?;
        Ok(Running { child, command: shown(command), log: log.to_owned(), started })
    }

    /// Process number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has written so far.
    pub fn output(&self) -> String {
        fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Waits for the end, or kills it and all it started when `limit` has passed since its start.
    pub fn wait(mut self, limit: Duration) -> Result<Finished> {
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break Some(status);
            }
            if self.started.elapsed() > limit {
                self.kill();
                break None;
            }
            std::thread::sleep(LOOK);
        };
        Ok(Finished {
            command: std::mem::take(&mut self.command),
            status,
            output: self.output(),
            elapsed: self.started.elapsed(),
        })
    }

    /// Time since its start.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Asks it to end. Not by SIGINT, which what a shell started in the background ignores.
    pub fn terminate(&self) {
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
    }

    fn kill(&mut self) {
        for pid in descendants(self.child.id()).into_iter().chain([self.child.id()]) {
            kill(pid);
        }
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    /// A program nobody waited for does not outlive its test.
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            self.kill();
        }
    }
}

impl Finished {
    /// Whether it ended in time with exit code 0.
    pub fn succeeded(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// One line on how it ended, and the end of its output.
    pub fn explain(&self) -> String {
        let end = match self.status {
            Some(status) => status.to_string(),
            None => format!("killed after {:.0} s", self.elapsed.as_secs_f64()),
        };
        let lines: Vec<&str> = self.output.lines().collect();
        let tail = lines[lines.len().saturating_sub(15)..].join("\n    ");
        format!("{}: {end}\n    {tail}", self.command)
    }
}

/// Runs a program to its end.
pub fn run(command: &mut Command, log: &Path, limit: Duration) -> Result<Finished> {
    Running::start(command, log)?.wait(limit)
}

/// Waits until `condition` holds or `limit` has passed; says which.
pub fn wait_until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    loop {
        if condition() {
            return true;
        }
        if started.elapsed() > limit {
            return false;
        }
        std::thread::sleep(LOOK);
    }
}

/// Processes below this one that are still alive `grace` after the last program ended,
/// by name; they are killed.
pub fn kill_left_over(grace: Duration) -> Vec<String> {
    let alive = || {
        reap();
        descendants(std::process::id())
    };
    if wait_until(grace, || alive().is_empty()) {
        return Vec::new();
    }
    let left = alive();
    let names = left.iter().map(|&pid| format!("{} ({pid})", name_of(pid))).collect();
    left.into_iter().for_each(kill);
    wait_until(Duration::from_secs(5), || alive().is_empty());
    names
}

/// Collects orphans that have ended.
fn reap() {
    while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
}

fn kill(pid: u32) {
    if let Some(pid) = Pid::from_raw(pid as i32) {
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
}

/// Every process below `ancestor`.
pub fn descendants(ancestor: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(fields) = stat_fields(pid) {
            // Field 4 of proc_pid_stat(5) is the parent.
            if let Some(parent) = fields.get(1).and_then(|field| field.parse().ok()) {
                children.entry(parent).or_default().push(pid);
            }
        }
    }
    let mut found = children.remove(&ancestor).unwrap_or_default();
    let mut next = 0;
    while next < found.len() {
        found.extend(children.remove(&found[next]).unwrap_or_default());
        next += 1;
    }
    found
}

/// Processor time that a process has used.
pub fn processor_time(pid: u32) -> Duration {
    // Fields 14 and 15 of proc_pid_stat(5), in clock ticks.
    let ticks: u64 = stat_fields(pid)
        .iter()
        .flat_map(|fields| fields.get(11..13).into_iter().flatten())
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
}

/// The fields of /proc/PID/stat from field 3 (the state) on.
fn stat_fields(pid: u32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

fn name_of(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).map(|name| name.trim().to_owned()).unwrap_or_default()
}

/// The provider's shared object that a process, or one below it, has mapped.
pub fn loaded_provider(pid: u32) -> Option<PathBuf> {
    descendants(pid).into_iter().chain([pid]).find_map(|pid| {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
        let line = maps.lines().find(|line| line.contains("/libirdma-rdmav"))?;
        Some(PathBuf::from(&line[line.find('/')?..]))
    })
}

/// Whether anything on this machine listens on that TCP port.
pub fn listens(port: u16) -> bool {
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        fs::read_to_string(table).unwrap_or_default().lines().skip(1).any(|line| {
            // Columns: number, local address:port, remote address:port, state (0A is LISTEN).
            let mut columns = line.split_whitespace().skip(1);
            let local = columns.next().and_then(|address| address.rsplit_once(':'));
            let state = columns.nth(1);
            state == Some("0A")
                && local.is_some_and(|(_, number)| u16::from_str_radix(number, 16) == Ok(port))
        })
    })
}

/// A TCP port that nothing uses at the moment.
pub fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
