//! Data carried in the WQE itself.

use core::mem::MaybeUninit;

use super::work::Sge;
use crate::format::QUANTUM_BYTES;
use crate::generation::{InlineLayout, WqeFormat};
use crate::registers;
use crate::ring::{Pair, Quanta};

/// Longest inline data of any generation, in bytes.
pub(super) const MAX_BYTES: usize = 225;

/// Writes `length` bytes into the quanta of a WQE, zeros behind them. The last byte of each
/// further quantum carries the valid bit where the generation wants it.
///
/// # Safety
/// `from` is readable for `length` bytes, and there are as many quanta as they take
/// ([`InlineLayout::quanta`](crate::generation::InlineLayout::quanta)), which nobody else uses.
#[inline(always)]
pub(super) unsafe fn write<G: WqeFormat>(
    quanta: Quanta<'_>,
    valid: impl Fn() -> u64,
    from: *const u8,
    length: usize,
) {
    let layout = G::INLINE;
    let valid = || if G::FRAGMENTS_CARRY_VALID { valid() } else { 0 };
    // SAFETY: what is read are the bytes that are left, and for each quantum there are some; those
    // of the first quantum end with its second word, those of the others with it.
    unsafe {
        if length < layout.first_bytes {
            write_first(quanta, &layout, from, length);
            return;
        }
        if layout.first_bytes == WORD {
            quanta.copy::<WORD>(8 * layout.first_word, from);
        } else {
            quanta.set_pair(8 * layout.first_word, Pair::read(from));
        }
        let (mut from, mut left) = (from.add(layout.first_bytes), length - layout.first_bytes);
        // The one before the one that is written to.
        let mut last = quanta;
        while left >= layout.more_bytes {
            // Two halves, which overlap if there are fewer than 32 bytes.
            last.set_pair(NEXT, Pair::read(from));
            let second = layout.more_bytes - PAIR;
            last.set_pair(NEXT + second, Pair::read(from.add(second)));
            if G::FRAGMENTS_CARRY_VALID {
                last.set_byte(NEXT + 31, (valid() >> 56) as u8);
            }
            (from, left) = (from.add(layout.more_bytes), left - layout.more_bytes);
            last = last.after(1);
            registers::forget();
        }
        if left == 0 {
            return;
        }
        last.set_pair(NEXT + PAIR, Pair::new(0, valid()));
        if left >= PAIR {
            last.set_pair(NEXT, Pair::read(from));
            last.set_pair(NEXT + left - PAIR, Pair::read(from.add(left - PAIR)));
        } else {
            last.set_pair(NEXT, Pair::new(0, 0));
            copy_short(last, NEXT, from, left);
        }
    }
}

/// Writes fewer bytes than a first quantum has room for.
///
/// # Safety
/// `from` is readable for `length` bytes, which the quantum has room for, and nobody else uses it.
#[inline(always)]
unsafe fn write_first(quanta: Quanta<'_>, layout: &InlineLayout, from: *const u8, length: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        if layout.first_bytes == WORD {
            quanta.first()[layout.first_word].store(0);
        } else {
            quanta.set_pair(8 * layout.first_word, Pair::new(0, 0));
        }
        copy_short(quanta, 8 * layout.first_word, from, length);
    }
}

/// Bytes of a word.
const WORD: usize = 8;
/// Bytes of two words.
const PAIR: usize = 2 * WORD;
/// Where the next quantum begins.
const NEXT: usize = QUANTUM_BYTES;

/// Copies fewer bytes than two words have, to a byte of the quanta on: two pieces, which may overlap.
///
/// # Safety
/// They are readable; the quanta go so far, and nobody else uses those bytes.
#[inline(always)]
unsafe fn copy_short(to: Quanta<'_>, byte: usize, from: *const u8, count: usize) {
    // SAFETY: the pieces are within them.
    unsafe {
        if count >= 8 {
            copy_both::<8>(to, byte, from, count);
        } else if count >= 4 {
            copy_both::<4>(to, byte, from, count);
        } else if count >= 2 {
            copy_both::<2>(to, byte, from, count);
        } else if count == 1 {
            to.set_byte(byte, from.read());
        }
    }
}

/// Copies the first `SIZE` of some bytes, and the last.
///
/// # Safety
/// As for [`copy_short`]; there are as many.
#[inline(always)]
unsafe fn copy_both<const SIZE: usize>(to: Quanta<'_>, byte: usize, from: *const u8, count: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        to.copy::<SIZE>(byte, from);
        to.copy::<SIZE>(byte + count - SIZE, from.add(count - SIZE));
    }
}

