//! Where libibverbs calls in: results become C's, and a panic stops here.
//!
//! For control verbs. Post and poll have no panic path, and do not come through here.

use core::ffi::c_int;
use core::ptr::{NonNull, null_mut};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rdma_core_sys::bindings::ibv_context;

use crate::errno::{Errno, Result};
use crate::log::{self, Level};

/// Runs a verb that returns 0 or a positive errno.
///
/// # Safety
/// `context` is open.
pub unsafe fn status(context: *mut ibv_context, verb: &str, body: impl FnOnce() -> Result<()>) -> c_int {
    // SAFETY: as the caller promises.
    match unsafe { logged(context, verb, body) } {
        Ok(()) => 0,
        Err(errno) => {
            errno.set();
            errno.number()
        }
    }
}

/// Runs a verb that returns an object, or NULL with `errno` set.
///
/// # Safety
/// `context` is open.
pub unsafe fn object<T>(
    context: *mut ibv_context,
    verb: &str,
    body: impl FnOnce() -> Result<NonNull<T>>,
) -> *mut T {
    // SAFETY: as the caller promises.
    match unsafe { logged(context, verb, body) } {
        Ok(object) => object.as_ptr(),
        Err(errno) => {
            errno.set();
            null_mut()
        }
    }
}

/// Runs `body`; a panic becomes a log line and [`Errno::INTERNAL`].
///
/// # Safety
/// `context` is open.
unsafe fn logged<T>(context: *mut ibv_context, verb: &str, body: impl FnOnce() -> Result<T>) -> Result<T> {
    caught(body)
        // SAFETY: as the caller promises.
        .unwrap_or_else(|| Err(unsafe { panicked(context, verb) }))
        // SAFETY: as the caller promises.
        .inspect_err(|&errno| unsafe { refused(context, verb, errno) })
}

/// Logs that a verb has panicked.
///
/// # Safety
/// `context` is open.
#[cold]
#[inline(never)]
unsafe fn panicked(context: *mut ibv_context, verb: &str) -> Errno {
    let what = format_args!("{verb}: the provider failed; this is a fault of it");
    // SAFETY: as the caller promises.
    unsafe { log::refused(context, Errno::INTERNAL, what) }
}

/// Logs what a verb returns. Without another line, the kernel has refused it.
///
/// # Safety
/// `context` is open.
#[cold]
#[inline(never)]
unsafe fn refused(context: *mut ibv_context, verb: &str, errno: Errno) {
    // SAFETY: as the caller promises.
    unsafe { log::line(context, Level::Debug, format_args!("{verb}: {errno}")) };
}

/// Runs `body`; `None` if it panics.
///
/// What a panic leaves half done belongs to owners, which release it while unwinding.
pub fn caught<T>(body: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(body)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_stops_here() {
        assert_eq!(caught(|| 1), Some(1));
        assert_eq!(caught(|| panic!("as a test")), None::<()>);
    }
}
