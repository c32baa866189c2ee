//! `ibv_poll_cq`: completions as `struct ibv_wc`.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use irdma_hw::generation::{Gen1, Gen2, Gen3, Generation};
use irdma_hw::limits::HardwareGeneration;
use irdma_hw::queue::{Completion, CompletionFlags, Directory, Origin, Outcome, Side, Usual};
use rdma_core_sys::bindings::{
    IBV_WC_BIND_MW, IBV_WC_COMP_SWAP, IBV_WC_FATAL_ERR, IBV_WC_FETCH_ADD, IBV_WC_GENERAL_ERR, IBV_WC_GRH,
    IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_QP_OP_ERR, IBV_WC_LOCAL_INV, IBV_WC_MW_BIND_ERR,
    IBV_WC_RDMA_READ, IBV_WC_RDMA_WRITE, IBV_WC_RECV, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_REM_ACCESS_ERR,
    IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_OP_ERR, IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_SEND,
    IBV_WC_SUCCESS, IBV_WC_WITH_IMM, IBV_WC_WITH_INV, IBV_WC_WR_FLUSH_ERR, ibv_cq, ibv_wc, verbs_context_ops,
};

use crate::cq::CompletionQueue;
use crate::qp::QueuePair;

/// The queue pairs whose completions go to a queue. Used under its lock.
impl Directory for CompletionQueue {
    type Member = QueuePair;

    #[inline(always)]
    fn find(&self, context: u64, side: Side) -> Option<&QueuePair> {
        // SAFETY: alive as long as the lock of this queue is held.
        unsafe { Some(self.finder().find(context, side, NonNull::from(self))?.as_ref()) }
    }

    fn note_abandoned(&self) {
        CompletionQueue::note_abandoned(self);
    }

    #[inline(always)]
    fn complete_abandoned(&self) -> Option<(Outcome, Origin)> {
        if self.may_have_abandoned() { search_abandoned(self) } else { None }
    }
}

#[cold]
fn search_abandoned(cq: &CompletionQueue) -> Option<(Outcome, Origin)> {
    // Before the search: what is posted meanwhile is noted anew.
    cq.forget_abandoned();
    let attached = cq.queue_pairs().attached(NonNull::from(cq));
    // SAFETY: alive as long as the lock of this queue is held.
    let mut each = attached.map(|(found, side)| unsafe { found.as_ref() }.queues.complete_abandoned(side));
    let completion = each.find_map(|completion| completion);
    if completion.is_some() {
        // There may be more.
        cq.note_abandoned();
    }
    completion
}

// The hardware half numbers these as the verbs do, so that nothing is to be translated.
const _: () = {
    use irdma_hw::format::{CompletionOpcode as Opcode, Status};
    assert!(Status::Success as u32 == IBV_WC_SUCCESS);
    assert!(Status::LocalLength as u32 == IBV_WC_LOC_LEN_ERR);
    assert!(Status::LocalQueuePairOperation as u32 == IBV_WC_LOC_QP_OP_ERR);
    assert!(Status::LocalProtection as u32 == IBV_WC_LOC_PROT_ERR);
    assert!(Status::Flushed as u32 == IBV_WC_WR_FLUSH_ERR);
    assert!(Status::WindowBind as u32 == IBV_WC_MW_BIND_ERR);
    assert!(Status::RemoteInvalidRequest as u32 == IBV_WC_REM_INV_REQ_ERR);
    assert!(Status::RemoteAccess as u32 == IBV_WC_REM_ACCESS_ERR);
    assert!(Status::RemoteOperation as u32 == IBV_WC_REM_OP_ERR);
    assert!(Status::RetryExceeded as u32 == IBV_WC_RETRY_EXC_ERR);
    assert!(Status::ReceiverNotReadyExceeded as u32 == IBV_WC_RNR_RETRY_EXC_ERR);
    assert!(Status::Fatal as u32 == IBV_WC_FATAL_ERR);
    assert!(Status::General as u32 == IBV_WC_GENERAL_ERR);
    assert!(Opcode::Send as u32 == IBV_WC_SEND);
    assert!(Opcode::RdmaWrite as u32 == IBV_WC_RDMA_WRITE);
    assert!(Opcode::RdmaRead as u32 == IBV_WC_RDMA_READ);
    assert!(Opcode::CompareSwap as u32 == IBV_WC_COMP_SWAP);
    assert!(Opcode::FetchAdd as u32 == IBV_WC_FETCH_ADD);
    assert!(Opcode::BindWindow as u32 == IBV_WC_BIND_MW);
    assert!(Opcode::LocalInvalidate as u32 == IBV_WC_LOCAL_INV);
    assert!(Opcode::Receive as u32 == IBV_WC_RECV);
    assert!(Opcode::ReceiveRdmaWithImmediate as u32 == IBV_WC_RECV_RDMA_WITH_IMM);
    assert!(CompletionFlags::HEADER.bits() == IBV_WC_GRH);
    assert!(CompletionFlags::IMMEDIATE.bits() == IBV_WC_WITH_IMM);
    assert!(CompletionFlags::INVALIDATED.bits() == IBV_WC_WITH_INV);
};

