//! A barrier in all threads of the process at once, paid by the thread that asks for it.
//!
//! Whoever posts writes the head of the queue and then looks whether the queue pair is known to
//! be in error; whoever learns of the error notes it and then looks at the head. Without barriers
//! both could look too early, and nobody would see to the flush of what was posted. A barrier
//! between store and load costs a poster as much as the rest of the post, so the rare side
//! issues it for both (membarrier(2)).

use core::ffi::{c_char, c_int, c_long};
use core::sync::atomic::{AtomicBool, Ordering};

/// `enum membarrier_cmd` of `linux/membarrier.h`
const PRIVATE_EXPEDITED: c_int = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: c_int = 1 << 4;

fn membarrier(command: c_int) -> c_long {
    // SAFETY: no memory is passed; unknown commands are refused.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
}

/// Whether the kernel issues them for this process.
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Asks the kernel for such barriers if that takes no time: while there is one thread. If there are more, the
/// kernel waits for every processor to come by, for some milliseconds.
pub fn register_early() {
    if has_one_thread() {
        register();
    }
}

/// Whether the process surely has one thread. The GNU C library says so from 2.32 on: it is asked for by name,
/// since a plugin that needs it is not loaded by an older one.
fn has_one_thread() -> bool {
    // SAFETY: a C string.
    let says = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
    // SAFETY: a variable of this type, unless NULL. Another thread that would write to it is what this asks about.
    !says.is_null() && unsafe { says.cast::<c_char>().read_volatile() } != 0
}

/// Asks the kernel for such barriers, before the first queue is made.
pub fn register() {
    if !is_available() && membarrier(REGISTER_PRIVATE_EXPEDITED) == 0 {
        REGISTERED.store(true, Ordering::Relaxed);
    }
}

/// Whether the kernel has them; if not, queues keep their locks.
pub fn is_available() -> bool {
    REGISTERED.load(Ordering::Relaxed)
}

/// When this returns, every other thread has passed a full barrier since it was called. Returns
/// whether that was done.
pub fn issue() -> bool {
    is_available() && membarrier(PRIVATE_EXPEDITED) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::hint::spin_loop;
    use core::sync::atomic::AtomicU32;
    use std::thread;

    use irdma_hw::barrier;

    /// A word in a cache line of its own.
    #[derive(Default)]
    #[repr(align(128))]
    struct Apart(AtomicU32);

    /// Until another thread has come to a round.
    fn wait_for(word: &Apart, round: u32) {
        let mut looks = 0_u32;
        while word.0.load(Ordering::Acquire) != round {
            looks += 1;
            if looks.is_multiple_of(1000) {
                thread::yield_now();
            }
            spin_loop();
        }
    }

    #[test]
    fn one_of_poster_and_poller_sees_the_other() {
        const ROUNDS: u32 = 20_000;
        register();
        assert!(is_available(), "membarrier(2)");
        let [started, finished, head, in_error, found] = [const { Apart(AtomicU32::new(0)) }; 5];
        let mut missed = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    wait_for(&started, round);
                    head.0.store(round, Ordering::Release);
                    barrier::posted_before_error_check();
                    found.0.store(in_error.0.load(Ordering::Relaxed), Ordering::Relaxed);
                    finished.0.store(round, Ordering::Release);
                }
            });
            for round in 1..=ROUNDS {
                started.0.store(round, Ordering::Release);
                // The poster needs a while to notice, a different one each time.
                for _ in 0..round % 64 {
                    spin_loop();
                }
                in_error.0.store(round, Ordering::Release);
                let issued = issue();
                let seen = head.0.load(Ordering::Acquire);
                wait_for(&finished, round);
                let is_missed = seen != round && found.0.load(Ordering::Relaxed) != round;
                if !issued || is_missed {
                    missed.push((round, issued));
                }
            }
        });
        assert_eq!(missed, [], "rounds, and whether there was a barrier");
    }
}
