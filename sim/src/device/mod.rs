//! The device process: plays kernel and NIC for every program of a fabric.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use irdma_sim_protocol::Mode;
use irdma_uverbs::Profile;

/// How a device process is started.
#[derive(Debug)]
pub struct DeviceOptions {
    /// Socket to serve. Appears in the file system only when connections are accepted.
    pub socket: PathBuf,
    /// Gets one line, `ready`, when the socket is there; then closed.
    pub ready: Option<OwnedFd>,
    /// End when no connection and no open device node is left, once there has been one.
    /// A launcher keeps a connection of its own for as long as the device is to live.
    pub exit_when_unused: bool,
    /// How doorbells reach the device.
    pub mode: Mode,
    /// What the device is.
    pub profile: Profile,
}

/// Serves `options.socket` until told to stop (control command `stop`,
/// SIGTERM, SIGINT) or no longer used.
pub fn run_device(options: DeviceOptions) -> anyhow::Result<()> {
    anyhow::bail!("not served yet: {}", options.socket.display())
}
