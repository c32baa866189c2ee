//! Which queue pairs a context has: what makes a CQE's completion context safe to use.
//!
//! A queue pair gives the kernel a number instead of its address: index and
//! generation of a slot of this table. Whatever number a CQE brings back, a poller
//! gets a queue pair only if the number is that of a live one whose completions of
//! that direction go to the very CQ that it polls. A late CQE of a destroyed queue
//! pair carries an old generation and finds nothing.
//!
//! Slots are published and withdrawn under the locks of both CQs, so what a poller
//! finds stays alive as long as it holds the lock of its CQ. Words are atomic
//! because a poller of a third CQ may look at a slot at the same time (and find
//! that it is not its own).

use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use irdma_hw::queue::Side;

use crate::errno::{Errno, Result};
use crate::memory::Anonymous;

/// Bits of a slot's index.
const INDEX_BITS: u32 = 20;
/// Bits of a slot's generation.
const GENERATION_BITS: u32 = 22;
/// Log2 of the bytes of a slot: above those bits is the index, so that a masked completion
/// context is the place of its slot.
const SLOT_BITS: u32 = 5;

/// Most slots of a table.
const MOST_SLOTS: u32 = 1 << INDEX_BITS;

/// The number of one use of a slot.
fn completion_context(index: u32, generation: u32) -> u64 {
    ((u64::from(generation) << INDEX_BITS) | u64::from(index)) << SLOT_BITS
}

/// The slot that a completion context is about, in any table.
#[inline]
fn index_of(completion_context: u64) -> usize {
    (completion_context >> SLOT_BITS) as usize & (MOST_SLOTS as usize - 1)
}

/// The generation that a completion context was given out in; 0 if none was.
fn generation_of(completion_context: u64) -> u32 {
    (completion_context >> (SLOT_BITS + INDEX_BITS)) as u32 & ((1 << GENERATION_BITS) - 1)
}

/// One slot. All zero: never used.
#[repr(C)]
struct Entry<Q, C> {
    /// Completion context of its present or last use.
    completion_context: AtomicU64,
    /// The queue pair; NULL while not published.
    qp: AtomicPtr<Q>,
    /// Where its send completions go.
    send_cq: AtomicPtr<C>,
    /// Where its receive completions go.
    recv_cq: AtomicPtr<C>,
}

const _: () = assert!(size_of::<Entry<(), ()>>() == 1 << SLOT_BITS);

/// Which slots are free.
struct Free {
    /// Slots given back, last one first.
    returned: Vec<u32>,
    /// Slots from here on were never used.
    untouched: u32,
}

/// The queue pairs (`Q`) of a context and the completion queues (`C`) they report to.
pub struct Table<Q, C> {
    entries: Anonymous,
    slots: u32,
    free: Mutex<Free>,
    /// Slots from here on were never published.
    unpublished: AtomicUsize,
    // The pointers are handed out, never used here.
    kinds: core::marker::PhantomData<(*const Q, *const C)>,
}

// SAFETY: the table hands out pointers and never follows them; all its words are
// atomic or under its mutex.
unsafe impl<Q, C> Send for Table<Q, C> {}
// SAFETY: as above.
unsafe impl<Q, C> Sync for Table<Q, C> {}

impl<Q, C> Table<Q, C> {
    /// A table for `max_qps` queue pairs; as many as a table can have if 0.
    ///
    /// Takes memory for those only that are used.
    pub fn new(max_qps: u32) -> Result<Table<Q, C>> {
        let slots = match max_qps {
            0 => MOST_SLOTS,
            _ => max_qps.min(MOST_SLOTS),
        };
        // For every index, so that none needs to be compared with the number of slots. It takes
        // address space only.
        let entries = Anonymous::reserve(MOST_SLOTS as usize * size_of::<Entry<Q, C>>())?;
        let free = Mutex::new(Free { returned: Vec::new(), untouched: 0 });
        let unpublished = AtomicUsize::new(0);
        Ok(Table { entries, slots, free, unpublished, kinds: core::marker::PhantomData })
    }

    /// The slot with that index, if there is one.
    #[inline]
    fn entry(&self, index: usize) -> Option<&Entry<Q, C>> {
        if index >= self.slots as usize {
            return None;
        }
        // SAFETY: the memory has that many entries, zeroed from the start, and lives as long as the table.
        Some(unsafe { self.entries.base().cast::<Entry<Q, C>>().add(index).as_ref() })
    }

