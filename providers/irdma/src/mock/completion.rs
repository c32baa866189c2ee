//! The device's side of a completion queue.

use alloc::vec::Vec;
use core::mem::MaybeUninit;

use super::memory::{Bell, Memory};
use crate::generation::Generation;
use crate::limits::CompletionQueueSize;
use crate::queue::{
    Completion, CompletionQueue, CompletionQueueParts, Directory, Origin, Outcome, Sink, Usual,
};
use crate::ring::{CompletionRing, ShadowArea};

/// The device's side of a completion queue.
#[derive(Debug)]
pub struct CompletionDevice {
    ring: Memory,
    shadow: Memory,
    bell: Bell,
    size: CompletionQueueSize,
    /// Slot that is written next.
    index: u32,
    /// Valid bit of this lap.
    valid: bool,
}

const VALID: u64 = 1 << 63;
const EXTENDED: u64 = 1 << 50;

/// Number of a mock's completion queue.
pub const NUMBER: u32 = 0x77;

impl CompletionDevice {
    /// A device and a queue with slots of that many bytes.
    ///
    /// The queue must not outlive the device.
    pub fn new(slots: u32, slot_bytes: usize) -> (Self, CompletionQueue) {
        let size = CompletionQueueSize { slots, slot_bytes };
        let device = Self {
            ring: Memory::new(slots as usize * slot_bytes),
            shadow: Memory::new(64),
            bell: Bell::default(),
            size,
            index: 0,
            valid: true,
        };
        // SAFETY: the caller keeps the device, so the memory.
        let parts = unsafe {
            CompletionQueueParts {
                ring: CompletionRing::new(device.ring.base(), size),
                shadow: ShadowArea::new(device.shadow.base()),
                doorbell: device.bell.doorbell(),
                number: NUMBER,
            }
        };
        (device, CompletionQueue::new(parts))
    }

    /// Moves queue and device to a ring of another size; returns the old ring's memory,
    /// which must be kept until the queue has finished it, and a writer for it.
    pub fn resize(&mut self, queue: &mut CompletionQueue, slots: u32) -> OldRing {
        queue.prepare_resize().expect("memory for a test");
        let size = CompletionQueueSize { slots, ..self.size };
        let ring = Memory::new(slots as usize * size.slot_bytes);
        // SAFETY: the caller keeps the device, so the memory.
        queue.resize(unsafe { CompletionRing::new(ring.base(), size) });
        let old = OldRing {
            ring: core::mem::replace(&mut self.ring, ring),
            size: self.size,
            index: self.index,
            valid: self.valid,
        };
        (self.size, self.index, self.valid) = (size, 0, true);
        old
    }

    /// The ring.
    pub fn ring(&self) -> &Memory {
        &self.ring
    }

    /// The shadow area.
    pub fn shadow(&self) -> &Memory {
        &self.shadow
    }

    /// The doorbell.
    pub fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Slot that is written next.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Slot that the queue says it reads next.
    pub fn consumer(&self) -> u64 {
        self.shadow.word(0).load()
    }

    /// Writes a CQE; its valid bit is added.
    pub fn complete(&mut self, entry: [u64; 4]) {
        write(&self.ring, self.size, &mut self.index, &mut self.valid, entry, None);
    }

    /// Writes a CQE with an extension; valid bits and the extension bit are added.
    pub fn complete_extended(&mut self, entry: [u64; 4], extension: [u64; 4]) {
        write(&self.ring, self.size, &mut self.index, &mut self.valid, entry, Some(extension));
    }

    /// Writes a CQE in both halves of its slot of 64 bytes, which does not make it one with an
    /// extension; its valid bit is added.
    pub fn complete_wide(&mut self, entry: [u64; 4], second_half: [u64; 4]) {
        let first = self.index as usize * 8;
        for (at, word) in (first + 4..).zip(second_half) {
            self.ring.word(at).store(word);
        }
        self.complete(entry);
    }

    /// Writes the first part only of a CQE with an extension that is a slot of its own.
    pub fn complete_first_half(&mut self, entry: [u64; 4]) {
        let (mut index, mut valid) = (self.index, self.valid);
        let entry = [entry[0], entry[1], entry[2], entry[3] | EXTENDED];
        write(&self.ring, self.size, &mut index, &mut valid, entry, None);
    }

