//! Memory shared with the device: rings, shadow areas, doorbells.
//!
//! The only module that turns addresses into accesses. Its types are made by
//! `unsafe` functions from memory that the caller promises to keep; afterwards
//! no index, however wrong, leads outside of that memory.

mod push_page;

use core::marker::PhantomData;
use core::ptr::NonNull;

use crate::barrier;
use crate::format::{Le64, QUANTUM_WORDS, SHADOW_BYTES, SHADOW_INDEX, VALID, VALID_WORD};
use crate::limits::CompletionQueueSize;

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

/// Copies bytes into a quantum of a ring, from its byte `start` on.
///
/// # Safety
/// `from` is readable for `count` bytes, `start + count` is at most 32, and no other thread uses
/// those bytes.
#[inline(always)]
pub(crate) unsafe fn copy_in(quantum: &Quantum, start: usize, from: *const u8, count: usize) {
    debug_assert!(start + count <= size_of::<Quantum>());
    let quantum = core::ptr::from_ref(quantum).cast::<u8>().cast_mut();
    // SAFETY: inside the quantum, as the caller promises, of which nobody else has more than
    // shared references to atomic words.
    unsafe { quantum.add(start).copy_from(from, count) };
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

/// The valid bit in the upper half of its word.
const VALID_HIGH: u32 = (VALID >> 32) as u32;

/// Four words of a completion queue: an entry, or the extension of one.
pub type Entry = [Le64; 4];

/// The ring of a completion queue and the place in it that is read next.
///
/// A slot has 32 bytes, and an extension is a slot of its own; or it has 64
/// bytes, and an extension is its second half.
#[derive(Debug)]
pub struct CompletionRing {
    /// The entry of slot `index`.
    entry: NonNull<Entry>,
    /// The valid bit, in its place, of an entry that has come on this lap: upper half of the word.
    valid: u32,
    /// The slot that is read next, below `slots`.
    index: usize,
    /// Slots of the ring.
    slots: usize,
    /// The entry of slot 0.
    base: NonNull<Entry>,
    /// Bytes of a slot: 32 or 64.
    slot_bytes: usize,
}

// SAFETY: the ring is plain memory that outlives it (`CompletionRing::new`), and all
// access goes through atomics.
unsafe impl Send for CompletionRing {}
// SAFETY: as above.
unsafe impl Sync for CompletionRing {}

impl CompletionRing {
    /// A ring from `base`, at its first lap.
    ///
    /// # Panics
    /// If there are fewer than two slots, a slot is not of 32 or 64 bytes, or `base`
    /// is not aligned to 8 bytes.
    ///
    /// # Safety
    /// The memory, of `size.slots * size.slot_bytes` bytes, is readable and writable,
    /// is used by nothing but the ring and the device, and stays so as long as the
    /// ring lives.
    pub unsafe fn new(base: NonNull<u8>, size: CompletionQueueSize) -> Self {
        assert!(size.slots >= 2, "a ring has slots");
        assert!(matches!(size.slot_bytes, 32 | 64), "a slot is of 32 or 64 bytes");
        let base = base.cast::<Entry>();
        assert!(base.is_aligned(), "a ring is aligned");
        Self {
            entry: base,
            valid: VALID_HIGH,
            index: 0,
            slots: size.slots as usize,
            base,
            slot_bytes: size.slot_bytes,
        }
    }

    /// Slots of the ring.
    pub fn slots(&self) -> u32 {
        self.slots as u32
    }

    /// The same ring, to be read on from here without moving this one.
    pub(crate) fn reader(&self) -> Self {
        Self { ..*self }
    }

    /// Goes through the ring from here on; [`keep`](Cursor::keep) moves the ring there.
    #[inline(always)]
    pub(crate) fn cursor<'ring>(&'ring mut self, shadow: &'ring ShadowArea) -> Cursor<'ring> {
        let consumer = &shadow.words()[SHADOW_INDEX];
        Cursor { entry: self.entry, valid: self.valid, index: self.index, ring: self, consumer }
    }

    /// The valid bit, in its place, of an entry that has come.
    #[inline(always)]
    pub fn valid(&self) -> u64 {
        u64::from(self.valid) << 32
    }

    /// Whether a slot has its extension in itself.
    #[inline(always)]
    pub fn is_wide(&self) -> bool {
        self.slot_bytes == 64
    }

    /// The entry that is read next.
    #[inline(always)]
    pub fn entry(&self) -> &Entry {
        // SAFETY: of slot `index`, which is below `slots`.
        unsafe { self.entry.as_ref() }
    }

    /// Whether the device has written that entry, or its first half.
    #[inline(always)]
    pub fn has_come(&self) -> bool {
        (self.entry()[VALID_WORD].load_high() ^ self.valid) & VALID_HIGH == 0
    }

    /// Where the extension of that entry is, and its valid bit once it has come.
    #[inline(always)]
    pub fn extension(&self) -> (&Entry, u64) {
        let (entry, valid) = if self.is_wide() || self.index + 1 != self.slots {
            // SAFETY: the second half of a slot below `slots`, or a slot below `slots`.
            (unsafe { self.entry.add(1) }, self.valid())
        } else {
            (self.base, self.valid() ^ VALID)
        };
        // SAFETY: as above, or the first slot.
        (unsafe { entry.as_ref() }, valid)
    }

    /// Moves on, past an entry with or without an extension.
    #[inline(always)]
    pub fn advance(&mut self, extended: bool) {
        self.next();
        if extended && !self.is_wide() {
            self.next();
        }
    }

    /// The same, and tells the device that it may write there again.
    #[inline(always)]
    pub fn pass(&mut self, extended: bool, shadow: &ShadowArea) {
        self.advance(extended);
        shadow.consumed_up_to(self.index);
    }

    /// Moves on by a slot.
    #[inline(always)]
    fn next(&mut self) {
        self.index += 1;
        if self.index == self.slots {
            self.wrap();
        } else {
            // SAFETY: the entry of slot `index`, which is below `slots`.
            self.entry = unsafe { self.entry.byte_add(self.slot_bytes) };
        }
    }

    /// Starts a new lap.
    #[cold]
    fn wrap(&mut self) {
        self.index = 0;
        self.valid ^= VALID_HIGH;
        self.entry = self.base;
    }
}

/// A place in a completion ring, and where the device is told of it.
pub(crate) trait Place {
    /// The entry that is read next.
    fn entry(&self) -> &Entry;

    /// The valid bit, in its place, of an entry that has come: upper half of the word.
    fn valid(&self) -> u32;

    /// Moves on by a slot, which the device may write to again.
    fn pass(&mut self);
}

/// The place of the ring itself, for one step.
#[derive(Debug)]
pub(crate) struct Direct<'ring> {
    pub(crate) ring: &'ring mut CompletionRing,
    pub(crate) shadow: &'ring ShadowArea,
}

