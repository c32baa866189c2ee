//! Fragments of a WQE: the data of a message that lies in the program's regions.

use core::hint::cold_path;
use core::mem::offset_of;

use super::work::{Sge, total_length};
use crate::format::{QUANTUM_BYTES, VALID};
use crate::generation::Generation;
use crate::registers;
use crate::ring::{Pair, Quanta};

/// Bytes of a fragment.
const BYTES: usize = 16;
/// Where the fragments after the first quantum are.
const FURTHER: usize = QUANTUM_BYTES;

/// Fragments of this length are short: so many as a WQE can have are not too long together.
const SHORT: u32 = 1 << 27;

// So that a piece of the program's can be read as the two words of a fragment.
const _: () =
    assert!(size_of::<Sge>() == BYTES && offset_of!(Sge, length) == 8 && offset_of!(Sge, key) == 12);

/// The second word of a fragment that is not too long, without the valid bit.
#[inline(always)]
pub(super) fn descriptor<G: Generation>(sge: &Sge) -> u64 {
    // Length and key lie in memory as GEN1 wants them; the others have them exchanged.
    let gen1 = sge.length_and_key();
    if G::FRAGMENTS_CARRY_VALID { gen1.rotate_left(32) } else { gen1 }
}

/// The lengths of fragments, as far as two instructions for each can tell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lengths {
    /// Modulo 2^32.
    sum: Pair,
    any: Pair,
}

impl Lengths {
    /// Bytes of the list that was written. If they cannot be expressed, neither can what was written.
    #[inline(always)]
    pub(super) fn total<G: Generation>(&self, list: &[Sge]) -> Option<u32> {
        self.total_of_short::<G>().or_else(|| {
            cold_path();
            total_length::<G>(list)
        })
    }

    /// The same if that needs no other look at them.
    #[inline(always)]
    pub(super) fn total_of_short<G: Generation>(&self) -> Option<u32> {
        (self.any.length::<G>() < SHORT).then(|| self.sum.length::<G>())
    }
}

/// Whether all pieces of a list are so short that they can be expressed, and so can all together.
#[inline(always)]
pub(super) fn are_short(list: &[Sge]) -> bool {
    let mut any = 0;
    for sge in list {
        any |= sge.length;
        // They are too few for the compiler to do several at a time.
        registers::forget();
    }
    any < SHORT
}

/// Quanta of a WQE with so many slots for an immediate and fragments: one is in the first quantum,
/// two are in each further one.
#[inline(always)]
pub(super) fn quanta_of(slots: u32) -> u32 {
    1 + slots / 2
}

/// Value of the count of further fragments for so many slots.
#[inline(always)]
pub(super) fn more_of<G: Generation>(slots: u32) -> u8 {
    // With the empty one that fills the last quantum, or without.
    (if G::EMPTY_FRAGMENT_COUNTS { slots & !1 } else { slots.saturating_sub(1) }) as u8
}

impl Pair {
    /// A fragment without the valid bit.
    #[inline(always)]
    fn of<G: Generation>(sge: &Sge) -> Self {
        // SAFETY: two words, as asserted above.
        let gen1 = unsafe { Self::read((&raw const *sge).cast()) };
        if G::FRAGMENTS_CARRY_VALID { gen1.with_second_exchanged() } else { gen1 }
    }

    /// Length of a fragment.
    #[inline(always)]
    fn length<G: Generation>(self) -> u32 {
        (if G::FRAGMENTS_CARRY_VALID { self.second() >> 32 } else { self.second() }) as u32
    }
}

/// Writes fragments into the quanta of a WQE, all but its header: the list from the first slot on,
/// after an immediate if there is one. The header will be valid with `valid`.
///
/// # Safety
/// There are as many quanta as it takes, one and another for every two slots after the first, and
/// nobody else uses them.
#[inline(always)]
pub(super) unsafe fn write<G: Generation>(
    quanta: Quanta<'_>,
    valid: u64,
    immediate: Option<u32>,
    list: &[Sge],
) -> Lengths {
    debug_assert!(valid & !VALID == 0);
    // A fragment of no bytes, which has no more than the valid bit.
    let none = Pair::new(0, if G::FRAGMENTS_CARRY_VALID { valid } else { 0 });
    let mut lengths = Lengths { sum: Pair::new(0, 0), any: Pair::new(0, 0) };
    let mut set = |byte: usize, sge: &Sge| {
        let fragment = Pair::of::<G>(sge);
        lengths.sum = lengths.sum.add_halves(fragment);
        lengths.any = lengths.any.or(fragment);
        // SAFETY: as the caller promises.
        unsafe { quanta.set_pair(byte, if G::FRAGMENTS_CARRY_VALID { fragment.or(none) } else { fragment }) }
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
    lengths
}
