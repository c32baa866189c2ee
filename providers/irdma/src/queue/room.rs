//! Room in a send ring: how far the poster can go on, and what has to be done before it goes
//! further.
//!
//! From the head on there is a *run* of quanta that are free, ready to be written, and all of
//! the same lap: a WQE within it needs no look at anything but the end of the run. At the end
//! of a run the poster looks at the tail anew, or clears the next block.

use core::cell::UnsafeCell;
use core::sync::atomic::Ordering;

use super::send::SendQueue;
use super::send_batch::SendBatch;
use super::work::Refusal;
use crate::barrier;
use crate::format::{Opcode, SendHeader};
use crate::generation::Generation;
use crate::limits::CLEAR_AHEAD;

/// A run, as its queue remembers it from one batch to the next.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct KnownRun(UnsafeCell<Run>);

// SAFETY: only the poster uses it, of which there is one at a time: the owner of the queue sees to
// that (see the module `queue`). It is no atomic because the compiler then makes an instruction
// more of every use.
unsafe impl Sync for KnownRun {}

/// Where the poster can go on.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Run {
    /// Position behind it.
    pub(super) end: u32,
    /// The valid bit of its quanta, in its place.
    pub(super) valid: u64,
}

impl KnownRun {
    /// None yet, at a head.
    pub(super) fn none(head: u32) -> Self {
        Self(UnsafeCell::new(Run { end: head, valid: 0 }))
    }

    /// The run.
    #[inline(always)]
    pub(super) fn get(&self) -> Run {
        // SAFETY: of the poster.
        unsafe { *self.0.get() }
    }

    fn set(&self, run: Run) {
        // SAFETY: of the poster.
        unsafe { *self.0.get() = run }
    }

    /// Ends it at a head.
    pub(super) fn stop(&self, head: u32) {
        self.set(Run { end: head, ..self.get() });
    }
}

impl SendQueue {
    /// Looks for that many quanta from `head` on, and makes a run of what can be had of their
    /// block.
    #[cold]
    #[inline(never)]
    fn extend_run(&self, head: u32, quanta: u32) -> Result<(), Refusal> {
        // Acquire: the poller has read what it needs of the cells below the tail
        // (`SendQueue::retire`) before they are written anew.
        let tail = self.retired.tail.load(Ordering::Acquire);
        let free = self.capacity.saturating_sub(head.wrapping_sub(tail));
        if free < quanta {
            return Err(Refusal::Full);
        }
        if head.is_multiple_of(CLEAR_AHEAD) {
            self.clear(head.wrapping_add(CLEAR_AHEAD));
        }
        let rest_of_block = CLEAR_AHEAD - head % CLEAR_AHEAD;
        self.run.set(Run { end: head.wrapping_add(rest_of_block.min(free)), valid: self.ring.valid(head) });
        Ok(())
    }

    /// Makes a block of quanta read as not valid on the lap of `position`, its first.
    fn clear(&self, position: u32) {
        let byte = if self.ring.valid(position) != 0 { 0x00 } else { 0xFF };
        self.ring.fill(position, CLEAR_AHEAD, byte);
    }
}

impl<G: Generation, const HELD: bool> SendBatch<'_, G, HELD> {
    /// Position for a WQE of that many quanta, in the run, after padding if the chunk does
    /// not hold it.
    #[inline(always)]
    pub(super) fn reserve(&mut self, quanta: u32) -> Result<u32, Refusal> {
        let left = (self.queue.chunk_mask + 1) - (self.head & self.queue.chunk_mask);
        if quanta > left {
            self.reserve_in_next_chunk(quanta, left)?;
        } else if self.queue.run.get().end.wrapping_sub(self.head) < quanta {
            self.extend_run(quanta)?;
        }
        Ok(self.head)
    }

    #[inline(always)]
    fn extend_run(&mut self, quanta: u32) -> Result<(), Refusal> {
        self.queue.extend_run(self.head, quanta)
    }

    #[cold]
    #[inline(never)]
    fn reserve_in_next_chunk(&mut self, quanta: u32, left: u32) -> Result<(), Refusal> {
        self.extend_run(left + quanta)?;
        self.pad(left);
        // Blocks are made of chunks, so the run may have ended here.
        self.extend_run(quanta)
    }

    /// Fills the rest of a chunk with WQEs that do nothing.
    fn pad(&mut self, quanta: u32) {
        let queue = self.queue;
        let header = SendHeader::default().with_opcode(Opcode::Nop as u8);
        for _ in 0..quanta {
            queue.tracking.at(self.head).set_none(self.head);
            let quantum = queue.ring.at(self.head);
            quantum[0].store(0);
            quantum[1].store(0);
            quantum[2].store(0);
            let position = self.head;
            self.advance(1);
            barrier::wqe_before_valid();
            self.make_valid(position, quantum, header.bits() | queue.run.get().valid);
        }
    }
}
