//! A completion queue: polling, arming, growing and shrinking.

use alloc::vec::Vec;
use core::mem::MaybeUninit;
use core::slice;

use super::completion::{Completion, Directory, Sink};
use super::poll::{Usual, take_extended, take_shared, take_usual};
use super::shared::SharedReceiveQueue;
use super::slots::OutOfMemory;
use super::unusual::{Habits, Made, Reader, Step, is_ready, shared_receives};
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
    /// Some of `old` are not finished.
    has_unfinished: bool,
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
            has_unfinished: false,
            finished: 0,
            old: Vec::new(),
            arm: ArmWord::default(),
        }
    }

    /// Puts the next completion into `sink`, if it is one of those that most are.
    ///
    /// After anything but [`Usual::Completed`], [`take_unusual`](Self::take_unusual) knows better; on
    /// [`Usual::Empty`] only if the generation [flushes each](Generation::FLUSHES_EACH)
    /// work request.
    #[inline(always)]
    pub fn take_usual<G: Generation, D: Directory, S: Sink>(&mut self, directory: &D, sink: &mut S) -> Usual {
        if self.has_unfinished {
            return Usual::Unusual;
        }
        take_usual(&mut self.ring.direct::<G>(&self.shadow), directory, sink)
    }

    /// Whether it is sure that nothing has come.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        !self.has_unfinished && !self.ring.has_come()
    }

    /// Puts completions into the places of `room`, as many as there are; returns their number.
    #[inline(always)]
    pub fn take_many<G: Generation, D: Directory>(
        &mut self,
        directory: &D,
        room: &mut [MaybeUninit<Completion>],
    ) -> usize {
        let all = room.len();
        if all == 0 {
            return 0;
        }
        // Counting the one that is being taken.
        let mut left = all;
        let mut place = room.as_mut_ptr();
        if !self.has_unfinished {
            let mut cursor = self.ring.cursor::<G>(&self.shadow);
            loop {
                // SAFETY: `place` and what is left follow each other in `room`.
                let usual = take_usual(&mut cursor, directory, unsafe { &mut *place });
                if usual == Usual::Unusual || usual == Usual::Empty && G::FLUSHES_EACH {
                    break;
                }
                if usual == Usual::Empty {
                    cursor.keep();
                    return all - left;
                }
                left -= 1;
                if left == 0 {
                    cursor.keep();
                    return all;
                }
                // SAFETY: as above.
                place = unsafe { place.add(1) };
            }
            cursor.keep();
        }
        // SAFETY: as above.
        let rest = unsafe { slice::from_raw_parts_mut(place, left) };
        all - left + self.take_more::<G, D>(directory, rest)
    }

    /// Puts the next completion into `sink`, if there is one; returns whether there was. For when
    /// [`take_usual`](Self::take_usual) did not take it.
    #[inline(always)]
    pub fn take_unusual<G: Generation, D: Directory, S: Sink>(
        &mut self,
        directory: &D,
        sink: &mut S,
    ) -> bool {
        if !self.has_unfinished {
            let mut next = self.ring.direct::<G>(&self.shadow);
            if take_extended(&mut next, directory, sink).is_some()
                || G::SHARES_RECEIVES && take_shared(&mut next, directory, sink).is_some()
            {
                return true;
            }
        }
        self.put_rare::<G, D, S>(directory, sink)
    }

    /// Goes on with [`take_many`](Self::take_many) when something unusual came.
    #[inline(never)]
    fn take_more<G: Generation, D: Directory>(
        &mut self,
        directory: &D,
        room: &mut [MaybeUninit<Completion>],
    ) -> usize {
        let all = room.len();
        let mut rest = room.iter_mut();
        while let Some(place) = self.take_simple::<G, D>(directory, &mut rest) {
            if !self.put_rare::<G, D, _>(directory, place) {
                return all - rest.len() - 1;
            }
        }
        all
    }

    /// Puts completions into the places of `rest` as long as they are usual, [extended](take_extended)
    /// or [shared](take_shared); returns the place for the first that is not.
    #[inline(always)]
    fn take_simple<'room, G: Generation, D: Directory>(
        &mut self,
        directory: &D,
        rest: &mut slice::IterMut<'room, MaybeUninit<Completion>>,
    ) -> Option<&'room mut MaybeUninit<Completion>> {
        if self.has_unfinished {
            return rest.next();
        }
        let mut cursor = self.ring.cursor::<G>(&self.shadow);
        let next = loop {
            let Some(place) = rest.next() else { break None };
            if take_extended(&mut cursor, directory, place).is_none()
                && (!G::SHARES_RECEIVES || take_shared(&mut cursor, directory, place).is_none())
                && take_usual(&mut cursor, directory, place) != Usual::Completed
            {
                break Some(place);
            }
        };
        cursor.keep();
        next
    }

    /// As [`take_unusual`](Self::take_unusual), but takes everything for rare.
    #[cold]
    #[inline(never)]
    pub(super) fn put_rare<G: Generation, D: Directory, S: Sink>(
        &mut self,
        directory: &D,
        sink: &mut S,
    ) -> bool {
        let Some(made) = self.take_rare(directory, Habits::of::<G>()) else { return false };
        sink.put(made.outcome, &made.origin, || made.timestamp);
        true
    }

    /// Takes the next completion, whatever it is, from whichever ring.
    #[cold]
    #[inline(never)]
    fn take_rare<D: Directory>(&mut self, directory: &D, habits: Habits) -> Option<Made> {
        loop {
            let ring = if self.has_unfinished {
                // The device may have written to an old ring after it was looked at and
                // before a later one was. Seeing a CQE in the later one orders a second
                // look behind all that was written before.
                self.first_ready().and_then(|_| self.first_ready())
            } else {
                Some(self.old.len())
            };
            let step = ring.map_or(Step::Empty, |ring| {
                let reading = self.old.get_mut(ring).unwrap_or(&mut self.ring);
                let step = Reader { ring: reading, shadow: &self.shadow, directory, habits }.step();
                self.finish_old(ring);
                step
            });
            match step {
                Step::Empty => return take_abandoned(directory, habits.flushes_each),
                Step::Passed => {}
                Step::Completed(made) => return Some(made),
            }
        }
    }

    /// Index of the first unfinished ring in which a CQE has come; the current ring
    /// follows the old ones.
    #[inline]
    fn first_ready(&self) -> Option<usize> {
        let unfinished = self.old.iter().chain([&self.ring]).enumerate().skip(self.finished);
        unfinished.into_iter().find(|(_, ring)| is_ready(ring)).map(|(index, _)| index)
    }

    /// Notes that old rings before `ring` are finished, and tells the device.
    #[inline]
    fn finish_old(&mut self, ring: usize) {
        if ring > self.finished {
            let count = (ring - self.finished) as u16;
            self.finished = ring;
            self.has_unfinished = ring != self.old.len();
            self.arm = self.arm.with_finished_resizes(self.arm.finished_resizes().wrapping_add(count));
            self.shadow.words()[ARM_WORD].store(self.arm.bits());
        }
    }

    /// Asks for an event: for the next completion, or for the next solicited one or
    /// error. Of several requests since the last event the strongest counts.
    #[inline]
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
        self.has_unfinished = true;
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
fn take_abandoned<D: Directory>(directory: &D, flushes_each: bool) -> Option<Made> {
    let (outcome, origin) = flushes_each.then(|| directory.complete_abandoned())??;
    Some(Made { outcome, origin, timestamp: 0 })
}