// The hardware half writes a program's `struct ibv_wc` as it is, every byte of it.
const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Completion>() == size_of::<ibv_wc>());
    assert!(align_of::<Completion>() == align_of::<ibv_wc>());
    assert!(offset_of!(Completion, wr_id) == offset_of!(ibv_wc, wr_id));
    assert!(offset_of!(Completion, status) == offset_of!(ibv_wc, status));
    assert!(offset_of!(Completion, opcode) == offset_of!(ibv_wc, opcode));
    assert!(offset_of!(Completion, vendor_error) == offset_of!(ibv_wc, vendor_err));
    assert!(offset_of!(Completion, length) == offset_of!(ibv_wc, byte_len));
    assert!(offset_of!(Completion, origin.data) == offset_of!(ibv_wc, __bindgen_anon_1));
    assert!(offset_of!(Completion, origin.queue_pair) == offset_of!(ibv_wc, qp_num));
    assert!(offset_of!(Completion, origin.source_queue_pair) == offset_of!(ibv_wc, src_qp));
    assert!(offset_of!(Completion, origin.flags) == offset_of!(ibv_wc, wc_flags));
    assert!(offset_of!(Completion, absent) == offset_of!(ibv_wc, pkey_index));
    assert!(offset_of!(ibv_wc, dlid_path_bits) < offset_of!(Completion, absent) + 8);
};

/// One completion, or none, without a call; the other functions are for what is left.
unsafe extern "C" fn poll_cq<G: Generation>(cq: *mut ibv_cq, count: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the program polls a queue of ours into room for `count` completions; the
    // hardware's queue is used under the lock.
    unsafe {
        let owner = CompletionQueue::of(cq);
        let Some(guard) = owner.lock().try_lock() else { return poll_contended::<G>(cq, count, wc) };
        if count == 1 {
            match owner.queue().take_usual::<G, _, _>(owner, &mut *wc.cast::<MaybeUninit<Completion>>()) {
                Usual::Completed => return 1,
                Usual::Empty if !may_have_more::<G>(owner) => return 0,
                Usual::Empty | Usual::Unusual => {}
            }
            guard.keep();
            return poll_one_locked::<G>(cq, wc);
        }
        if owner.queue().is_empty() && !may_have_more::<G>(owner) {
            return 0;
        }
        guard.keep();
        poll_locked::<G>(cq, count, wc)
    }
}

/// Whether there may be something in an empty queue.
#[inline(always)]
pub fn may_have_more<G: Generation>(cq: &CompletionQueue) -> bool {
    G::FLUSHES_EACH && cq.may_have_abandoned()
}

/// Polls a queue that another thread has locked.
///
/// # Safety
/// As of [`poll_cq`].
#[cold]
#[inline(never)]
unsafe extern "C" fn poll_contended<G: Generation>(cq: *mut ibv_cq, count: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        CompletionQueue::of(cq).lock().lock().keep();
        poll_locked::<G>(cq, count, wc)
    }
}

/// As [`poll_locked`], for one completion, which is not usual.
///
/// # Safety
/// As of [`poll_cq`]; the lock is held.
#[cold]
#[inline(never)]
unsafe extern "C" fn poll_one_locked<G: Generation>(cq: *mut ibv_cq, wc: *mut ibv_wc) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        let cq = CompletionQueue::of(cq);
        let taken = cq.queue().take_unusual::<G, _, _>(cq, &mut *wc.cast::<MaybeUninit<Completion>>());
        cq.lock().unlock();
        taken.into()
    }
}

/// Polls a queue that this thread has locked, and unlocks it.
///
/// # Safety
/// As of [`poll_cq`]; the lock is held.
#[inline(never)]
unsafe extern "C" fn poll_locked<G: Generation>(cq: *mut ibv_cq, count: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        let cq = CompletionQueue::of(cq);
        let mut taken = 0;
        if count > 0 {
            let room = core::slice::from_raw_parts_mut(wc.cast::<MaybeUninit<Completion>>(), count as usize);
            taken = cq.queue().take_many::<G, _>(cq, room);
        }
        cq.lock().unlock();
        taken as c_int
    }
}

/// Fills the operation of this file.
pub fn install(operations: &mut verbs_context_ops, generation: HardwareGeneration) {
    operations.poll_cq = Some(match generation {
        HardwareGeneration::Gen1 => poll_cq::<Gen1>,
        HardwareGeneration::Gen2 => poll_cq::<Gen2>,
        HardwareGeneration::Gen3 => poll_cq::<Gen3>,
    });
}
