//! Commands about completion queues.

use irdma_engine::Engine;
use irdma_engine::spec::{CqRing, CqSpec, Span};

use super::{Command, Failure};
use crate::backing::Backing;
use crate::field::Field;
use crate::function::{CompletionQueue, Function};
use crate::host::Host;

const NUMBER: Field = Field::new(21, 0);
const NUMBER_GEN2: Field = Field::new(18, 0);
const EVENT_QUEUE: Field = Field::new(31, 22);
const RESIZE: Field = Field::bit(43);
const MAPPED: Field = Field::bit(47);
const EVENT_QUEUE_VALID: Field = Field::bit(49);
const WIDE: Field = Field::bit(61);
const SIZE: Field = Field::new(20, 0);
/// Bytes of the area in which the driver publishes what it has consumed and asks for events.
const SHADOW_BYTES: u64 = 64;

impl Function {
    fn cq_number(&self, command: &Command) -> u32 {
        let field = if self.is_gen3() { NUMBER } else { NUMBER_GEN2 };
        command.header_number(field)
    }

    fn cq_ring(&self, command: &Command, slot_bytes: usize) -> CqRing<Backing> {
        let entries = SIZE.number(command.word(0));
        let bytes = u64::from(entries) * slot_bytes as u64;
        let mapped = command.has(MAPPED);
        let ring = Backing::ring(self.id, mapped, command.word(32), command.first_entry(), bytes);
        CqRing { ring: Span { backing: ring, offset: 0 }, entries }
    }

    /// `CREATE_CQ`.
    pub(super) fn create_cq(&mut self, engine: &mut Engine<Host>, command: &Command) -> Result<(), Failure> {
        let slot_bytes = if command.has(WIDE) { 64 } else { 32 };
        let spec = CqSpec {
            ring: self.cq_ring(command, slot_bytes),
            shadow: Span { backing: Backing::physical(self.id, command.word(40), SHADOW_BYTES), offset: 0 },
            slot_bytes,
        };
        let number = self.cq_number(command);
        engine.create_cq(self.id, spec, Some(number))?;
        let event_queue = command.has(EVENT_QUEUE_VALID).then(|| command.header_number(EVENT_QUEUE));
        let queue = CompletionQueue { context: command.word(8), event_queue, slot_bytes };
        self.completion_queues.insert(number, queue);
        Ok(())
    }

    /// `MODIFY_CQ`: another ring, or nothing.
    pub(super) fn modify_cq(&mut self, engine: &mut Engine<Host>, command: &Command) -> Result<(), Failure> {
        let number = self.cq_number(command);
        let queue = self.completion_queues.get(&number).ok_or(Failure::NOT_FOUND)?;
        if command.has(RESIZE) {
            let ring = self.cq_ring(command, queue.slot_bytes);
            engine.resize_cq(self.object(number), ring)?;
        }
        Ok(())
    }

    /// `DESTROY_CQ`.
    pub(super) fn destroy_cq(&mut self, engine: &mut Engine<Host>, command: &Command) -> Result<(), Failure> {
        let number = self.cq_number(command);
        engine.destroy_cq(self.object(number))?;
        self.completion_queues.remove(&number);
        Ok(())
    }
}
