//! The device's side of work queues.

use alloc::vec::Vec;
use core::ops::Index;

use super::memory::{Bell, Memory};
use crate::generation::Generation;
use crate::limits::CLEAR_AHEAD;
use crate::queue::{ReceiveQueue, ReceiveQueueParts, SendQueue, SendQueueParts};
use crate::ring::QuantumRing;

/// A WQE that the device has taken, word by word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wqe {
    /// Index of its first quantum.
    pub index: u32,
    /// Its valid bit.
    pub valid: bool,
    /// Its words, four to a quantum.
    pub words: Vec<u64>,
}

impl Wqe {
    /// Opcode field of a send WQE.
    pub fn opcode(&self) -> u64 {
        self[3] >> 32 & 0x3F
    }

    /// Quanta.
    pub fn quanta(&self) -> u32 {
        self.words.len() as u32 / 4
    }
}

impl Index<usize> for Wqe {
    type Output = u64;

    fn index(&self, word: usize) -> &u64 {
        &self.words[word]
    }
}

/// The device's side of a send queue.
#[derive(Debug)]
pub struct SendDevice {
    memory: Memory,
    bell: Bell,
    quanta: u32,
    /// Position of the next WQE.
    position: u32,
}

/// Number of the QP behind a mock's send queue.
pub const NUMBER: u32 = 0x1234;

impl SendDevice {
    /// A device and a queue with a ring of that many quanta; `change` sees the rest
    /// of the queue's parts, which are those of a common E810 queue.
    ///
    /// The queue must not outlive the device.
    pub fn new(quanta: u32, change: impl FnOnce(&mut SendQueueParts)) -> (Self, SendQueue) {
        let memory = Memory::new(quanta as usize * 32);
        let bell = Bell::default();
        let mut parts = SendQueueParts {
            // SAFETY: the caller keeps the device, so the memory.
            ring: unsafe { QuantumRing::new(memory.base(), quanta) },
            doorbell: bell.doorbell(),
            number: NUMBER,
            chunk: 8,
            max_fragments: 13,
            max_read_fragments: 13,
            max_inline: 101,
            empty_fragment_counts: true,
            connection_wqes: 0,
        };
        change(&mut parts);
        let position = parts.connection_wqes;
        let queue = SendQueue::new(parts).expect("memory for a test");
        (Self { memory, bell, quanta, position }, queue)
    }

    /// The ring.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The doorbell.
    pub fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Position of the next WQE.
    pub fn position(&self) -> u32 {
        self.position
    }

    /// The value of the valid bit on the lap of a position.
    fn polarity(&self, position: u32) -> bool {
        (position / self.quanta).is_multiple_of(2)
    }

    fn quantum(&self, position: u32) -> [u64; 4] {
        let first = (position % self.quanta) as usize * 4;
        core::array::from_fn(|word| self.memory.word(first + word).load())
    }

    /// Whether the device would take the quantum at a position for a WQE.
    pub fn is_valid(&self, position: u32) -> bool {
        (self.quantum(position)[3] >> 63 == 1) == self.polarity(position)
    }

    /// The next WQE, if there is one.
    pub fn take<G: Generation>(&mut self) -> Option<Wqe> {
        if !self.is_valid(self.position) {
            return None;
        }
        let valid = self.polarity(self.position);
        let header = self.quantum(self.position)[3];
        let quanta = quanta_of::<G>(header);
        let words = (0..quanta).flat_map(|more| self.quantum(self.position.wrapping_add(more))).collect();
        let wqe = Wqe { index: self.position % self.quanta, valid, words };
        self.position = self.position.wrapping_add(quanta);
        Some(wqe)
    }

    /// Checks that nothing ahead of the next WQE looks like one: the device reads on
    /// there without being asked to.
    pub fn assert_nothing_ahead(&self) {
        for ahead in 0..CLEAR_AHEAD {
            let position = self.position.wrapping_add(ahead);
            assert!(!self.is_valid(position), "a stale WQE {ahead} quanta ahead of {}", self.position);
        }
    }
}

/// Quanta of a send WQE, as its header tells the device.
fn quanta_of<G: Generation>(header: u64) -> u32 {
    let opcode = header >> 32 & 0x3F;
    let more = (header >> 38 & 0xF) as u32;
    let inline = header >> 57 & 1 == 1;
    let bytes = (header >> 48 & 0xFF) as u32;
    match opcode {
        // Bind, invalidate, NOP.
        0x08 | 0x0a | 0x0c => 1,
        0x0f | 0x11 => 2,
        _ if inline && G::NUMBER == 1 => {
            if bytes <= 16 {
                1
            } else {
                2
            }
        }
        _ if inline => [8, 39, 70, 101, 132, 163, 194, 225]
            .iter()
            .position(|&most| bytes <= most)
            .map_or(u32::MAX, |index| index as u32 + 1),
        _ => 1 + more.div_ceil(2),
    }
}

/// The device's side of a receive queue.
#[derive(Debug)]
pub struct ReceiveDevice {
    memory: Memory,
    entries: u32,
    shift: u32,
    /// Position of the next WQE.
    position: u32,
}

impl ReceiveDevice {
    /// A device and a queue of that many WQEs of `1 << shift` quanta.
    ///
    /// The queue must not outlive the device.
    pub fn new(entries: u32, shift: u32, max_fragments: u32) -> (Self, ReceiveQueue) {
        let quanta = entries << shift;
        let memory = Memory::new(quanta as usize * 32);
        // SAFETY: the caller keeps the device, so the memory.
        let ring = unsafe { QuantumRing::new(memory.base(), quanta) };
        let queue =
            ReceiveQueue::new(ReceiveQueueParts { ring, shift, max_fragments }).expect("memory for a test");
        (Self { memory, entries, shift, position: 0 }, queue)
    }

    /// The ring.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The next WQE, if there is one. All its quanta are given, used or not.
    pub fn take(&mut self) -> Option<Wqe> {
        let entry = self.position % self.entries;
        let quanta = 1 << self.shift;
        let first = entry as usize * quanta * 4;
        let words: Vec<u64> = (first..first + quanta * 4).map(|word| self.memory.word(word).load()).collect();
        let polarity = (self.position / self.entries).is_multiple_of(2);
        if (words[3] >> 63 == 1) != polarity {
            return None;
        }
        self.position = self.position.wrapping_add(1);
        Some(Wqe { index: entry << self.shift, valid: polarity, words })
    }
}
