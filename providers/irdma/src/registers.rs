//! Hints that keep the most frequent ways within the registers that a function may use without
//! saving them first: a dozen instructions otherwise, a tenth of a post.

use core::arch::asm;

/// What was read from memory before is read anew when it is needed again.
#[inline(always)]
pub fn forget() {
    // SAFETY: no instruction; the compiler must assume that memory is read and written.
    unsafe { asm!("", options(nostack, preserves_flags)) }
}

/// A value that is in one register from here on, whatever it was made of.
#[inline(always)]
pub fn settled(value: u64) -> u64 {
    let mut settled = value;
    // SAFETY: no instruction; the value stays as it is.
    unsafe { asm!("/* {0} */", inout(reg) settled, options(pure, nomem, nostack, preserves_flags)) }
    settled
}

/// A pointer that is in one register from here on.
#[inline(always)]
#[allow(clippy::pointers_in_nomem_asm_block)] // nothing is done with it
pub fn settled_pointer<T>(pointer: *const T) -> *const T {
    let mut settled = pointer;
    // SAFETY: no instruction; the pointer stays as it is.
    unsafe { asm!("/* {0} */", inout(reg) settled, options(pure, nomem, nostack, preserves_flags)) }
    settled
}

/// A reference that is in one register from here on.
#[inline(always)]
pub fn settled_reference<T>(reference: &T) -> &T {
    // SAFETY: the reference stays as it is.
    unsafe { &*settled_pointer(reference) }
}
