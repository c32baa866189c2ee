//! The poster's side of a send queue: batches, the shape of WQE that is most frequent, and the
//! one place where every WQE is made valid. The other shapes are in `send_message` and
//! `send_operation`.

use core::marker::PhantomData;
use core::sync::atomic::Ordering;

use super::fragments::descriptor;
use super::send::SendQueue;
use super::slots::Tracking;
use super::work::{SendRequest, Sge};
use crate::barrier;
use crate::format::{SendHeader, VALID, VALID_WORD};
use crate::generation::WqeFormat;
use crate::registers::{self, settled_reference};
use crate::ring::Quantum;

impl SendQueue {
    /// Starts to post.
    ///
    /// # Safety
    /// One batch at a time: while this one is used, no other thread uses one of the same queue, and
    /// what it did with an earlier one happened before.
    #[inline(always)]
    pub unsafe fn batch<G: WqeFormat>(&self) -> SendBatch<'_, G> {
        let head = self.head.load(Ordering::Relaxed);
        SendBatch { queue: self, start: head, head, last: head, first: 0, generation: PhantomData }
    }

    /// Goes on with a batch that began at `start`.
    ///
    /// # Safety
    /// As for [`batch`](Self::batch).
    #[inline(always)]
    pub unsafe fn batch_from<G: WqeFormat>(&self, start: u32) -> SendBatch<'_, G> {
        let head = self.head.load(Ordering::Relaxed);
        SendBatch { queue: self, start, head, last: head, first: 0, generation: PhantomData }
    }
}

/// Work requests on their way into a send queue.
///
/// What is placed here is the device's at once; [`finish`](Self::finish) tells
/// the device to look. One that is `HELD` is nobody's before it is finished: see
/// [`HeldBatch`](super::HeldBatch).
#[must_use = "the device is told by `finish`"]
#[derive(Debug)]
pub struct SendBatch<'queue, G, const HELD: bool = false> {
    pub(super) queue: &'queue SendQueue,
    /// Head when the batch was started.
    pub(super) start: u32,
    pub(super) head: u32,
    /// Position of the work request placed last. Of a held batch only.
    pub(super) last: u32,
    /// Header of the WQE at `start`, kept out of the ring. Of a held batch only.
    pub(super) first: u64,
    pub(super) generation: PhantomData<G>,
}

/// A WQE whose data is written, and the header is still to come, so that nobody sees it.
#[derive(Debug)]
pub struct Started<'queue> {
    /// Where it begins: at the head, or behind quanta that are to be padded.
    pub(super) position: u32,
    /// The first one.
    pub(super) quantum: &'queue Quantum,
    /// Bytes of the message.
    pub(super) length: u32,
    pub(super) quanta: u32,
    /// What the header says about the data.
    pub(super) data: SendHeader,
}

impl Started<'_> {
    /// What the header says about the data.
    #[inline(always)]
    pub fn data(&self) -> SendHeader {
        self.data
    }
}

impl<G: WqeFormat> SendBatch<'_, G> {
    /// Rings the doorbell if anything was placed. Returns whether it was.
    #[inline(always)]
    pub fn finish(self) -> bool {
        let placed = !self.is_empty();
        if placed {
            self.announce();
        }
        placed
    }

    /// Rings the doorbell. There is something to ring it for.
    #[inline(always)]
    pub fn announce(self) {
        self.queue.ring::<G>(self.start, self.head);
    }

    /// The same, if it is about one WQE, `PADDED` or not, and the queue has a push page; else does
    /// nothing, and returns false. Calls nobody.
    #[inline(always)]
    pub fn announce_one<const PADDED: bool>(&self) -> bool {
        self.queue.ring_for_one::<G, PADDED>(self.start, self.head)
    }
}

