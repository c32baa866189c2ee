//! `ibv_post_srq_recv` (GEN3).

use core::ffi::c_int;

use irdma_hw::generation::Gen3;
use rdma_core_sys::bindings::{ibv_recv_wr, ibv_srq};

use crate::post_recv::{list_of, simple};
use crate::refusal;
use crate::srq::SharedReceiveQueue;

/// One receive of one element, without a call; the other functions are for what is left.
pub unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    request: *mut ibv_recv_wr,
    refused: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the program posts to a queue of ours a list that ends with NULL.
    unsafe {
        let owner = SharedReceiveQueue::of(srq);
        let Some(guard) = owner.lock.try_lock() else { return post_contended(srq, request, refused) };
        if let Some(work) = simple(request)
            && work.next.is_null()
            && owner.queue().post_simple::<Gen3>(work.wr_id, &*work.sg_list.cast())
        {
            return 0;
        }
        guard.keep();
        post_locked(srq, request, refused)
    }
}

/// Posts to a queue that another thread has locked.
///
/// # Safety
/// As of [`post_srq_recv`].
#[cold]
#[inline(never)]
unsafe extern "C" fn post_contended(
    srq: *mut ibv_srq,
    request: *mut ibv_recv_wr,
    refused: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        SharedReceiveQueue::of(srq).lock.lock().keep();
        post_locked(srq, request, refused)
    }
}

/// Posts to a queue that this thread has locked, and unlocks it.
///
/// # Safety
/// As of [`post_srq_recv`]; the lock is held.
#[inline(never)]
unsafe extern "C" fn post_locked(
    srq: *mut ibv_srq,
    mut request: *mut ibv_recv_wr,
    refused: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the program posts to a queue of ours a list that ends with NULL.
    unsafe {
        let owner = SharedReceiveQueue::of(srq);
        let mut run = owner.queue().simple_run::<Gen3>();
        if !request.is_null() {
            while let Some(work) = simple(request)
                && run.place(work.wr_id, &*work.sg_list.cast())
            {
                request = work.next;
                if request.is_null() {
                    run.finish();
                    owner.lock.unlock();
                    return 0;
                }
            }
        }
        run.finish();
        post_rest(srq, request, refused)
    }
}

/// Goes on with [`post_locked`] when something stood in the way.
///
/// # Safety
/// As of [`post_locked`].
#[inline(never)]
unsafe extern "C" fn post_rest(
    srq: *mut ibv_srq,
    mut request: *mut ibv_recv_wr,
    refused: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: as in `post_locked`.
    unsafe {
        let srq = SharedReceiveQueue::of(srq);
        let mut batch = srq.queue().batch::<Gen3>();
        let mut status = 0;
        while let Some(work) = request.as_ref() {
            let outcome = list_of(work.sg_list, work.num_sge).and_then(|list| batch.place(work.wr_id, list));
            if let Err(refusal) = outcome {
                status = refusal::shared_receive(srq, work, refusal);
                refused.write(request);
                break;
            }
            request = work.next;
        }
        batch.finish();
        srq.lock.unlock();
        status
    }
}
