//! Fragments of a WQE: the data of a message that lies in the program's regions.

use core::hint::cold_path;
use core::mem::offset_of;

use super::work::{Sge, total_length};
use crate::format::{QUANTUM_BYTES, VALID};
use crate::generation::WqeFormat;
use crate::registers;
use crate::ring::{Pair, Quanta};

/// Bytes of a fragment.
const BYTES: usize = 16;
/// Where the fragments after the first quantum are.
const FURTHER: usize = QUANTUM_BYTES;

/// Fragments that are shorter than this together can be expressed, each and all.
const SHORT: u64 = 1 << 31;

// So that a piece of the program's can be read as the two words of a fragment.
const _: () =
    assert!(size_of::<Sge>() == BYTES && offset_of!(Sge, length) == 8 && offset_of!(Sge, key) == 12);

/// The second word of a fragment that is not too long, without the valid bit.
#[inline(always)]
pub(super) fn descriptor<G: WqeFormat>(sge: &Sge) -> u64 {
    // Length and key lie in memory as GEN1 wants them; the others have them exchanged.
    let gen1 = sge.length_and_key();
    if G::FRAGMENTS_CARRY_VALID { gen1.rotate_left(32) } else { gen1 }
}

/// The bytes of fragments together: so few as there are do not overflow 64 bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lengths(u64);

impl Lengths {
    /// Bytes of the list that was written. If they cannot be expressed, neither can what was written.
    #[inline(always)]
    pub(super) fn total<G: WqeFormat>(self, list: &[Sge]) -> Option<u32> {
        self.total_if_short().or_else(|| {
            cold_path();
            total_length::<G>(list)
        })
    }

    /// The same if that needs no other look at them.
    #[inline(always)]
    pub(super) fn total_if_short(self) -> Option<u32> {
        (self.0 < SHORT).then_some(self.0 as u32)
    }
}

/// Quanta of a WQE with so many slots for an immediate and fragments: one is in the first quantum,
/// two are in each further one.
#[inline(always)]
pub(super) fn quanta_of(slots: u32) -> u32 {
    1 + slots / 2
}

/// Value of the count of further fragments for so many slots, in a queue in which the empty one that
/// fills the last quantum counts, or does not.
#[inline(always)]
pub(super) fn more_of(slots: u32, empty_counts: bool) -> u8 {
    (if empty_counts { slots & !1 } else { slots.saturating_sub(1) }) as u8
}

/// Writes fragments into the quanta of a WQE, all but its header: the list from the first slot on,
/// after an immediate if there is one. The header will be valid with `valid`.
///
/// # Safety
/// There are as many quanta as it takes, one and another for every two slots after the first, and
/// nobody else uses them.
#[inline(always)]
pub(super) unsafe fn write<G: WqeFormat>(
    quanta: Quanta<'_>,
    valid: u64,
    immediate: Option<u32>,
    list: &[Sge],
) -> Lengths {
    debug_assert!(valid & !VALID == 0);
    const { assert!(cfg!(target_endian = "little")) };
    // A fragment of no bytes, which has no more than the valid bit.
    let none = Pair::new(0, if G::FRAGMENTS_CARRY_VALID { valid } else { 0 });
    // As it lies in memory, the second word of a piece has the length in its lower half.
    let length_only = Pair::new(0, u32::MAX.into());
    let mut lengths = Pair::new(0, 0);
    let mut set = |byte: usize, sge: &Sge| {
        // SAFETY: two words, as asserted above.
        let piece = unsafe { Pair::read((&raw const *sge).cast()) };
        lengths = lengths.add(piece.and(length_only));
        let fragment = if G::FRAGMENTS_CARRY_VALID { piece.with_second_exchanged().or(none) } else { piece };
        // SAFETY: as the caller promises.
        unsafe { quanta.set_pair(byte, fragment) }
    };
    let mut further = list.as_ptr_range();
    if let Some(immediate) = immediate {
        // SAFETY: in the first quantum.
        unsafe { quanta.set_pair(0, Pair::new(immediate.into(), 0)) };
    } else if let Some(first) = list.first() {
        set(0, first);
        // SAFETY: there is one.
        further.start = unsafe { further.start.add(1) };
    } else {
        // SAFETY: in the first quantum.
        unsafe { quanta.set_pair(0, none) };
    }
    let slots = list.len() + usize::from(immediate.is_some());
    let bytes = further.end.addr() - further.start.addr();
    let mut done = 0;
    // SAFETY: so many pieces are left.
    unsafe {
        while done != bytes & !BYTES {
            set(FURTHER + done, &*further.start.byte_add(done));
            set(FURTHER + BYTES + done, &*further.start.byte_add(BYTES + done));
            done += 2 * BYTES;
            // The compiler makes no eight rounds of one.
            registers::forget();
        }
        if slots != 0 && slots.is_multiple_of(2) {
            set(FURTHER + done, &*further.start.byte_add(done));
            if G::FRAGMENTS_CARRY_VALID {
                // The last word of a quantum is where a header would be: it must
                // carry the valid bit too. That is the second half of the quantum.
                quanta.set_pair(FURTHER + BYTES + done, none);
            }
        }
    }
    Lengths(lengths.second())
}
