//! The device process that plays the NIC for the guests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::process::{Running, wait_until};
use crate::workspace::{cargo, run, target};

/// Longest time until it listens.
const START_LIMIT: Duration = Duration::from_secs(60);

/// The device's program, built, unless it is another one.
pub fn program(other: Option<&Path>) -> Result<PathBuf> {
    if let Some(other) = other {
        return Ok(other.to_owned());
    }
    run(cargo("build").args(["--quiet", "--profile", "sim", "--package", "irdma-vfio"]))?;
    Ok(target().join("sim/irdma-vfio"))
}

/// Starts it with one function for each of `sockets`.
pub fn start(program: &Path, generation: u32, sockets: &[PathBuf], log: &Path) -> Result<Running> {
    let mut command = Command::new(program);
    command.args(["--gen", &generation.to_string()]);
    for socket in sockets {
        command.arg("--socket").arg(socket);
    }
    let mut device = Running::start(&mut command, log)?;
    let is_ready = |device: &Running| device.output().lines().any(|line| line == "ready");
    wait_until(START_LIMIT, || is_ready(&device) || matches!(device.has_ended(), Ok(true) | Err(_)));
    if !is_ready(&device) {
        bail!("the device did not start: {}", device.output().trim_end());
    }
    Ok(device)
}
