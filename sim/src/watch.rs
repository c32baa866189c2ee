//! Waits for a program, and watches the device under it.
//!
//! A program that polls for a completion of a device that is gone would poll for
//! ever. It gets some time to notice by itself, then it is ended.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use irdma_sim_protocol::{DEFAULT_TIMEOUT_MILLISECONDS, TIMEOUT_VARIABLE};

use crate::client::Client;
use crate::signals;

/// How long a program may take to end when it is asked to.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// What is known of the device process, and what happens at an instant if nothing else does.
enum Device {
    /// It answered; it is asked again then.
    Alive(Instant),
    /// It was asked; it counts as removed then.
    Asked(Instant),
    /// It is removed, and why; the program is ended then.
    Removed(&'static str, Instant),
}

/// Waits for the program's end; its exit code, as a shell would tell it.
///
/// # Errors
/// The device went away and the program did not end.
pub fn wait(program: libc::pid_t, client: &Client) -> Result<ExitCode> {
    let end = process_descriptor(program)?;
    let patience = patience();
    let mut device = Device::Alive(Instant::now() + patience / 2);
    loop {
        let removed = matches!(device, Device::Removed(..));
        let (Device::Alive(due) | Device::Asked(due) | Device::Removed(_, due)) = device;
        let (ended, readable) = wait_for_either(&end, (!removed).then(|| client.socket()), due)?;
        if ended {
            break;
        }
        let now = Instant::now();
        device = match device {
            Device::Alive(_) | Device::Asked(_) if readable => match client.take_answer() {
                Ok(()) => Device::Alive(now + patience / 2),
                Err(_) => Device::Removed("has ended", now + patience),
            },
            _ if now < due => device,
            Device::Alive(_) => match client.ask() {
                Ok(()) => Device::Asked(now + patience),
                Err(_) => Device::Removed("has ended", now + patience),
            },
            Device::Asked(_) => Device::Removed("does not answer", now + patience),
            Device::Removed(why, _) => {
                terminate(program, &end)?;
                bail!(
                    "the device process {why}, and the program did not end in {} ms after that: it was killed",
                    patience.as_millis()
                );
            }
        };
    }
    reap(program)
}

/// Waits for a child to end and collects it.
pub fn reap(program: libc::pid_t) -> Result<ExitCode> {
    let mut status = 0;
    // SAFETY: the status is writable.
    while unsafe { libc::waitpid(program, &mut status, 0) } != program {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error).context("lost the program");
        }
    }
    signals::forget_program();
    let code =
        if libc::WIFSIGNALED(status) { 128 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) };
    Ok(ExitCode::from(code as u8))
}

/// How long a device process may be silent, and a program may take to notice.
fn patience() -> Duration {
    let asked = std::env::var_os(std::ffi::OsStr::new(TIMEOUT_VARIABLE.to_str().unwrap_or_default()));
    let milliseconds = asked.and_then(|text| text.to_str()?.parse().ok());
    Duration::from_millis(milliseconds.unwrap_or(DEFAULT_TIMEOUT_MILLISECONDS))
}

/// A descriptor that becomes readable when the process ends.
fn process_descriptor(process: libc::pid_t) -> Result<OwnedFd> {
    // SAFETY: no pointers.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error()).context("cannot watch the program");
    }
    // SAFETY: just made, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}

/// Waits until one is readable, or until `due`.
fn wait_for_either(end: &OwnedFd, socket: Option<&OwnedFd>, due: Instant) -> Result<(bool, bool)> {
    let entry = |descriptor: i32| libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    // A negative number is skipped.
    let mut entries = [entry(end.as_raw_fd()), entry(socket.map_or(-1, AsRawFd::as_raw_fd))];
    let time = due.saturating_duration_since(Instant::now()).as_millis() as libc::c_int;
    // SAFETY: both entries are writable.
    if unsafe { libc::poll(entries.as_mut_ptr(), 2, time.saturating_add(1)) } < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::Interrupted {
            Ok((false, false))
        } else {
            Err(error.into())
        };
    }
    Ok((entries[0].revents != 0, entries[1].revents != 0))
}

/// Ends a program and all it has started.
fn terminate(program: libc::pid_t, end: &OwnedFd) -> Result<()> {
    let family = family(program);
    kill(&family, libc::SIGTERM);
    let due = Instant::now() + END_PATIENCE;
    while Instant::now() < due && !wait_for_either(end, None, due)?.0 {}
    kill(&family, libc::SIGKILL);
    reap(program).map(|_| ())
}

fn kill(processes: &[libc::pid_t], signal: libc::c_int) {
    for process in processes {
        // SAFETY: no pointers. One that has ended needs no signal.
        unsafe { libc::kill(*process, signal) };
    }
}

/// A process and its living descendants.
fn family(first: libc::pid_t) -> Vec<libc::pid_t> {
    let parents: Vec<(libc::pid_t, libc::pid_t)> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let process = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let status = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
            // The name before the last parenthesis may hold anything.
            let parent = status.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
            Some((process, parent))
        })
        .collect();
    let mut family = vec![first];
    let mut next = 0;
    while let Some(&parent) = family.get(next) {
        family.extend(parents.iter().filter(|entry| entry.1 == parent).map(|entry| entry.0));
        next += 1;
    }
    family
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_family_is_a_process_and_its_descendants() {
        #[expect(clippy::zombie_processes, reason = "`terminate` collects it")]
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 60 & echo $!; wait"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = io::BufReader::new(shell.stdout.take().unwrap());
        io::BufRead::read_line(&mut output, &mut line).unwrap();
        let (process, grandchild) = (shell.id() as i32, line.trim().parse().unwrap());
        let family = family(std::process::id() as i32);
        assert!(family.contains(&process) && family.contains(&grandchild), "{family:?}");
        assert!(!super::family(process).contains(&(std::process::id() as i32)));
        let end = process_descriptor(process).unwrap();
        terminate(process, &end).unwrap();
        assert!(!std::path::Path::new(&format!("/proc/{process}")).exists());
        let due = Instant::now() + Duration::from_secs(5);
        let alive = || {
            std::fs::read_to_string(format!("/proc/{grandchild}/stat"))
                .is_ok_and(|status| !status.contains(") Z "))
        };
        while alive() && Instant::now() < due {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!alive());
    }
}
