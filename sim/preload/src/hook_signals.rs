//! SIGBUS is ours while doorbells trap: programs may set what they like for it,
//! but it is never blocked and we look first.
//!
//! A fault while SIGBUS is blocked would kill the program, so it is taken out of every mask.

use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::system::{self, Errno};

/// Handler with three arguments.
type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

// SAFETY: the signatures are those of the C library.
unsafe extern "C" {
    /// The C library's own `sigaction`, under the name that is not hooked.
    fn __sigaction(
        signal: libc::c_int,
        action: *const libc::sigaction,
        old: *mut libc::sigaction,
    ) -> libc::c_int;
    /// The C library's own `signal`, under the name that is not hooked.
    fn bsd_signal(signal: libc::c_int, handler: libc::sighandler_t) -> libc::sighandler_t;
}

/// Bytes of the kernel's signal set.
const KERNEL_SET: usize = 8;
/// SIGBUS in a kernel signal set.
const BUS_BIT: u64 = 1 << (libc::SIGBUS - 1);
/// The C library's own signals (cancellation, set-user-id), which it keeps out of masks.
const INTERNAL_BITS: u64 = 0b11 << 31;

/// Whether our handler is installed.
static TAKEN: AtomicBool = AtomicBool::new(false);
/// Our handler, once installed.
static OURS: AtomicU64 = AtomicU64::new(0);
/// What the program has set for SIGBUS. Odd version: being written.
static VERSION: AtomicU32 = AtomicU32::new(0);
static PROGRAM_HANDLER: AtomicU64 = AtomicU64::new(libc::SIG_DFL as u64);
static PROGRAM_FLAGS: AtomicU64 = AtomicU64::new(0);
static PROGRAM_MASK: AtomicU64 = AtomicU64::new(0);

/// A program's disposition of SIGBUS.
#[derive(Clone, Copy)]
struct Disposition {
    handler: usize,
    flags: libc::c_int,
    mask: u64,
}

impl Disposition {
    fn of(action: &libc::sigaction) -> Disposition {
        Disposition { handler: action.sa_sigaction, flags: action.sa_flags, mask: low_word(&action.sa_mask) }
    }

    fn load() -> Disposition {
        loop {
            // Acquire: pairs with the Release that ends `store`.
            let version = VERSION.load(Ordering::Acquire);
            let disposition = Disposition {
                handler: PROGRAM_HANDLER.load(Ordering::Acquire) as usize,
                flags: PROGRAM_FLAGS.load(Ordering::Acquire) as libc::c_int,
                mask: PROGRAM_MASK.load(Ordering::Acquire),
            };
            if version & 1 == 0 && VERSION.load(Ordering::Relaxed) == version {
                return disposition;
            }
        }
    }

    /// Stores it with all signals blocked, for a handler that finds it half
    /// written in its own thread would wait for ever.
    fn store(self) {
        let old = set_mask(libc::SIG_SETMASK, !0);
        while VERSION.fetch_or(1, Ordering::Acquire) & 1 == 1 {
            core::hint::spin_loop();
        }
        PROGRAM_HANDLER.store(self.handler as u64, Ordering::Release);
        PROGRAM_FLAGS.store(self.flags as u64, Ordering::Release);
        PROGRAM_MASK.store(self.mask, Ordering::Release);
        VERSION.fetch_add(1, Ordering::Release);
        set_mask(libc::SIG_SETMASK, old);
    }

    fn to_action(self) -> libc::sigaction {
        // SAFETY: all-zero is a valid value of this plain struct.
        let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
        action.sa_sigaction = self.handler;
        action.sa_flags = self.flags;
        set_low_word(&mut action.sa_mask, self.mask);
        action
    }
}

/// Installs `handler` for SIGBUS and keeps what the program had set.
pub fn take_over(handler: Handler) {
    let mut old = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: the C library fills the struct.
    if unsafe { __sigaction(libc::SIGBUS, ptr::null(), old.as_mut_ptr()) } == 0 {
        // SAFETY: filled above.
        Disposition::of(unsafe { old.assume_init_ref() }).store();
    }
    OURS.store(handler as usize as u64, Ordering::Relaxed);
    install(Disposition::load().flags);
    TAKEN.store(true, Ordering::Release);
    unblock_bus_error();
}

/// Our handler, with those of the program's flags that act on system calls. All
/// signals wait while it runs: a doorbell is over soon, or timed out.
fn install(program_flags: libc::c_int) {
    // SAFETY: all-zero is a valid value of this plain struct.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = OURS.load(Ordering::Relaxed) as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | program_flags & libc::SA_RESTART;
    set_low_word(&mut action.sa_mask, !BUS_BIT);
    // SAFETY: the struct is valid; it cannot fail for SIGBUS.
    unsafe { __sigaction(libc::SIGBUS, &action, ptr::null_mut()) };
}

/// Takes SIGBUS out of this thread's mask.
pub fn unblock_bus_error() {
    set_mask(libc::SIG_UNBLOCK, BUS_BIT);
}

