//! Lines for the person who has to find out why something was refused.
//!
//! Through libibverbs' log where there is a context (`VERBS_LOG_LEVEL`,
//! `VERBS_LOG_FILE`), else one line on standard error.

use core::fmt::{Arguments, Display};
use std::ffi::CString;
use std::io::{self, Write};

use rdma_core_sys::bindings::{__verbs_log, VERBS_LOG_ERR, VERBS_LOG_WARN, ibv_context, verbs_context};

use crate::errno::Errno;

/// How much it matters.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub enum Level {
    /// Something failed or was refused.
    Error = VERBS_LOG_ERR,
    /// Something is not as it should be.
    Warning = VERBS_LOG_WARN,
}

/// Writes one line about a context; `errno` stays as it is.
///
/// # Safety
/// `context` is open, or being opened.
pub unsafe fn line(context: *mut ibv_context, level: Level, message: Arguments<'_>) {
    // SAFETY: the location is the calling thread's own.
    let errno = unsafe { *libc::__errno_location() };
    if let Ok(message) = CString::new(message.to_string()) {
        // SAFETY: irdma's contexts are all inside a verbs_context, and have a device with
        // a name; the format takes two strings.
        unsafe {
            let verbs = context.byte_sub(core::mem::offset_of!(verbs_context, context)).cast();
            let device = (*(*context).device).name.as_ptr();
            __verbs_log(verbs, level as u32, c"%s: irdma: %s\n".as_ptr(), device, message.as_ptr());
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

/// Writes one line where there is no context yet.
pub fn standard_error(message: Arguments<'_>) {
    // Nobody to tell if that fails.
    let _ = writeln!(io::stderr(), "libirdma: {message}");
}
