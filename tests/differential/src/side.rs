//! A process that runs programs on one of the providers.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::Options;
use crate::execute::{END, LEFT_OPEN};

/// How long a program may take: far more than any does, on the busiest machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// This project's.
    Ours,
    /// The distribution's.
    C,
}

/// A running process.
struct Running {
    child: Child,
    input: ChildStdin,
    traces: Receiver<String>,
}

/// A provider and the process that runs programs on it, started when it is needed.
pub struct Side {
    command: Command,
    running: Option<Running>,
}

impl Side {
    /// On a device of its own.
    pub fn new(options: &Options, provider: Provider) -> Result<Side> {
        let mut command = Command::new(&options.launcher);
        command.args(["run", "--mode", "step", "--provider"]);
        command.arg(if provider == Provider::Ours { "ours" } else { "c" });
        command.arg("--plugin").arg(&options.plugin).args(&options.device).arg("--");
        command.args(&options.under).arg(std::env::current_exe()?).arg("execute");
        // Memory that a provider forgets to set is then the same each time, and not 0.
        command.env("MALLOC_PERTURB_", "165");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok(Side { command, running: None })
    }

    /// Gives the process a program.
    pub fn send(&mut self, program: &str) -> Result<()> {
        let running = match &mut self.running {
            Some(running) => running,
            none => none.insert(start(&mut self.command)?),
        };
        // A process that has died is noticed when its trace is asked for.
        let _ = writeln!(running.input, "{program}");
        Ok(())
    }

    /// The trace of the program that was sent last. It ends with a line of its own if the process died or hung.
    pub fn trace(&mut self) -> Result<String> {
        let running = self.running.as_mut().context("a program was sent")?;
        match running.traces.recv_timeout(PATIENCE) {
            Ok(trace) if trace.ends_with(ENDED) => {
                let status = running.child.wait()?;
                self.running = None;
                // The launcher's exit code is 128 and the signal.
                let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
                Ok(format!("{}died code={code}\n", &trace[..trace.len() - ENDED.len()]))
            }
            Ok(trace) => {
                if trace.ends_with(&format!("{LEFT_OPEN}\n")) {
                    self.stop();
                }
                Ok(trace)
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                self.stop();
                Ok("hung\n".to_owned())
            }
        }
    }

    fn stop(&mut self) {
        if let Some(mut running) = self.running.take() {
            // It may have ended by itself.
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        if let Some(Running { mut child, input, .. }) = self.running.take() {
            // Without input it ends by itself.
            drop(input);
            let _ = child.wait();
        }
    }
}

/// Stands behind what a process has written before it died.
const ENDED: &str = "\0";

fn start(command: &mut Command) -> Result<Running> {
    let mut child = command.spawn().context("the software device's launcher does not start")?;
    let input = child.stdin.take().context("a pipe to the process")?;
    let output = child.stdout.take().context("a pipe from the process")?;
    let (sender, traces) = channel();
    std::thread::spawn(move || {
        let mut trace = String::new();
        let mut output = BufReader::new(output);
        loop {
            let before = trace.len();
            match output.read_line(&mut trace) {
                Ok(length) if length > 0 => {}
                _ => {
                    trace.push_str(ENDED);
                    // Nobody waits for it any more when the side is being dropped.
                    let _ = sender.send(trace);
                    return;
                }
            }
            if trace[before..].trim_end() == END {
                trace.truncate(before);
                if sender.send(std::mem::take(&mut trace)).is_err() {
                    return;
                }
            }
        }
    });
    Ok(Running { child, input, traces })
}
