//! A running guest, and the conversation with its agent.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use irdma_vm_agent::{End, Report, Request};

use crate::process::Running;

/// Longest time from QEMU's start until the agent is ready, on a machine that has much else to do.
const BOOT_LIMIT: Duration = Duration::from_secs(900);

/// How long the agent may take beyond a command's limit to say that it ended.
const GRACE: Duration = Duration::from_secs(30);

/// Longest time for a guest to end when told to.
const END_LIMIT: Duration = Duration::from_secs(15);

/// A guest.
pub struct Guest {
    qemu: Running,
    serial: PathBuf,
    port: UnixStream,
    reports: Receiver<Report>,
    runs: HashMap<u32, Run>,
    next: u32,
    /// Of the kernel's log, what is there so far.
    kernel: Vec<Line>,
    kernel_file: File,
    /// The run whose output goes to standard output as it comes.
    pub shown: Option<u32>,
}

/// A line of a guest's kernel log.
#[derive(Clone, Debug)]
pub struct Line {
    /// Without its time.
    pub text: String,
}

/// What a command did so far.
struct Run {
    deadline: Instant,
    output: Vec<u8>,
    ended: Option<(End, u32)>,
}

/// What a command did.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub end: End,
    /// Both outputs.
    pub output: String,
    /// Processes that it left behind.
    pub left_over: u32,
}

impl Guest {
    /// Waits for the agent of a guest that was just started, whose port is connected to `listener`.
    pub fn greet(qemu: Running, listener: &UnixListener, serial: &Path, kernel: &Path) -> Result<Guest> {
        let mut qemu = qemu;
        let started = Instant::now();
        listener.set_nonblocking(true)?;
        let port = loop {
            match listener.accept() {
                Ok((port, _)) => break port,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error).context("the agent's port"),
            }
            if qemu.has_ended()? || started.elapsed() > BOOT_LIMIT {
                bail!("QEMU does not start: {}", qemu.output().trim_end());
            }
            thread::sleep(Duration::from_millis(20));
        };
        port.set_nonblocking(false)?;
        let mut source = BufReader::new(port.try_clone()?);
        let (sender, reports) = channel();
        thread::spawn(move || {
            while let Ok(Some(report)) = Report::read(&mut source) {
                if sender.send(report).is_err() {
                    break;
                }
            }
        });
        let mut guest = Guest {
            qemu,
            serial: serial.to_owned(),
            port,
            reports,
            runs: HashMap::new(),
            next: 0,
            kernel: Vec::new(),
            kernel_file: File::create(kernel)?,
            shown: None,
        };
        while !guest.look(started + BOOT_LIMIT)? {}
        Ok(guest)
    }

    /// Starts a command; returns its number. It is killed after `limit` seconds, and does not start
    /// before something listens on TCP port `port`, if that is not 0.
    pub fn start(&mut self, script: &str, limit: u32, port: u16) -> Result<u32> {
        self.next += 1;
        let run = self.next;
        let script = format!(". /run/irdma-vm/environment\n{script}");
        let request = Request::Run { run, limit, port, script };
        request.write(&mut self.port).context("the guest does not listen any more")?;
        let deadline = Instant::now() + Duration::from_secs(limit.into()) + GRACE;
        self.runs.insert(run, Run { deadline, output: Vec::new(), ended: None });
        Ok(run)
    }

    /// Waits for a command's end.
    pub fn finish(&mut self, run: u32) -> Result<Finished> {
        loop {
            let known = self.runs.get(&run).context("no such run")?;
            if let Some((end, left_over)) = known.ended {
                let output = String::from_utf8_lossy(&known.output).into_owned();
                self.runs.remove(&run);
                return Ok(Finished { end, output, left_over });
            }
            let deadline = known.deadline;
            self.look(deadline)?;
        }
    }

    /// Waits for the end of `run`, but no longer than `other` runs.
    pub fn finish_during(&mut self, run: u32, other: u32) -> Result<()> {
        loop {
            let known = self.runs.get(&run).context("no such run")?;
            let has_ended = |run: u32| self.runs.get(&run).is_none_or(|run| run.ended.is_some());
            if has_ended(run) || has_ended(other) {
                break;
            }
            let deadline = known.deadline;
            self.look(deadline)?;
        }
        self.kill(run)?;
        self.runs.remove(&run);
        Ok(())
    }

    /// Runs a command to its end.
    pub fn run(&mut self, script: &str, limit: u32) -> Result<Finished> {
        let run = self.start(script, limit, 0)?;
        self.finish(run)
    }

    /// Kills a command and all that it started.
    pub fn kill(&mut self, run: u32) -> Result<()> {
        Ok(Request::Kill { run }.write(&mut self.port)?)
    }

    /// The lines of the kernel's log from `start` on.
    pub fn kernel(&self, start: usize) -> &[Line] {
        &self.kernel[start.min(self.kernel.len())..]
    }

    /// Takes in one report; says whether it was that the guest is ready.
    fn look(&mut self, deadline: Instant) -> Result<bool> {
        let report = match self.reports.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(report) => report,
            Err(RecvTimeoutError::Timeout) => bail!("the guest is silent{}", self.last_words()),
            Err(RecvTimeoutError::Disconnected) => bail!("the guest has ended{}", self.last_words()),
        };
        match report {
            Report::Ready => return Ok(true),
            Report::Output { run, bytes } => {
                if self.shown == Some(run) {
                    let mut output = std::io::stdout().lock();
                    output.write_all(&bytes)?;
                    output.flush()?;
                }
                if let Some(run) = self.runs.get_mut(&run) {
                    run.output.extend(bytes);
                }
            }
            Report::Ended { run, end, left_over } => {
                if let Some(run) = self.runs.get_mut(&run) {
                    run.ended = Some((end, left_over));
                }
            }
            Report::Kernel { level, time, text } => {
                writeln!(
                    self.kernel_file,
                    "{:>11.6} {level} {text}",
                    Duration::from_micros(time).as_secs_f64()
                )?;
                self.kernel.push(Line { text });
            }
        }
        Ok(false)
    }

    /// The end of what the serial console showed.
    fn last_words(&self) -> String {
        let serial = std::fs::read(&self.serial).unwrap_or_default();
        let serial = String::from_utf8_lossy(&serial);
        let lines: Vec<&str> = serial.lines().collect();
        let end = lines[lines.len().saturating_sub(25)..].join("\n    ");
        format!("; the end of {}:\n    {end}\n    {}", self.serial.display(), self.qemu.output().trim_end())
    }

    /// Ends the guest.
    pub fn end(mut self) -> Result<()> {
        Request::PowerOff.write(&mut self.port)?;
        let finished = {
            let limit = self.qemu.elapsed() + END_LIMIT;
            self.qemu.wait(limit)?
        };
        if !finished.succeeded() {
            bail!("QEMU: {}", finished.explain());
        }
        Ok(())
    }
}
