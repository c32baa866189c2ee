//! One command from its start to its end.

use std::fs;
use std::io::{PipeReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use irdma_vm_agent::{End, Report};

use crate::Reports;
use crate::control_group::ControlGroup;

/// How often a child is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// How long processes that a command started may live on after it.
const GRACE: Duration = Duration::from_secs(3);

/// Runs a command, reporting its output and its end.
pub fn carry_out(run: u32, limit: u32, port: u16, script: &str, group: &ControlGroup, reports: &Reports) {
    let deadline = Instant::now() + Duration::from_secs(limit.into());
    let say = |text: String| reports.send(&Report::Output { run, bytes: text.into_bytes() });
    let mut left_over = 0;
    let end = if port != 0 && !wait_for_port(port, deadline) {
        say(format!("nothing listens on TCP port {port}\n"));
        End::NotStarted
    } else {
        match start(script, group) {
            Ok((mut child, output)) => {
                let copier = {
                    let reports = reports.clone();
                    thread::spawn(move || copy(run, output, &reports))
                };
                let end = wait(&mut child, deadline);
                left_over = match end {
                    End::TimeOut => {
                        group.kill();
                        let _ = child.wait();
                        group.clear(GRACE);
                        0
                    }
                    _ => group.clear(GRACE),
                };
                let _ = copier.join();
                end
            }
            Err(error) => {
                say(format!("the shell does not start: {error}\n"));
                End::NotStarted
            }
        }
    };
    if end == End::NotStarted {
        group.clear(Duration::ZERO);
    }
    reports.send(&Report::Ended { run, end, left_over });
}

fn start(script: &str, group: &ControlGroup) -> std::io::Result<(Child, PipeReader)> {
    let (output, input) = std::io::pipe()?;
    let members = group.members_file();
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(script).stdin(Stdio::null()).stdout(input.try_clone()?).stderr(input);
    // SAFETY: The child has one thread, and the standard library's write allocates only for the path:
    // the parent's allocator is not locked by another thread, or glibc's fork would have waited for it.
    unsafe {
        command.pre_exec(move || {
            fs::write(&members, "0")?;
            rustix::process::setsid()?;
            Ok(())
        });
    }
    let child = command.spawn()?;
    Ok((child, output))
}

fn wait(child: &mut Child, deadline: Instant) -> End {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                return match (status.code(), status.signal()) {
                    (Some(code), _) => End::Exit(code as u8),
                    (None, signal) => End::Signal(signal.unwrap_or_default() as u8),
                };
            }
            Ok(None) if Instant::now() < deadline => thread::sleep(LOOK),
            Ok(None) | Err(_) => return End::TimeOut,
        }
    }
}

/// Reports output until nobody has the writing end any more.
fn copy(run: u32, mut output: PipeReader, reports: &Reports) {
    let mut buffer = [0; 1 << 14];
    while let Ok(length) = output.read(&mut buffer) {
        if length == 0 {
            break;
        }
        reports.send(&Report::Output { run, bytes: buffer[..length].to_vec() });
    }
}

/// Waits until a socket listens on that TCP port, or until `deadline`.
fn wait_for_port(port: u16, deadline: Instant) -> bool {
    loop {
        if ["/proc/net/tcp", "/proc/net/tcp6"]
            .iter()
            .any(|table| has_listener(&fs::read_to_string(table).unwrap_or_default(), port))
        {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        thread::sleep(LOOK);
    }
}

fn has_listener(table: &str, port: u16) -> bool {
    table.lines().skip(1).any(|line| {
        // Columns: number, local address:port, remote address:port, state (0A is LISTEN).
        let mut columns = line.split_whitespace().skip(1);
        let local = columns.next().and_then(|address| address.rsplit_once(':'));
        let state = columns.nth(1);
        state == Some("0A") && local.is_some_and(|(_, number)| u16::from_str_radix(number, 16) == Ok(port))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_socket_that_listens_counts() {
        let table = "  sl  local_address rem_address   st\n\
                     0: 0100007F:4853 00000000:0000 0A 00000000\n\
                     1: 0100007F:4854 0100007F:4853 01 00000000\n";
        assert!(has_listener(table, 0x4853));
        assert!(!has_listener(table, 0x4854));
    }
}
