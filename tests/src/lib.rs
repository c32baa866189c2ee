//! What the verbs programs in `verbs/` are written with.
//!
//! A thin layer over libibverbs' public API: owners that destroy what they
//! created, work requests that keep their scatter lists alive, completions
//! polled into poisoned memory and compared in every field. Nothing here knows
//! a provider; the same program runs on any that libibverbs loads.

pub mod bench;
pub mod builder;
pub mod channel;
pub mod context;
pub mod control;
pub mod cq;
pub mod cq_ex;
pub mod device;
pub mod domain;
pub mod fixtures;
pub mod holdings;
pub mod log;
pub mod loopback;
pub mod memory;
pub mod process;
pub mod qp;
pub mod runner;
pub mod srq;
pub mod sys;
pub mod wc;
pub mod window;
pub mod work;

/// A positive error number of the C library.
pub type Errno = i32;

/// The error number the last call of this thread left behind.
pub fn last_errno() -> Errno {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Clears the error number, so that a call that fails without setting it is found out.
pub fn clear_errno() {
    // SAFETY: the location is valid for this thread.
    unsafe { *libc::__errno_location() = 0 };
}
