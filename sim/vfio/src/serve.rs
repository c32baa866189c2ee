//! Sockets, threads and signals.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

use irdma_engine::spec::FunctionId;
use vfio_user::Server;

use crate::backend::{Backend, Shared, interrupts, regions};
use crate::machine::Machine;
use crate::options::Options;

/// Longest sleep of the thread that keeps time.
const IDLE: Duration = Duration::from_secs(3600);

/// Why it ends.
enum End {
    /// The virtual machine of a function has gone, well or not; and whether it was the last.
    Gone(Result<(), String>, bool),
    /// A signal has come.
    Told,
}

/// Serves until all virtual machines that came have gone, or a signal comes.
///
/// # Errors
/// In one line: a socket that cannot be made, or a connection that failed.
pub fn run(options: &Options) -> Result<(), String> {
    block_signals()?;
    let shared = Shared::new(Machine::new(options.generation, options.sockets.len()));
    let (sender, ends) = channel();
    let mut listeners = Vec::new();
    for path in &options.sockets {
        listeners.push(listen(path)?);
    }
    for (function, listener) in (0..).zip(listeners) {
        let server = Server::from_owned_fd(listener, true, interrupts(), regions(options.generation));
        let backend = Backend::new(function, Arc::clone(&shared));
        start("function", sender.clone(), move || serve(&server, function, backend))?;
    }
    start("signals", sender, wait_for_signal)?;
    let clock = Arc::clone(&shared);
    spawn("clock", move || keep_time(&clock))?;
    let mut output = std::io::stdout();
    // Whoever started it may not want to know.
    let _ = writeln!(output, "ready").and_then(|()| output.flush());
    let mut result = Ok(());
    for _ in &options.sockets {
        match ends.recv() {
            Ok(End::Gone(end, is_last)) => {
                result = result.and(end);
                if is_last {
                    break;
                }
            }
            Ok(End::Told) | Err(_) => break,
        }
    }
    for path in &options.sockets {
        let _ = std::fs::remove_file(path);
    }
    result
}

fn listen(path: &Path) -> Result<OwnedFd, String> {
    UnixListener::bind(path).map(OwnedFd::from).map_err(|error| format!("{}: {error}", path.display()))
}

/// Serves one function until its virtual machine goes.
fn serve(server: &Server, function: FunctionId, mut backend: Backend) -> End {
    let result = server.run(&mut backend);
    let is_last = backend.leave();
    End::Gone(result.map_err(|error| format!("function {function}: {error}")), is_last)
}

/// Lets the engine do what is due, when it is due.
fn keep_time(shared: &Shared) {
    let mut machine = shared.lock();
    loop {
        machine.advance();
        let wait = machine.next_due().unwrap_or(IDLE);
        let waited = shared.changed.wait_timeout(machine, wait);
        machine = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let built = thread::Builder::new().name(name.into()).spawn(body);
    built.map(drop).map_err(|error| format!("no thread for {name}: {error}"))
}

/// A thread whose end is news.
fn start(name: &str, ends: Sender<End>, body: impl FnOnce() -> End + Send + 'static) -> Result<(), String> {
    spawn(name, move || {
        let end = body();
        // Nobody listens any more if all is over.
        let _ = ends.send(end);
    })
}

fn ending_signals() -> libc::sigset_t {
    // SAFETY: a set of signals is plain data, and is initialised before it is used.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGTERM);
        libc::sigaddset(&mut set, libc::SIGINT);
        set
    }
}

/// Keeps the signals for the thread that waits for them.
fn block_signals() -> Result<(), String> {
    // SAFETY: the set is valid for the length of the call.
    let result = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &ending_signals(), std::ptr::null_mut()) };
    if result == 0 { Ok(()) } else { Err("signals cannot be blocked".into()) }
}

fn wait_for_signal() -> End {
    let mut signal = 0;
    // SAFETY: the set and the number are valid for the length of the call.
    unsafe { libc::sigwait(&ending_signals(), &mut signal) };
    End::Told
}
