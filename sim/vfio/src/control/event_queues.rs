//! Commands about event queues.

use super::{Command, Failure};
use crate::backing::Backing;
use crate::event_queue::{EventQueue, MOST_ENTRIES};
use crate::field::Field;
use crate::function::Function;

const NUMBER: Field = Field::new(9, 0);
const MAPPED: Field = Field::bit(47);
const SIZE: Field = Field::new(21, 0);
/// Bytes of an entry: of completions, and asynchronous.
const COMPLETION_ENTRY: u64 = 8;
const ASYNCHRONOUS_ENTRY: u64 = 16;

impl Function {
    fn event_ring(&self, command: &Command, entry: u64) -> Result<EventQueue, Failure> {
        let entries = SIZE.number(command.word(16));
        if entries == 0 || entries > MOST_ENTRIES {
            return Err(Failure::INVALID);
        }
        let mapped = command.has(MAPPED);
        let bytes = u64::from(entries) * entry;
        let ring = Backing::ring(self.id, mapped, command.word(32), command.first_entry(), bytes);
        Ok(EventQueue::new(ring, entries))
    }

    /// `CREATE_CEQ`.
    pub(super) fn create_event_queue(&mut self, command: &Command) -> Result<(), Failure> {
        let queue = self.event_ring(command, COMPLETION_ENTRY)?;
        self.event_queues.insert(command.header_number(NUMBER), queue);
        Ok(())
    }

    /// `DESTROY_CEQ`.
    pub(super) fn destroy_event_queue(&mut self, command: &Command) -> Result<(), Failure> {
        let removed = self.event_queues.remove(&command.header_number(NUMBER));
        removed.map(drop).ok_or(Failure::NOT_FOUND)
    }

    /// `CREATE_AEQ`.
    pub(super) fn create_asynchronous_queue(&mut self, command: &Command) -> Result<(), Failure> {
        self.asynchronous_queue = Some(self.event_ring(command, ASYNCHRONOUS_ENTRY)?);
        Ok(())
    }
}
