//! A 64-bit word of memory shared with the device.

use core::sync::atomic::{AtomicU64, Ordering};

/// A little-endian word that the device may read or write at any time.
///
/// Every access is a single aligned 64-bit load or store that the compiler
/// neither splits nor repeats. Nothing is ordered by them: that is what
/// [`barrier`](crate::barrier) is for.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Le64(AtomicU64);

impl Le64 {
    /// The word as it stands now.
    #[inline(always)]
    pub fn load(&self) -> u64 {
        u64::from_le(self.0.load(Ordering::Relaxed))
    }

    /// Replaces the word.
    #[inline(always)]
    pub fn store(&self, value: u64) {
        self.0.store(value.to_le(), Ordering::Relaxed);
    }
}

const _: () = assert!(size_of::<Le64>() == 8 && align_of::<Le64>() == 8);
