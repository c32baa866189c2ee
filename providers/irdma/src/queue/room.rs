//! Room in a send ring: how far the poster can go on, and what has to be done before it goes
//! further.
//!
//! From the head on there is a *run* of quanta that are free, ready to be written, and all of
//! the same lap: a WQE within it needs no look at anything but the end of the run. At the end
//! of a run the poster looks at the tail anew, or clears the next block.

use core::cell::UnsafeCell;
use core::hint::cold_path;
use core::ptr;
use core::sync::atomic::Ordering;

use super::send::SendQueue;
use super::send_batch::SendBatch;
use super::work::Refusal;
use crate::barrier;
use crate::format::{Opcode, SendHeader, VALID_WORD};
use crate::generation::WqeFormat;
use crate::limits::CLEAR_AHEAD;
use crate::registers::{self, settled_pointer};
use crate::ring::{Pair, Quantum};

/// A run, as its queue remembers it from one batch to the next.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct KnownRun(UnsafeCell<Run>);

// SAFETY: only batches use it, and whoever makes one promises that there is one at a time
// (`SendQueue::batch`). It is no atomic because the compiler then makes an instruction more of
// every use.
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
        // SAFETY: of the one batch.
        unsafe { *self.0.get() }
    }

    fn set(&self, run: Run) {
        // SAFETY: of the one batch.
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
    #[inline]
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
    #[inline]
    fn clear(&self, position: u32) {
        let byte = if self.ring.valid(position) != 0 { 0x00 } else { 0xFF };
        self.ring.fill(position, CLEAR_AHEAD, byte);
    }
}

/// The header of a WQE that does nothing.
const PADDING: SendHeader = SendHeader::from_bits(0).with_opcode(Opcode::Nop as u8);

impl SendQueue {
    /// Fills the quanta of the run from `head` up to position `end`, which are those before `until`,
    /// with WQEs that do nothing. If `HELD`, the head stays; the first header is left out if it is to
    /// be kept.
    #[inline(always)]
    fn pad<const HELD: bool>(&self, head: u32, end: u32, until: *const Quantum, keep_first: bool) {
        if !HELD {
            // Release: see `SendQueue::outstanding`.
            self.head.store(end, Ordering::Release);
        }
        let header = PADDING.bits() | self.run.get().valid;
        let mut quanta = self.ring.quanta_from(head);
        // SAFETY: there are as many cells as the ring has quanta.
        let mut cell = settled_pointer(unsafe { self.tracking.at_index(self.ring.index(head)) });
        let mut position = head;
        loop {
            // SAFETY: no run crosses the end of the ring, nor that of the cells. Of the quanta of the run
            // only the poster uses any.
            unsafe {
                (*cell).set_none(position);
                quanta.set_pair(0, Pair::new(0, 0));
                quanta.first()[2].store(0);
                barrier::wqe_before_valid();
                if !(keep_first && position == head) {
                    quanta.first()[VALID_WORD].store(header);
                }
                (cell, quanta) = (settled_pointer(cell.add(1)), quanta.after(1).settled());
            }
            position = position.wrapping_add(1);
            if ptr::eq(quanta.place(), until) {
                break;
            }
        }
    }

    /// Has a run of that many quanta from `head` on behind padding, and makes the padding.
    /// Returns the position behind it.
    #[cold]
    #[inline(never)]
    fn make_room<const HELD: bool>(
        &self,
        head: u32,
        padding: u32,
        quanta: u32,
        keep_first: bool,
    ) -> Result<u32, Refusal> {
        if quanta > self.chunk_mask + 1 {
            return Err(Refusal::Invalid);
        }
        self.extend_run(head, padding + quanta)?;
        if padding == 0 {
            return Ok(head);
        }
        let position = head.wrapping_add(padding);
        // SAFETY: the run goes so far.
        let until = unsafe { self.ring.quanta_from(head).after(padding as usize) };
        self.pad::<HELD>(head, position, until.place(), keep_first);
        // Blocks are made of chunks, so the run may have ended here.
        self.extend_run(position, quanta)?;
        Ok(position)
    }

