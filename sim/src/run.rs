//! Runs a program on a device.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use irdma_sim_protocol::{ROOT_VARIABLE, SOCKET_VARIABLE};

use crate::client::Client;
use crate::fabric;
use crate::isolation::{self, Isolation, NotIsolated};
use crate::lock::Lock;
use crate::options::DeviceOptions;
use crate::plugin::{self, Driver, Provider};
use crate::program;
use crate::runtime::{Folder, Name};
use crate::signals::Signals;
use crate::watch;

/// Environment variable that tells a program the name of its device, for `irdma-sim ctl`.
const FABRIC_VARIABLE: &str = "IRDMA_SIM_FABRIC";

/// What to run, and how.
pub struct Program {
    /// Its name or path, and its arguments.
    pub arguments: Vec<OsString>,
    /// Whose provider it loads.
    pub provider: Provider,
    /// Where our plugin is, if the user said it.
    pub plugin: Option<PathBuf>,
    /// How it is shown the device's files.
    pub isolation: Isolation,
}

/// A program that has been found fit to run.
struct Checked<'a> {
    program: &'a Program,
    path: PathBuf,
    preload: PathBuf,
    driver: Driver,
}

impl Program {
    /// Finds all that is needed before anything is started.
    fn check(&self) -> Result<Checked<'_>> {
        let name = self.arguments.first().context("no program")?;
        let path = program::find(name)?;
        let driver = plugin::driver(self.provider, self.plugin.as_deref())?;
        Ok(Checked { program: self, path, preload: preload_library()?, driver })
    }
}

/// Runs a program on a device that was started before.
pub fn on_fabric(name: &Name, program: &Program) -> Result<ExitCode> {
    let checked = program.check()?;
    // Before anything is made: there must be such a device.
    Client::connect(name)?;
    let device = Folder::of(name)?;
    let own = Name::of_own_device(std::process::id());
    let folder = Folder::of(&own)?;
    let lock = Lock::take(&folder)?.context("another launcher with this process number is running")?;
    // A launcher that was killed may have had this process number.
    folder.clear()?;
    let code = run(&checked, name, &device, &folder);
    folder.remove();
    drop(lock);
    code
}

/// Runs a program on a device of its own.
pub fn on_own_device(options: DeviceOptions, program: &Program) -> Result<ExitCode> {
    let checked = program.check()?;
    let name = Name::of_own_device(std::process::id());
    let folder = Folder::of(&name)?;
    let code = fabric::start_own(&name, options).and_then(|device| {
        let code = run(&checked, &name, &folder, &folder);
        // The device may go, once the program's children have gone too.
        drop(device.lifeline);
        report_failure(device.process, &folder);
        code
    });
    folder.remove();
    code
}

/// Says what a device process that has failed had to say.
fn report_failure(device: libc::pid_t, folder: &Folder) {
    let mut status = 0;
    // SAFETY: the status is writable.
    let ended = unsafe { libc::waitpid(device, &mut status, libc::WNOHANG) };
    if ended == device && status != 0 {
        eprintln!("irdma-sim: the device process has failed: {}", fabric::last_words(folder));
    }
}

/// Runs the program on the device of `device`; its own files go to `own`.
fn run(checked: &Checked<'_>, name: &Name, device: &Folder, own: &Folder) -> Result<ExitCode> {
    let drivers = own.path().join("drivers");
    fs::create_dir(&drivers).with_context(|| format!("cannot make {}", drivers.display()))?;
    let line = [b"driver ", checked.driver.name.as_os_str().as_bytes(), b"\n"].concat();
    fs::write(drivers.join("irdma.driver"), line)?;
    let client = Client::connect(name)?;
    let signals = Signals::hold();
    let mut isolation = checked.program.isolation;
    loop {
        let (mut told, mut tell) = io::pipe()?;
        // SAFETY: this process has one thread, so the child may do what it likes.
        match unsafe { libc::fork() } {
            -1 => return Err(io::Error::last_os_error()).context("cannot fork"),
            0 => {
                signals.give_back();
                let error = become_program(checked, isolation, name, device, own, &drivers);
                if isolation == Isolation::Auto && error.is::<NotIsolated>() {
                    // If this cannot be written either, the parent takes us for the program.
                    let _ = tell.write_all(b"n");
                } else {
                    eprintln!("irdma-sim: {error:#}");
                }
                // Not `exit`: what the parent has buffered is the parent's.
                // SAFETY: no preconditions.
                unsafe { libc::_exit(1) }
            }
            child => {
                drop(tell);
                // End of file once the program runs.
                if told.read(&mut [0])? == 0 {
                    signals.pass_to(child);
                    return watch::wait(child, &client);
                }
                // A process half in a namespace is no place for a program: try with a new one.
                watch::reap(child)?;
                isolation = Isolation::Rewrite;
            }
        }
    }
}

