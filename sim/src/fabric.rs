//! Device processes: started, stopped, listed.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use irdma_engine::spec::Generation;
use irdma_sim_protocol::Mode;

use crate::client::{self, Client};
use crate::device;
use crate::discovery;
use crate::lock::Lock;
use crate::options::{DeviceEnds, DeviceOptions, Kernel};
use crate::runtime::{self, Folder, Name};

/// How long a device process may take to end.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// Starts a device process in the background and waits until it answers.
pub fn start(name: &Name, options: DeviceOptions) -> Result<()> {
    let (folder, lock) = prepare(name, &options)?;
    spawn(&folder, lock, options, false)?;
    confirm(name, &folder)
}

/// A device process that was started.
pub struct Started {
    /// Process number.
    pub process: libc::pid_t,
    /// If it is a single program's, it ends once this is closed and no program is connected to it.
    pub lifeline: PipeWriter,
}

/// Starts the device of a single program.
pub fn start_own(name: &Name, options: DeviceOptions) -> Result<Started> {
    let (folder, lock) = prepare(name, &options)?;
    let device = spawn(&folder, lock, options, true)?;
    confirm(name, &folder)?;
    Ok(device)
}

/// Plays the device in this process until told to stop.
pub fn serve(name: &Name, options: DeviceOptions) -> Result<()> {
    let (folder, _lock) = prepare(name, &options)?;
    let listener = listen(&folder)?;
    println!("device {name} is ready: irdma-sim run --fabric {name} -- PROGRAM");
    io::stdout().flush()?;
    let result = device::run_device(options, DeviceEnds { listener, lifeline: None });
    folder.remove();
    result
}

/// Takes the name and writes the device's files.
fn prepare(name: &Name, options: &DeviceOptions) -> Result<(Folder, Lock)> {
    ensure!(
        options.mode != Mode::Trap || cfg!(target_arch = "x86_64"),
        "trap mode needs an x86-64 machine: use --mode poll"
    );
    let folder = Folder::of(name)?;
    let Some(lock) = Lock::take(&folder)? else {
        bail!("a device called '{name}' is running already: stop it with `irdma-sim stop {name}`");
    };
    folder.clear()?;
    fs::write(folder.description(), describe(options))?;
    discovery::write_tree(&folder.tree(), &options.profile())?;
    Ok((folder, lock))
}

/// One line for `list`.
fn describe(options: &DeviceOptions) -> String {
    let generation = match options.generation {
        Generation::Gen1 => 1,
        Generation::Gen2 => 2,
        Generation::Gen3 => 3,
    };
    let mode = match options.mode {
        Mode::Trap => "trap",
        Mode::Poll => "poll",
        Mode::Step => "step",
    };
    let kernel = match options.kernel {
        Kernel::V6_1 => "6.1",
        Kernel::V6_12 => "6.12",
        Kernel::V7_2 => "7.2",
    };
    format!("gen {generation}, mode {mode}, kernel {kernel}")
}

/// Binds the device's socket.
fn listen(folder: &Folder) -> Result<OwnedFd> {
    let socket = client::seqpacket_socket()?;
    let address = client::socket_address(folder)?;
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: the address is valid for its size.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), std::ptr::from_ref(&address).cast(), length) };
    // SAFETY: no pointers.
    if bound != 0 || unsafe { libc::listen(socket.as_raw_fd(), libc::SOMAXCONN) } != 0 {
        return Err(io::Error::last_os_error())
            .with_context(|| format!("cannot listen on {}", folder.socket().display()));
    }
    Ok(socket)
}