    /// What finds queue pairs in the table; the table outlives it.
    pub fn finder(&self) -> Finder<Q, C> {
        let mask = (MOST_SLOTS as usize - 1) << SLOT_BITS;
        Finder { base: self.entries.base().cast(), mask }
    }

    /// Every published queue pair that reports to `cq`, and what of it.
    ///
    /// The caller holds the lock of `cq`, and may use the answers while it does.
    pub fn attached(&self, cq: NonNull<C>) -> impl Iterator<Item = (NonNull<Q>, Side)> {
        // Relaxed: as in `find`; what was published to this CQ was counted before.
        let entries = (0..self.unpublished.load(Relaxed)).filter_map(|index| self.entry(index));
        entries.flat_map(move |entry| {
            let of = |its_cq: &AtomicPtr<C>, side| {
                (its_cq.load(Relaxed) == cq.as_ptr())
                    .then(|| NonNull::new(entry.qp.load(Relaxed)))?
                    .map(|qp| (qp, side))
            };
            [of(&entry.send_cq, Side::Send), of(&entry.recv_cq, Side::Receive)].into_iter().flatten()
        })
    }

    /// Takes a free slot, of which nothing is found before it is published.
    pub fn reserve(&self) -> Result<Slot> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let index = match free.returned.pop() {
            Some(index) => index,
            None if free.untouched < self.slots => {
                // So that giving the slot back needs no memory.
                let wanted = free.untouched as usize + 1;
                free.returned.try_reserve(wanted).map_err(|_| Errno::NO_MEMORY)?;
                free.untouched += 1;
                free.untouched - 1
            }
            None => return Err(Errno::NO_MEMORY),
        };
        let entry = self.entry(index as usize).ok_or(Errno::INTERNAL)?;
        let last = generation_of(entry.completion_context.load(Relaxed));
        let generation = if last + 1 < 1 << GENERATION_BITS { last + 1 } else { 1 };
        let completion_context = completion_context(index, generation);
        entry.completion_context.store(completion_context, Relaxed);
        Ok(Slot { completion_context })
    }

    /// Lets pollers of both CQs find `qp`.
    ///
    /// The caller holds the locks of both, and keeps all three alive until the
    /// slot has been withdrawn.
    pub fn publish(&self, slot: &Slot, qp: NonNull<Q>, send_cq: NonNull<C>, recv_cq: NonNull<C>) {
        let index = index_of(slot.completion_context);
        if let Some(entry) = self.entry(index) {
            self.unpublished.fetch_max(index + 1, Relaxed);
            entry.qp.store(qp.as_ptr(), Relaxed);
            entry.send_cq.store(send_cq.as_ptr(), Relaxed);
            entry.recv_cq.store(recv_cq.as_ptr(), Relaxed);
        }
    }

    /// Lets nobody find the queue pair any more. The caller holds the locks of both CQs.
    pub fn withdraw(&self, slot: &Slot) {
        if let Some(entry) = self.entry(index_of(slot.completion_context)) {
            entry.send_cq.store(null_mut(), Relaxed);
            entry.recv_cq.store(null_mut(), Relaxed);
            entry.qp.store(null_mut(), Relaxed);
        }
    }

    /// Frees a slot that is not published.
    pub fn give_back(&self, slot: Slot) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.returned.push(index_of(slot.completion_context) as u32);
    }
}

/// Looks up completion contexts in a [`Table`].
pub struct Finder<Q, C> {
    base: NonNull<Entry<Q, C>>,
    /// What of a completion context is the place of its slot in bytes.
    mask: usize,
}

