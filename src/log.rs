//! Lines for the person who has to find out why something was refused.
//!
//! Through libibverbs' log (`VERBS_LOG_LEVEL` and `VERBS_LOG_FILE`), or with `IRDMA_DEBUG` to
//! standard error: libibverbs says nothing without a file. Where there is no context yet, to
//! standard error in any case.

use core::ffi::{c_char, c_int};
use core::fmt::{Arguments, Display};
use core::sync::atomic::{AtomicU32, Ordering};
use std::ffi::CString;
use std::io::{self, Write};

use rdma_core_sys::bindings::{
    __verbs_log, VERBS_LOG_DEBUG, VERBS_LOG_ERR, VERBS_LOG_WARN, ibv_context, verbs_context,
};

use crate::environment;
use crate::errno::Errno;

/// How much it matters.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub enum Level {
    /// Something failed or was refused.
    Error = VERBS_LOG_ERR,
    /// Something is not as it should be.
    Warning = VERBS_LOG_WARN,
    /// Something that programs may do on purpose.
    Debug = VERBS_LOG_DEBUG,
}

/// Up to which level lines go to standard error.
static TO_STANDARD_ERROR: AtomicU32 = AtomicU32::new(0);

/// Looks into the environment for where lines are to go.
pub fn configure() {
    TO_STANDARD_ERROR.store(environment::level(environment::DEBUG), Ordering::Relaxed);
}

// SAFETY: the signature is that of POSIX.
unsafe extern "C" {
    /// POSIX's; formats into one write to a descriptor.
    pub fn dprintf(descriptor: c_int, format: *const c_char, ...) -> c_int;
}

/// Where a line goes.
pub enum Destination {
    /// To standard error.
    StandardError,
    /// To libibverbs, which looks at the level itself.
    Libibverbs(*mut verbs_context),
}

/// Where lines of a level go.
///
/// # Safety
/// `context` is open, or being opened.
pub unsafe fn destination(context: *mut ibv_context, level: Level) -> Destination {
    if level as u32 <= TO_STANDARD_ERROR.load(Ordering::Relaxed) {
        return Destination::StandardError;
    }
    // SAFETY: irdma's contexts are all inside a verbs_context.
    Destination::Libibverbs(unsafe { context.byte_sub(core::mem::offset_of!(verbs_context, context)).cast() })
}

/// The name of the device of a context, which starts every line.
///
/// # Safety
/// As for [`destination`].
pub unsafe fn device_name(context: *mut ibv_context) -> *const c_char {
    // SAFETY: as the caller promises; contexts have a device with a name.
    unsafe { (*(*context).device).name.as_ptr() }
}

/// Writes one line about a context; `errno` stays as it is.
///
/// # Safety
/// `context` is open, or being opened.
pub unsafe fn line(context: *mut ibv_context, level: Level, message: Arguments<'_>) {
    // SAFETY: the location is the calling thread's own.
    let errno = unsafe { *libc::__errno_location() };
    if let Ok(message) = CString::new(message.to_string()) {
        let (format, message) = (c"%s: irdma: %s\n".as_ptr(), message.as_ptr());
        // SAFETY: as the caller promises; the format takes two strings.
        unsafe {
            let device = device_name(context);
            match destination(context, level) {
                Destination::StandardError => {
                    dprintf(libc::STDERR_FILENO, format, device, message);
                }
                Destination::Libibverbs(verbs) => __verbs_log(verbs, level as u32, format, device, message),
            }
        }
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Says that a request exceeds a limit, and gives the errno for it.
///
/// # Safety
/// `context` is open.
pub unsafe fn exceeded(
    context: *mut ibv_context,
    object: &str,
    what: &str,
    asked: impl Display,
    limit: impl Display,
) -> Errno {
    // SAFETY: as the caller promises.
    unsafe {
        line(context, Level::Error, format_args!("{object}: {what} {asked} exceeds the limit of {limit}"))
    };
    Errno::INVALID
}

/// Says why something is refused, and gives the errno for it.
///
/// # Safety
/// `context` is open.
pub unsafe fn refused(context: *mut ibv_context, errno: Errno, message: Arguments<'_>) -> Errno {
    // SAFETY: as the caller promises.
    unsafe { line(context, Level::Error, message) };
    errno
}

/// Writes one line where there is no context yet.
pub fn standard_error(message: Arguments<'_>) {
    // Nobody to tell if that fails.
    let _ = writeln!(io::stderr(), "libirdma: {message}");
}
