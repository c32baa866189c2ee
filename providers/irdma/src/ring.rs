//! Memory shared with the device: rings, shadow areas, doorbells.
//!
//! The only module that turns addresses into accesses. Its types are made by
//! `unsafe` functions from memory that the caller promises to keep; afterwards
//! no index, however wrong, leads outside of that memory.

mod completion;
mod pair;
mod push_page;

use core::marker::PhantomData;
use core::ptr::NonNull;

use crate::barrier;
use crate::format::{Le64, QUANTUM_WORDS, SHADOW_BYTES, SHADOW_INDEX};
use crate::registers::settled_pointer;

pub(crate) use completion::Place;
pub use completion::{CompletionRing, Entry};
pub(crate) use pair::Pair;
pub use push_page::{PushPage, PushSlot};

/// 32 bytes, the unit of work queues.
pub type Quantum = [Le64; QUANTUM_WORDS];

/// The ring of a work queue: a power of two of quanta, addressed by free-running
/// positions.
#[derive(Debug)]
pub struct QuantumRing {
    base: NonNull<Quantum>,
    /// Quanta of the ring less one.
    mask: u32,
    /// Quanta of the ring: the bit of a position that counts laps.
    lap: u32,
}

// SAFETY: the ring is plain memory that outlives it (`QuantumRing::new`), and all
// access goes through atomics.
unsafe impl Send for QuantumRing {}
// SAFETY: as above.
unsafe impl Sync for QuantumRing {}

impl QuantumRing {
    /// A ring of `quanta` quanta from `base`.
    ///
    /// # Panics
    /// If `quanta` is not a power of two or `base` is not aligned to 8 bytes.
    ///
    /// # Safety
    /// The memory is readable and writable, is used by nothing but rings and the
    /// device, and stays so as long as the ring lives.
    pub unsafe fn new(base: NonNull<u8>, quanta: u32) -> Self {
        assert!(quanta.is_power_of_two(), "a ring is a power of two");
        let base = base.cast::<Quantum>();
        assert!(base.is_aligned(), "a ring is aligned");
        Self { base, mask: quanta - 1, lap: quanta }
    }

    /// Quanta of the ring less one: `position & mask` is an index.
    #[inline(always)]
    pub fn mask(&self) -> u32 {
        self.mask
    }

    /// Quanta of the ring.
    #[inline(always)]
    pub fn quanta(&self) -> u32 {
        self.mask + 1
    }

    /// The index of a position, below the number of quanta.
    #[inline(always)]
    pub fn index(&self, position: u32) -> u32 {
        position & self.mask
    }

    /// The quantum at a position.
    #[inline(always)]
    pub fn at(&self, position: u32) -> &Quantum {
        // SAFETY: the masked index is inside the ring, whose memory is valid.
        unsafe { self.base.add((position & self.mask) as usize).as_ref() }
    }

    /// The quanta from a position on, up to the end of the ring.
    #[inline(always)]
    pub fn run(&self, position: u32, quanta: u32) -> &[Quantum] {
        let index = position & self.mask;
        let count = quanta.min(self.mask + 1 - index);
        // SAFETY: `index + count` is within the ring, whose memory is valid; words are atomic.
        unsafe { core::slice::from_raw_parts(self.base.add(index as usize).as_ptr(), count as usize) }
    }

    /// The quanta from a position on.
    #[inline(always)]
    pub(crate) fn quanta_from(&self, position: u32) -> Quanta<'_> {
        // SAFETY: the masked index is inside the ring.
        let first = unsafe { self.base.add((position & self.mask) as usize) };
        Quanta { first, ring: PhantomData }
    }

    /// The ring for those that go through it with offsets of their own.
    #[inline(always)]
    pub(crate) fn offsets(&self) -> Offsets<'_> {
        Offsets { base: self.base, ring: PhantomData }
    }

    /// The valid bit, in its place, of a WQE at a position: 1 on the first lap, 0
    /// on the second, and so on.
    #[inline(always)]
    pub fn valid(&self, position: u32) -> u64 {
        u64::from(position & self.lap == 0) << 63
    }

    /// Fills `quanta` quanta from a position on with a byte. The position is a
    /// multiple of `quanta`, and `quanta` divides the ring.
    #[inline]
    pub fn fill(&self, position: u32, quanta: u32, byte: u8) {
        let index = (position & self.mask) as usize;
        let count = (quanta.min(self.mask + 1 - index as u32)) as usize;
        // SAFETY: `index + count` is within the ring; concurrent readers are the
        // device alone, as nothing outstanding lies in what is cleared ahead.
        unsafe { fill(self.base.add(index), count, byte) }
    }
}

