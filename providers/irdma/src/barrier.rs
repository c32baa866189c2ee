//! Ordering between this CPU and the device, named by what is being ordered.
//!
//! The device is an observer outside the CPUs' coherence domain of threads: on
//! arm64 it needs the outer-shareable forms of `dmb`, which a language-level
//! fence (inner-shareable) does not emit. On x86-64 stores to write-back memory
//! and to uncached doorbells reach the device in program order, and loads are
//! not reordered with loads, so only the compiler has to be held back; stores
//! to write-combining memory are the exception and need a store fence.
//!
//! Every function is also a compiler barrier: no access to memory moves across it.

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("irdma devices are supported on x86_64 and aarch64 only");

use core::arch::asm;
use core::sync::atomic::{Ordering, compiler_fence};

/// All words of a WQE but its header, before the header with the valid bit.
///
/// The other side: the device reads the header, finds it valid, and reads the
/// rest of the WQE. Also orders the bookkeeping that a poller needs once the
/// device completes the WQE.
#[inline(always)]
pub fn wqe_before_valid() {
    store_store();
}

/// Everything posted, before the doorbell or the index that announces it.
///
/// The other side: the device takes the doorbell and fetches from the ring.
#[inline(always)]
pub fn before_doorbell() {
    store_store();
}

/// The head of a queue in which something was posted, before the look at whether the QP is
/// known to be in error.
///
/// Holds back the compiler only. The other side, a thread that has noted the error and looks
/// for what was posted, makes up for that with a barrier in every thread
/// ([`Member::await_poster`](crate::queue::Member::await_poster)): one of the two sees what the
/// other has written.
#[inline(always)]
pub fn posted_before_error_check() {
    compiler_fence(Ordering::SeqCst);
}

/// A CQE's valid bit, before the rest of the CQE.
///
/// The other side: the device writes the CQE's content first, the word with the
/// valid bit last.
#[inline(always)]
pub fn after_valid_bit() {
    load_any();
}

/// The content of a CQE, before the consumer index that hands its slot back.
///
/// The other side: the device reads the index and overwrites the slot.
#[inline(always)]
pub fn before_consumer_index() {
    load_any();
}

/// Earlier doorbells, before stores to a write-combining push page.
///
/// The other side: the device takes a push out of the page when its doorbell rings; the
/// next push must not get into the page before that.
#[inline(always)]
pub fn before_write_combining() {
    store_fence();
}

/// Stores to a write-combining push page, before the push doorbell.
///
/// The other side: the device takes the doorbell and expects the pushed WQE to
/// be there already.
#[inline(always)]
pub fn write_combining_flush() {
    store_fence();
}

/// Earlier stores to memory of any kind have left the processor before later stores do.
#[inline(always)]
fn store_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `sfence` drains the write-combining buffers and has no operands.
    unsafe {
        asm!("sfence", options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: `dsb st` waits for earlier stores to complete and has no operands.
    unsafe {
        asm!("dsb st", options(nostack, preserves_flags));
    }
}

/// Earlier stores are seen by the device before later stores.
#[inline(always)]
fn store_store() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: no instruction; the compiler must assume that memory is read and written.
    unsafe {
        asm!("", options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a data memory barrier has no operands and no effect but ordering.
    unsafe {
        asm!("dmb oshst", options(nostack, preserves_flags));
    }
}

/// Earlier loads are done before later loads and stores.
#[inline(always)]
fn load_any() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: no instruction; the compiler must assume that memory is read and written.
    unsafe {
        asm!("", options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a data memory barrier has no operands and no effect but ordering.
    unsafe {
        asm!("dmb oshld", options(nostack, preserves_flags));
    }
}
