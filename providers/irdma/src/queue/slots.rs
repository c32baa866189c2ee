//! What the program side remembers of each WQE until it completes.

use alloc::alloc::{Layout, alloc_zeroed, dealloc};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::format::CompletionOpcode;

/// There is no memory for a queue's bookkeeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

/// A power of two of atomic cells, addressed by free-running positions.
#[derive(Debug)]
pub(super) struct Slots<T: Zeroed> {
    base: NonNull<T>,
    /// Cells less one.
    mask: u32,
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
        Ok(Self { base: base.cast(), mask: count - 1 })
    }

    /// The cell of a position.
    #[inline(always)]
    pub(super) fn at(&self, position: u32) -> &T {
        // SAFETY: the masked index is below the count.
        unsafe { self.base.add((position & self.mask) as usize).as_ref() }
    }
}

impl<T: Zeroed> Drop for Slots<T> {
    fn drop(&mut self) {
        let count = self.mask as usize + 1;
        // The same layout was valid in `new`.
        if let Ok(layout) = Layout::array::<T>(count) {
            // SAFETY: allocated in `new` with this layout.
            unsafe { dealloc(self.base.as_ptr().cast(), layout) }
        }
    }
}

/// What is remembered of a send WQE, at the position of its first quantum.
///
/// Written by the poster before the head passes the position, read by the
/// poller of the completion queue until the tail passes it.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Tracking {
    wr_id: AtomicU64,
    detail: AtomicU64,
}

const _: () = assert!(size_of::<Tracking>() == 16);

/// The part of [`Tracking`] besides the program's id.
///
/// Bits 31..0 length in bytes; 34..32 quanta less one; 37..35 completion opcode
/// (7: NOP padding); 38 signaled; 39 set; 63..41 upper bits of the position.
/// The last two tell a WQE's first quantum from one in the middle of a WQE,
/// whose cell is of an earlier lap or was never set: a send ring has at least
/// 512 quanta, so the bits of a position from 9 upwards differ from lap to lap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tracked(u64);

/// Completion opcode of padding.
const NOP: u64 = 7;
const SET: u64 = 1 << 39;
/// Bits of a position that are not kept.
const POSITION_LOW: u32 = 0x1FF;
/// Fewest quanta of a ring for which positions can be told apart.
pub(super) const MIN_TRACKED_QUANTA: u32 = POSITION_LOW + 1;
const IDENTITY: u64 = ((!POSITION_LOW as u64) << 32) | SET;

impl Tracked {
    /// No WQE.
    pub(super) const NONE: Self = Self(0);

    /// A WQE of 1 to 8 quanta at a position.
    #[inline(always)]
    pub(super) fn new(
        position: u32,
        quanta: u32,
        length: u32,
        opcode: CompletionOpcode,
        signaled: bool,
    ) -> Self {
        debug_assert!((1..=8).contains(&quanta) && (opcode as u64) < NOP);
        Self::with(position, quanta, length, opcode as u64, signaled)
    }

    /// A WQE of one quantum, wherever it will be and whatever it will carry.
    #[inline(always)]
    pub(super) fn prepared(opcode: CompletionOpcode, signaled: bool) -> Self {
        Self(SET | (opcode as u64) << 35 | u64::from(signaled) << 38)
    }

    /// The same, now that position and length are known.
    #[inline(always)]
    pub(super) fn placed(self, position: u32, length: u32) -> Self {
        Self(self.0 | u64::from(position & !POSITION_LOW) << 32 | u64::from(length))
    }

    /// Padding of one quantum at a position.
    #[inline(always)]
    pub(super) fn padding(position: u32) -> Self {
        Self::with(position, 1, 0, NOP, false)
    }

    #[inline(always)]
    fn with(position: u32, quanta: u32, length: u32, opcode: u64, signaled: bool) -> Self {
        Self(
            u64::from(length)
                | u64::from(quanta - 1) << 32
                | opcode << 35
                | u64::from(signaled) << 38
                | identity(position),
        )
    }

