//! The control queue (CQP): how the driver creates, changes and destroys everything.
//!
//! Formats: kernel, drivers/infiniband/hw/irdma/defs.h (`IRDMA_CQPSQ_*`, `IRDMA_CQPHC_*`),
//! ctrl.c.

mod address;
mod command;
mod completion_queue;
mod event_queues;
mod memory;
mod private_memory;
pub mod queue_pair;
mod queue_pair_context;
mod shared_queue;
mod statistics;

pub use command::{Command, Failure};

use irdma_engine::Engine;

use crate::field::{Field, u64_at};
use crate::function::Function;
use crate::host::Host;

/// Bytes of a command.
const COMMAND_BYTES: usize = 64;
/// Bytes of the context with which the driver creates the queue.
const CONTEXT_BYTES: usize = 64;
/// The completion queue of the control queue has number 0.
pub const CONTROL_COMPLETIONS: u32 = 0;

const CONTEXT_SIZE: Field = Field::new(11, 8);
const TAIL_ERROR: u32 = 1 << 31;
const STATUS_DONE: u32 = 1;
const STATUS_ERROR: u32 = 1 << 31;
const COMPLETION_INDEX: Field = Field::new(46, 32);
const COMPLETION_ERROR: Field = Field::bit(55);
const COMPLETION_SQ: Field = Field::bit(62);
const COMPLETION_MAJOR: Field = Field::new(31, 16);
const COMPLETION_MINOR: Field = Field::new(15, 0);

/// The ring of commands.
#[derive(Debug)]
struct Ring {
    address: u64,
    entries: u32,
    /// Next command.
    next: u32,
    polarity: bool,
    /// What the driver wants back in every completion.
    cookie: u64,
}

/// Registers and ring of a control queue.
#[derive(Debug, Default)]
pub struct ControlQueue {
    /// Upper half of the address of the context.
    pub high: u32,
    status: u32,
    error_codes: u32,
    failed: bool,
    ring: Option<Ring>,
}

impl ControlQueue {
    /// The status register: created, or why not.
    pub fn status(&self) -> u32 {
        self.status
    }

    /// The tail register: the next command, and whether the last has failed.
    pub fn tail(&self) -> u32 {
        let next = self.ring.as_ref().map_or(0, |ring| ring.next);
        next | if self.failed { TAIL_ERROR } else { 0 }
    }

    /// The error register: major and minor code of the last failure.
    pub fn error_codes(&self) -> u32 {
        self.error_codes
    }
}

impl Function {
    /// The lower half of the context's address has been written: creates the control queue, or
    /// takes it away (address 0), and with it everything made through it.
    pub fn create_control(&mut self, engine: &mut Engine<Host>, low: u32) {
        let high = self.control.high;
        self.forget_objects(engine);
        self.control = ControlQueue { high, ..ControlQueue::default() };
        let address = u64::from(high) << 32 | u64::from(low);
        if address == 0 {
            return;
        }
        let mut context = [0; CONTEXT_BYTES];
        let size = if engine.platform().read_at(self.id, address, &mut context).is_ok() {
            CONTEXT_SIZE.number(u64_at(&context, 0))
        } else {
            0
        };
        // Sizes are 4 for code 1, and twice that for each more.
        if !(1..=12).contains(&size) {
            self.control.status = STATUS_ERROR;
            return;
        }
        self.control.ring = Some(Ring {
            address: u64_at(&context, 8),
            entries: 2 << size,
            next: 0,
            polarity: true,
            cookie: u64_at(&context, 24),
        });
        self.control.status = STATUS_DONE;
    }