/// Turns this process into the program; what went wrong, if it comes back.
fn become_program(
    checked: &Checked<'_>,
    isolation: Isolation,
    name: &Name,
    device: &Folder,
    own: &Folder,
    drivers: &Path,
) -> anyhow::Error {
    let mut command = Command::new(&checked.path);
    command.arg0(&checked.program.arguments[0]).args(&checked.program.arguments[1..]);
    match show_files(isolation, device, own, drivers) {
        Err(error) => return error,
        Ok(None) => {}
        Ok(Some(root)) => {
            // libibverbs takes it from here; the preload library redirects what has /sys built in.
            command.env("SYSFS_PATH", root.join("sys"));
            command.env(variable(ROOT_VARIABLE), root);
        }
    }
    let mut preload = checked.preload.clone().into_os_string();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    command
        .env("LD_PRELOAD", preload)
        .env(variable(SOCKET_VARIABLE), device.socket())
        .env(FABRIC_VARIABLE, name.to_string())
        // UCX would take the fault handlers away under the preload library's feet.
        .env("UCX_ERROR_SIGNALS", "")
        .env("UCX_HANDLE_ERRORS", "none")
        .env_remove("IBV_DRIVERS");
    if checked.driver.ours {
        command.env("RDMAV_DRIVERS", &checked.driver.name);
    } else {
        command.env_remove("RDMAV_DRIVERS");
    }
    anyhow::Error::from(command.exec()).context(checked.path.display().to_string())
}

/// A variable's name, which is ASCII.
fn variable(name: &'static std::ffi::CStr) -> &'static std::ffi::OsStr {
    std::ffi::OsStr::from_bytes(name.to_bytes())
}

/// Shows the device's files. Where they are, if paths must be redirected there.
fn show_files(
    isolation: Isolation,
    device: &Folder,
    own: &Folder,
    drivers: &Path,
) -> Result<Option<PathBuf>> {
    if isolation != Isolation::Rewrite {
        let stage = own.path().join("stage");
        fs::create_dir(&stage).with_context(|| format!("cannot make {}", stage.display()))?;
        isolation::enter(&device.tree(), drivers, &stage).context(NotIsolated)?;
        return Ok(None);
    }
    let root = own.path().join("root");
    fs::create_dir_all(root.join("etc"))?;
    symlink(drivers, root.join(isolation::DRIVER_FOLDER.trim_start_matches('/')))?;
    for part in ["sys", "dev"] {
        symlink(device.tree().join(part), root.join(part))?;
    }
    Ok(Some(root))
}

/// The library that is preloaded, beside this program.
fn preload_library() -> Result<PathBuf> {
    const NAME: &str = "libirdma_sim_preload.so";
    let program = std::env::current_exe().context("cannot find this program's file")?;
    let path = program.with_file_name(NAME);
    ensure!(path.is_file(), "no {}: build it with `cargo build --package irdma-sim-preload`", path.display());
    let splits = |byte: &u8| byte.is_ascii_whitespace() || *byte == b':';
    if path.as_os_str().as_bytes().iter().any(splits) {
        bail!("{}: the loader cannot preload from a path with spaces or colons", path.display());
    }
    Ok(path)
}
