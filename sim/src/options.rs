//! What a device process is told at its start.

use std::os::fd::OwnedFd;

use irdma_engine::spec::Generation;
use irdma_sim_protocol::Mode;
pub use irdma_uverbs::KernelVersion as Kernel;

/// A device and how it is driven.
#[derive(Clone, Debug)]
pub struct DeviceOptions {
    /// Hardware generation.
    pub generation: Generation,
    /// How doorbells arrive.
    pub mode: Mode,
    /// Kernel behaviour.
    pub kernel: Kernel,
    /// Seed of everything chosen at random.
    pub seed: u64,
}

/// What the launcher hands to the device process besides its options:
/// `device::run_device(options, ends)`.
#[derive(Debug)]
pub struct DeviceEnds {
    /// Bound and listening `SOCK_SEQPACKET` socket.
    pub listener: OwnedFd,
    /// Reads as end of file when nobody waits for the device any more: from then
    /// on it ends as soon as no program is connected. `None`: runs until killed.
    pub lifeline: Option<OwnedFd>,
}
