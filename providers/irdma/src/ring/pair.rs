//! Two words at a time, where the processor has registers for that.

#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::{
    __m128i, _mm_add_epi64, _mm_and_si128, _mm_cvtsi128_si64, _mm_loadu_si128, _mm_or_si128, _mm_set_epi64x,
    _mm_shuffle_epi32, _mm_storeu_si128, _mm_unpackhi_epi64,
};

/// Two 64-bit words that follow each other in memory.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair(__m128i);

// SAFETY, of every block here: the instructions are part of every x86-64.
#[cfg(target_arch = "x86_64")]
impl Pair {
    /// Both words.
    #[inline(always)]
    pub(crate) fn new(first: u64, second: u64) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm_set_epi64x(second as i64, first as i64) })
    }

    /// Two words in memory, at any alignment.
    ///
    /// # Safety
    /// 16 bytes are readable.
    #[inline(always)]
    pub(crate) unsafe fn read(from: *const u8) -> Self {
        // SAFETY: as above, and as the caller promises.
        Self(unsafe { _mm_loadu_si128(from.cast()) })
    }

    /// Writes them to memory, at any alignment.
    ///
    /// # Safety
    /// 16 bytes are writable, and nobody else's.
    #[inline(always)]
    pub(crate) unsafe fn write(self, to: *mut u8) {
        // SAFETY: as above, and as the caller promises.
        unsafe { _mm_storeu_si128(to.cast(), self.0) }
    }

    /// The halves of the second word exchanged.
    #[inline(always)]
    pub(crate) fn with_second_exchanged(self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm_shuffle_epi32::<0b10_11_01_00>(self.0) })
    }

    /// The bits that either has.
    #[inline(always)]
    pub(crate) fn or(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm_or_si128(self.0, other.0) })
    }

    /// The bits that both have.
    #[inline(always)]
    pub(crate) fn and(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm_and_si128(self.0, other.0) })
    }

    /// The sum of each word with its like, modulo 2^64.
    #[inline(always)]
    pub(crate) fn add(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm_add_epi64(self.0, other.0) })
    }

    /// The second word.
    #[inline(always)]
    pub(crate) fn second(self) -> u64 {
        // SAFETY: as above.
        unsafe { _mm_cvtsi128_si64(_mm_unpackhi_epi64(self.0, self.0)) as u64 }
    }
}

/// Two 64-bit words that follow each other in memory.
#[cfg(not(target_arch = "x86_64"))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair([u64; 2]);

#[cfg(not(target_arch = "x86_64"))]
impl Pair {
    /// Both words.
    #[inline(always)]
    pub(crate) fn new(first: u64, second: u64) -> Self {
        Self([first, second])
    }

    /// Two words in memory, at any alignment.
    ///
    /// # Safety
    /// 16 bytes are readable.
    #[inline(always)]
    pub(crate) unsafe fn read(from: *const u8) -> Self {
        // SAFETY: as the caller promises.
        Self(unsafe { from.cast::<[u64; 2]>().read_unaligned() })
    }

    /// Writes them to memory, at any alignment.
    ///
    /// # Safety
    /// 16 bytes are writable, and nobody else's.
    #[inline(always)]
    pub(crate) unsafe fn write(self, to: *mut u8) {
        // SAFETY: as the caller promises.
        unsafe { to.cast::<[u64; 2]>().write_unaligned(self.0) }
    }

    /// The halves of the second word exchanged.
    #[inline(always)]
    pub(crate) fn with_second_exchanged(self) -> Self {
        Self([self.0[0], self.0[1].rotate_left(32)])
    }

    /// The bits that either has.
    #[inline(always)]
    pub(crate) fn or(self, other: Self) -> Self {
        Self([self.0[0] | other.0[0], self.0[1] | other.0[1]])
    }

    /// The bits that both have.
    #[inline(always)]
    pub(crate) fn and(self, other: Self) -> Self {
        Self([self.0[0] & other.0[0], self.0[1] & other.0[1]])
    }

    /// The sum of each word with its like, modulo 2^64.
    #[inline(always)]
    pub(crate) fn add(self, other: Self) -> Self {
        Self([self.0[0].wrapping_add(other.0[0]), self.0[1].wrapping_add(other.0[1])])
    }

    /// The second word.
    #[inline(always)]
    pub(crate) fn second(self) -> u64 {
        self.0[1]
    }
}

#[cfg(test)]
mod tests {
    use super::Pair;

    #[test]
    fn two_words_are_two_words() {
        let bytes: [u8; 17] = core::array::from_fn(|index| index as u8);
        // SAFETY: the bytes from the second on are as many as it takes.
        let pair = unsafe { Pair::read(bytes[1..].as_ptr()) };
        assert_eq!(pair.second(), 0x100F_0E0D_0C0B_0A09);
        assert_eq!(pair.with_second_exchanged().second(), 0x0C0B_0A09_100F_0E0D);
        assert_eq!(pair.or(Pair::new(0, 1 << 63)).second(), 0x900F_0E0D_0C0B_0A09);
        assert_eq!(pair.and(Pair::new(0, 0xFFFF << 32)).second(), 0x0E0D << 32);
        let sum = Pair::new(u64::MAX, u32::MAX.into()).add(Pair::new(u64::MAX, u32::MAX.into()));
        assert_eq!(sum.second(), 0x1_FFFF_FFFE, "no word carries over");
        let mut written = [0; 17];
        // SAFETY: as above.
        unsafe { pair.with_second_exchanged().write(written[1..].as_mut_ptr()) };
        assert_eq!((&written[1..9], written[9], written[13]), (&bytes[1..9], 13, 9));
    }
}
