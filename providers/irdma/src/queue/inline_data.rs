//! Data carried in the WQE itself.

use core::mem::MaybeUninit;
use core::ptr;

use super::work::Sge;
use crate::generation::Generation;
use crate::ring::QuantumRing;

/// Longest inline data of any generation, in bytes.
pub(super) const MAX_BYTES: usize = 225;
/// Zeros behind the data: the rest of the last quantum.
const PADDING: usize = 32;

/// Inline data in one piece, zeros behind it.
pub(super) struct InlineData {
    bytes: MaybeUninit<[u8; MAX_BYTES + PADDING]>,
}

impl InlineData {
    /// The pieces of a list put together.
    ///
    /// # Safety
    /// All bytes of the list are readable, and they are `length`, at most
    /// [`MAX_BYTES`].
    #[inline(always)]
    pub(super) unsafe fn gather(list: &[Sge], length: usize) -> Self {
        debug_assert!(length <= MAX_BYTES);
        let mut data = Self { bytes: MaybeUninit::uninit() };
        let mut to = data.bytes.as_mut_ptr().cast::<u8>();
        for sge in list {
            let count = sge.length as usize;
            // SAFETY: the caller's promise for the source; the pieces so far and this
            // one are at most `length` bytes, which the buffer has.
            unsafe {
                copy(sge.address as usize as *const u8, to, count);
                to = to.add(count);
            }
        }
        // SAFETY: `length` bytes are written, and the buffer has that many more.
        unsafe { to.write_bytes(0, PADDING) };
        data
    }

    /// Writes `length` bytes into the WQE at a position; the last word of each
    /// further quantum carries the valid bit where the generation wants it.
    #[inline(always)]
    pub(super) fn write<G: Generation>(&self, ring: &QuantumRing, position: u32, valid: u64, quanta: u32) {
        let layout = G::INLINE;
        let first = ring.at(position);
        first[1].store(self.word(8 * (1 - layout.first_word)));
        if layout.first_word == 0 {
            first[0].store(self.word(0));
        }
        let mut from = layout.first_bytes;
        for more in 1..quanta {
            let quantum = ring.at(position.wrapping_add(more));
            quantum[0].store(self.word(from));
            quantum[1].store(self.word(from + 8));
            quantum[2].store(self.word(from + 16));
            let last = self.word(from + 24);
            quantum[3].store(if G::FRAGMENTS_CARRY_VALID { last & (u64::MAX >> 8) | valid } else { last });
            from += layout.more_bytes;
        }
    }

    /// Eight bytes in memory order.
    #[inline(always)]
    fn word(&self, offset: usize) -> u64 {
        debug_assert!(offset + 8 <= MAX_BYTES + PADDING);
        // SAFETY: inside the buffer: a quantum is only written if it holds a byte of
        // the data, so reading ends at most 31 bytes behind it, which are zeros.
        u64::from_le(unsafe { self.bytes.as_ptr().cast::<u8>().add(offset).cast::<u64>().read_unaligned() })
    }
}

/// Copies `count` bytes, a few, without calling anybody.
///
/// # Safety
/// `from` is readable, `to` writable for `count` bytes, and they do not overlap.
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8, count: usize) {
    // SAFETY: every access lies within the `count` bytes of both sides.
    unsafe {
        if count >= 8 {
            let mut done = 0;
            while done + 8 < count {
                move_bytes::<8>(from.add(done), to.add(done));
                done += 8;
            }
            // The last eight overlap with those before.
            move_bytes::<8>(from.add(count - 8), to.add(count - 8));
        } else if count >= 4 {
            move_bytes::<4>(from, to);
            move_bytes::<4>(from.add(count - 4), to.add(count - 4));
        } else if count > 0 {
            // One to three bytes: first, middle, last.
            move_bytes::<1>(from, to);
            move_bytes::<1>(from.add(count / 2), to.add(count / 2));
            move_bytes::<1>(from.add(count - 1), to.add(count - 1));
        }
    }
}

/// # Safety
/// `from` is readable, `to` writable for `N` bytes.
#[inline(always)]
unsafe fn move_bytes<const N: usize>(from: *const u8, to: *mut u8) {
    // SAFETY: as the caller promises; an array of bytes has no alignment.
    unsafe { ptr::write(to.cast::<[u8; N]>(), ptr::read(from.cast::<[u8; N]>())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn copies_exactly_the_bytes_asked_for() {
        let source: Vec<u8> = (1..=MAX_BYTES as u8).collect();
        for count in 0..=MAX_BYTES {
            let mut target = [0xEE; MAX_BYTES + 1];
            // SAFETY: both have `count` bytes.
            unsafe { copy(source.as_ptr(), target.as_mut_ptr(), count) };
            assert_eq!(target[..count], source[..count]);
            assert!(target[count..].iter().all(|&byte| byte == 0xEE), "{count} bytes");
        }
    }
}