/// Quanta of a ring that follow each other, for those who know how many there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quanta<'ring> {
    first: NonNull<Quantum>,
    ring: PhantomData<&'ring QuantumRing>,
}

impl<'ring> Quanta<'ring> {
    /// The first one, which there is.
    #[inline(always)]
    pub(crate) fn first(self) -> &'ring Quantum {
        // SAFETY: of the ring (`QuantumRing::quanta_from`); whoever may be at its end asks for the place.
        unsafe { self.first.as_ref() }
    }

    /// Where they begin, which may be the end of the ring.
    #[inline(always)]
    pub(crate) fn place(self) -> *const Quantum {
        self.first.as_ptr()
    }

    /// The same in one register from here on.
    #[inline(always)]
    pub(crate) fn settled(self) -> Self {
        let first = settled_pointer(self.first.as_ptr()).cast_mut();
        // SAFETY: it was not null.
        Self { first: unsafe { NonNull::new_unchecked(first) }, ..self }
    }

    /// Those after as many.
    ///
    /// # Safety
    /// The ring goes so far.
    #[inline(always)]
    pub(crate) unsafe fn after(self, count: usize) -> Self {
        // SAFETY: as the caller promises.
        Self { first: unsafe { self.first.add(count) }, ..self }
    }

    /// Writes half a quantum, from a byte on.
    ///
    /// # Safety
    /// The ring goes so far, and nobody else uses those bytes.
    #[inline(always)]
    pub(crate) unsafe fn set_pair(self, byte: usize, pair: Pair) {
        // SAFETY: as the caller promises.
        unsafe { pair.write(self.first.cast::<u8>().add(byte).as_ptr()) }
    }

    /// Writes a byte.
    ///
    /// # Safety
    /// The ring goes so far, and nobody else uses it.
    #[inline(always)]
    pub(crate) unsafe fn set_byte(self, byte: usize, value: u8) {
        // SAFETY: as the caller promises.
        unsafe { self.first.cast::<u8>().add(byte).write(value) }
    }

    /// Copies bytes to those from `byte` on.
    ///
    /// # Safety
    /// They are readable; the ring goes so far, and nobody else uses those bytes.
    #[inline(always)]
    pub(crate) unsafe fn copy<const SIZE: usize>(self, byte: usize, from: *const u8) {
        // SAFETY: as the caller promises.
        unsafe {
            let bytes = from.cast::<[u8; SIZE]>().read();
            self.first.cast::<u8>().add(byte).cast::<[u8; SIZE]>().write(bytes);
        }
    }
}

/// A [`QuantumRing`] by offsets in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offsets<'ring> {
    base: NonNull<Quantum>,
    ring: PhantomData<&'ring QuantumRing>,
}

impl<'ring> Offsets<'ring> {
    /// The quantum at an offset.
    ///
    /// # Safety
    /// The offset is that of a quantum of the ring.
    #[inline(always)]
    pub(crate) unsafe fn at(self, offset: usize) -> &'ring Quantum {
        // SAFETY: as the caller promises.
        unsafe { self.base.byte_add(offset).as_ref() }
    }
}

