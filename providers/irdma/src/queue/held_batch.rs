//! Batches that grow over several calls and may still be dropped: nobody sees anything of
//! one before it is finished.
//!
//! All of a held batch is written to the ring but the first header, without which the device
//! does not look further. The poller sees nothing above the head, which stays where it was.

use core::marker::PhantomData;
use core::sync::atomic::Ordering;

use super::send::SendQueue;
use super::send_batch::SendBatch;
use super::slots::Tracked;
use super::work::{PreparedRequest, Sge, descriptor};
use crate::barrier;
use crate::format::{SendHeader, VALID_WORD};
use crate::generation::Generation;
use crate::limits::CLEAR_AHEAD;

/// A batch that is nobody's before it is finished.
pub type HeldBatch<'queue, G> = SendBatch<'queue, G, true>;

/// A held batch between two calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Held {
    start: u32,
    head: u32,
    last: u32,
    /// Quanta from the head on that are known to be free, on one lap, and ready to be written.
    smooth: u32,
    first: u64,
    /// The valid bit of those, in its place.
    valid: u64,
}

impl SendQueue {
    /// Starts a held batch. Only one batch at a time.
    #[inline(always)]
    pub fn hold(&self) -> Held {
        let head = self.head.load(Ordering::Relaxed);
        self.held(head, head, head, 0)
    }

    /// A batch as it is, and how far it can go on smoothly.
    #[inline(always)]
    fn held(&self, start: u32, head: u32, last: u32, first: u64) -> Held {
        let used = head.wrapping_sub(self.known_tail.load(Ordering::Relaxed));
        // A multiple has a block to clear, which the slow way does.
        let before_multiple = head.wrapping_neg() % CLEAR_AHEAD;
        let smooth = match self.max_read_fragments {
            // Perhaps fragments are not for every operation.
            0 => 0,
            _ => before_multiple.min(self.capacity.saturating_sub(used)),
        };
        Held { start, head, last, smooth, first, valid: self.ring.valid(head) }
    }

    /// Adds a send, write or read of one fragment to a batch, if nothing at all stands in the
    /// way; else changes nothing, and [`SendBatch::fragments`] is to do it.
    #[inline(always)]
    pub fn add_smoothly<G: Generation>(&self, held: &mut Held, request: &PreparedRequest, sge: &Sge) -> bool {
        if G::FETCHES_PAIRS || held.smooth == 0 || sge.length > G::MAX_FRAGMENT_BYTES {
            return false;
        }
        let (position, valid) = (held.head, held.valid);
        let quantum = self.ring.at(position);
        quantum[0].store(sge.address);
        quantum[1].store(descriptor::<G>(sge) | valid);
        quantum[2].store(request.remote);
        self.tracker.set(position, request.wr_id, request.tracked.placed(position, sge.length));
        let header = self.say_pushing::<G>(request.header).bits() | valid;
        barrier::wqe_before_valid();
        if position == held.start {
            held.first = header;
        } else {
            quantum[VALID_WORD].store(header);
        }
        held.last = position;
        held.head = position.wrapping_add(1);
        held.smooth -= 1;
        true
    }

    /// Goes on with a batch of this queue.
    #[inline(always)]
    pub fn resume<G: Generation>(&self, held: &Held) -> HeldBatch<'_, G> {
        let Held { start, head, last, first, .. } = *held;
        SendBatch { queue: self, start, head, last, first, generation: PhantomData }
    }
}

impl<G: Generation> HeldBatch<'_, G> {
    /// Leaves the batch as it is until it is resumed; `held` is what it was resumed from.
    #[inline(always)]
    pub fn pause(self, held: &mut Held) {
        let taken = self.head.wrapping_sub(held.head);
        if taken > held.smooth {
            *held = self.queue.held(self.start, self.head, self.last, self.first);
        } else {
            (held.head, held.last, held.first) = (self.head, self.last, self.first);
            held.smooth -= taken;
        }
    }

    /// Adds the destination to the work request placed last, which was placed with both words zero.
    #[inline(always)]
    pub fn redirect(&mut self, remote_key: u32, remote: u64) {
        if self.head == self.start {
            return;
        }
        let key = SendHeader::default().with_remote_key(remote_key).bits();
        let quantum = self.queue.ring.at(self.last);
        quantum[2].store(remote);
        if self.last == self.start {
            self.first |= key;
        } else {
            quantum[VALID_WORD].store(quantum[VALID_WORD].load() | key);
        }
    }

    /// Hands everything to the device. Returns whether there was anything.
    #[inline(always)]
    pub fn finish(self) -> bool {
        let placed = self.head != self.start;
        if placed {
            self.publish_head();
            barrier::wqe_before_valid();
            self.queue.ring.at(self.start)[VALID_WORD].store(self.first);
            self.queue.ring::<G>(self.start, self.head);
        }
        placed
    }

    /// Takes everything out of the ring again.
    #[cold]
    #[inline(never)]
    pub fn abandon(self) {
        let mut position = self.start;
        while position != self.head {
            let queue = self.queue;
            // Whatever comes next need not have the same boundaries: no word that the device
            // may take for a header is left valid, and no cell that the poller may take for
            // that of a work request.
            let invalid = if queue.ring.valid(position) != 0 { 0x00 } else { 0xFF };
            queue.ring.fill(position, 1, invalid);
            queue.tracker.set(position, 0, Tracked::none(position));
            position = position.wrapping_add(1);
        }
    }
}
