//! A 64-bit word of memory shared with the device.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A little-endian word that the device may read or write at any time.
///
/// Every access is a single aligned load or store that the compiler neither splits
/// nor repeats. Nothing is ordered by them: that is what
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

    /// Its upper half as it stands now.
    #[inline(always)]
    pub fn load_high(&self) -> u32 {
        // SAFETY: bytes 4 to 7 of a live word, which are aligned to 4. Only the device writes it at
        // the same time, if at all.
        let half = unsafe { AtomicU32::from_ptr(self.0.as_ptr().cast::<u32>().add(1)) };
        u32::from_le(half.load(Ordering::Relaxed))
    }

    /// Replaces the word.
    #[inline(always)]
    pub fn store(&self, value: u64) {
        self.0.store(value.to_le(), Ordering::Relaxed);
    }
}

const _: () = assert!(size_of::<Le64>() == 8 && align_of::<Le64>() == 8);