/// Does with a SIGBUS that is not a doorbell what the program wants.
///
/// # Safety
/// The arguments must be those of a SIGBUS handler that returns right after.
pub unsafe fn pass_on(signal: libc::c_int, status: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let disposition = Disposition::load();
    // SAFETY: the caller's.
    let (sent, machine) = unsafe { ((*status).si_code <= 0, &*context.cast::<libc::ucontext_t>()) };
    match disposition.handler {
        libc::SIG_IGN if sent => {}
        // A fault that is ignored kills as well.
        libc::SIG_DFL | libc::SIG_IGN => die(signal, status, sent),
        handler => {
            if disposition.flags & libc::SA_RESETHAND != 0 {
                Disposition { handler: libc::SIG_DFL, ..disposition }.store();
            }
            set_mask(libc::SIG_SETMASK, low_word(&machine.uc_sigmask) | disposition.mask & !BUS_BIT);
            // SAFETY: the program says that this is its handler; one with a single argument ignores the others.
            let handler: Handler = unsafe { core::mem::transmute(handler) };
            handler(signal, status, context);
        }
    }
}

/// Lets the default action happen: at once for a signal that was sent, else when
/// the instruction is tried again.
fn die(signal: libc::c_int, status: *mut libc::siginfo_t, sent: bool) {
    // SAFETY: all-zero is the default action.
    let default: libc::sigaction = unsafe { core::mem::zeroed() };
    // SAFETY: the struct is valid.
    unsafe { __sigaction(signal, &default, ptr::null_mut()) };
    if sent {
        // SAFETY: no pointers.
        let thread = unsafe { system::call(libc::SYS_gettid, [0; 6]) }.unwrap_or(0);
        let arguments = [system::process() as usize, thread, signal as usize, status as usize, 0, 0];
        // SAFETY: the status is the kernel's own.
        let _ = unsafe { system::call(libc::SYS_rt_tgsigqueueinfo, arguments) };
    }
}

/// The signals that the kernel knows.
fn low_word(set: &libc::sigset_t) -> u64 {
    // SAFETY: the C library's set is larger than 8 bytes and starts with the kernel's.
    unsafe { ptr::from_ref(set).cast::<u64>().read() }
}

fn set_low_word(set: &mut libc::sigset_t, bits: u64) {
    // SAFETY: as in `low_word`.
    unsafe { ptr::from_mut(set).cast::<u64>().write(bits) }
}

/// Changes this thread's mask; the old one.
fn set_mask(how: libc::c_int, bits: u64) -> u64 {
    let mut old = 0_u64;
    let arguments =
        [how as usize, ptr::from_ref(&bits) as usize, ptr::from_mut(&mut old) as usize, KERNEL_SET, 0, 0];
    // SAFETY: both sets are 8 bytes of ours.
    let _ = unsafe { system::call(libc::SYS_rt_sigprocmask, arguments) };
    old
}

/// # Safety
/// As `sigaction(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sigaction(
    signal: libc::c_int,
    action: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> libc::c_int {
    if signal == libc::SIGBUS && TAKEN.load(Ordering::Acquire) {
        let before = Disposition::load();
        if !action.is_null() {
            // SAFETY: the caller's.
            let wanted = Disposition::of(unsafe { &*action });
            wanted.store();
            install(wanted.flags);
        }
        if !old.is_null() {
            // SAFETY: the caller's.
            unsafe { old.write(before.to_action()) };
        }
        return 0;
    }
    if action.is_null() {
        // SAFETY: the caller's.
        return unsafe { __sigaction(signal, action, old) };
    }
    // SAFETY: the caller's.
    let mut wanted = unsafe { *action };
    let mask = low_word(&wanted.sa_mask);
    set_low_word(&mut wanted.sa_mask, mask & !BUS_BIT);
    // SAFETY: the caller's.
    unsafe { __sigaction(signal, &wanted, old) }
}

/// # Safety
/// As `signal(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn signal(signal: libc::c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
    if signal == libc::SIGBUS && handler != libc::SIG_ERR && TAKEN.load(Ordering::Acquire) {
        let before = Disposition::load();
        Disposition { handler, flags: libc::SA_RESTART, mask: BUS_BIT }.store();
        install(libc::SA_RESTART);
        return before.handler;
    }
    // SAFETY: the caller's.
    unsafe { bsd_signal(signal, handler) }
}

/// Changes the mask as a program wants it, SIGBUS excepted.
///
/// # Safety
/// As `sigprocmask(2)`.
unsafe fn change_mask(
    how: libc::c_int,
    set: *const libc::sigset_t,
    old: *mut libc::sigset_t,
) -> Result<usize, Errno> {
    let mut bits;
    let mut wanted = ptr::null();
    if !set.is_null() {
        // SAFETY: the caller's.
        bits = low_word(unsafe { &*set });
        if how != libc::SIG_UNBLOCK {
            bits &= !(BUS_BIT | INTERNAL_BITS);
        }
        wanted = ptr::from_ref(&bits);
    }
    let arguments = [how as usize, wanted as usize, old as usize, KERNEL_SET, 0, 0];
    // SAFETY: the caller's; the kernel writes the first 8 bytes of the old set.
    unsafe { system::call(libc::SYS_rt_sigprocmask, arguments) }
}

/// # Safety
/// As `sigprocmask(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sigprocmask(
    how: libc::c_int,
    set: *const libc::sigset_t,
    old: *mut libc::sigset_t,
) -> libc::c_int {
    // SAFETY: the caller's.
    system::answer(unsafe { change_mask(how, set, old) })
}

/// # Safety
/// As `pthread_sigmask(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_sigmask(
    how: libc::c_int,
    set: *const libc::sigset_t,
    old: *mut libc::sigset_t,
) -> libc::c_int {
    // SAFETY: the caller's.
    match unsafe { change_mask(how, set, old) } {
        Ok(_) => 0,
        Err(errno) => errno,
    }
}
