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

    /// Stores a quantum at its place in the window: `position` modulo the window.
    ///
    /// The memory may combine and reorder stores:
    /// [`write_combining_flush`](crate::barrier::write_combining_flush) comes after them.
    #[inline(always)]
    pub fn store(self, position: u32, quantum: &Quantum) {
        // SAFETY: the place is inside the window; `PushPage::new`.
        let place = unsafe { self.window.add((position % PUSH_WINDOW_QUANTA) as usize).as_ref() };
        for (to, from) in place.iter().zip(quantum) {
            to.store(from.load());
        }
    }

    /// Rings the push doorbell.
    #[inline(always)]
    pub fn ring(self, value: u32) {
        self.doorbell.ring(value);
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