/// The pieces of a list put together.
pub(super) struct Gathered {
    bytes: MaybeUninit<[u8; MAX_BYTES]>,
    length: u32,
}

impl Gathered {
    /// Puts them together; `None` if they are more than `most` bytes, at most [`MAX_BYTES`].
    ///
    /// # Safety
    /// All bytes of the list are readable, or more than `most`.
    #[inline]
    pub(super) unsafe fn new(list: &[Sge], most: u32) -> Option<Self> {
        debug_assert!(most as usize <= MAX_BYTES);
        let total = list.iter().map(|sge| u64::from(sge.length)).sum::<u64>();
        let length = u32::try_from(total).ok().filter(|&length| length <= most)?;
        let mut gathered = Self { bytes: MaybeUninit::uninit(), length };
        let mut to = gathered.bytes.as_mut_ptr().cast::<u8>();
        for sge in list {
            let count = sge.length as usize;
            let from = sge.address as usize as *const u8;
            // SAFETY: the caller's promise for the source; the pieces so far and this
            // one are at most as many bytes as the buffer has. It is nobody else's.
            unsafe {
                // Not by calling anybody: they are few.
                let mut done = 0;
                while done + 8 <= count {
                    to.add(done).copy_from_nonoverlapping(from.add(done), 8);
                    done += 8;
                }
                while done < count {
                    to.add(done).write_volatile(from.add(done).read());
                    done += 1;
                }
                to = to.add(count);
            }
        }
        Some(gathered)
    }

    /// They as one piece.
    #[inline(always)]
    pub(super) fn piece(&self) -> Sge {
        Sge { address: self.bytes.as_ptr().expose_provenance() as u64, length: self.length, key: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generation::{Gen1, Gen2, Gen3};
    use crate::mock::Memory;
    use crate::ring::QuantumRing;
    use std::vec::Vec;

    /// The bytes that a device finds.
    fn read_back<G: WqeFormat>(memory: &Memory, length: usize) -> Vec<u8> {
        let bytes: Vec<u8> = (0..32).flat_map(|word| memory.word(word).load().to_le_bytes()).collect();
        let layout = G::INLINE;
        let first = &bytes[8 * layout.first_word..][..layout.first_bytes];
        let more = bytes[32..].chunks(32).flat_map(|quantum| &quantum[..layout.more_bytes]);
        first.iter().chain(more).copied().take(length).collect()
    }

    fn check<G: WqeFormat>() {
        let source: Vec<u8> = (1..=MAX_BYTES as u8).collect();
        for length in 0..=G::INLINE.max_bytes {
            for valid in [0, 1 << 63] {
                let memory = Memory::new(256);
                let stale = if valid == 0 { u64::MAX } else { 0 };
                memory.fill(stale);
                // SAFETY: the memory outlives the ring, and the source has that many bytes.
                unsafe {
                    let ring = QuantumRing::new(memory.base(), 8);
                    // From the end of an allocation of its own: what reads further is found out by tools.
                    let exact: Vec<u8> = source[..length].to_vec();
                    write::<G>(ring.quanta_from(0), || valid, exact.as_ptr(), length);
                }
                assert_eq!(read_back::<G>(&memory, length), source[..length], "{length} bytes");
                let quanta = G::INLINE.quanta(length) as usize;
                let after: Vec<u8> = read_back::<G>(&memory, MAX_BYTES);
                let room = G::INLINE.first_bytes + (quanta - 1) * G::INLINE.more_bytes;
                assert!(after[length..room].iter().all(|&byte| byte == 0), "zeros behind {length} bytes");
                for quantum in 1..8 {
                    let last = memory.word(quantum * 4 + 3).load();
                    if quantum >= quanta {
                        assert_eq!(last, stale, "{length} bytes");
                    } else if G::FRAGMENTS_CARRY_VALID {
                        assert_eq!(last & 0xFF << 56, valid, "{length} bytes");
                    }
                }
                assert_eq!([memory.word(2).load(), memory.word(3).load()], [stale; 2], "not its business");
            }
        }
    }

    #[test]
    fn any_length_is_written_as_it_is() {
        check::<Gen1>();
        check::<Gen2>();
        check::<Gen3>();
    }
}
