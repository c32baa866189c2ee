//! Statistics: what a function has sent and received.

use irdma_engine::Engine;

use super::{Command, Failure};
use crate::field::Field;
use crate::function::Function;
use crate::host::Host;

/// Bytes of the buffer (kernel: `IRDMA_GATHER_STATS_BUF_SIZE`).
const BUFFER_BYTES: usize = 1024;
const ALLOCATE: Field = Field::bit(62);
/// The one set of counters that a function has.
const INSTANCE: u32 = 1;

/// `MANAGE_STATS`: gives out the set of counters, or takes it back.
pub(super) fn allocate(command: &Command) -> u32 {
    if command.has(ALLOCATE) { INSTANCE } else { 0 }
}

impl Function {
    /// `GATHER_STATS`.
    pub(super) fn gather_statistics(
        &mut self,
        engine: &mut Engine<Host>,
        command: &Command,
    ) -> Result<(), Failure> {
        let buffer = [0; BUFFER_BYTES];
        Ok(engine.platform().write_at(self.id, command.word(32), &buffer)?)
    }
}
