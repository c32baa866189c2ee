//! Signals to the launcher are the program's.
//!
//! Ctrl-C and Ctrl-\ reach the program by themselves, and it decides; the others
//! are passed on. From before the program is started, none gets lost.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

/// What a terminal sends to everybody.
const KEYBOARD: [libc::c_int; 2] = [libc::SIGINT, libc::SIGQUIT];
/// What is passed on.
const PASSED: [libc::c_int; 4] = [libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];

/// The running program, for the handler.
static PROGRAM: AtomicI32 = AtomicI32::new(0);

/// What was set before the launcher took the signals for itself.
pub struct Signals {
    keyboard: [libc::sighandler_t; KEYBOARD.len()],
    mask: libc::sigset_t,
}

impl Signals {
    /// Ignores the keyboard and holds back the others.
    pub fn hold() -> Signals {
        // SAFETY: ignoring is not a function.
        let keyboard = KEYBOARD.map(|signal| unsafe { libc::signal(signal, libc::SIG_IGN) });
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
        Signals { keyboard, mask }
    }

    /// Sets everything as it was, in the process that becomes the program.
    pub fn give_back(&self) {
        for (signal, action) in KEYBOARD.into_iter().zip(self.keyboard) {
            // SAFETY: what was set before; this program has no handlers of its own.
            unsafe { libc::signal(signal, action) };
        }
        self.release();
    }

    /// Passes on to `program` what was held back and what comes.
    pub fn pass_to(&self, program: libc::pid_t) {
        PROGRAM.store(program, Ordering::Relaxed);
        for signal in PASSED {
            // SAFETY: the handler is async-signal-safe.
            unsafe { libc::signal(signal, pass_on as *const () as libc::sighandler_t) };
        }
        self.release();
    }

    fn release(&self) {
        // SAFETY: the set is a valid one.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &self.mask, ptr::null_mut()) };
    }
}

/// Passes nothing on any more: the program has ended, and its number may be another's.
pub fn forget_program() {
    PROGRAM.store(0, Ordering::Relaxed);
}

extern "C" fn pass_on(signal: libc::c_int) {
    let program = PROGRAM.load(Ordering::Relaxed);
    if program > 0 {
        // SAFETY: no pointers.
        unsafe { libc::kill(program, signal) };
    }
}
