//! `ibv_post_send`.

use core::ffi::c_int;
use core::mem::offset_of;

use irdma_hw::format::{DatagramDestination, Opcode};
use irdma_hw::generation::{Gen1, Gen2, Gen3, Generation, WithPush};
use irdma_hw::limits::HardwareGeneration;
use irdma_hw::queue::{Atomic, Bind, Refusal, SendBatch, SendRequest, Service, Sge, Side};
use rdma_core_sys::bindings::*;

use crate::ah::AddressHandle;
use crate::post_recv::list_of;
use crate::qp::QueuePair;
use crate::qp_state::posted_in_error;
use crate::refusal;

unsafe extern "C" fn post_send<G: Generation>(
    qp: *mut ibv_qp,
    mut request: *mut ibv_send_wr,
    refused: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the program posts to a queue pair of ours a list that ends with NULL.
    unsafe {
        let qp = QueuePair::of(qp);
        let guard = qp.send_lock.lock();
        let mut batch = qp.queues.send.batch::<G>();
        let start = batch.start();
        let mut status = 0;
        while let Some(work) = request.as_ref() {
            if let Err(refusal) = place(qp, &mut batch, work) {
                status = refusal::send(qp, work, refusal);
                refused.write(request);
                break;
            }
            request = work.next;
        }
        let placed = batch.finish();
        drop(guard);
        if placed && qp.queues.is_in_error() {
            posted_in_error::<G>(qp, Side::Send, start);
        }
        status
    }
}

/// Whether a work request has a flag.
#[inline(always)]
fn has(work: &ibv_send_wr, flag: ibv_send_flags) -> bool {
    work.send_flags & flag != 0
}

/// Places one work request.
///
/// # Safety
/// What the request points to is valid for its opcode.
#[inline(always)]
unsafe fn place<G: Generation>(
    qp: &QueuePair,
    batch: &mut SendBatch<'_, G>,
    work: &ibv_send_wr,
) -> Result<(), Refusal> {
    if work.opcode > 31 || qp.postable >> work.opcode & 1 == 0 {
        return Err(Refusal::Invalid);
    }
    let solicited = has(work, IBV_SEND_SOLICITED);
    let mut request = SendRequest {
        wr_id: work.wr_id,
        opcode: Opcode::Send,
        signaled: qp.signals_all || has(work, IBV_SEND_SIGNALED),
        fence: has(work, IBV_SEND_FENCE),
        remote_key: 0,
        remote: 0,
    };
    // SAFETY: the members of the unions are those of the opcode; the rest as the caller promises.
    unsafe {
        match work.opcode {
            IBV_WR_SEND | IBV_WR_SEND_WITH_IMM => {
                request.opcode = if solicited { Opcode::SendSolicited } else { Opcode::Send };
                if qp.queues.service() == Service::Datagram {
                    set_destination(&mut request, &work.wr.ud)?;
                }
            }
            IBV_WR_SEND_WITH_INV => {
                request.opcode =
                    if solicited { Opcode::SendSolicitedInvalidate } else { Opcode::SendInvalidate };
                request.remote_key = work.__bindgen_anon_1.invalidate_rkey;
            }
            IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM | IBV_WR_RDMA_READ => {
                request.opcode = match work.opcode {
                    IBV_WR_RDMA_READ => Opcode::RdmaRead,
                    _ if solicited => Opcode::RdmaWriteSolicited,
                    _ => Opcode::RdmaWrite,
                };
                request.remote = work.wr.rdma.remote_addr;
                request.remote_key = work.wr.rdma.rkey;
            }
            _ => return place_without_data(qp, batch, request, work),
        }
        let list = list_of(work.sg_list, work.num_sge)?;
        let immediate = matches!(work.opcode, IBV_WR_SEND_WITH_IMM | IBV_WR_RDMA_WRITE_WITH_IMM)
            .then(|| u32::from_be(work.__bindgen_anon_1.imm_data));
        // What is read cannot be in the WQE: there the flag has no meaning.
        if has(work, IBV_SEND_INLINE) && request.opcode != Opcode::RdmaRead {
            batch.inline(&request, list, immediate)
        } else {
            batch.fragments(&request, list, immediate)
        }
    }
}

/// Places a work request that is not about moving messages.
///
/// # Safety
/// What the request points to is valid for its opcode.
#[inline(never)]
unsafe fn place_without_data<G: Generation>(
    qp: &QueuePair,
    batch: &mut SendBatch<'_, G>,
    mut request: SendRequest,
    work: &ibv_send_wr,
) -> Result<(), Refusal> {
    // SAFETY: the members of the unions are those of the opcode; the rest as the caller promises.
    unsafe {
        match work.opcode {
            IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD => {
                request.remote = work.wr.atomic.remote_addr;
                request.remote_key = work.wr.atomic.rkey;
                let list = list_of(work.sg_list, work.num_sge)?;
                place_atomic(batch, request, work, list)
            }
            IBV_WR_LOCAL_INV => {
                request.opcode = Opcode::LocalInvalidate;
                batch.invalidate(&request, work.__bindgen_anon_1.invalidate_rkey)
            }
            IBV_WR_BIND_MW => place_bind(qp, batch, request, work),
            _ => Err(Refusal::Invalid),
        }
    }
}

