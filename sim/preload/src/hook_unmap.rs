//! `munmap`: what was mapped there is not what is mapped there next.

use core::ffi::{c_int, c_void};

use crate::hook_paths::Original;
use crate::mappings;
use crate::system;

/// The C library's `munmap`, or that of another library that wants to know.
static ORIGINAL: Original = Original::new(c"munmap");

type Unmap = unsafe extern "C-unwind" fn(*mut c_void, usize) -> c_int;

/// Finds the original.
pub fn resolve() {
    ORIGINAL.find();
}

/// # Safety
/// As `munmap(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn munmap(address: *mut c_void, length: usize) -> c_int {
    let original = ORIGINAL.find();
    if original == 0 {
        system::set_errno(libc::ENOSYS);
        return -1;
    }
    // SAFETY: the C library's function of this name has this signature.
    let original: Unmap = unsafe { core::mem::transmute(original) };
    // Before the pages go: from then on another thread may map others there.
    mappings::forget_range(address as u64, length as u64);
    // SAFETY: the caller's.
    unsafe { original(address, length) }
}
