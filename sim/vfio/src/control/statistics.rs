//! Statistics: what a function has sent and received.

use irdma_engine::Engine;
use irdma_engine::counters::Counters;

use super::{Command, Failure};
use crate::field::{Field, put_at};
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

/// The counters where the driver looks for them (kernel: `ig3rdma_hw_stat_map`,
/// `icrdma_hw_stat_map`). What is not counted stays 0: octets, packets and what only a real wire
/// has.
fn layout(counters: &Counters, gen3: bool) -> [u8; BUFFER_BYTES] {
    let mut buffer = [0; BUFFER_BYTES];
    let messages = [
        counters.writes_in,
        counters.reads_in,
        counters.sends_in,
        counters.writes_out,
        counters.reads_out,
        counters.sends_out,
        counters.binds,
        counters.invalidations,
    ];
    let first = if gen3 { 272 } else { 240 };
    for (index, number) in messages.into_iter().enumerate() {
        put_at(&mut buffer, first + 8 * index, number.to_le_bytes());
    }
    if gen3 {
        let further = [
            (368, counters.not_ready_out),
            (376, counters.not_ready_in),
            (408, counters.atomics_in),
            (416, counters.atomics_out),
            (440, counters.timeouts),
        ];
        for (place, number) in further {
            put_at(&mut buffer, place, number.to_le_bytes());
        }
    }
    buffer
}

impl Function {
    /// `GATHER_STATS`.
    pub(super) fn gather_statistics(
        &mut self,
        engine: &mut Engine<Host>,
        command: &Command,
    ) -> Result<(), Failure> {
        let buffer = layout(&engine.counters(self.id), self.is_gen3());
        Ok(engine.platform().write_at(self.id, command.word(32), &buffer)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::u64_at;

    #[test]
    fn generations_have_their_own_layout() {
        let counters =
            Counters { writes_in: 1, sends_out: 6, invalidations: 8, timeouts: 9, ..Counters::default() };
        let gen3 = layout(&counters, true);
        assert_eq!([272, 312, 328, 440].map(|place| u64_at(&gen3, place)), [1, 6, 8, 9]);
        let gen2 = layout(&counters, false);
        assert_eq!([240, 280, 296, 440].map(|place| u64_at(&gen2, place)), [1, 6, 8, 0]);
    }
}
