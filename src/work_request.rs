//! What a work request of `ibv_post_send` says: its message, or its operands.

use irdma_hw::format::{DatagramDestination, SendHeader};
use irdma_hw::generation::WqeFormat;
use irdma_hw::queue::{Atomic, Bind, Refusal, SendBatch, SendRequest, Sge};
use irdma_hw::registers;
use rdma_core_sys::bindings::*;

use crate::ah::AddressHandle;
use crate::destination::{Destination, addressed};
use crate::post_recv::list_of;
use crate::qp::QueuePair;
use crate::send_header;

/// The header of a work request, without its lower half.
///
/// # Safety
/// There is one.
#[inline(always)]
pub unsafe fn header_of(qp: &QueuePair, work: *const ibv_send_wr) -> SendHeader {
    // SAFETY: as the caller promises.
    unsafe { send_header::of((*work).opcode, (*work).send_flags | qp.always) }
}

/// A set of operations, of `enum ibv_wr_opcode`.
#[derive(Clone, Copy)]
pub struct Operations(u32);

impl Operations {
    const fn of(operations: &[ibv_wr_opcode]) -> Operations {
        let (mut bits, mut index) = (0, 0);
        while index < operations.len() {
            bits |= 1 << operations[index];
            index += 1;
        }
        Operations(bits)
    }

    /// Whether it has one, whose number is below 32.
    #[inline(always)]
    pub fn has(self, operation: ibv_wr_opcode) -> bool {
        self.0 >> (operation & 31) & 1 != 0
    }

    /// Whether it has one that a queue pair takes; of any number.
    #[inline(always)]
    pub fn can_be_posted(self, qp: &QueuePair, operation: ibv_wr_opcode) -> bool {
        operation < 32 && registers::settled((self.0 & qp.postable).into()) >> operation & 1 != 0
    }
}

/// Those that name memory of the peer's in `wr.rdma`.
pub const REMOTE: Operations =
    Operations::of(&[IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ]);

/// Those that change a word of the peer's.
pub const ATOMICS: Operations = Operations::of(&[IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD]);

/// Those with an immediate.
pub const WITH_IMMEDIATE: Operations = Operations::of(&[IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM]);

/// Those whose data may be in the work request.
pub const OUTGOING: Operations = Operations::of(&[
    IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM,
    IBV_WR_SEND_WITH_INV,
    IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM,
]);

/// Those that move a message.
pub const MESSAGES: Operations = Operations(OUTGOING.0 | 1 << IBV_WR_RDMA_READ);

/// The immediate of a work request [with one](WITH_IMMEDIATE), in the host's order.
///
/// # Safety
/// It is of such an operation.
#[inline(always)]
pub unsafe fn immediate_of(work: &ibv_send_wr) -> u32 {
    // SAFETY: the member of the operation.
    u32::from_be(unsafe { work.__bindgen_anon_1.imm_data })
}

/// What a work request that moves a [message](MESSAGES) is to do; `None` if it names no receiver.
///
/// # Safety
/// It is of such an operation, and what it points to is valid for that.
#[inline(always)]
pub unsafe fn request_of(qp: &QueuePair, work: &ibv_send_wr) -> Option<SendRequest> {
    // SAFETY: the members of the unions are those of the operation; the rest as the caller promises.
    unsafe {
        let (header, remote) = addressed(work, Destination::of(qp, work), header_of(qp, work))?;
        Some(SendRequest { wr_id: work.wr_id, header, remote })
    }
}

/// Places a work request that is not about moving messages.
///
/// # Safety
/// What the request points to is valid for its opcode, and the send lock is held.
#[inline(never)]
pub unsafe fn place_without_data<G: WqeFormat>(qp: &QueuePair, work: &ibv_send_wr) -> Result<(), Refusal> {
    if work.opcode > 31 || qp.postable >> work.opcode & 1 == 0 {
        return Err(Refusal::Invalid);
    }
    // SAFETY: the members of the unions are those of the opcode; the rest as the caller promises.
    unsafe {
        // What it places is announced by the caller.
        let batch = &mut qp.queues.send.batch::<G>();
        let mut request = SendRequest { wr_id: work.wr_id, header: header_of(qp, work), remote: 0 };
        match work.opcode {
            IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD => {
                request.remote = work.wr.atomic.remote_addr;
                request.header = request.header.with_remote_key(work.wr.atomic.rkey);
                let list = list_of(work.sg_list, work.num_sge)?;
                place_atomic(batch, request, work, list)
            }
            IBV_WR_LOCAL_INV => batch.invalidate(&request, work.__bindgen_anon_1.invalidate_rkey),
            IBV_WR_BIND_MW => place_bind(qp, batch, request, work),
            _ => Err(Refusal::Invalid),
        }
    }
}

/// The receiver of a datagram: lower half of the header, and word 2 when that is needed; `None` if
/// there is none.
///
/// # Safety
/// The address handle is alive, unless it is NULL.
#[inline(always)]
pub unsafe fn receiver(to: &ibv_send_wr__bindgen_ty_2__bindgen_ty_3) -> Option<(u32, impl FnOnce() -> u64)> {
    if to.ah.is_null() {
        return None;
    }
    let remote = || {
        let to = DatagramDestination::default().with_q_key(to.remote_qkey).with_queue_pair(to.remote_qpn);
        to.bits()
    };
    // SAFETY: as the caller promises.
    Some((unsafe { AddressHandle::number_of(to.ah) }, remote))
}

/// Places an atomic.
fn place_atomic<G: WqeFormat>(
    batch: &mut SendBatch<'_, G>,
    request: SendRequest,
    work: &ibv_send_wr,
    list: &[Sge],
) -> Result<(), Refusal> {
    // SAFETY: the member of the opcode.
    let operands = unsafe { work.wr.atomic };
    let atomic = if work.opcode == IBV_WR_ATOMIC_CMP_AND_SWP {
        Atomic { operand: operands.swap, compare: operands.compare_add }
    } else {
        Atomic { operand: operands.compare_add, compare: 0 }
    };
    batch.atomic(&request, list, atomic)
}

/// Places a window bind; a window of type 2 has its new key once that is done.
///
/// # Safety
/// Window and region are alive, unless they are NULL.
unsafe fn place_bind<G: WqeFormat>(
    qp: &QueuePair,
    batch: &mut SendBatch<'_, G>,
    request: SendRequest,
    work: &ibv_send_wr,
) -> Result<(), Refusal> {
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