    /// Whether a WQE starts at the position this was read from.
    #[inline(always)]
    pub(super) fn starts_at(self, position: u32) -> bool {
        (self.0 ^ identity(position)) & IDENTITY == 0
    }

    /// Bytes of the message.
    #[inline(always)]
    pub(super) fn length(self) -> u32 {
        self.0 as u32
    }

    /// Quanta of the WQE, 1 to 8.
    #[inline(always)]
    pub(super) fn quanta(self) -> u32 {
        (self.0 >> 32) as u32 % 8 + 1
    }

    /// What the completion is of; `None` for padding.
    #[inline(always)]
    pub(super) fn opcode(self) -> Option<CompletionOpcode> {
        const OPCODES: [Option<CompletionOpcode>; 8] = [
            Some(CompletionOpcode::Send),
            Some(CompletionOpcode::RdmaWrite),
            Some(CompletionOpcode::RdmaRead),
            Some(CompletionOpcode::CompareSwap),
            Some(CompletionOpcode::FetchAdd),
            Some(CompletionOpcode::BindWindow),
            Some(CompletionOpcode::LocalInvalidate),
            None,
        ];
        OPCODES[(self.0 >> 35) as usize % 8]
    }

    /// Whether the program asked for a completion.
    #[inline(always)]
    pub(super) fn is_signaled(self) -> bool {
        self.0 >> 38 & 1 != 0
    }
}

#[inline(always)]
fn identity(position: u32) -> u64 {
    u64::from(position & !POSITION_LOW) << 32 | SET
}

impl Tracking {
    /// Remembers a WQE.
    #[inline(always)]
    pub(super) fn set(&self, wr_id: u64, tracked: Tracked) {
        self.wr_id.store(wr_id, Ordering::Relaxed);
        self.detail.store(tracked.0, Ordering::Relaxed);
    }

    /// Remembers nothing: no WQE starts here.
    pub(super) fn clear(&self) {
        self.set(0, Tracked::NONE);
    }

    /// The program's id of the WQE.
    #[inline(always)]
    pub(super) fn wr_id(&self) -> u64 {
        self.wr_id.load(Ordering::Relaxed)
    }

    /// The rest of what is remembered.
    #[inline(always)]
    pub(super) fn tracked(&self) -> Tracked {
        Tracked(self.detail.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracked_fields_keep_to_themselves() {
        let tracked = Tracked::new(0xFFFF_FE00, 8, u32::MAX, CompletionOpcode::LocalInvalidate, true);
        assert_eq!(tracked.quanta(), 8);
        assert_eq!(tracked.length(), u32::MAX);
        assert_eq!(tracked.opcode(), Some(CompletionOpcode::LocalInvalidate));
        assert!(tracked.is_signaled());
        assert!(tracked.starts_at(0xFFFF_FE00));
        let padding = Tracked::padding(512);
        let prepared = Tracked::prepared(CompletionOpcode::RdmaRead, true).placed(0xFFFF_FE07, u32::MAX);
        assert_eq!(prepared, Tracked::new(0xFFFF_FE07, 1, u32::MAX, CompletionOpcode::RdmaRead, true));
        assert_eq!((padding.quanta(), padding.opcode(), padding.is_signaled()), (1, None, false));
        assert!(padding.starts_at(512) && !padding.starts_at(0) && !padding.starts_at(1024));
        for opcode in [CompletionOpcode::Send, CompletionOpcode::FetchAdd] {
            assert_eq!(Tracked::new(0, 1, 0, opcode, false).opcode(), Some(opcode));
        }
    }

    #[test]
    fn a_cell_never_set_is_no_wqe() {
        let slots = Slots::<Tracking>::new(512).unwrap();
        for position in 0..512 {
            assert!(!slots.at(position).tracked().starts_at(position));
        }
    }
}