impl<Q, C> Finder<Q, C> {
    /// The queue pair that a CQE polled from `cq` is about; `None` if its
    /// completion context is not that of a live one that reports there.
    ///
    /// # Safety
    /// The table lives. The caller holds the lock of `cq`, and uses the answer while it does.
    #[inline(always)]
    pub unsafe fn find(&self, completion_context: u64, side: Side, cq: NonNull<C>) -> Option<NonNull<Q>> {
        // SAFETY: the masked number is a multiple of the size of a slot, and the table has memory
        // for every one there can be, zeroed from the start.
        let entry = unsafe { self.base.byte_add(completion_context as usize & self.mask).as_ref() };
        let its_cq = match side {
            Side::Send => &entry.send_cq,
            Side::Receive => &entry.recv_cq,
        };
        // Relaxed: if the slot is of this CQ, the caller's lock orders all of its words;
        // if it is not, it is refused whatever mixture of uses is read.
        if its_cq.load(Relaxed) != cq.as_ptr() || entry.completion_context.load(Relaxed) != completion_context
        {
            return None;
        }
        // SAFETY: a slot is published with a queue pair, and without its queues when withdrawn.
        Some(unsafe { NonNull::new_unchecked(entry.qp.load(Relaxed)) })
    }
}

/// A slot in use, to be [given back](Table::give_back).
#[derive(Debug)]
pub struct Slot {
    completion_context: u64,
}

impl Slot {
    /// What the kernel is told to put into the CQEs.
    pub fn completion_context(&self) -> u64 {
        self.completion_context
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<Q, C> Table<Q, C> {
        fn find(&self, completion_context: u64, side: Side, cq: NonNull<C>) -> Option<NonNull<Q>> {
            // SAFETY: the table lives, there is one thread, and nobody uses the answer.
            unsafe { self.finder().find(completion_context, side, cq) }
        }
    }

    fn pointers<T>(values: &[T; 3]) -> [NonNull<T>; 3] {
        [0, 1, 2].map(|at| NonNull::from(&values[at]))
    }

    #[test]
    fn found_only_by_its_number_on_its_cq() {
        let table = Table::<u8, u16>::new(8).unwrap();
        let (qps, cqs) = ([0; 3], [0; 3]);
        let ([qp, ..], [send, recv, other]) = (pointers(&qps), pointers(&cqs));
        let slot = table.reserve().unwrap();
        let number = slot.completion_context();
        assert_eq!(table.find(number, Side::Send, send), None);
        table.publish(&slot, qp, send, recv);
        assert_eq!(table.find(number, Side::Send, send), Some(qp));
        assert_eq!(table.find(number, Side::Receive, recv), Some(qp));
        assert_eq!(table.find(number, Side::Receive, send), None);
        assert_eq!(table.find(number, Side::Send, other), None);
        for bit in 0..64 {
            assert_eq!(table.find(number ^ (1 << bit), Side::Send, send), None);
        }
        assert_eq!(table.find(0, Side::Send, send), None);
        assert_eq!(table.attached(send).collect::<Vec<_>>(), [(qp, Side::Send)]);
        assert_eq!(table.attached(other).count(), 0);
        table.withdraw(&slot);
        assert_eq!(table.find(number, Side::Send, send), None);
    }

    #[test]
    fn a_slot_used_again_has_another_number() {
        let table = Table::<u8, u16>::new(1).unwrap();
        let (qps, cqs) = ([0; 3], [0; 3]);
        let ([qp, ..], [send, recv, _]) = (pointers(&qps), pointers(&cqs));
        let slot = table.reserve().unwrap();
        let old = slot.completion_context();
        table.give_back(slot);
        let slot = table.reserve().unwrap();
        table.publish(&slot, qp, send, recv);
        assert_ne!(slot.completion_context(), old);
        assert_eq!(table.find(old, Side::Send, send), None);
        assert_eq!(table.find(slot.completion_context(), Side::Send, send), Some(qp));
    }

    #[test]
    fn generations_wrap_without_zero() {
        let table = Table::<u8, u16>::new(1).unwrap();
        let last = completion_context(0, (1 << GENERATION_BITS) - 1);
        table.entry(0).unwrap().completion_context.store(last, Relaxed);
        assert_eq!(generation_of(table.reserve().unwrap().completion_context()), 1);
        assert_eq!(last >> 48, 0);
    }

    #[test]
    fn no_more_slots_than_asked_for() {
        let table = Table::<u8, u16>::new(2).unwrap();
        let slot = table.reserve().unwrap();
        let _kept = table.reserve().unwrap();
        assert_eq!(table.reserve().unwrap_err(), Errno::NO_MEMORY);
        table.give_back(slot);
        assert!(table.reserve().is_ok());
    }
}