/// Forks the device process and waits until its socket is there.
fn spawn(folder: &Folder, lock: Lock, options: DeviceOptions, own: bool) -> Result<Started> {
    let log = File::options().create(true).append(true).mode(0o600).open(folder.log())?;
    let (mut ready, mut signal) = io::pipe()?;
    let (hangup, lifeline) = io::pipe()?;
    // SAFETY: this process has one thread, so the child may do what it likes.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()).context("cannot fork"),
        0 => {
            drop((ready, lifeline));
            let serve = || -> Result<()> {
                detach(&log)?;
                let listener = listen(folder)?;
                signal.write_all(b"1")?;
                drop(signal);
                let _held = lock;
                let lifeline = own.then(|| OwnedFd::from(hangup));
                device::run_device(options, DeviceEnds { listener, lifeline })
            };
            let code = match catch_unwind(AssertUnwindSafe(serve)) {
                Ok(Ok(())) => 0,
                Ok(Err(error)) => {
                    eprintln!("irdma-sim: {error:#}");
                    1
                }
                // The panic has been printed.
                Err(_) => 1,
            };
            std::process::exit(code)
        }
        process => {
            drop((signal, lock));
            // End of file, if the child failed; what it has to say is in the log once it has ended.
            if ready.read(&mut [0]).unwrap_or(0) == 0 {
                // SAFETY: our child, and its status is not asked for.
                unsafe { libc::waitpid(process, ptr::null_mut(), 0) };
                bail!("the device process failed: {}", last_words(folder));
            }
            Ok(Started { process, lifeline })
        }
    }
}

/// Makes this process independent of the terminal and of who started it.
fn detach(log: &File) -> Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let streams = [(0, null.as_raw_fd()), (1, log.as_raw_fd()), (2, log.as_raw_fd())];
    for (stream, file) in streams {
        // SAFETY: no pointers.
        if unsafe { libc::dup2(file, stream) } < 0 {
            return Err(io::Error::last_os_error().into());
        }
    }
    // SAFETY: no pointers, and a static name. The new process leads no group, so setsid works.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"irdma-device".as_ptr());
    }
    std::env::set_current_dir("/")?;
    Ok(())
}

/// Makes sure that the device answers, and may read other processes.
fn confirm(name: &Name, folder: &Folder) -> Result<()> {
    match Client::connect(name) {
        Ok(_) => Ok(()),
        Err(error) => {
            let words = last_words(folder);
            if words.is_empty() { Err(error) } else { Err(error.context(words)) }
        }
    }
}

/// The end of the device process's log.
pub fn last_words(folder: &Folder) -> String {
    let log = fs::read_to_string(folder.log()).unwrap_or_default();
    let lines: Vec<&str> = log.lines().map(|line| line.trim_start_matches("irdma-sim: ")).collect();
    lines[lines.len().saturating_sub(3)..].join("; ")
}

/// Ends a device process.
pub fn stop(name: &Name) -> Result<()> {
    let process = match Client::reach(name).and_then(|client| client.process()) {
        Ok(process) => process,
        Err(error) => {
            // Nobody there, but perhaps something left over.
            let folder = Folder::of(name)?;
            if folder.path().exists()
                && let Some(_lock) = Lock::take(&folder)?
            {
                folder.remove();
            }
            return Err(error);
        }
    };
    end(process, libc::SIGTERM);
    let folder = Folder::of(name)?;
    let mut lock = Lock::take_within(&folder, END_PATIENCE)?;
    if lock.is_none() {
        end(process, libc::SIGKILL);
        lock = Lock::take_within(&folder, END_PATIENCE)?;
    }
    ensure!(lock.is_some(), "device '{name}' (process {process}) does not end");
    folder.remove();
    Ok(())
}

fn end(process: libc::pid_t, signal: libc::c_int) {
    // SAFETY: no pointers. It may have ended by itself.
    unsafe { libc::kill(process, signal) };
}

/// A running device.
pub struct Running {
    name: Name,
    process: Option<libc::pid_t>,
    description: String,
}

impl fmt::Display for Running {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}  {}", self.name, self.description)?;
        match self.process {
            Some(process) => write!(formatter, ", process {process}"),
            None => write!(formatter, ", cannot be reached"),
        }
    }
}

/// All running devices of this user. Removes what dead ones have left.
pub fn list() -> Result<Vec<Running>> {
    let mut running = Vec::new();
    for name in runtime::names()? {
        let folder = Folder::of(&name)?;
        if let Some(_lock) = Lock::take(&folder)? {
            folder.remove();
            continue;
        }
        // A program on a device that was started has a folder too, but nothing to describe.
        let Ok(description) = fs::read_to_string(folder.description()) else { continue };
        let process = Client::reach(&name).and_then(|client| client.process()).ok();
        running.push(Running { name, process, description });
    }
    Ok(running)
}
