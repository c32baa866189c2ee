//! Data carried in the WQE itself.

use core::mem::MaybeUninit;

use super::work::Sge;
use crate::generation::Generation;
use crate::registers;
use crate::ring::{Quantum, copy_in};

/// Longest inline data of any generation, in bytes.
pub(super) const MAX_BYTES: usize = 225;

/// Writes `length` bytes into the quanta of a WQE, zeros behind them. The last byte of each
/// further quantum carries the valid bit where the generation wants it. What there is no quantum
/// for is not written; there are no more than it takes
/// ([`InlineLayout::quanta`](crate::generation::InlineLayout::quanta)).
///
/// # Safety
/// `from` is readable for `length` bytes.
#[inline(always)]
pub(super) unsafe fn write<G: Generation>(quanta: &[Quantum], valid: u64, from: *const u8, length: usize) {
    let layout = G::INLINE;
    let Some((first, further)) = quanta.split_first() else { return };
    let start = 8 * layout.first_word;
    // SAFETY: every piece is one of the bytes that are left; those of the first quantum end with
    // its second word, those of the others with it.
    unsafe {
        if length < layout.first_bytes {
            first[..2].iter().skip(layout.first_word).for_each(|word| word.store(0));
            copy(first, start, from, length);
            return;
        }
        // As many as that always are: a copy of constant length.
        copy_in(first, start, from, layout.first_bytes);
        let mut left = length - layout.first_bytes;
        let mut from = from.add(layout.first_bytes);
        for quantum in further {
            if left < layout.more_bytes {
                quantum[..3].iter().for_each(|word| word.store(0));
                quantum[3].store(if G::FRAGMENTS_CARRY_VALID { valid } else { 0 });
                copy(quantum, 0, from, left);
                return;
            }
            // Two halves, which overlap if there are fewer than 32 bytes.
            copy_in(quantum, 0, from, 16);
            copy_in(quantum, layout.more_bytes - 16, from.add(layout.more_bytes - 16), 16);
            if G::FRAGMENTS_CARRY_VALID {
                copy_in(quantum, 31, valid.to_le_bytes()[7..].as_ptr(), 1);
            }
            left -= layout.more_bytes;
            from = from.add(layout.more_bytes);
            registers::forget();
        }
    }
}

/// Copies a few bytes into a quantum, from byte `start` of it on: two pieces that may overlap.
///
/// # Safety
/// `from` is readable for `count` bytes, and the quantum has as many from `start` on.
#[inline(always)]
unsafe fn copy(quantum: &Quantum, start: usize, from: *const u8, count: usize) {
    // SAFETY: every piece lies within the `count` bytes of both sides.
    unsafe {
        if count >= 16 {
            copy_in(quantum, start, from, 16);
            copy_in(quantum, start + count - 16, from.add(count - 16), 16);
        } else if count >= 8 {
            copy_in(quantum, start, from, 8);
            copy_in(quantum, start + count - 8, from.add(count - 8), 8);
        } else if count >= 4 {
            copy_in(quantum, start, from, 4);
            copy_in(quantum, start + count - 4, from.add(count - 4), 4);
        } else if count > 0 {
            // One to three bytes: first, middle, last.
            copy_in(quantum, start, from, 1);
            copy_in(quantum, start + count / 2, from.add(count / 2), 1);
            copy_in(quantum, start + count - 1, from.add(count - 1), 1);
        }
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
    #[inline(never)]
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

    /// The first byte; there are [`length`](Self::length) of them.
    pub(super) fn bytes(&self) -> *const u8 {
        self.bytes.as_ptr().cast()
    }

    /// How many bytes they are.
    pub(super) fn length(&self) -> u32 {
        self.length
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
    fn read_back<G: Generation>(memory: &Memory, length: usize) -> Vec<u8> {
        let bytes: Vec<u8> = (0..32).flat_map(|word| memory.word(word).load().to_le_bytes()).collect();
        let layout = G::INLINE;
        let first = &bytes[8 * layout.first_word..][..layout.first_bytes];
        let more = bytes[32..].chunks(32).flat_map(|quantum| &quantum[..layout.more_bytes]);
        first.iter().chain(more).copied().take(length).collect()
    }

    fn check<G: Generation>() {
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
                    write::<G>(ring.run(0, G::INLINE.quanta(length)), valid, exact.as_ptr(), length);
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
