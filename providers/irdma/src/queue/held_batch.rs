//! Batches that grow over several calls and may still be dropped: nobody sees anything of
//! one before it is finished.
//!
//! All of a held batch is written to the ring but the first header, without which the device
//! does not look further. The poller sees nothing above the head, which stays where it was.

use core::marker::PhantomData;
use core::sync::atomic::Ordering;

use super::send::SendQueue;
use super::send_batch::SendBatch;
use crate::barrier;
use crate::format::{SendHeader, VALID_WORD};
use crate::generation::WqeFormat;

/// A batch that is nobody's before it is finished.
pub type HeldBatch<'queue, G> = SendBatch<'queue, G, true>;

/// A held batch between two calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Held {
    start: u32,
    head: u32,
    last: u32,
    first: u64,
}

impl SendQueue {
    /// Starts a held batch. Any other that is started before it is finished or abandoned
    /// overwrites it.
    #[inline(always)]
    pub fn hold(&self) -> Held {
        let head = self.head.load(Ordering::Relaxed);
        Held { start: head, head, last: head, first: 0 }
    }

    /// Goes on with a batch of this queue.
    ///
    /// # Safety
    /// As for [`batch`](Self::batch).
    #[inline(always)]
    pub unsafe fn resume<G: WqeFormat>(&self, held: &Held) -> HeldBatch<'_, G> {
        let Held { start, head, last, first } = *held;
        SendBatch { queue: self, start, head, last, first, generation: PhantomData }
    }
}

impl<G: WqeFormat> HeldBatch<'_, G> {
    /// Leaves the batch as it is until it is resumed.
    #[inline(always)]
    pub fn pause(self) -> Held {
        Held { start: self.start, head: self.head, last: self.last, first: self.first }
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
            // Release: see `SendQueue::outstanding`.
            self.queue.head.store(self.head, Ordering::Release);
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
        let queue = self.queue;
        queue.unwrite(self.start, self.head.wrapping_sub(self.start));
        let mut position = self.start;
        while position != self.head {
            // No cell is left that the poller may take for that of a work request.
            queue.tracking.at(position).set_none(position);
            position = position.wrapping_add(1);
        }
        // What is known of the run may be of a later lap.
        queue.run.stop(self.start);
    }
}