/// Fills quanta with a byte.
///
/// In a loop of wide stores: the C library takes a few dozen instructions to find out how
/// to fill so little, and a call besides.
///
/// # Safety
/// That many quanta from `first` on are writable.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn fill(first: NonNull<Quantum>, count: usize, byte: u8) {
    use core::arch::x86_64::{_mm_set1_epi8, _mm_storeu_si128};
    // SAFETY: part of every x86-64. The black box hides from the compiler that this is a fill,
    // which it would leave to the C library.
    let pattern = core::hint::black_box(unsafe { _mm_set1_epi8(byte as i8) });
    /// Quanta of a step: long enough for the loop itself not to count.
    const STEP: usize = 16;
    for step in 0..count / STEP {
        for quantum in step * STEP..(step + 1) * STEP {
            // SAFETY: the two halves of a quantum of the range.
            unsafe {
                let half = first.add(quantum).cast().as_ptr();
                _mm_storeu_si128(half, pattern);
                _mm_storeu_si128(half.add(1), pattern);
            }
        }
    }
    for quantum in count / STEP * STEP..count {
        // SAFETY: the two halves of a quantum of the range.
        unsafe {
            let half = first.add(quantum).cast().as_ptr();
            _mm_storeu_si128(half, pattern);
            _mm_storeu_si128(half.add(1), pattern);
        }
    }
}

/// Fills quanta with a byte.
///
/// # Safety
/// That many quanta from `first` on are writable.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn fill(first: NonNull<Quantum>, count: usize, byte: u8) {
    // SAFETY: as the caller promises.
    unsafe { first.cast::<u8>().write_bytes(byte, count * size_of::<Quantum>()) }
}

/// The 64 bytes beside a queue in which words go to the device without a doorbell.
#[derive(Debug)]
pub struct ShadowArea {
    words: NonNull<[Le64; SHADOW_BYTES / 8]>,
}

// SAFETY: plain memory that outlives it (`ShadowArea::new`), accessed atomically.
unsafe impl Send for ShadowArea {}
// SAFETY: as above.
unsafe impl Sync for ShadowArea {}

impl ShadowArea {
    /// The shadow area at `base`.
    ///
    /// # Panics
    /// If `base` is not aligned to 8 bytes.
    ///
    /// # Safety
    /// 64 bytes are readable and writable, are used by nothing but the queue and the
    /// device, and stay so as long as the area lives.
    pub unsafe fn new(base: NonNull<u8>) -> Self {
        let words = base.cast::<[Le64; SHADOW_BYTES / 8]>();
        assert!(words.is_aligned(), "a shadow area is aligned");
        Self { words }
    }

    /// Tells the device the consumer's index in a completion queue. What was read of the entries
    /// before it was read before.
    #[inline(always)]
    fn consumed_up_to(&self, index: usize) {
        barrier::before_consumer_index();
        self.words()[SHADOW_INDEX].store(index as u64);
    }

    /// Its words; see [`format`](crate::format) for what they hold.
    #[inline(always)]
    pub fn words(&self) -> &[Le64; SHADOW_BYTES / 8] {
        // SAFETY: `ShadowArea::new`.
        unsafe { self.words.as_ref() }
    }
}

/// A register that wakes the device up. Only ever written.
#[derive(Clone, Copy, Debug)]
pub struct Doorbell {
    register: NonNull<u32>,
}

// SAFETY: a store to the register is a single access of the device's, from any thread.
unsafe impl Send for Doorbell {}
// SAFETY: as above.
unsafe impl Sync for Doorbell {}

impl Doorbell {
    /// The doorbell at `register`.
    ///
    /// # Panics
    /// If `register` is not aligned to 4 bytes.
    ///
    /// # Safety
    /// The register is mapped for writing as long as the doorbell is used, and a
    /// store to it has no effect on this program's memory.
    pub unsafe fn new(register: NonNull<u8>) -> Self {
        let register = register.cast::<u32>();
        assert!(register.is_aligned(), "a doorbell is aligned");
        Self { register }
    }

    /// Stores `value`, after what must come before it
    /// ([`barrier::before_doorbell`]).
    #[inline(always)]
    pub fn ring(self, value: u32) {
        // SAFETY: `Doorbell::new`.
        unsafe { self.register.write_volatile(value.to_le()) }
    }
}
