//! The device process: plays kernel and NIC for every program of a fabric.

mod bar;
mod control;
mod doorbell;
mod message;
mod polling;
mod priority;
mod server;
mod sockets;
#[cfg(test)]
mod tests;
mod waiting;

use irdma_uverbs::Device;

use crate::options::{DeviceEnds, DeviceOptions};

/// Serves programs until told to stop (control command `stop`, SIGTERM,
/// SIGINT) or until nobody waits for it any more and no program is left.
pub fn run_device(options: DeviceOptions, ends: DeviceEnds) -> anyhow::Result<()> {
    let profile = options.profile();
    profile.check().map_err(anyhow::Error::msg)?;
    let waits = options.mode == irdma_sim_protocol::Mode::Trap;
    let device = Device::new(profile, waits)?;
    priority::come_first(options.mode);
    server::Server::new(device, options.mode, ends)?.run()
}