    /// Looks for another run if this one has ended, before WQEs of one quantum are placed.
    ///
    /// # Safety
    /// As for [`batch`](Self::batch).
    #[inline(always)]
    pub unsafe fn renew_run(&self) {
        let head = self.head.load(Ordering::Relaxed);
        if head == self.run.get().end {
            // If there is none, whoever needs it finds out.
            let _ = self.extend_run(head, 1);
        }
    }

    /// Takes out of the ring what was written above the head and is no WQE yet.
    #[cold]
    #[inline]
    pub fn unwrite_started(&self) {
        let head = self.head.load(Ordering::Relaxed);
        // Nothing is written outside of the run.
        self.unwrite(head, self.run.get().end.wrapping_sub(head));
    }

    /// Makes quanta above the head as they were before anything was written to them. Whatever
    /// comes next need not have the same boundaries: no word that the device may take for a
    /// header is left valid.
    #[cold]
    #[inline]
    pub(super) fn unwrite(&self, position: u32, quanta: u32) {
        for position in (0..quanta).map(|quantum| position.wrapping_add(quantum)) {
            let invalid = if self.ring.valid(position) != 0 { 0x00 } else { 0xFF };
            self.ring.fill(position, 1, invalid);
        }
    }
}

impl<G: WqeFormat, const HELD: bool> SendBatch<'_, G, HELD> {
    /// Quanta that the chunk has left, if it has too few for a WQE.
    #[inline(always)]
    fn padding(&self, quanta: u32) -> u32 {
        let left = (self.queue.chunk_mask + 1) - (self.head & self.queue.chunk_mask);
        if quanta > left { left } else { 0 }
    }

    /// Position for a WQE of that many quanta, if the run has room for it: at the head, or where the
    /// next chunk begins. Then what the chunk has left is to be [padded](Self::pad_up_to) once nothing
    /// can go wrong any more.
    #[inline(always)]
    pub(super) fn room(&self, quanta: u32) -> Option<u32> {
        let (queue, further) = (self.queue, quanta - 1);
        let mut position = self.head;
        if (position.wrapping_add(further) ^ position) > queue.chunk_mask {
            cold_path();
            // The mask is read anew, so that others keep no register for it.
            registers::forget();
            position = (position | queue.chunk_mask).wrapping_add(1);
        }
        // The next chunk may lie behind the run.
        (queue.run.get().end.wrapping_sub(position) as i32 > further as i32).then_some(position)
    }

    /// Position for a WQE of that many quanta, in the run. What the chunk has left before it is to
    /// be padded ([`pad_up_to`](Self::pad_up_to)) once nothing can go wrong any more; where that
    /// has to be done at once, `check` is asked first.
    #[inline(always)]
    pub(super) fn reserve(
        &mut self,
        quanta: u32,
        check: impl FnOnce() -> Result<(), Refusal>,
    ) -> Result<u32, Refusal> {
        let padding = self.padding(quanta);
        if self.queue.run.get().end.wrapping_sub(self.head) >= padding + quanta {
            return Ok(self.head.wrapping_add(padding));
        }
        cold_path();
        if padding > 0 {
            check()?;
        }
        let keep_first = HELD && self.head == self.start && padding > 0;
        self.head = self.queue.make_room::<HELD>(self.head, padding, quanta, keep_first)?;
        if keep_first {
            self.first = PADDING.bits() | self.queue.ring.valid(self.start);
        }
        Ok(self.head)
    }

    /// Fills what there is before a quantum of the run, that of a position.
    #[inline(always)]
    pub(super) fn pad_up_to(&mut self, position: u32, quantum: &Quantum) {
        if position != self.head {
            let keep_first = HELD && self.head == self.start;
            self.queue.pad::<HELD>(self.head, position, quantum, keep_first);
            if keep_first {
                self.first = PADDING.bits() | self.queue.run.get().valid;
            }
            self.head = position;
        }
    }
}
