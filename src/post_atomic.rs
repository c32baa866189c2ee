//! Atomics of `ibv_post_send` (GEN3).

use core::ffi::c_int;

use irdma_hw::generation::Generation;
use irdma_hw::queue::Sge;
use rdma_core_sys::bindings::*;

use crate::destination::Destination;
use crate::post_message::go_on;
use crate::post_send::post_list;
use crate::qp::QueuePair;

/// Posts a list that begins with an atomic, which the queue pair takes.
///
/// # Safety
/// As for `post_send`, under the send lock, which this releases.
#[inline(never)]
pub unsafe fn post_atomic<G: Generation>(
    qp: &QueuePair,
    request: *mut ibv_send_wr,
    refused: *mut *mut ibv_send_wr,
    start: u32,
) -> c_int {
    // SAFETY: as the caller promises; there is one. The member of the union is that of atomics.
    unsafe {
        let work = &*request;
        if work.num_sge != 1 {
            return post_list::<G>(qp, request, refused, start);
        }
        let word = &work.wr.atomic;
        let (piece, is_aligned) = (work.sg_list.cast::<Sge>().as_ref(), word.remote_addr.is_multiple_of(8));
        let Some(piece) = piece.filter(|_| is_aligned) else {
            return post_list::<G>(qp, request, refused, start);
        };
        let batch = qp.queues.send.batch::<G>();
        let swaps = work.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
        let operand = || if swaps { word.swap } else { word.compare_add };
        let compare = || if swaps { word.compare_add } else { 0 };
        let Some(started) = batch.start_atomic(piece, operand, compare) else {
            return post_list::<G>(qp, request, refused, start);
        };
        go_on(qp, request, refused, batch, Ok(started), || Destination::Word)
    }
}
