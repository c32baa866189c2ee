//! `ibv_poll_cq`: completions as `struct ibv_wc`.

use core::ffi::c_int;
use core::ptr::NonNull;

use irdma_hw::generation::{Gen1, Gen2, Gen3, Generation};
use irdma_hw::limits::HardwareGeneration;
use irdma_hw::queue::{Completion, CompletionFlags, Directory, Side};
use rdma_core_sys::bindings::{
    IBV_WC_BIND_MW, IBV_WC_COMP_SWAP, IBV_WC_FATAL_ERR, IBV_WC_FETCH_ADD, IBV_WC_GENERAL_ERR, IBV_WC_GRH,
    IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_QP_OP_ERR, IBV_WC_LOCAL_INV, IBV_WC_MW_BIND_ERR,
    IBV_WC_RDMA_READ, IBV_WC_RDMA_WRITE, IBV_WC_RECV, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_REM_ACCESS_ERR,
    IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_OP_ERR, IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_SEND,
    IBV_WC_SUCCESS, IBV_WC_WITH_IMM, IBV_WC_WITH_INV, IBV_WC_WR_FLUSH_ERR, ibv_cq, ibv_wc,
    ibv_wc__bindgen_ty_1, verbs_context_ops,
};

use crate::cq::CompletionQueue;
use crate::qp::QueuePair;

/// The queue pairs whose completions go to a queue. Made under the queue's lock.
pub struct Attached<'cq>(pub &'cq CompletionQueue);

impl Directory for Attached<'_> {
    type Member = QueuePair;

    #[inline(always)]
    fn find(&self, context: u64, side: Side) -> Option<&QueuePair> {
        let found = self.0.queue_pairs().find(context, side, NonNull::from(self.0))?;
        // SAFETY: alive as long as the lock of this queue is held.
        Some(unsafe { found.as_ref() })
    }

    fn note_abandoned(&self) {
        self.0.note_abandoned();
    }

    #[inline(always)]
    fn complete_abandoned(&self) -> Option<Completion> {
        if self.0.may_have_abandoned() { self.search_abandoned() } else { None }
    }
}

impl Attached<'_> {
    #[cold]
    fn search_abandoned(&self) -> Option<Completion> {
        // Before the search: what is posted meanwhile is noted anew.
        self.0.forget_abandoned();
        let attached = self.0.queue_pairs().attached(NonNull::from(self.0));
        // SAFETY: alive as long as the lock of this queue is held.
        let mut each =
            attached.map(|(found, side)| unsafe { found.as_ref() }.queues.complete_abandoned(side));
        let completion = each.find_map(|completion| completion);
        if completion.is_some() {
            // There may be more.
            self.0.note_abandoned();
        }
        completion
    }
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

/// A completion as the verbs have it, every field set.
#[inline(always)]
fn work_completion(completion: &Completion) -> ibv_wc {
    ibv_wc {
        wr_id: completion.wr_id,
        status: completion.status as u32,
        opcode: completion.opcode as u32,
        vendor_err: completion.vendor_error,
        byte_len: completion.length,
        // Both members are the same 32 bits.
        __bindgen_anon_1: ibv_wc__bindgen_ty_1 { imm_data: completion.data },
        qp_num: completion.queue_pair,
        src_qp: completion.source_queue_pair,
        wc_flags: completion.flags.bits(),
        pkey_index: 0,
        slid: 0,
        sl: 0,
        dlid_path_bits: 0,
    }
}

unsafe extern "C" fn poll_cq<G: Generation>(cq: *mut ibv_cq, count: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the program polls a queue of ours into room for `count` completions; the
    // hardware's queue is used under the lock.
    unsafe {
        let cq = CompletionQueue::of(cq);
        let _guard = cq.lock().lock();
        let queue = cq.queue();
        let mut polled = 0;
        while polled < count {
            let Some(completion) = queue.poll::<G, _>(&Attached(cq)) else { break };
            wc.offset(polled as isize).write(work_completion(&completion));
            polled += 1;
        }
        polled
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
