//! Memory that both sides reach.

use alloc::alloc::{Layout, alloc_zeroed, dealloc};
use alloc::boxed::Box;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::format::Le64;
use crate::ring::Doorbell;

/// Page-aligned memory, zeroed, with guard words behind it.
#[derive(Debug)]
pub struct Memory {
    base: NonNull<u8>,
    words: usize,
}

/// Words behind the memory that nobody may write to.
const GUARD_WORDS: usize = 64;
const GUARD: u64 = 0x6775_6172_6420_2121;

impl Memory {
    /// Memory of that many bytes, a multiple of 8.
    pub fn new(bytes: usize) -> Self {
        assert!(bytes.is_multiple_of(8));
        let words = bytes / 8;
        let layout = Self::layout(words);
        // SAFETY: not of size zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).expect("memory for a test");
        let memory = Self { base, words };
        for word in words..words + GUARD_WORDS {
            memory.raw(word).store(GUARD);
        }
        memory
    }

    fn layout(words: usize) -> Layout {
        Layout::from_size_align((words + GUARD_WORDS) * 8, 4096).expect("a layout")
    }

    /// The first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The byte at an offset.
    pub fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.words * 8);
        // SAFETY: within the allocation.
        unsafe { self.base.add(offset) }
    }

    /// The word at an index.
    pub fn word(&self, index: usize) -> &Le64 {
        assert!(index < self.words, "word {index} of {}", self.words);
        self.raw(index)
    }

    /// Fills everything with a word, so that what is not written shows.
    pub fn fill(&self, value: u64) {
        for index in 0..self.words {
            self.raw(index).store(value);
        }
    }

    fn raw(&self, index: usize) -> &Le64 {
        // SAFETY: within the allocation, guard included; aligned and initialised.
        unsafe { self.base.cast::<Le64>().add(index).as_ref() }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let intact = (self.words..self.words + GUARD_WORDS).all(|word| self.raw(word).load() == GUARD);
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.base.as_ptr(), Self::layout(self.words)) };
        #[cfg(test)]
        if std::thread::panicking() {
            return;
        }
        assert!(intact, "written behind the memory");
    }
}

/// A doorbell register that remembers the last value. Keeps silent about how often.
#[derive(Debug)]
pub struct Bell(Box<AtomicU32>);

impl Default for Bell {
    fn default() -> Self {
        Self(Box::new(AtomicU32::new(Self::SILENT)))
    }
}

impl Bell {
    /// What the register holds while it has not been rung.
    pub const SILENT: u32 = u32::MAX;

    /// The queue's side. Used only as long as the bell lives.
    pub fn doorbell(&self) -> Doorbell {
        let register = NonNull::from(&*self.0).cast();
        // SAFETY: the register lives as long as the bell, and is nothing but a number.
        unsafe { Doorbell::new(register) }
    }

    /// The value it was rung with last, which is forgotten; `None` if it was not.
    pub fn take(&self) -> Option<u32> {
        let value = self.0.swap(Self::SILENT, Ordering::Relaxed);
        (value != Self::SILENT).then(|| u32::from_le(value))
    }
}