impl<'queue, G: WqeFormat, const HELD: bool> SendBatch<'queue, G, HELD> {
    /// Whether nothing was placed.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.head == self.start
    }

    /// Position where it began.
    #[inline(always)]
    pub fn start(&self) -> u32 {
        self.start
    }

    /// Starts to place a send, write or read of one fragment, if nothing at all stands in the
    /// way; else changes nothing, and [`fragments`](Self::fragments) is to do it.
    #[inline(always)]
    pub fn start_single(&self, sge: &Sge) -> Option<Started<'queue>> {
        let (queue, position) = (self.queue, self.head);
        if position == queue.run.get().end || sge.length >= queue.single_bytes {
            return None;
        }
        let quantum = settled_reference(queue.ring.at(position));
        quantum[0].store(sge.address);
        quantum[1]
            .store(descriptor::<G>(sge) | if G::FRAGMENTS_CARRY_VALID { queue.run.get().valid } else { 0 });
        Some(Started { position, quantum, length: sge.length, quanta: 1, data: SendHeader::default() })
    }

    /// Whether there are quanta before what was started that are to be [padded](Self::pad_before).
    #[inline(always)]
    pub fn needs_padding(&self, started: &Started<'queue>) -> bool {
        started.position != self.head
    }

    /// Pads what there is before something that was started, and will be placed.
    #[inline(always)]
    pub fn pad_before(&mut self, started: &Started<'queue>) {
        let is_first = self.is_empty();
        self.pad_up_to(started.position, started.quantum);
        if is_first && !HELD && !G::PUSHES {
            // Only pushes are about padding too.
            self.start = self.head;
        }
    }

    /// Gives what was started its word 2.
    #[inline(always)]
    pub fn set_remote(&self, started: &Started<'queue>, remote: u64) {
        started.quantum[2].store(remote);
    }

    /// Places what was started; the header lacks what it says about the data.
    #[inline(always)]
    pub fn finish_started(&mut self, started: Started<'queue>, wr_id: u64, header: SendHeader) {
        let header = SendHeader::from_bits(header.bits() | started.data.bits());
        self.finish_whole(started, || wr_id, header);
    }

    /// Places what was started.
    #[inline(always)]
    pub fn finish_whole(
        &mut self,
        started: Started<'queue>,
        wr_id: impl FnOnce() -> u64,
        header: SendHeader,
    ) {
        let Started { quantum, length, quanta, .. } = started;
        let position = self.head;
        debug_assert!(started.position == position, "padding comes first");
        let cell = settled_reference(self.cell(position));
        cell.set_length(length);
        registers::forget();
        cell.set_wr_id(wr_id());
        self.make_one(position, quanta, header, quantum, cell);
    }

    /// Makes a WQE valid that has all but its header, at a position that was
    /// [reserved](Self::reserve). `more` is what the header has besides that of the request.
    #[inline(always)]
    pub(super) fn complete(
        &mut self,
        position: u32,
        request: &SendRequest,
        length: u32,
        quanta: u32,
        more: SendHeader,
    ) {
        let queue = self.queue;
        self.pad_up_to(position, queue.ring.at(position));
        let header = SendHeader::from_bits(request.header.bits() | more.bits());
        let cell = self.cell(position);
        cell.set_wr_id(request.wr_id);
        cell.set_length(length);
        self.make_one(position, quanta, header, queue.ring.at(position), cell);
    }

    /// What is remembered of the WQE at a position.
    #[inline(always)]
    pub(super) fn cell(&self, position: u32) -> &'queue Tracking {
        let queue = self.queue;
        // SAFETY: there are as many cells as the ring has quanta (`SendQueue::new`).
        unsafe { queue.tracking.at_index(queue.ring.index(position)) }
    }

    /// Makes the quanta at a position of the run, which have all but the header, a WQE.
    #[inline(always)]
    pub(super) fn make_one(
        &mut self,
        position: u32,
        quanta: u32,
        header: SendHeader,
        quantum: &Quantum,
        cell: &Tracking,
    ) {
        let run = self.queue.run.get();
        let next = position.wrapping_add(quanta);
        if G::FETCHES_PAIRS && quanta == 1 && next % 2 == 1 {
            self.queue.ring.at(next)[VALID_WORD].store(run.valid ^ VALID);
        }
        cell.set_end(next);
        if HELD {
            self.last = position;
        }
        self.advance(quanta);
        barrier::wqe_before_valid();
        self.make_valid(position, quantum, self.queue.say_pushing::<G>(header).bits() | run.valid);
    }

    /// Writes a WQE's header; that of a held batch's first one is kept instead.
    #[inline(always)]
    pub(super) fn make_valid(&mut self, position: u32, quantum: &Quantum, header: u64) {
        if HELD && position == self.start {
            self.first = header;
        } else {
            quantum[VALID_WORD].store(header);
        }
    }

    /// Moves the head past a WQE; that of a held batch is nobody's business before it is finished.
    ///
    /// Comes before the valid bit: the device may complete the WQE as soon as it is valid, and the
    /// poller takes completions only of what lies below the head.
    #[inline(always)]
    pub(super) fn advance(&mut self, quanta: u32) {
        self.head = self.head.wrapping_add(quanta);
        if !HELD {
            // As it is the same, an addition in memory.
            let head = self.queue.head.load(Ordering::Relaxed).wrapping_add(quanta);
            // Release: see `SendQueue::outstanding`.
            self.queue.head.store(head, Ordering::Release);
        }
    }
}
