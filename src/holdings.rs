//! What a context has from its first object on. Programs that only ask what a device can do have none, and
//! a context of theirs takes next to no memory.

use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering};

use rdma_core_sys::bindings::{ibv_cmd_dealloc_pd, ibv_context, ibv_pd};

use crate::command;
use crate::context::Context;
use crate::cq::CompletionQueue;
use crate::errno::Result;
use crate::objects::Objects;
use crate::push::PushPages;
use crate::qp::QueuePair;
use crate::table::Table;

/// The queue pairs of a context.
pub type QueuePairs = Table<QueuePair, CompletionQueue>;

/// What a context has from its first object on.
pub struct Holdings {
    /// The push pages of its queue pairs.
    pub push_pages: PushPages,
    // Fields are dropped in this order: objects before the table that they are in.
    /// The objects that the program holds.
    pub objects: Objects,
    /// The queue pairs that completions may be about.
    pub queue_pairs: QueuePairs,
    /// The protection domain of the memory of queues that have none of their own.
    pub queue_memory_pd: ProtectionDomain,
}

/// A protection domain of the provider's own. Freed on drop, unless the kernel has done so.
pub struct ProtectionDomain(ibv_pd);

impl ProtectionDomain {
    /// Makes one.
    ///
    /// # Safety
    /// `context` is open, and outlives it.
    pub unsafe fn new(context: *mut ibv_context) -> Result<ProtectionDomain> {
        let mut pd = ibv_pd::default();
        // SAFETY: as the caller promises.
        unsafe { command::alloc_pd(context, &mut pd)? };
        pd.context = context;
        Ok(ProtectionDomain(pd))
    }

    /// As libibverbs takes it.
    pub fn as_ibv(&self) -> NonNull<ibv_pd> {
        NonNull::from(&self.0)
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: the context outlives it; made in `new`, and not freed since.
        unsafe {
            if !Context::of(self.0.context).is_closing() {
                ibv_cmd_dealloc_pd(&mut self.0);
            }
        }
    }
}

// SAFETY: the kernel's object belongs to the process.
unsafe impl Send for ProtectionDomain {}
// SAFETY: never changed.
unsafe impl Sync for ProtectionDomain {}

/// Something that is made when it is asked for first, and stays where it is.
pub struct Lazy<T>(AtomicPtr<T>);

// SAFETY: owns what it points to.
unsafe impl<T: Send> Send for Lazy<T> {}
// SAFETY: hands out references only, to what whichever thread has made.
unsafe impl<T: Send + Sync> Sync for Lazy<T> {}

impl<T> Lazy<T> {
    /// Not made.
    pub const fn new() -> Lazy<T> {
        Lazy(AtomicPtr::new(null_mut()))
    }

    /// It, if it was made.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        // SAFETY: made in `get_or_make`, and owned.
        unsafe { self.0.get_mut().as_mut() }
    }

    /// Whether it was made.
    pub fn is_made(&self) -> bool {
        !self.0.load(Ordering::Relaxed).is_null()
    }

    /// It. Threads that ask for the first time together may each make one, of which one stays.
    pub fn get_or_make(&self, make: impl FnOnce() -> Result<T>) -> Result<&T> {
        // Acquire: sees what whoever made it wrote.
        let made = match NonNull::new(self.0.load(Ordering::Acquire)) {
            Some(made) => made,
            None => self.keep(Box::new(make()?)),
        };
        // SAFETY: lives as long as `self`, and is only shared.
        Ok(unsafe { made.as_ref() })
    }

    /// Keeps this one, unless there is one already.
    fn keep(&self, fresh: Box<T>) -> NonNull<T> {
        let fresh = NonNull::from(Box::leak(fresh));
        // Release and Acquire: as in `get_or_make`.
        let kept = self.0.compare_exchange(null_mut(), fresh.as_ptr(), Ordering::AcqRel, Ordering::Acquire);
        let Some(earlier) = kept.err().and_then(NonNull::new) else { return fresh };
        // SAFETY: leaked above, and nobody else has seen it.
        drop(unsafe { Box::from_raw(fresh.as_ptr()) });
        earlier
    }
}

impl<T> Drop for Lazy<T> {
    fn drop(&mut self) {
        if let Some(made) = NonNull::new(*self.0.get_mut()) {
            // SAFETY: leaked in `keep`, and nobody refers to it any more.
            drop(unsafe { Box::from_raw(made.as_ptr()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errno::Errno;
    use std::sync::{Arc, Barrier};
    use std::thread;

    #[test]
    fn made_once_and_dropped() {
        let value = Arc::new(());
        let mut lazy = Lazy::new();
        assert!(lazy.get_mut().is_none());
        assert_eq!(lazy.get_or_make(|| Err(Errno::NO_MEMORY)).unwrap_err(), Errno::NO_MEMORY);
        lazy.get_or_make(|| Ok(Arc::clone(&value))).unwrap();
        lazy.get_or_make(|| panic!("it is there")).unwrap();
        assert!(lazy.get_mut().is_some());
        assert_eq!(Arc::strong_count(&value), 2);
        drop(lazy);
        assert_eq!(Arc::strong_count(&value), 1);
        drop(Lazy::<Arc<()>>::new());
    }

    #[test]
    fn all_threads_get_the_same() {
        let (value, together) = (Arc::new(()), Barrier::new(4));
        let lazy = Lazy::new();
        let get = || {
            let make = || {
                // All of them find that there is none.
                together.wait();
                Ok(Arc::clone(&value))
            };
            core::ptr::from_ref(lazy.get_or_make(make).unwrap()).addr()
        };
        let places: Vec<_> = thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(get));
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(places.iter().all(|place| *place == places[0]));
        assert_eq!(Arc::strong_count(&value), 2);
    }
}