impl Place for Direct<'_> {
    #[inline(always)]
    fn entry(&self) -> &Entry {
        self.ring.entry()
    }

    #[inline(always)]
    fn valid(&self) -> u32 {
        self.ring.valid
    }

    #[inline(always)]
    fn pass(&mut self) {
        self.ring.next();
        self.shadow.consumed_up_to(self.ring.index);
    }
}

/// A place that is kept in registers, for many steps.
#[derive(Debug)]
pub(crate) struct Cursor<'ring> {
    ring: &'ring mut CompletionRing,
    /// Where the device finds the consumer's index.
    consumer: &'ring Le64,
    /// These are as in the ring.
    entry: NonNull<Entry>,
    valid: u32,
    index: usize,
}

impl Cursor<'_> {
    /// Moves the ring to here.
    #[inline(always)]
    pub(crate) fn keep(self) {
        self.ring.entry = self.entry;
        self.ring.valid = self.valid;
        self.ring.index = self.index;
    }
}

impl Place for Cursor<'_> {
    #[inline(always)]
    fn entry(&self) -> &Entry {
        // SAFETY: of slot `index`, which is below `slots`.
        unsafe { self.entry.as_ref() }
    }

    #[inline(always)]
    fn valid(&self) -> u32 {
        self.valid
    }

    #[inline(always)]
    fn pass(&mut self) {
        self.index += 1;
        if self.index == self.ring.slots {
            self.index = 0;
            self.valid ^= VALID_HIGH;
            self.entry = self.ring.base;
        } else {
            // SAFETY: the entry of slot `index`, which is below `slots`.
            self.entry = unsafe { self.entry.byte_add(self.ring.slot_bytes) };
        }
        barrier::before_consumer_index();
        self.consumer.store(self.index as u64);
    }
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
    /// ([`barrier::before_doorbell`](crate::barrier::before_doorbell)).
    #[inline(always)]
    pub fn ring(self, value: u32) {
        // SAFETY: `Doorbell::new`.
        unsafe { self.register.write_volatile(value.to_le()) }
    }
}
