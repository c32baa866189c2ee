//! Push pages: where WQEs are handed to the device, and the doorbell that goes with them.

use core::ptr::{self, NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering};

use super::{Doorbell, Quanta, Quantum};
use crate::format::PUSH_WINDOW_QUANTA;

/// What a QP has of a push page: a window of eight quanta, and its doorbell. Only ever
/// written.
#[derive(Clone, Copy, Debug)]
pub struct PushPage {
    window: NonNull<Quantum>,
    doorbell: Doorbell,
}

// SAFETY: the window is plain memory that outlives the page (`PushPage::new`), and access goes
// through atomics.
unsafe impl Send for PushPage {}
// SAFETY: as above.
unsafe impl Sync for PushPage {}

impl PushPage {
    /// A window at `window`, with its doorbell.
    ///
    /// # Panics
    /// If `window` is not aligned to 8 bytes.
    ///
    /// # Safety
    /// A window's bytes from there on are mapped for writing as long as the page is used,
    /// and are used by nothing else but the device.
    pub unsafe fn new(window: NonNull<u8>, doorbell: Doorbell) -> Self {
        let window = window.cast::<Quantum>();
        assert!(window.is_aligned(), "a window is aligned");
        Self { window, doorbell }
    }

    /// Whether so many quanta from a position on have room from their place in the window on.
    #[inline(always)]
    pub fn has_room(self, position: u32, quanta: u32) -> bool {
        quanta <= PUSH_WINDOW_QUANTA - position % PUSH_WINDOW_QUANTA
    }

    /// Stores quanta from a position on at their place in the window, one at least.
    ///
    /// The memory may combine and reorder stores:
    /// [`write_combining_flush`](crate::barrier::write_combining_flush) comes after them.
    ///
    /// # Safety
    /// They [have room](Self::has_room), and the ring goes so far.
    #[inline(always)]
    pub(crate) unsafe fn store(self, position: u32, quanta: Quanta<'_>, count: u32) {
        // SAFETY: as the caller promises; `PushPage::new`.
        unsafe {
            let (mut from, mut to) = (quanta, self.window.add((position % PUSH_WINDOW_QUANTA) as usize));
            let end = quanta.after(count as usize);
            loop {
                copy(from.first(), to);
                // Settled, lest a loop that is short becomes a long one for four at a time.
                (from, to) = (from.after(1).settled(), to.add(1));
                if ptr::eq(from.place(), end.place()) {
                    break;
                }
            }
        }
    }

    /// Rings the push doorbell.
    #[inline(always)]
    pub fn ring(self, value: u32) {
        self.doorbell.ring(value);
    }
}

/// Copies a quantum in wide stores, which fill a buffer of the processor sooner.
///
/// # Safety
/// `to` is writable.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn copy(from: &Quantum, to: NonNull<Quantum>) {
    use core::arch::x86_64::{_mm_loadu_si128, _mm_storeu_si128};
    // SAFETY: the two halves of both, by instructions that are part of every x86-64. Of a
    // posted WQE's words only the program's own thread writes any.
    unsafe {
        let (from, to) = (core::ptr::from_ref(from).cast(), to.cast().as_ptr());
        let halves = (_mm_loadu_si128(from), _mm_loadu_si128(from.add(1)));
        _mm_storeu_si128(to, halves.0);
        _mm_storeu_si128(to.add(1), halves.1);
    }
}

/// Copies a quantum.
///
/// # Safety
/// `to` is writable.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn copy(from: &Quantum, to: NonNull<Quantum>) {
    // SAFETY: as the caller promises.
    for (to, from) in unsafe { to.as_ref() }.iter().zip(from) {
        to.store(from.load());
    }
}

/// Where a queue keeps its push page, which comes after the queue has been made, once.
#[derive(Debug)]
pub struct PushSlot {
    window: AtomicPtr<Quantum>,
    /// Written before `window`.
    doorbell: AtomicPtr<u32>,
}

impl PushSlot {
    /// No page.
    pub const fn empty() -> Self {
        Self { window: AtomicPtr::new(null_mut()), doorbell: AtomicPtr::new(null_mut()) }
    }

    /// Takes a page; `false` if there is one already. One call at a time.
    pub fn fill(&self, page: PushPage) -> bool {
        if self.get().is_some() {
            return false;
        }
        self.doorbell.store(page.doorbell.register.as_ptr(), Ordering::Relaxed);
        // Release: who sees the window sees its doorbell.
        self.window.store(page.window.as_ptr(), Ordering::Release);
        true
    }

    /// Whether there is a page.
    #[inline(always)]
    pub fn is_filled(&self) -> bool {
        !self.window.load(Ordering::Relaxed).is_null()
    }

    /// The page.
    #[inline(always)]
    pub fn get(&self) -> Option<PushPage> {
        // Acquire: as in `fill`.
        let window = NonNull::new(self.window.load(Ordering::Acquire))?;
        // SAFETY: `fill` has written it before, and what it writes is not null.
        let register = unsafe { NonNull::new_unchecked(self.doorbell.load(Ordering::Relaxed)) };
        Some(PushPage { window, doorbell: Doorbell { register } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::{Bell, Memory};

    #[test]
    fn a_slot_is_filled_once() {
        let (memory, bell, other) = (Memory::new(256), Bell::default(), Bell::default());
        let slot = PushSlot::empty();
        assert!(slot.get().is_none());
        // SAFETY: the memory lives to the end of the test.
        let page = |bell: &Bell| unsafe { PushPage::new(memory.base(), bell.doorbell()) };
        assert!(slot.fill(page(&bell)));
        assert!(!slot.fill(page(&other)));
        slot.get().expect("a page").ring(7);
        assert_eq!((bell.take(), other.take()), (Some(7), None));
    }
}
