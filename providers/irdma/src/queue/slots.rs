//! What the program side remembers of each WQE until it completes.

use alloc::alloc::{Layout, alloc_zeroed, dealloc};
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::format::CompletionOpcode;

/// There is no memory for a queue's bookkeeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

/// A power of two of atomic cells, addressed by free-running positions.
#[derive(Debug)]
pub(super) struct Slots<T: Zeroed> {
    base: NonNull<T>,
    /// Cells less one.
    mask: usize,
}

/// Types of atomic cells for which all bytes zero is a value.
///
/// # Safety
/// All bytes zero is a value, the type has no drop glue and is `Sync`.
pub(super) unsafe trait Zeroed: Sync + Send {}

// SAFETY: an atomic integer.
unsafe impl Zeroed for AtomicU64 {}
// SAFETY: an atomic integer.
unsafe impl Zeroed for AtomicU8 {}
// SAFETY: made of atomic integers.
unsafe impl Zeroed for Tracking {}

// SAFETY: owns its cells, which are `Send` and `Sync`.
unsafe impl<T: Zeroed> Send for Slots<T> {}
// SAFETY: as above.
unsafe impl<T: Zeroed> Sync for Slots<T> {}

impl<T: Zeroed> Slots<T> {
    /// `count` cells of zeros; `count` is a power of two.
    pub(super) fn new(count: u32) -> Result<Self, OutOfMemory> {
        assert!(count.is_power_of_two(), "as many cells as quanta or WQEs");
        let layout = Layout::array::<T>(count as usize).map_err(|_| OutOfMemory)?;
        // SAFETY: the layout is not of size zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(OutOfMemory)?;
        Ok(Self { base: base.cast(), mask: count as usize - 1 })
    }

    /// The index of a position, and its cell.
    #[inline(always)]
    pub(super) fn index_and_cell(&self, position: u32) -> (usize, &T) {
        self.cells().index_and_cell(position)
    }

    /// The cells, for those that go through them with registers of their own.
    #[inline(always)]
    pub(super) fn cells(&self) -> Cells<'_, T> {
        Cells { base: self.base, mask: self.mask, slots: PhantomData }
    }

    /// The cell with an index, if there are so many.
    #[inline(always)]
    pub(super) fn get(&self, index: usize) -> Option<&T> {
        // SAFETY: the index is below the count.
        (index <= self.mask).then(|| unsafe { self.base.add(index).as_ref() })
    }

    /// The cell of a position.
    #[inline(always)]
    pub(super) fn at(&self, position: u32) -> &T {
        self.index_and_cell(position).1
    }
}

/// A reference to [`Slots`] that is kept in registers.
#[derive(Debug)]
pub(super) struct Cells<'slots, T: Zeroed> {
    base: NonNull<T>,
    mask: usize,
    slots: PhantomData<&'slots Slots<T>>,
}

impl<'slots, T: Zeroed> Cells<'slots, T> {
    /// The index of a position, and its cell.
    #[inline(always)]
    pub(super) fn index_and_cell(&self, position: u32) -> (usize, &'slots T) {
        let index = position as usize & self.mask;
        // SAFETY: the masked index is below the count.
        (index, unsafe { self.base.add(index).as_ref() })
    }

    /// Whether a position is the first of a lap.
    #[inline(always)]
    pub(super) fn is_first(&self, position: u32) -> bool {
        position as usize & self.mask == 0
    }
}

impl<T: Zeroed> Drop for Slots<T> {
    fn drop(&mut self) {
        let count = self.mask + 1;
        // The same layout was valid in `new`.
        if let Ok(layout) = Layout::array::<T>(count) {
            // SAFETY: allocated in `new` with this layout.
            unsafe { dealloc(self.base.as_ptr().cast(), layout) }
        }
    }
}

/// What is remembered of the WQEs of a send queue, at the position of the first quantum of each.
///
/// Written by the poster before the head passes the position, read by the
/// poller of the completion queue until the tail passes it.
#[derive(Debug)]
pub(super) struct Tracker {
    cells: Slots<Tracking>,
    /// What completions rarely need.
    kinds: Slots<AtomicU8>,
}

/// What is remembered of a WQE, but for its kind.
///
/// The position behind it is all that the cell is recognised by: it lies between tail
/// and head of the queue. That of a quantum in the middle of a WQE does not, as its cell is
/// of an earlier lap, nor does that of padding, which is set apart. (Positions come again
/// after 2^32 quanta: then a cell that nobody has written meanwhile would pass, if the device
/// named it.)
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Tracking {
    wr_id: AtomicU64,
    length: AtomicU32,
    end: AtomicU32,
}

const _: () = assert!(size_of::<Tracking>() == 16);

/// What completions rarely need of a WQE: its completion opcode, and whether the program asked
/// for a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind(u8);

/// All that is remembered of a WQE besides the program's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tracked {
    /// Bytes of the message.
    length: u32,
    /// Position behind the WQE.
    end: u32,
    kind: Kind,
}

const SIGNALED: u8 = 8;
/// How far behind a position is what is never between tail and head.
const FAR: u32 = 1 << 31;

impl Tracked {
    /// A WQE of 1 to 8 quanta at a position.
    #[inline(always)]
    pub(super) fn new(
        position: u32,
        quanta: u32,
        length: u32,
        opcode: CompletionOpcode,
        signaled: bool,
    ) -> Self {
        debug_assert!((1..=8).contains(&quanta));
        Self { length, end: position.wrapping_add(quanta), ..Self::prepared(opcode, signaled) }
    }

