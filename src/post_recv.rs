//! `ibv_post_recv`.

use core::ffi::c_int;

use irdma_hw::generation::{Gen1, Gen2, Gen3, Generation};
use irdma_hw::limits::HardwareGeneration;
use irdma_hw::queue::{Refusal, Sge, Side};
use rdma_core_sys::bindings::{ibv_qp, ibv_recv_wr, ibv_sge, verbs_context_ops};

use crate::qp::QueuePair;
use crate::qp_state::posted_in_error;
use crate::refusal;

// The hardware half reads a program's list as it is.
const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Sge>() == size_of::<ibv_sge>() && align_of::<Sge>() == align_of::<ibv_sge>());
    assert!(offset_of!(Sge, address) == offset_of!(ibv_sge, addr));
    assert!(offset_of!(Sge, length) == offset_of!(ibv_sge, length));
    assert!(offset_of!(Sge, key) == offset_of!(ibv_sge, lkey));
};

/// More than any work request has room for.
const ABSURD: u32 = 16;

/// A program's list. Without elements, the pointer is not looked at.
///
/// # Safety
/// `list` has `count` elements, unless it is NULL.
#[inline(always)]
pub unsafe fn list_of<'a>(list: *const ibv_sge, count: c_int) -> Result<&'a [Sge], Refusal> {
    match count as u32 {
        0 => Ok(&[]),
        // Negative numbers are among these.
        ABSURD.. => Err(Refusal::Invalid),
        _ if list.is_null() => Err(Refusal::Invalid),
        // SAFETY: as the caller promises; the types are laid out alike.
        count => Ok(unsafe { core::slice::from_raw_parts(list.cast(), count as usize) }),
    }
}

/// The errno of a refused work request.
#[inline(always)]
pub fn errno_of(refusal: Refusal) -> c_int {
    match refusal {
        Refusal::Invalid => libc::EINVAL,
        Refusal::Full => libc::ENOMEM,
    }
}

/// One receive of one element, without a call; the other functions are for what is left.
unsafe extern "C" fn post_recv<G: Generation>(
    qp: *mut ibv_qp,
    request: *mut ibv_recv_wr,
    refused: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the program posts to a queue pair of ours a list that ends with NULL.
    unsafe {
        let owner = QueuePair::of(qp);
        let Some(guard) = owner.receive_lock.try_lock() else {
            return post_contended::<G>(qp, request, refused);
        };
        if let Some(work) = simple(request)
            && work.next.is_null()
            && let Some(start) = owner.queues.receive.place_simple::<G>(work.wr_id, &*work.sg_list.cast())
        {
            drop(guard);
            if owner.queues.is_in_error() {
                return look_after::<G>(qp, start);
            }
            return 0;
        }
        guard.keep();
        post_locked::<G>(qp, request, refused)
    }
}

/// A work request that has one element, and is there at all.
///
/// # Safety
/// `request` is NULL or valid.
#[inline(always)]
pub unsafe fn simple<'a>(request: *const ibv_recv_wr) -> Option<&'a ibv_recv_wr> {
    // SAFETY: as the caller promises.
    unsafe { request.as_ref().filter(|work| work.num_sge == 1 && !work.sg_list.is_null()) }
}

/// What is to be done after a post to a queue pair in error.
///
/// # Safety
/// As of [`post_recv`].
#[cold]
#[inline(never)]
unsafe extern "C" fn look_after<G: Generation>(qp: *mut ibv_qp, start: u32) -> c_int {
    // SAFETY: as the caller promises.
    posted_in_error::<G>(unsafe { QueuePair::of(qp) }, Side::Receive, start);
    0
}

/// Posts to a queue that another thread has locked.
///
/// # Safety
/// As of [`post_recv`].
#[cold]
#[inline(never)]
unsafe extern "C" fn post_contended<G: Generation>(
    qp: *mut ibv_qp,
    request: *mut ibv_recv_wr,
    refused: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        QueuePair::of(qp).receive_lock.lock().keep();
        post_locked::<G>(qp, request, refused)
    }
}

/// Posts to a queue that this thread has locked, and unlocks it.
///
/// # Safety
/// As of [`post_recv`]; the lock is held.
#[inline(never)]
unsafe extern "C" fn post_locked<G: Generation>(
    qp: *mut ibv_qp,
    mut request: *mut ibv_recv_wr,
    refused: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the program posts to a queue pair of ours a list that ends with NULL.
    unsafe {
        let owner = QueuePair::of(qp);
        let mut run = owner.queues.receive.simple_run::<G>();
        let start = run.position();
        while let Some(work) = simple(request)
            && run.place(work.wr_id, &*work.sg_list.cast())
        {
            request = work.next;
        }
        if !request.is_null() {
            return post_rest::<G>(qp, request, refused, start);
        }
        owner.receive_lock.unlock();
        if owner.queues.is_in_error() && run.position() != start {
            return look_after::<G>(qp, start);
        }
        0
    }
}

/// Goes on with [`post_locked`] when something stood in the way. The first work request of the
/// call is at position `start`.
///
/// # Safety
/// As of [`post_locked`].
#[inline(never)]
unsafe extern "C" fn post_rest<G: Generation>(
    qp: *mut ibv_qp,
    mut request: *mut ibv_recv_wr,
    refused: *mut *mut ibv_recv_wr,
    start: u32,
) -> c_int {
    // SAFETY: as in `post_locked`.
    unsafe {
        let qp = QueuePair::of(qp);
        let mut batch = qp.queues.receive.batch::<G>();
        let mut status = 0;
        while let Some(work) = request.as_ref() {
            let outcome = if qp.shared.is_some() {
                Err(Refusal::Invalid)
            } else {
                list_of(work.sg_list, work.num_sge).and_then(|list| batch.place(work.wr_id, list))
            };
            if let Err(refusal) = outcome {
                status = refusal::receive(qp, work, refusal);
                refused.write(request);
                break;
            }
            request = work.next;
        }
        qp.receive_lock.unlock();
        if batch.position() != start && qp.queues.is_in_error() {
            posted_in_error::<G>(qp, Side::Receive, start);
        }
        status
    }
}

/// Fills the operation of this file.
pub fn install(operations: &mut verbs_context_ops, generation: HardwareGeneration) {
    operations.post_recv = Some(match generation {
        HardwareGeneration::Gen1 => post_recv::<Gen1>,
        HardwareGeneration::Gen2 => post_recv::<Gen2>,
        HardwareGeneration::Gen3 => post_recv::<Gen3>,
    });
}
