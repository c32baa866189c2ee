//! `write`: commands for the connection manager go to the device process.
//!
//! The node is the reading end of a pipe, which the kernel refuses to write to; only
//! then is there something to do, so that no other write gets any slower.

use core::ffi::{c_int, c_void};
use core::ptr;

use crate::hook_paths::Original;
use crate::manager;
use crate::system;

/// The C library's `write`.
static ORIGINAL: Original = Original::new(c"write");

type Write = unsafe extern "C-unwind" fn(c_int, *const c_void, usize) -> isize;

// A point at which a thread may be cancelled, as the kernel's wait for an event is. That unwinds
// the stack through these frames, which own nothing that would have to be dropped.
unsafe extern "C-unwind" {
    fn poll(watched: *mut libc::pollfd, count: libc::nfds_t, milliseconds: c_int) -> c_int;
}

/// Finds the original, so that a signal handler need not.
pub fn resolve() {
    ORIGINAL.find();
}

/// # Safety
/// As `write(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn write(descriptor: c_int, buffer: *const c_void, length: usize) -> isize {
    let address = ORIGINAL.find();
    if address == 0 {
        system::set_errno(libc::ENOSYS);
        return -1;
    }
    // SAFETY: the C library's function of this name has this signature.
    let original: Write = unsafe { core::mem::transmute(address) };
    // SAFETY: the caller's.
    let written = unsafe { original(descriptor, buffer, length) };
    if written != -1 || system::errno() != libc::EBADF {
        return written;
    }
    let Some(token) = manager::token(descriptor) else {
        system::set_errno(libc::EBADF);
        return -1;
    };
    loop {
        let errno = match manager::command(token, buffer as u64, length as u64) {
            Ok(taken) => return taken as isize,
            Err(errno) => errno,
        };
        if errno != libc::EAGAIN || manager::waits(descriptor) == Ok(false) {
            system::set_errno(errno);
            return -1;
        }
        // Of a descriptor that another thread has closed meanwhile no event comes any more; who waits
        // for one already when that happens goes on waiting, as in the kernel.
        let mut watched = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which lives until the call returns.
        let ready = unsafe { poll(&mut watched, 1, -1) };
        // SAFETY: no entries.
        let interrupted =
            ready > 0 && watched.revents & libc::POLLNVAL != 0 && unsafe { poll(ptr::null_mut(), 0, -1) } < 0;
        if ready < 0 || interrupted {
            return -1;
        }
    }
}
