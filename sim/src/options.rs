//! What a device process is told at its start.

use irdma_engine::spec::Generation;
use irdma_sim_protocol::Mode;

/// Kernel release whose irdma and uverbs behaviour the device shows, where releases differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kernel {
    /// 6.1, Debian 12.
    V6_1,
    /// 6.12, Debian 13.
    V6_12,
    /// 7.2.
    V7_2,
}

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
