//! The spin lock of a queue, which a single-threaded user may do without.

use core::hint::spin_loop;
use core::mem::forget;
use core::sync::atomic::{AtomicBool, Ordering};

/// Looks at a held lock before the thread gives up its processor once.
///
/// The holder may be waiting for that very processor.
const SPINS: u32 = 1000;

/// Mutual exclusion for the few dozen instructions of a post or a poll.
#[derive(Debug)]
pub struct Lock {
    held: AtomicBool,
    elided: bool,
}

impl Lock {
    /// A lock that excludes.
    pub const fn new() -> Lock {
        Lock { held: AtomicBool::new(false), elided: false }
    }

    /// A lock that does nothing: its user has promised to be one thread at a time.
    pub const fn elided() -> Lock {
        Lock { held: AtomicBool::new(false), elided: true }
    }

    /// A lock for queues of a program that has promised to be one thread at a time, or has not.
    pub const fn unless(single_threaded: bool) -> Lock {
        if single_threaded { Lock::elided() } else { Lock::new() }
    }

    /// Takes the lock if nobody holds it.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_>> {
        // Acquire: as in `lock`.
        (self.elided || !self.held.swap(true, Ordering::Acquire)).then(|| Guard(self))
    }

    /// Takes the lock until the guard is dropped.
    #[inline]
    pub fn lock(&self) -> Guard<'_> {
        // Acquire: sees what the holder before wrote, which its Release in `unlock` published.
        if !self.elided && self.held.swap(true, Ordering::Acquire) {
            self.wait();
        }
        Guard(self)
    }

    /// Waits for a held lock and takes it.
    #[cold]
    #[inline(never)]
    fn wait(&self) {
        let mut spins = 0;
        loop {
            while self.held.load(Ordering::Relaxed) {
                spins += 1;
                if spins % SPINS == 0 {
                    // SAFETY: has no preconditions.
                    unsafe { libc::sched_yield() };
                }
                spin_loop();
            }
            // Acquire: as in `lock`.
            if !self.held.swap(true, Ordering::Acquire) {
                return;
            }
        }
    }

    /// Releases a lock whose guard was [kept](Guard::keep).
    ///
    /// # Safety
    /// The calling thread holds it, through a kept guard.
    #[inline]
    pub unsafe fn unlock(&self) {
        if !self.elided {
            // Release: what was written under the lock is seen by the next Acquire of it.
            self.held.store(false, Ordering::Release);
        }
    }
}

/// A held lock.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard<'a>(&'a Lock);

impl Guard<'_> {
    /// Keeps the lock beyond this guard, for a batch that spans several calls.
    #[inline]
    pub fn keep(self) {
        forget(self);
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard is the proof that it is held.
        unsafe { self.0.unlock() }
    }
}

/// A number that no other thread has while this one lives; not 0.
#[inline(always)]
pub fn this_thread() -> usize {
    let pointer: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the first word of the thread control block is its own address (System V ABI
    // supplement for x86-64, "Thread-Local Storage").
    unsafe {
        core::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, preserves_flags, pure, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the register holds the thread pointer, and reading it has no effect.
    unsafe {
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, preserves_flags, pure, nomem));
    }
    pointer
}

/// Takes the locks of two queues that may be one and the same.
///
/// In the order of their addresses, so that two threads cannot wait for each other.
pub fn lock_both<'a>(one: &'a Lock, other: &'a Lock) -> (Guard<'a>, Option<Guard<'a>>) {
    let (first, second) =
        if core::ptr::from_ref(one) < core::ptr::from_ref(other) { (one, other) } else { (other, one) };
    let guard = first.lock();
    (guard, (!core::ptr::eq(one, other)).then(|| second.lock()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU64;
    use std::thread;

    #[test]
    fn one_at_a_time() {
        // A load and a store apart: only the lock makes them one step.
        let (lock, value) = (Lock::new(), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50_000 {
                        let _guard = lock.lock();
                        value.store(value.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(value.into_inner(), 200_000);
    }

    #[test]
    fn two_orders_do_not_wait_for_each_other() {
        let (one, other) = (Lock::new(), Lock::new());
        thread::scope(|scope| {
            scope.spawn(|| (0..20_000).for_each(|_| drop(lock_both(&one, &other))));
            scope.spawn(|| (0..20_000).for_each(|_| drop(lock_both(&other, &one))));
        });
    }

    #[test]
    fn one_queue_twice_is_locked_once() {
        let lock = Lock::new();
        let (_guard, second) = lock_both(&lock, &lock);
        assert!(second.is_none());
    }

    #[test]
    fn a_kept_lock_stays_held() {
        let lock = Lock::new();
        lock.lock().keep();
        assert!(lock.held.load(Ordering::Relaxed));
        // SAFETY: kept above.
        unsafe { lock.unlock() };
        assert!(!lock.held.load(Ordering::Relaxed));
    }

    #[test]
    fn an_elided_lock_never_waits() {
        let lock = Lock::elided();
        let _first = lock.lock();
        let _second = lock.lock();
    }
}