    /// The control doorbell: executes the commands before `head`.
    pub fn ring_control(&mut self, engine: &mut Engine<Host>, head: u32) {
        loop {
            let Some(ring) = self.control.ring.as_mut().filter(|ring| head < ring.entries) else { return };
            if ring.next == head {
                return;
            }
            let (index, polarity, cookie) = (ring.next, ring.polarity, ring.cookie);
            let place = ring.address.checked_add(u64::from(index) * COMMAND_BYTES as u64);
            ring.next += 1;
            if ring.next == ring.entries {
                ring.next = 0;
                ring.polarity = !ring.polarity;
            }
            let mut bytes = [0; COMMAND_BYTES];
            let read = place.map(|place| engine.platform().read_at(self.id, place, &mut bytes));
            let command = Command::new(&bytes);
            let result = if read.is_some_and(|read| read.is_ok()) && command.is_valid(polarity) {
                self.execute(engine, &command)
            } else {
                Err(Failure::INVALID)
            };
            self.control.failed = result.is_err();
            if let Err(failure) = result {
                self.control.error_codes = u32::from(failure.major) << 16 | u32::from(failure.minor);
                eprintln!(
                    "function {}: control command {:#04x} refused: {}",
                    self.id,
                    command.opcode(),
                    failure.reason
                );
            }
            self.complete_control(engine, index, cookie, result);
        }
    }

    /// Reports the end of a command, if the driver has made a queue for that.
    fn complete_control(
        &mut self,
        engine: &mut Engine<Host>,
        index: u32,
        cookie: u64,
        result: Result<u32, Failure>,
    ) {
        let mut entry = COMPLETION_INDEX.put(index.into()) | COMPLETION_SQ.put(1);
        let value = match result {
            Ok(value) => value,
            Err(failure) => {
                entry |= COMPLETION_ERROR.put(1)
                    | COMPLETION_MAJOR.put(failure.major.into())
                    | COMPLETION_MINOR.put(failure.minor.into());
                0
            }
        };
        let mut bytes = [0; 32];
        for (place, word) in bytes.chunks_exact_mut(8).zip([0, cookie, value.into(), entry]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let queue = self.object(CONTROL_COMPLETIONS);
        // Without a queue the driver looks at the tail.
        let _ = engine.write_cqe(queue, &bytes);
    }

    fn execute(&mut self, engine: &mut Engine<Host>, command: &Command) -> Result<u32, Failure> {
        match command.opcode() {
            0x00 => self.create_qp(engine, command)?,
            0x01 => self.modify_qp(engine, command)?,
            0x02 => self.destroy_qp(engine, command)?,
            0x03 => self.create_cq(engine, command)?,
            0x04 => self.modify_cq(engine, command)?,
            0x05 => self.destroy_cq(engine, command)?,
            0x06 => self.create_srq(engine, command)?,
            0x07 => self.modify_srq(engine, command)?,
            0x08 => self.destroy_srq(engine, command)?,
            0x09 => self.allocate_key(engine, command)?,
            0x0a => self.register_memory(engine, command)?,
            0x0d => self.free_key(engine, command)?,
            0x0f => self.manage_arp(command)?,
            0x12 => self.query_features(engine, command)?,
            0x14 => return self.allocate_mac_entry(),
            0x16 => self.create_event_queue(command)?,
            0x18 => self.destroy_event_queue(command)?,
            0x19 => self.create_asynchronous_queue(command)?,
            0x1b => self.asynchronous_queue = None,
            0x1c | 0x1d => self.create_address(engine, command)?,
            0x1e => self.destroy_address(engine, command)?,
            0x1f => self.update_segments(engine, command)?,
            0x20 => self.query_private_memory(engine, command)?,
            0x21 => self.commit_private_memory(engine, command)?,
            0x22 => self.flush(engine, command)?,
            0x26 | 0x27 => self.change_group(engine, command, false)?,
            0x28 => self.change_group(engine, command, true)?,
            0x29 | 0x2a => self.suspend_qp(engine, command)?,
            0x2d => return Ok(statistics::allocate(command)),
            0x2e => self.gather_statistics(engine, command)?,
            0x2c => return Ok(command.header_number(NODE_NUMBER)),
            // Local MAC table, port and quad hash entries, NOP, memory pages, priority maps:
            // nothing of the model depends on them.
            0x0e | 0x23 | 0x24 | 0x25 | 0x2b | 0x2f => {}
            _ => return Err(Failure::UNKNOWN),
        }
        Ok(0)
    }
}

/// The scheduler node of a command; it becomes the driver's queue set handle.
const NODE_NUMBER: Field = Field::new(13, 0);
