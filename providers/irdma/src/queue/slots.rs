//! What the program side remembers of each WQE until it completes.

use alloc::alloc::{Layout, alloc_zeroed, dealloc};
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

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

    /// The cell of an index.
    ///
    /// # Safety
    /// There are more cells than that.
    #[inline(always)]
    pub(super) unsafe fn at_index(&self, index: u32) -> &T {
        // SAFETY: as the caller promises.
        unsafe { self.base.add(index as usize).as_ref() }
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

/// What is remembered of a send WQE, at the position of its first quantum, besides the WQE itself.
///
/// Written by the poster before the head passes the position, read by the
/// poller of the completion queue until the tail passes it.
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

/// How far behind a position is what is never between tail and head.
const FAR: u32 = 1 << 31;

impl Tracking {
    /// Remembers the program's id of a WQE.
    #[inline(always)]
    pub(super) fn set_wr_id(&self, wr_id: u64) {
        self.wr_id.store(wr_id, Ordering::Relaxed);
    }

    /// Remembers the bytes of its message.
    #[inline(always)]
    pub(super) fn set_length(&self, length: u32) {
        self.length.store(length, Ordering::Relaxed);
    }

    /// Remembers the position behind it.
    #[inline(always)]
    pub(super) fn set_end(&self, end: u32) {
        self.end.store(end, Ordering::Relaxed);
    }

    /// Remembers that there is no work request: padding of one quantum at `position`, or nothing
    /// at all.
    #[inline(always)]
    pub(super) fn set_none(&self, position: u32) {
        self.end.store(position.wrapping_sub(FAR), Ordering::Relaxed);
    }

    /// Quanta of the WQE that was placed last at `position`, that of the cell; `None` for padding.
    #[inline]
    pub(super) fn quanta(&self, position: u32) -> Option<u32> {
        let quanta = self.end().wrapping_sub(position);
        (quanta < FAR).then_some(quanta)
    }

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
        let slots = Slots::<Tracking>::new(2).unwrap();
        slots.at(1).set_none(1);
        let cell = slots.at(0xFFFF_FFF8);
        cell.set_wr_id(7);
        cell.set_length(u32::MAX);
        cell.set_end(0);
        let cell = slots.get(0).unwrap();
        assert_eq!((cell.wr_id(), cell.length(), cell.end()), (7, u32::MAX, 0));
        assert_eq!((cell.quanta(0xFFFF_FFF8), slots.at(1).quanta(1)), (Some(8), None));
        assert!(slots.get(2).is_none());
    }
}
