//! What a device process is told at its start.

use std::os::fd::OwnedFd;

use irdma_engine::spec::Generation;
use irdma_sim_protocol::Mode;
pub use irdma_uverbs::KernelVersion as Kernel;
use irdma_uverbs::{Profile, Transport, identity};

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

impl DeviceOptions {
    /// What the device is.
    pub fn profile(&self) -> Profile {
        let transport = if self.generation == Generation::Gen1 { Transport::Iwarp } else { Transport::Roce };
        Profile {
            generation: self.generation,
            transport,
            kernel: self.kernel,
            gids: identity::gids(self.generation).to_vec(),
            seed: self.seed,
            ..Profile::default()
        }
    }
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
