//! The ring of a completion queue, and places in it.

use core::marker::PhantomData;
use core::ptr::NonNull;

use super::ShadowArea;
use crate::barrier;
use crate::format::{Le64, SHADOW_INDEX, VALID, VALID_WORD};
use crate::generation::Generation;
use crate::limits::CompletionQueueSize;

/// The valid bit in the upper half of its word.
const VALID_HIGH: u32 = (VALID >> 32) as u32;

/// Entries of 64 bytes in a page.
const PAGE_ENTRIES: usize = 64;

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
    pub(crate) fn cursor<'ring, G>(&'ring mut self, shadow: &'ring ShadowArea) -> Cursor<'ring, G> {
        let consumer = &shadow.words()[SHADOW_INDEX];
        let (entry, valid, index) = (self.entry, self.valid, self.index);
        Cursor { entry, valid, index, ring: self, consumer, generation: PhantomData }
    }

    /// The place of the ring itself, for one step.
    #[inline(always)]
    pub(crate) fn direct<'ring, G>(&'ring mut self, shadow: &'ring ShadowArea) -> Direct<'ring, G> {
        Direct { ring: self, shadow, generation: PhantomData }
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
    pub fn pass(&mut self, extended: bool, shadow: &ShadowArea, holds_back_page_ends: bool) {
        self.advance(extended);
        if !holds_back_page_ends || may_tell(self.index, || self.has_come()) {
            shadow.consumed_up_to(self.index);
        }
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

/// Whether a device that [must not be told of ends of pages](Generation::HOLDS_BACK_PAGE_ENDS) may be
/// told of an index, if the entry there has come or not: one that is left out is made up for by the next.
#[inline(always)]
fn may_tell(index: usize, has_come: impl FnOnce() -> bool) -> bool {
    !index.is_multiple_of(PAGE_ENTRIES) || {
        at_page_end();
        !has_come()
    }
}

/// Keeps what is done at the end of a page out of the way of the rest.
#[cold]
const fn at_page_end() {}

/// A place in a completion ring, and where the device is told of it.
pub(crate) trait Place {
    /// The entry that is read next.
    fn entry(&self) -> &Entry;

    /// The valid bit, in its place, of an entry that has come: upper half of the word.
    fn valid(&self) -> u32;

    /// Where the extension of that entry is, and its valid bit, as above, once it has come.
    fn extension(&self) -> (&Entry, u32);

    /// The second half of the entry, if slots have one; it is there as soon as the first is.
    fn second_half(&self) -> Option<&Entry>;

    /// Moves on by a slot, which the device may write to again.
    fn pass(&mut self);

    /// The same past an entry with an extension.
    fn pass_extended(&mut self);
}

/// The place of the ring itself, for one step.
#[derive(Debug)]
pub(crate) struct Direct<'ring, G> {
    ring: &'ring mut CompletionRing,
    shadow: &'ring ShadowArea,
    generation: PhantomData<G>,
}

impl<G: Generation> Place for Direct<'_, G> {
    #[inline(always)]
    fn entry(&self) -> &Entry {
        self.ring.entry()
    }

    #[inline(always)]
    fn valid(&self) -> u32 {
        self.ring.valid
    }

    #[inline(always)]
    fn extension(&self) -> (&Entry, u32) {
        let (entry, valid) = self.ring.extension();
        (entry, (valid >> 32) as u32)
    }

    #[inline(always)]
    fn second_half(&self) -> Option<&Entry> {
        // SAFETY: of a slot below `slots`.
        self.ring.is_wide().then(|| unsafe { self.ring.entry.add(1).as_ref() })
    }

    #[inline(always)]
    fn pass(&mut self) {
        self.ring.pass(false, self.shadow, G::HOLDS_BACK_PAGE_ENDS);
    }

    #[inline(always)]
    fn pass_extended(&mut self) {
        self.ring.pass(true, self.shadow, G::HOLDS_BACK_PAGE_ENDS);
    }
}

/// A place that is kept in registers, for many steps.
#[derive(Debug)]
pub(crate) struct Cursor<'ring, G> {
    ring: &'ring mut CompletionRing,
    /// Where the device finds the consumer's index.
    consumer: &'ring Le64,
    /// These are as in the ring.
    entry: NonNull<Entry>,
    valid: u32,
    index: usize,
    generation: PhantomData<G>,
}

impl<G: Generation> Cursor<'_, G> {
    /// Moves on by a slot.
    #[inline(always)]
    fn next(&mut self) {
        self.index += 1;
        if self.index == self.ring.slots {
            self.index = 0;
            self.valid ^= VALID_HIGH;
            self.entry = self.ring.base;
        } else {
            // SAFETY: the entry of slot `index`, which is below `slots`.
            self.entry = unsafe { self.entry.byte_add(self.ring.slot_bytes) };
        }
    }

    /// Tells the device that it may write to what lies before. What was read of it was read before.
    #[inline(always)]
    fn tell(&self) {
        let has_come = || (self.entry()[VALID_WORD].load_high() ^ self.valid) & VALID_HIGH == 0;
        if !G::HOLDS_BACK_PAGE_ENDS || may_tell(self.index, has_come) {
            barrier::before_consumer_index();
            self.consumer.store(self.index as u64);
        }
    }

    /// Moves the ring to here.
    #[inline(always)]
    pub(crate) fn keep(self) {
        self.ring.entry = self.entry;
        self.ring.valid = self.valid;
        self.ring.index = self.index;
    }
}

impl<G: Generation> Place for Cursor<'_, G> {
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
    fn extension(&self) -> (&Entry, u32) {
        let (entry, valid) = if self.ring.is_wide() || self.index + 1 != self.ring.slots {
            // SAFETY: the second half of a slot below `slots`, or a slot below `slots`.
            (unsafe { self.entry.add(1) }, self.valid)
        } else {
            (self.ring.base, self.valid ^ VALID_HIGH)
        };
        // SAFETY: as above, or the first slot.
        (unsafe { entry.as_ref() }, valid)
    }

    #[inline(always)]
    fn second_half(&self) -> Option<&Entry> {
        // SAFETY: of slot `index`, which is below `slots`.
        self.ring.is_wide().then(|| unsafe { self.entry.add(1).as_ref() })
    }

    #[inline(always)]
    fn pass(&mut self) {
        self.next();
        self.tell();
    }

    #[inline(always)]
    fn pass_extended(&mut self) {
        self.next();
        if !self.ring.is_wide() {
            self.next();
        }
        self.tell();
    }
}