    /// Writes a slot's words as they are, without moving on.
    pub fn scribble(&self, slot: u32, words: &[u64]) {
        let first = slot as usize * self.size.slot_bytes / 8;
        for (at, &word) in (first..).zip(words) {
            self.ring.word(at).store(word);
        }
    }
}

/// Takes a completion as a value.
#[derive(Debug, Default)]
pub struct Taken {
    /// The completion.
    pub completion: Option<Completion>,
    /// The device's time.
    pub timestamp: u32,
}

impl Sink for Taken {
    fn put(&mut self, outcome: Outcome, origin: &Origin, timestamp: impl FnOnce() -> u32) {
        let Outcome { wr_id, status, opcode, vendor_error, length } = outcome;
        let origin = *origin;
        self.completion = Some(Completion { wr_id, status, opcode, vendor_error, length, origin, absent: 0 });
        self.timestamp = timestamp();
    }
}

impl CompletionQueue {
    /// The next completion.
    pub fn poll<G: Generation, D: Directory>(&mut self, directory: &D) -> Option<Completion> {
        let mut taken = Taken::default();
        match self.take_usual::<G, D, _>(directory, &mut taken) {
            Usual::Empty if !G::FLUSHES_EACH => assert_eq!(taken.completion, None),
            Usual::Completed => assert!(taken.completion.is_some()),
            Usual::Empty | Usual::Unusual => {
                assert_eq!(taken.completion, None);
                assert_eq!(self.take_unusual::<G, D, _>(directory, &mut taken), taken.completion.is_some());
            }
        }
        taken.completion
    }

    /// The next completion, as a call that asks for one takes it.
    pub fn poll_single<G: Generation, D: Directory>(&mut self, directory: &D) -> Option<Completion> {
        let mut room = MaybeUninit::uninit();
        let has_come = match self.take_usual::<G, D, _>(directory, &mut room) {
            Usual::Completed => true,
            Usual::Empty if !G::FLUSHES_EACH => false,
            Usual::Empty | Usual::Unusual => self.take_unusual::<G, D, _>(directory, &mut room),
        };
        // SAFETY: it was written.
        has_come.then(|| unsafe { room.assume_init() })
    }

    /// The next completions, as many as there are up to `count`.
    pub fn poll_many<G: Generation, D: Directory>(&mut self, directory: &D, count: usize) -> Vec<Completion> {
        let mut room = Vec::from_iter((0..count).map(|_| MaybeUninit::uninit()));
        let taken = self.take_many::<G, D>(directory, &mut room);
        // SAFETY: so many were written.
        room.iter().take(taken).map(|place| unsafe { place.assume_init() }).collect()
    }
}

/// The ring of before a resize, which the device may still write to.
#[derive(Debug)]
pub struct OldRing {
    ring: Memory,
    size: CompletionQueueSize,
    index: u32,
    valid: bool,
}

impl OldRing {
    /// Writes a CQE; its valid bit is added.
    pub fn complete(&mut self, entry: [u64; 4]) {
        write(&self.ring, self.size, &mut self.index, &mut self.valid, entry, None);
    }
}

fn write(
    ring: &Memory,
    size: CompletionQueueSize,
    index: &mut u32,
    valid: &mut bool,
    mut entry: [u64; 4],
    extension: Option<[u64; 4]>,
) {
    let words = size.slot_bytes / 8;
    let put = |first: usize, words: [u64; 4]| {
        for (at, word) in (first..).zip(words) {
            ring.word(at).store(word);
        }
    };
    let with_valid = |words: [u64; 4], valid: bool| {
        [words[0], words[1], words[2], words[3] & !VALID | if valid { VALID } else { 0 }]
    };
    let step = |index: &mut u32, valid: &mut bool| {
        *index += 1;
        if *index == size.slots {
            (*index, *valid) = (0, !*valid);
        }
    };
    let first = (*index, *valid);
    step(index, valid);
    if let Some(extension) = extension {
        entry[3] |= EXTENDED;
        if size.slot_bytes == 64 {
            put(first.0 as usize * words + 4, with_valid(extension, first.1));
        } else {
            put(*index as usize * words, with_valid(extension, *valid));
            step(index, valid);
        }
    }
    put(first.0 as usize * words, with_valid(entry, first.1));
}
