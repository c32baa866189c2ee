//! Signals to the launcher are the program's.
//!
//! Ctrl-C and Ctrl-\ of a terminal reach the program by themselves, and it decides; what other
//! processes send to the launcher is passed on. From before the program is started, none gets
//! lost.

use std::mem::{MaybeUninit, zeroed};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

/// What is passed on.
const PASSED: [libc::c_int; 6] =
    [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];

/// The running program, for the handler.
static PROGRAM: AtomicI32 = AtomicI32::new(0);

/// What was set before the launcher took the signals for itself.
pub struct Signals {
    mask: libc::sigset_t,
}

impl Signals {
    /// Holds all of them back.
    pub fn hold() -> Signals {
        let (mut held, mut mask) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: the calls initialise both sets, and cannot fail for these signals.
        let mask = unsafe {
            libc::sigemptyset(held.as_mut_ptr());
            for signal in PASSED {
                libc::sigaddset(held.as_mut_ptr(), signal);
            }
            libc::sigprocmask(libc::SIG_BLOCK, held.as_ptr(), mask.as_mut_ptr());
            mask.assume_init()
        };
        Signals { mask }
    }

    /// Passes on to `program` what was held back and what comes.
    pub fn pass_to(&self, program: libc::pid_t) {
        PROGRAM.store(program, Ordering::Relaxed);
        for signal in PASSED {
            // SAFETY: all bytes zero is a value; the handler is async-signal-safe.
            unsafe {
                let mut action: libc::sigaction = zeroed();
                action.sa_sigaction = pass_on as *const () as libc::sighandler_t;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
                libc::sigaction(signal, &action, ptr::null_mut());
            }
        }
        self.give_back();
    }

    /// Sets everything as it was, in the process that becomes the program as well.
    pub fn give_back(&self) {
        // SAFETY: the set is a valid one.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &self.mask, ptr::null_mut()) };
    }
}

/// Passes nothing on any more: the program has ended, and its number may be another's.
pub fn forget_program() {
    PROGRAM.store(0, Ordering::Relaxed);
}

extern "C" fn pass_on(signal: libc::c_int, about: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let program = PROGRAM.load(Ordering::Relaxed);
    // SAFETY: the kernel hands over a valid one.
    let by_a_process = unsafe { (*about).si_code } <= 0;
    // A terminal's signals go to the program as well.
    if program > 0 && (by_a_process || !matches!(signal, libc::SIGINT | libc::SIGQUIT)) {
        // SAFETY: no pointers.
        unsafe { libc::kill(program, signal) };
    }
}
