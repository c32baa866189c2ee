//! A completion queue: polling, arming, growing and shrinking.

use alloc::vec::Vec;

use super::completion::{Completion, Directory};
use super::poll::{Reader, Step, is_ready, shared_receives};
use super::shared::SharedReceiveQueue;
use super::slots::OutOfMemory;
use crate::barrier;
use crate::format::{ARM_WORD, ArmWord};
use crate::generation::Generation;
use crate::ring::{CompletionRing, Doorbell, ShadowArea};

/// A completion queue.
///
/// After a resize the device may still write to the ring it had before. Old rings
/// are read first, oldest first, and one is finished only when a CQE was read from
/// a later ring: the device writes in order, so nothing more comes in it then.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct CompletionQueue {
    ring: CompletionRing,
    shadow: ShadowArea,
    doorbell: Doorbell,
    /// Number of the queue.
    number: u32,
    /// Whether an event for any completion was asked for since the last one came.
    any_requested: bool,
    /// Old rings at the front of `old` that are finished.
    finished: usize,
    /// Rings of before a resize.
    old: Vec<CompletionRing>,
    /// The arming word as it was last written.
    arm: ArmWord,
}

/// What a completion queue is made of.
#[derive(Debug)]
pub struct CompletionQueueParts {
    /// Its ring.
    pub ring: CompletionRing,
    /// Its shadow area.
    pub shadow: ShadowArea,
    /// Doorbell that takes CQ numbers.
    pub doorbell: Doorbell,
    /// Number of the queue.
    pub number: u32,
}

impl CompletionQueue {
    /// An empty queue, not armed.
    pub fn new(parts: CompletionQueueParts) -> Self {
        Self {
            ring: parts.ring,
            shadow: parts.shadow,
            doorbell: parts.doorbell,
            number: parts.number,
            any_requested: false,
            finished: 0,
            old: Vec::new(),
            arm: ArmWord::default(),
        }
    }

    /// The next completion.
    #[inline(always)]
    pub fn poll<G: Generation, D: Directory>(&mut self, directory: &D) -> Option<Completion> {
        if self.finished != self.old.len() {
            return self.poll_all_rings::<G, D>(directory);
        }
        let mut reader = Reader::<G>::new(&mut self.ring, &self.shadow);
        loop {
            match reader.step(directory) {
                Step::Empty => return complete_abandoned::<G, D>(directory),
                Step::Passed => {}
                Step::Completed(completion) => return Some(completion),
            }
        }
    }

    #[cold]
    fn poll_all_rings<G: Generation, D: Directory>(&mut self, directory: &D) -> Option<Completion> {
        loop {
            // The device may have written to an old ring after it was looked at and
            // before a later one was. Seeing a CQE in the later one orders a second
            // look behind all that was written before.
            let Some(ring) = self.first_ready().and_then(|_| self.first_ready()) else {
                return complete_abandoned::<G, D>(directory);
            };
            let reading = self.old.get_mut(ring).unwrap_or(&mut self.ring);
            let step = Reader::<G>::new(reading, &self.shadow).step(directory);
            self.finish_old(ring);
            if let Step::Completed(completion) = step {
                return Some(completion);
            }
        }
    }

    /// Index of the first unfinished ring in which a CQE has come; the current ring
    /// follows the old ones.
    fn first_ready(&self) -> Option<usize> {
        let unfinished = self.old.iter().chain([&self.ring]).enumerate().skip(self.finished);
        unfinished.into_iter().find(|(_, ring)| is_ready(ring)).map(|(index, _)| index)
    }

    /// Notes that old rings before `ring` are finished, and tells the device.
    fn finish_old(&mut self, ring: usize) {
        if ring > self.finished {
            let count = (ring - self.finished) as u16;
            self.finished = ring;
            self.arm = self.arm.with_finished_resizes(self.arm.finished_resizes().wrapping_add(count));
            self.shadow.words()[ARM_WORD].store(self.arm.bits());
        }
    }

    /// Asks for an event: for the next completion, or for the next solicited one or
    /// error. Of several requests since the last event the strongest counts.
    pub fn arm(&mut self, solicited_only: bool) {
        self.any_requested |= !solicited_only;
        self.arm = self
            .arm
            .with_sequence(self.arm.sequence().wrapping_add(1))
            .with_solicited(true)
            .with_any(self.any_requested);
        self.shadow.words()[ARM_WORD].store(self.arm.bits());
        barrier::before_doorbell();
        self.doorbell.ring(self.number);
    }

    /// Notes that the program was given an event.
    pub fn event_delivered(&mut self) {
        self.any_requested = false;
    }

    /// Hands back to `shared` the receives whose CQEs will be passed over, because the QP
    /// with that completion context is withdrawn now.
    pub fn release_shared(&self, context: u64, shared: &SharedReceiveQueue) {
        let unread = self.old.iter().skip(self.finished).chain([&self.ring]);
        for _ in 0..unread.map(|ring| shared_receives(ring, context)).sum() {
            shared.retire_one();
        }
    }

    /// Makes room to remember one more ring, before the device is told of it.
    ///
    /// # Errors
    /// There is no memory.
    pub fn prepare_resize(&mut self) -> Result<(), OutOfMemory> {
        self.old.try_reserve(1).map_err(|_| OutOfMemory)
    }

    /// Goes on to a new ring, which the device writes to from now on. The old one is
    /// still read, until [`take_finished`](Self::take_finished) counts it.
    ///
    /// Follows [`prepare_resize`](Self::prepare_resize).
    pub fn resize(&mut self, ring: CompletionRing) {
        let old = core::mem::replace(&mut self.ring, ring);
        self.old.push(old);
    }

    /// Forgets the rings that are finished, oldest first; returns how many. Their
    /// memory may go.
    pub fn take_finished(&mut self) -> usize {
        let count = core::mem::take(&mut self.finished);
        self.old.drain(..count);
        count
    }
}

/// No CQE has come: what else there is to complete.
#[inline(always)]
fn complete_abandoned<G: Generation, D: Directory>(directory: &D) -> Option<Completion> {
    if G::FLUSHES_EACH { directory.complete_abandoned() } else { None }
}
