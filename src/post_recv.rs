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

unsafe extern "C" fn post_recv<G: Generation>(
    qp: *mut ibv_qp,
    mut request: *mut ibv_recv_wr,
    refused: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the program posts to a queue pair of ours a list that ends with NULL.
    unsafe {
        let qp = QueuePair::of(qp);
        if qp.shared.is_some() {
            refused.write(request);
            let Some(work) = request.as_ref() else { return libc::EINVAL };
            return refusal::receive(qp, work, Refusal::Invalid);
        }
        let guard = qp.receive_lock.lock();
        let mut batch = qp.queues.receive.batch::<G>();
        let start = batch.position();
        let mut status = 0;
        while let Some(work) = request.as_ref() {
            let outcome = list_of(work.sg_list, work.num_sge).and_then(|list| batch.place(work.wr_id, list));
            if let Err(refusal) = outcome {
                status = refusal::receive(qp, work, refusal);
                refused.write(request);
                break;
            }
            request = work.next;
        }
        drop(guard);
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