    /// A WQE of one quantum, wherever it will be and whatever it will carry.
    #[inline(always)]
    pub(super) const fn prepared(opcode: CompletionOpcode, signaled: bool) -> Self {
        Self { length: 0, end: 0, kind: Kind::new(opcode, signaled) }
    }

    /// The same, now that position and length are known.
    #[inline(always)]
    pub(super) fn placed(self, position: u32, length: u32) -> Self {
        Self { length, end: position.wrapping_add(1), ..self }
    }

    /// No work request: padding of one quantum at a position, or nothing at all.
    #[inline(always)]
    pub(super) fn none(position: u32) -> Self {
        let kind = Kind::new(CompletionOpcode::Send, false);
        Self { length: 0, end: position.wrapping_sub(FAR), kind }
    }
}

impl Kind {
    const fn new(opcode: CompletionOpcode, signaled: bool) -> Self {
        debug_assert!((opcode as u32) < SIGNALED as u32);
        Self(opcode as u8 | if signaled { SIGNALED } else { 0 })
    }

    /// What the completion is of.
    pub(super) fn opcode(self) -> CompletionOpcode {
        const OPCODES: [CompletionOpcode; SIGNALED as usize] = [
            CompletionOpcode::Send,
            CompletionOpcode::RdmaWrite,
            CompletionOpcode::RdmaRead,
            CompletionOpcode::CompareSwap,
            CompletionOpcode::FetchAdd,
            CompletionOpcode::BindWindow,
            CompletionOpcode::LocalInvalidate,
            // Never stored.
            CompletionOpcode::Send,
        ];
        OPCODES[usize::from(self.0 % SIGNALED)]
    }

    /// Whether the program asked for a completion.
    pub(super) fn is_signaled(self) -> bool {
        self.0 & SIGNALED != 0
    }
}

impl Tracker {
    /// Of a ring of so many quanta; a power of two.
    pub(super) fn new(quanta: u32) -> Result<Self, OutOfMemory> {
        Ok(Self { cells: Slots::new(quanta)?, kinds: Slots::new(quanta)? })
    }

    /// Remembers a WQE at its position.
    #[inline(always)]
    pub(super) fn set(&self, position: u32, wr_id: u64, tracked: Tracked) {
        let cell = self.cells.at(position);
        cell.wr_id.store(wr_id, Ordering::Relaxed);
        cell.length.store(tracked.length, Ordering::Relaxed);
        cell.end.store(tracked.end, Ordering::Relaxed);
        self.kinds.at(position).store(tracked.kind.0, Ordering::Relaxed);
    }

    /// The cell of an index of the ring, if it has so many.
    #[inline(always)]
    pub(super) fn get(&self, index: usize) -> Option<&Tracking> {
        self.cells.get(index)
    }

    /// The cell of a position.
    #[inline(always)]
    pub(super) fn at(&self, position: u32) -> &Tracking {
        self.cells.at(position)
    }

    /// Quanta of the WQE that was placed last at a position; `None` for padding.
    pub(super) fn quanta_at(&self, position: u32) -> Option<u32> {
        let quanta = self.at(position).end().wrapping_sub(position);
        (quanta < FAR).then_some(quanta)
    }

    /// The kind of the WQE at a position.
    pub(super) fn kind(&self, position: u32) -> Kind {
        Kind(self.kinds.at(position).load(Ordering::Relaxed))
    }
}

impl Tracking {
    /// The program's id of the WQE.
    #[inline(always)]
    pub(super) fn wr_id(&self) -> u64 {
        self.wr_id.load(Ordering::Relaxed)
    }

    /// Bytes of the message.
    #[inline(always)]
    pub(super) fn length(&self) -> u32 {
        self.length.load(Ordering::Relaxed)
    }

    /// Position behind the WQE.
    #[inline(always)]
    pub(super) fn end(&self) -> u32 {
        self.end.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_tracked_keeps_to_itself() {
        let tracker = Tracker::new(2).unwrap();
        tracker.set(1, u64::MAX, Tracked::none(1));
        let tracked = Tracked::new(0xFFFF_FFF8, 8, u32::MAX, CompletionOpcode::LocalInvalidate, true);
        tracker.set(0xFFFF_FFF8, 7, tracked);
        let cell = tracker.get(0).unwrap();
        assert_eq!((cell.wr_id(), cell.length(), cell.end()), (7, u32::MAX, 0));
        assert_eq!(tracker.kind(0), Kind::new(CompletionOpcode::LocalInvalidate, true));
        assert!(tracker.get(2).is_none());
        assert_eq!((tracker.quanta_at(0xFFFF_FFF8), tracker.quanta_at(1)), (Some(8), None));
        let prepared = Tracked::prepared(CompletionOpcode::RdmaRead, true).placed(0xFFFF_FFFF, u32::MAX);
        assert_eq!(prepared, Tracked::new(0xFFFF_FFFF, 1, u32::MAX, CompletionOpcode::RdmaRead, true));
    }

    #[test]
    fn every_kind() {
        for opcode in [
            CompletionOpcode::Send,
            CompletionOpcode::RdmaWrite,
            CompletionOpcode::RdmaRead,
            CompletionOpcode::CompareSwap,
            CompletionOpcode::FetchAdd,
            CompletionOpcode::BindWindow,
            CompletionOpcode::LocalInvalidate,
        ] {
            for signaled in [false, true] {
                let kind = Kind::new(opcode, signaled);
                assert_eq!((kind.opcode(), kind.is_signaled()), (opcode, signaled));
            }
        }
    }
}
