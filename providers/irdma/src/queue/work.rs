//! What is asked of a queue, and why it may be refused.

use core::marker::PhantomData;
use core::mem::offset_of;

use crate::format::{SendHeader, VALID};
use crate::generation::Generation;
use crate::registers;
use crate::ring::Quantum;

/// A piece of the program's memory. Laid out as `struct ibv_sge`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Sge {
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub length: u32,
    /// The region's local key.
    pub key: u32,
}

impl Sge {
    /// Length in the lower half, key in the upper half: as they lie in memory.
    #[inline(always)]
    pub(super) fn length_and_key(&self) -> u64 {
        const { assert!(core::mem::offset_of!(Sge, key) == core::mem::offset_of!(Sge, length) + 4) };
        // SAFETY: both fields, which follow each other.
        u64::from_le(unsafe { (&raw const self.length).cast::<u64>().read_unaligned() })
    }
}

/// Why a work request was not taken. The queue is as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The request is beyond what the queue or the device can do.
    Invalid,
    /// The queue is full.
    Full,
}

/// What a send WQE is to do, besides the data that it moves.
#[derive(Clone, Copy, Debug, Default)]
pub struct SendRequest {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// The header, as far as it does not follow from the data and the place in the ring: operation,
    /// flags, and in its lower 32 bits the remote key, key to invalidate or address handle.
    pub header: SendHeader,
    /// Word 2: remote address, or a
    /// [`DatagramDestination`](crate::format::DatagramDestination).
    pub remote: u64,
}

/// Operands of an atomic.
#[derive(Clone, Copy, Debug)]
pub struct Atomic {
    /// Value to add, or to put in.
    pub operand: u64,
    /// Value to compare with; 0 for fetch-and-add.
    pub compare: u64,
}

/// A window to bind.
#[derive(Clone, Copy, Debug)]
pub struct Bind {
    /// The window's new key.
    pub window_key: u32,
    /// Key of the region below it.
    pub region_key: u32,
    /// First byte; `None` if addresses count from zero.
    pub address: Option<u64>,
    /// Bytes.
    pub length: u64,
    /// The peer may read.
    pub remote_read: bool,
    /// The peer may write.
    pub remote_write: bool,
    /// The peer may use atomics.
    pub remote_atomic: bool,
    /// A type-1 window.
    pub type_1: bool,
}

/// Total bytes of a list, if each piece and all together can be expressed.
#[inline(always)]
pub(super) fn total_length<G: Generation>(list: &[Sge]) -> Option<u32> {
    let mut sum = Sum::default();
    list.iter().for_each(|sge| sum.add(sge.length));
    sum.total::<G>()
}

/// Bytes of a list that is gone through.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    total: u64,
    lengths: u32,
}

impl Sum {
    #[inline(always)]
    fn add(&mut self, length: u32) {
        self.total += u64::from(length);
        self.lengths |= length;
    }

    /// The total, if each piece and all together can be expressed.
    #[inline(always)]
    pub(super) fn total<G: Generation>(self) -> Option<u32> {
        // The longest fragment is a power of two less one, so all are short enough
        // exactly if their disjunction is.
        if self.lengths > G::MAX_FRAGMENT_BYTES {
            return None;
        }
        u32::try_from(self.total).ok()
    }
}

/// The second word of a fragment that is not too long, without the valid bit.
#[inline(always)]
pub(super) fn descriptor<G: Generation>(sge: &Sge) -> u64 {
    // Length and key lie in memory as GEN1 wants them; the others have them exchanged.
    const _: () = assert!(offset_of!(Sge, length) == 8 && offset_of!(Sge, key) == 12);
    // SAFETY: two fields of four bytes in a row, aligned to eight.
    let gen1 = u64::from_le(unsafe { (&raw const *sge).cast::<u64>().add(1).read() });
    if G::FRAGMENTS_CARRY_VALID { gen1.rotate_left(32) } else { gen1 }
}

/// Writes fragments into the quanta of a WQE, all but its header.
pub(super) struct Fragments<'ring, G> {
    quanta: &'ring [Quantum],
    /// The valid bit in its place, where fragments carry one.
    valid: u64,
    generation: PhantomData<G>,
}

/// What was written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    /// Value of the count of further fragments.
    pub(super) more: u8,
    /// Bytes. If they cannot be expressed, neither can what was written.
    pub(super) sum: Sum,
}

impl<'ring, G: Generation> Fragments<'ring, G> {
    /// For a WQE of such quanta, whose header will be valid with `valid`. What there is no
    /// quantum for is not written.
    #[inline(always)]
    pub(super) fn new(quanta: &'ring [Quantum], valid: u64) -> Self {
        debug_assert!(valid & !VALID == 0);
        let valid = if G::FRAGMENTS_CARRY_VALID { valid } else { 0 };
        Self { quanta, valid, generation: PhantomData }
    }

    /// Writes the list from the first slot on, after an immediate if there is one.
    #[inline(always)]
    pub(super) fn write(&self, immediate: Option<u32>, list: &[Sge]) -> Written {
        let mut sum = Sum::default();
        let Some((first, further)) = self.quanta.split_first() else { return Written { more: 0, sum } };
        let mut rest = list;
        if let Some(immediate) = immediate {
            first[0].store(immediate.into());
            first[1].store(0);
        } else if let Some((sge, others)) = list.split_first() {
            rest = others;
            first[0].store(sge.address);
            first[1].store(self.descriptor(sge, &mut sum));
        } else {
            first[0].store(0);
            first[1].store(self.valid);
        }
        let mut more = rest.len() as u8;
        let (pairs, last) = rest.as_chunks::<2>();
        for (quantum, [one, other]) in further.iter().zip(pairs) {
            quantum[0].store(one.address);
            quantum[1].store(self.descriptor(one, &mut sum));
            quantum[2].store(other.address);
            quantum[3].store(self.descriptor(other, &mut sum));
            // The compiler makes no eight rounds of one.
            registers::forget();
        }
        if let ([last], Some(quantum)) = (last, further.get(pairs.len())) {
            quantum[0].store(last.address);
            quantum[1].store(self.descriptor(last, &mut sum));
            if G::FRAGMENTS_CARRY_VALID {
                // The last word of a quantum is where a header would be: it must
                // carry the valid bit too.
                quantum[2].store(0);
                quantum[3].store(self.valid);
                if G::EMPTY_FRAGMENT_COUNTS {
                    more += 1;
                }
            }
        }
        Written { more, sum }
    }

    /// The second word of a slot.
    #[inline(always)]
    fn descriptor(&self, sge: &Sge, sum: &mut Sum) -> u64 {
        sum.add(sge.length);
        descriptor::<G>(sge) | self.valid
    }
}
