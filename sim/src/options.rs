//! What a device process is told at its start.

use std::os::fd::OwnedFd;

use irdma_engine::spec::Generation;
use irdma_sim_protocol::Mode;
pub use irdma_uverbs::KernelVersion as Kernel;
pub use irdma_uverbs::Transport;
pub use irdma_uverbs::profile::feature;
use irdma_uverbs::{Profile, identity};

/// A device and how it is driven.
#[derive(Clone, Debug)]
pub struct DeviceOptions {
    /// Hardware generation.
    pub generation: Generation,
    /// Wire protocol.
    pub transport: Transport,
    /// How doorbells arrive.
    pub mode: Mode,
    /// Kernel behaviour.
    pub kernel: Kernel,
    /// Features that it does not offer, though its generation has them.
    pub withheld: u64,
    /// The old i40iw kernel, up to that ABI version.
    pub legacy: Option<u8>,
    /// Push pages that queue pairs can have.
    pub push_pages: u32,
    /// Where in its page a queue pair's part is, in bytes.
    pub push_offset: u16,
    /// Seed of everything chosen at random.
    pub seed: u64,
}

impl DeviceOptions {
    /// What the device is.
    pub fn profile(&self) -> Profile {
        let gids = match self.transport {
            Transport::Roce => identity::gids(self.generation),
            Transport::Iwarp => &[identity::IWARP],
        };
        Profile {
            generation: self.generation,
            transport: self.transport,
            kernel: self.kernel,
            withheld: self.withheld,
            legacy: self.legacy,
            gids: gids.to_vec(),
            push_pages: self.push_pages,
            push_offset: self.push_offset,
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
