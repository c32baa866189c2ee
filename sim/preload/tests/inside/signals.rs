//! Bus errors and signal masks: the program's own beside those of the library.

use std::arch::asm;
use std::fs::File;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::{Bar, map};

/// Faults that the program's handler has seen.
static SEEN: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count(signal: libc::c_int, status: *mut libc::siginfo_t, context: *mut libc::c_void) {
    assert_eq!(signal, libc::SIGBUS);
    SEEN.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the kernel's own structs; a fault is ended by skipping the two-byte store at it.
    unsafe {
        if (*status).si_code > 0 {
            (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize] += 2;
        }
    }
}

extern "C" fn count_plain(_: libc::c_int) {
    SEEN.fetch_add(1, Ordering::Relaxed);
}

fn action(handler: usize, flags: libc::c_int) -> libc::sigaction {
    // SAFETY: all-zero is a valid value of this plain struct.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    action
}

fn store_at(address: u64) {
    // SAFETY: a two-byte store that the handler skips.
    unsafe { asm!("mov dword ptr [rax], ecx", in("rax") address, in("ecx") 5) };
}

#[test]
#[ignore = "run by the tests in program"]
fn foreign() {
    // A handler from before the first doorbell, and one from after it.
    let before = action(count_plain as *const () as usize, libc::SA_RESTART);
    // SAFETY: handlers that only count.
    unsafe { assert_eq!(libc::sigaction(libc::SIGBUS, &before, std::ptr::null_mut()), 0) };
    let bar = Bar::open();
    bar.ring(1);
    // SAFETY: no pointers.
    unsafe { libc::raise(libc::SIGBUS) };
    assert_eq!(SEEN.load(Ordering::Relaxed), 1);

    let after = action(count as *const () as usize, libc::SA_SIGINFO);
    let mut old = action(0, 0);
    // SAFETY: as above.
    unsafe { assert_eq!(libc::sigaction(libc::SIGBUS, &after, &mut old), 0) };
    assert_eq!((old.sa_sigaction, old.sa_flags & libc::SA_RESTART), (before.sa_sigaction, libc::SA_RESTART));
    bar.ring(2);
    // A file without a byte that is none of ours.
    let file = std::env::temp_dir().join(format!("irdma-foreign-{}", std::process::id()));
    let foreign = File::options().create(true).truncate(true).read(true).write(true).open(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    store_at(map(&foreign));
    assert_eq!(SEEN.load(Ordering::Relaxed), 2);
    // SAFETY: as above.
    unsafe {
        // One shot, then ignored, and what was set is what is reported.
        let once = action(count_plain as *const () as usize, libc::SA_RESETHAND);
        libc::sigaction(libc::SIGBUS, &once, std::ptr::null_mut());
        libc::raise(libc::SIGBUS);
        assert_eq!(SEEN.load(Ordering::Relaxed), 3);
        assert_eq!(libc::signal(libc::SIGBUS, libc::SIG_IGN), libc::SIG_DFL);
        libc::raise(libc::SIGBUS);
        libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut old);
    }
    assert_eq!(old.sa_sigaction, libc::SIG_IGN);
    bar.ring(3);
    assert_eq!(SEEN.load(Ordering::Relaxed), 3);
}

#[test]
#[ignore = "run by the tests in program"]
fn fault_without_handler() {
    restore_default();
    let _bar = Bar::open();
    let file = std::env::temp_dir().join(format!("irdma-fault-{}", std::process::id()));
    let foreign = File::options().create(true).truncate(true).read(true).write(true).open(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    store_at(map(&foreign));
}

#[test]
#[ignore = "run by the tests in program"]
fn sent_without_handler() {
    restore_default();
    let _bar = Bar::open();
    // SAFETY: no pointers.
    unsafe { libc::raise(libc::SIGBUS) };
}

#[test]
#[ignore = "run by the tests in program"]
fn unknown_instruction() {
    restore_default();
    let bar = Bar::open();
    // SAFETY: reads and writes a mapped page, which is not supported there.
    unsafe { asm!("add dword ptr [{0}], 1", in(reg) bar.address) };
}

/// Rust's runtime has a handler for stack overflows.
fn restore_default() {
    // SAFETY: not a function.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
}

#[test]
#[ignore = "run by the tests in program"]
fn masks() {
    let bar = Bar::open();
    // SAFETY: sets and masks of ours; the handler rings a mapped page.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        assert_eq!(libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut()), 0);
        bar.ring(1);
        assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut()), 0);
        bar.ring(2);
        assert_eq!(libc::pthread_sigmask(99, &all, std::ptr::null_mut()), libc::EINVAL);
        let mut now: libc::sigset_t = std::mem::zeroed();
        libc::sigprocmask(libc::SIG_BLOCK, std::ptr::null(), &mut now);
        assert_eq!((libc::sigismember(&now, libc::SIGBUS), libc::sigismember(&now, libc::SIGUSR1)), (0, 1));
        libc::sigprocmask(libc::SIG_UNBLOCK, &all, std::ptr::null_mut());

        // A handler that blocks everything may ring as well.
        ADDRESS.store(bar.address, Ordering::Relaxed);
        let mut ringing = action(ring_in_handler as *const () as usize, 0);
        ringing.sa_mask = all;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &ringing, std::ptr::null_mut()), 0);
        libc::raise(libc::SIGUSR1);
    }
    bar.ring(4);
    drop(bar.node);
}

/// The page for `ring_in_handler`.
static ADDRESS: AtomicU64 = AtomicU64::new(0);

extern "C" fn ring_in_handler(_: libc::c_int) {
    // SAFETY: the page is mapped; the store is caught.
    unsafe { (ADDRESS.load(Ordering::Relaxed) as *mut u32).write_volatile(3) };
}
