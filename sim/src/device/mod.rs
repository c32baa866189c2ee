//! The device process: plays kernel and NIC for every program of a fabric.

use crate::options::{DeviceEnds, DeviceOptions};

/// Serves programs until told to stop (control command `stop`, SIGTERM,
/// SIGINT) or until nobody waits for it any more and no program is left.
pub fn run_device(options: DeviceOptions, ends: DeviceEnds) -> anyhow::Result<()> {
    drop((options, ends));
    anyhow::bail!("not served yet")
}
