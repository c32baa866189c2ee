//! Push pages: where WQEs are handed to the device, and the doorbell that goes with them.

use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering};

use super::{Doorbell, Quantum};
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

    /// Stores quanta at their place in the window, as many as there is room for behind
    /// `place`, which counts quanta.
    ///
    /// The memory may combine and reorder stores:
    /// [`write_combining_flush`](crate::barrier::write_combining_flush) comes after them.
    #[inline(always)]
    pub fn store(self, place: u32, quanta: &[Quantum]) {
        let place = place % PUSH_WINDOW_QUANTA;
        let room = (PUSH_WINDOW_QUANTA - place) as usize;
        // SAFETY: from `place` on, the window has that many quanta; `PushPage::new`.
        let places = unsafe { self.window.add(place as usize) };
        for (index, quantum) in quanta.iter().take(room).enumerate() {
            // SAFETY: as above.
            unsafe { copy(quantum, places.add(index)) };
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

    /// The page.
    #[inline(always)]
    pub fn get(&self) -> Option<PushPage> {
        // Acquire: as in `fill`.
        let window = NonNull::new(self.window.load(Ordering::Acquire))?;
        let register = NonNull::new(self.doorbell.load(Ordering::Relaxed))?;
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
