//! The process that opens devices, started, listened to and ended in time.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::files::shown;
use crate::probe::{Answer, Line};

/// How long it may take for everything.
const LIMIT: Duration = Duration::from_secs(30);

/// How long it may take to end.
const GRACE: Duration = Duration::from_secs(2);

/// Bytes of the most that is listened to.
const MOST: u64 = 1 << 20;

/// What came of it.
#[derive(Debug, Default)]
pub struct Inquiry {
    /// The file of the libibverbs that a program gets.
    pub library: Option<String>,
    /// Why it gets none.
    pub library_error: Option<String>,
    /// The files of the plugins of irdma that this has loaded.
    pub loaded: Vec<String>,
    /// What was learnt of devices, by name.
    pub answers: Vec<(String, Answer)>,
    /// What libibverbs and the provider wrote.
    pub said: Vec<String>,
    /// Where it ended if not at the end: a device, if one was being looked at, and how.
    pub failure: Option<(Option<String>, String)>,
}

/// Asks about the devices with those names.
pub fn make(library: &OsStr, names: &[String]) -> Inquiry {
    make_with(command(library, names), LIMIT)
}

/// This program, in its other part.
fn command(library: &OsStr, names: &[String]) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--libibverbs").arg(library).arg("--probe").args(names);
    Ok(command)
}

fn make_with(command: io::Result<Command>, limit: Duration) -> Inquiry {
    let started = command.and_then(|mut command| {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    });
    let mut child = match started {
        Ok(child) => child,
        Err(error) => {
            let failure = Some((None, format!("no process to open devices in: {error}")));
            return Inquiry { failure, ..Inquiry::default() };
        }
    };
    let (output, errors) = (listen(child.stdout.take()), listen(child.stderr.take()));
    let deadline = Instant::now() + limit;
    let mut status = wait(&mut child, deadline);
    let in_time = status.is_some();
    if status.is_none() {
        // Whoever waits in the kernel may not even end then.
        let _ = child.kill();
        status = wait(&mut child, Instant::now() + GRACE);
    }
    let text = |from: Receiver<String>| from.recv_timeout(GRACE).unwrap_or_default();
    let mut inquiry = Inquiry::read(&text(output), &text(errors));
    if let Some((_, how)) = &mut inquiry.failure {
        *how = match status {
            _ if !in_time => format!("no answer within {} s", limit.as_secs()),
            Some(status) => ended(status),
            None => "it does not end".to_owned(),
        };
    }
    inquiry
}

/// Waits for the end of a process, up to a time.
fn wait(child: &mut Child, deadline: Instant) -> Option<ExitStatus> {
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if Instant::now() >= deadline {
            return None;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Everything that comes out of a pipe, in a thread: the pipe must not fill.
fn listen(pipe: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            // What came before an error counts.
            let _ = pipe.take(MOST).read_to_end(&mut bytes);
        }
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it ended with {code}"),
        (_, Some(signal)) => format!("it was killed by signal {signal}"),
        _ => "it ended".to_owned(),
    }
}

impl Inquiry {
    /// From what the process has written.
    fn read(output: &str, errors: &str) -> Inquiry {
        let mut inquiry = Inquiry::default();
        let mut at = None;
        let mut is_whole = false;
        for line in output.lines() {
            match serde_json::from_str(line) {
                Ok(Line::Library(file)) => inquiry.library = Some(file),
                Ok(Line::NoLibrary(reason)) => inquiry.library_error = Some(reason),
                Ok(Line::Loaded(files)) => inquiry.loaded = files,
                Ok(Line::Begin(name)) => at = Some(name),
                Ok(Line::Device(answer)) => inquiry.answers.extend(at.take().map(|name| (name, *answer))),
                Ok(Line::End) => is_whole = true,
                // Of a plugin that prints.
                Err(_) => inquiry.said.push(shown(line)),
            }
        }
        inquiry.said.extend(errors.lines().map(shown));
        // One of a plugin is told once, however often libibverbs tries.
        inquiry.said.dedup();
        inquiry.failure = (!is_whole).then(|| (at, String::new()));
        inquiry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Inquiry {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        make_with(Ok(command), limit)
    }

    #[test]
    fn lines_add_up() {
        let script = r#"echo '{"Library":"/x"}'; echo noise; echo '{"Begin":"irdma0"}'
            echo '{"Device":{"is_offered":true}}' >&2; echo said >&2; echo said >&2; echo '"End"'"#;
        let inquiry = shell(script, LIMIT);
        assert_eq!(inquiry.library.as_deref(), Some("/x"));
        assert!(inquiry.answers.is_empty() && inquiry.failure.is_none());
        assert_eq!(inquiry.said, ["noise", r#"{"Device":{"is_offered":true}}"#, "said"]);
    }

    #[test]
    fn an_end_too_early_is_told_with_its_place() {
        let script = r#"echo '{"Library":"/x"}'; echo '{"Begin":"irdma1"}'; kill -SEGV $$"#;
        let failure = shell(script, LIMIT).failure.unwrap();
        assert_eq!(failure, (Some("irdma1".to_owned()), "it was killed by signal 11".to_owned()));
        assert_eq!(shell("exit 3", LIMIT).failure.unwrap(), (None, "it ended with 3".to_owned()));
    }

    #[test]
    fn who_hangs_is_ended() {
        let started = Instant::now();
        let failure = shell("exec sleep 60", Duration::from_secs(1)).failure.unwrap();
        assert_eq!(failure.1, "no answer within 1 s");
        assert!(started.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn endless_output_ends() {
        let inquiry = shell("exec yes", Duration::from_secs(1));
        assert!(inquiry.failure.is_some());
    }

    #[test]
    fn no_process_is_told() {
        let inquiry = make_with(Ok(Command::new("/no/such/program")), LIMIT);
        assert!(inquiry.failure.unwrap().1.contains("No such file"));
    }
}
