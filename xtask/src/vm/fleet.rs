//! The device process and the guests on it: built, booted, ended.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::guest::Guest;
use super::initrd::{self, Contents};
use super::kernel::Kernel;
use super::machine::Machine;
use super::packages::Set;
use super::{device, disk, stand_in};
use crate::process::{Running, wait_until};
use crate::sim::Provider;
use crate::workspace::{cargo, run, target};
use crate::{checker, plugin, suites};

/// Longest time for the device to end when its guests have gone.
const END_LIMIT: Duration = Duration::from_secs(5);

/// A boot on a machine that has nothing else to do, generously.
const CALM_BOOT: Duration = Duration::from_secs(15);

/// What machines are made of, built or fetched.
pub struct Parts {
    kernel: Kernel,
    disk: PathBuf,
    busybox: PathBuf,
    agent: PathBuf,
    checker: PathBuf,
    plugin: PathBuf,
    stand_in: Option<PathBuf>,
    device: PathBuf,
    generation: u32,
    has_lan: bool,
}

impl Parts {
    /// For a device of that generation, played by `device` instead of the project's if it is given.
    pub fn build(generation: u32, has_lan: bool, device: Option<&Path>) -> Result<Parts> {
        run(cargo("build").args(["--quiet", "--profile", "sim", "--package", "irdma-vm-agent"]))?;
        let device = device::program(device)?;
        let plugin = plugin::build(Some(&suites::development_root("forky")?))?;
        let kernel = Kernel::unpacked()?;
        let stand_in = (generation == 2).then(|| stand_in::build(&kernel.release)).transpose()?;
        Ok(Parts {
            kernel,
            disk: disk::image()?,
            busybox: Set::Guest.unpacked()?.join("usr/bin/busybox"),
            agent: target().join("sim/irdma-vm-agent"),
            checker: checker::quick()?,
            plugin: plugin.library,
            stand_in,
            device,
            generation,
            has_lan,
        })
    }

    fn initrd(&self, provider: Provider, folder: &Path) -> Result<PathBuf> {
        let contents = Contents {
            agent: &self.agent,
            checker: &self.checker,
            plugin: (provider == Provider::Ours).then_some(self.plugin.as_path()),
            stand_in: self.stand_in.as_deref(),
        };
        let file = folder.join("initrd");
        fs::write(&file, initrd::make(&self.kernel, &self.busybox, &contents)?)?;
        Ok(file)
    }
}

/// A device and its guests.
pub struct Fleet {
    /// The guests, by number.
    pub guests: Vec<Guest>,
    /// How many functions each has.
    pub functions: u32,
    /// How many times as long as on a calm machine things take: limits grow by it.
    pub slowness: u32,
    device: Running,
    /// Holds the sockets, and goes with this value.
    _folder: Folder,
}

impl Fleet {
    /// Boots `count` guests that load that provider; what they say is kept in `logs`.
    /// Each has `functions` functions of the device.
    pub fn boot(parts: &Parts, provider: Provider, count: u32, functions: u32, logs: &Path) -> Result<Fleet> {
        fs::create_dir_all(logs)?;
        let folder = Folder::new()?;
        let initrd = parts.initrd(provider, logs)?;
        let started = Instant::now();
        let sockets: Vec<PathBuf> =
            (0..count * functions).map(|number| folder.0.join(format!("nic{number}"))).collect();
        let device = device::start(&parts.device, parts.generation, &sockets, &logs.join("device.log"))?;
        let mut booting = Vec::new();
        for (number, functions) in (0..count).zip(sockets.chunks(functions as usize)) {
            let log = |kind: &str| logs.join(format!("{kind}{number}.log"));
            let port = folder.0.join(format!("port{number}"));
            let listener = UnixListener::bind(&port).context("cannot make the agent's port")?;
            let serial = log("serial");
            let machine = parts.machine(number, functions, &initrd, &port, &serial, false);
            let qemu = Running::start(&mut machine.command()?, &log("qemu"))?;
            booting.push((qemu, listener, serial, log("kernel")));
        }
        let greet = |(qemu, listener, serial, kernel): (_, UnixListener, PathBuf, PathBuf)| {
            Guest::greet(qemu, &listener, &serial, &kernel)
        };
        let guests = booting.into_iter().map(greet).collect::<Result<Vec<_>>>()?;
        let slowness = slowness(started.elapsed());
        Ok(Fleet { guests, functions, slowness, device, _folder: folder })
    }

    /// Ends the guests, and looks that the device ends with them.
    pub fn end(self) -> Result<()> {
        let Fleet { guests, mut device, .. } = self;
        guests.into_iter().try_for_each(Guest::end)?;
        ensure!(
            wait_until(END_LIMIT, || matches!(device.has_ended(), Ok(true) | Err(_))),
            "the device does not end with its guests"
        );
        let finished = device.wait(END_LIMIT)?;
        ensure!(finished.succeeded(), "the device: {}", finished.explain());
        Ok(())
    }
}

/// How slow a machine is whose guests took that long to boot.
fn slowness(boot: Duration) -> u32 {
    let times = boot.as_secs().div_ceil(CALM_BOOT.as_secs());
    times.clamp(1, 20) as u32
}

/// Boots one guest whose console is this terminal, until the person ends it.
pub fn shell(parts: &Parts, provider: Provider, logs: &Path) -> Result<ExitStatus> {
    fs::create_dir_all(logs)?;
    let folder = Folder::new()?;
    let initrd = parts.initrd(provider, logs)?;
    let functions = [folder.0.join("nic0")];
    let _device = device::start(&parts.device, parts.generation, &functions, &logs.join("device.log"))?;
    let port = folder.0.join("port0");
    let _listener = UnixListener::bind(&port)?;
    let serial = logs.join("serial0.log");
    let machine = parts.machine(0, &functions, &initrd, &port, &serial, true);
    machine.command()?.status().context("cannot start QEMU")
}

impl Parts {
    fn machine<'parts>(
        &'parts self,
        number: u32,
        functions: &'parts [PathBuf],
        initrd: &'parts Path,
        port: &'parts Path,
        serial: &'parts Path,
        is_shell: bool,
    ) -> Machine<'parts> {
        Machine {
            number,
            generation: self.generation,
            has_lan: self.has_lan,
            kernel: &self.kernel.image,
            initrd,
            disk: &self.disk,
            functions,
            port,
            serial,
            is_shell,
        }
    }
}

/// A folder for sockets: their paths must be short, so it is not in the target directory.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Folder> {
        let folder = std::env::temp_dir().join(format!("irdma-vm-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Folder(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
