//! `errno`.

/// Of the last call of this thread.
pub fn last() -> i32 {
    irdma_tests::last_errno()
}

/// Sets it: 0, so that a call that fails without a number is found out, or what it was.
pub fn set(errno: i32) {
    // SAFETY: the location is the calling thread's own.
    unsafe { *libc::__errno_location() = errno };
}