/// Names the receiver of a datagram.
///
/// # Safety
/// The address handle is alive, unless it is NULL.
#[inline(always)]
unsafe fn set_destination(
    request: &mut SendRequest,
    to: &ibv_send_wr__bindgen_ty_2__bindgen_ty_3,
) -> Result<(), Refusal> {
    if to.ah.is_null() {
        return Err(Refusal::Invalid);
    }
    // SAFETY: as the caller promises.
    request.remote_key = unsafe { AddressHandle::number_of(to.ah) };
    request.remote =
        DatagramDestination::default().with_q_key(to.remote_qkey).with_queue_pair(to.remote_qpn).bits();
    Ok(())
}

/// Places an atomic.
fn place_atomic<G: Generation>(
    batch: &mut SendBatch<'_, G>,
    mut request: SendRequest,
    work: &ibv_send_wr,
    list: &[Sge],
) -> Result<(), Refusal> {
    // SAFETY: the member of the opcode.
    let operands = unsafe { work.wr.atomic };
    let atomic = if work.opcode == IBV_WR_ATOMIC_CMP_AND_SWP {
        request.opcode = Opcode::CompareSwap;
        Atomic { operand: operands.swap, compare: operands.compare_add }
    } else {
        request.opcode = Opcode::FetchAdd;
        Atomic { operand: operands.compare_add, compare: 0 }
    };
    batch.atomic(&request, list, atomic)
}

/// Places a window bind; a window of type 2 has its new key once that is done.
///
/// # Safety
/// Window and region are alive, unless they are NULL.
unsafe fn place_bind<G: Generation>(
    qp: &QueuePair,
    batch: &mut SendBatch<'_, G>,
    mut request: SendRequest,
    work: &ibv_send_wr,
) -> Result<(), Refusal> {
    request.opcode = Opcode::BindWindow;
    // SAFETY: the member of the opcode, and as the caller promises.
    unsafe {
        let work = work.__bindgen_anon_2.bind_mw;
        let window = work.mw.as_mut().ok_or(Refusal::Invalid)?;
        let bind = bind_of(qp, window, work.rkey, &work.bind_info)?;
        batch.bind(&request, &bind)?;
        if !bind.type_1 {
            window.rkey = bind.window_key;
        }
    }
    Ok(())
}

/// A bind as the hardware half takes it; a window of type 2 takes the low byte of `rkey` only.
///
/// # Safety
/// The region is alive, unless it is NULL.
pub unsafe fn bind_of(
    qp: &QueuePair,
    window: &ibv_mw,
    rkey: u32,
    asked: &ibv_mw_bind_info,
) -> Result<Bind, Refusal> {
    // SAFETY: as the caller promises; every region is inside a verbs_mr, as its first field.
    let region = unsafe { asked.mr.cast::<verbs_mr>().as_ref() }.ok_or(Refusal::Invalid)?;
    let type_1 = window.type_ == IBV_MW_TYPE_1;
    if !type_1 && region.access as u32 & IBV_ACCESS_ZERO_BASED != 0 {
        return Err(Refusal::Invalid);
    }
    let allows = |right: ibv_access_flags| asked.mw_access_flags & right != 0;
    let has_atomics = qp.postable >> IBV_WR_ATOMIC_FETCH_AND_ADD & 1 != 0;
    Ok(Bind {
        window_key: if type_1 { rkey } else { window.rkey & !0xFF | rkey & 0xFF },
        region_key: region.ibv_mr.rkey,
        address: (!allows(IBV_ACCESS_ZERO_BASED)).then_some(asked.addr),
        length: asked.length,
        remote_read: allows(IBV_ACCESS_REMOTE_READ),
        remote_write: allows(IBV_ACCESS_REMOTE_WRITE),
        remote_atomic: has_atomics && allows(IBV_ACCESS_REMOTE_ATOMIC),
        type_1,
    })
}

/// Has a context post to queue pairs with push pages as well. GEN1 has none.
///
/// # Safety
/// `context` is open.
pub unsafe fn install_pushing(context: *mut ibv_context, generation: HardwareGeneration) {
    let post_send = match generation {
        HardwareGeneration::Gen1 => return,
        HardwareGeneration::Gen2 => post_send::<WithPush<Gen2>>,
        HardwareGeneration::Gen3 => post_send::<WithPush<Gen3>>,
    };
    let operations = verbs_context_ops { post_send: Some(post_send), ..verbs_context_ops::default() };
    // SAFETY: irdma's contexts are all inside a verbs_context. The others keep what they have, and
    // who posts meanwhile finds the old or the new function, which both serve every queue pair.
    unsafe { verbs_set_ops(context.byte_sub(offset_of!(verbs_context, context)).cast(), &operations) };
}

/// Fills the operation of this file.
pub fn install(operations: &mut verbs_context_ops, generation: HardwareGeneration) {
    operations.post_send = Some(match generation {
        HardwareGeneration::Gen1 => post_send::<Gen1>,
        HardwareGeneration::Gen2 => post_send::<Gen2>,
        HardwareGeneration::Gen3 => post_send::<Gen3>,
    });
}
