//! Creation of queue pairs.

use core::cell::UnsafeCell;
use core::fmt::Arguments;
use core::ptr::NonNull;
use core::sync::atomic::AtomicBool;
use std::sync::OnceLock;

use irdma_hw::format::{ReceiveOpcodes, SEND_DOORBELL};
use irdma_hw::limits::{
    DeviceLimits, Features, HardwareGeneration, LimitExceeded, QueuePairCapabilities, QueuePairMemory,
    WorkQueueSize,
};
use irdma_hw::queue::{
    self, OutOfMemory, ReceiveQueue, ReceiveQueueParts, SendQueue, SendQueueParts, Service,
};
use irdma_hw::ring::{Doorbell, QuantumRing};
use rdma_core_sys::bindings::*;
use rdma_core_sys::driver_data::{CreateQpRequest, CreateQpResponse, QUEUE_PAIR, RegisterMemoryRequest};
use rdma_core_sys::queue_pair::{CompMaskOffset, QueuePairHead};

use crate::boundary;
use crate::capabilities::Capabilities;
use crate::command;
use crate::context::Context;
use crate::cq::CompletionQueue;
use crate::domain::Domain;
use crate::errno::{Errno, Result};
use crate::holdings::QueuePairs;
use crate::lock::Lock;
use crate::log;
use crate::memory::QueueMemory;
use crate::process_barrier;
use crate::qp::{KernelQueuePair, QueuePair, with_both_cqs};
use crate::qp_batch::Builder;
use crate::qp_ex;
use crate::srq::SharedReceiveQueue;
use crate::table::Slot;

impl From<OutOfMemory> for Errno {
    fn from(_: OutOfMemory) -> Errno {
        Errno::NO_MEMORY
    }
}

/// A slot of the table, given back on drop unless it is taken.
struct Reserved<'context> {
    table: &'context QueuePairs,
    slot: Option<Slot>,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.table.give_back(slot);
        }
    }
}

/// Receives of the unused queue of a queue pair on a shared one. The kernel sizes it by
/// these and by the most fragments, whatever is asked for (`irdma_create_qp`).
const UNUSED_RECEIVES: u32 = 4;

/// What a queue pair is to be, after the checks.
struct Plan {
    service: Service,
    cap: ibv_qp_cap,
    send: WorkQueueSize,
    receive: WorkQueueSize,
}

/// Checks what is asked for against what there is.
fn plan(limits: &DeviceLimits, attributes: &ibv_qp_init_attr) -> core::result::Result<Plan, LimitExceeded> {
    let mut cap = attributes.cap;
    if !attributes.srq.is_null() {
        (cap.max_recv_wr, cap.max_recv_sge) = (UNUSED_RECEIVES, limits.max_fragments.into());
    }
    Ok(Plan {
        service: if attributes.qp_type == IBV_QPT_UD { Service::Datagram } else { Service::Connected },
        cap,
        send: limits.send_queue(cap.max_send_wr, cap.max_send_sge, cap.max_inline_data)?,
        receive: limits.receive_queue(cap.max_recv_wr, cap.max_recv_sge)?,
    })
}

/// Creates a queue pair; on success `attributes.cap` becomes what it can do. With
/// `send_operations`, it has the builders of those (`IBV_QP_EX_WITH_*`).
///
/// # Safety
/// `pd` is alive, the attributes name objects of its context or NULL.
unsafe fn create(
    pd: *mut ibv_pd,
    attributes: &mut ibv_qp_init_attr,
    send_operations: Option<u64>,
) -> Result<NonNull<QueuePair>> {
    // SAFETY: as the caller promises.
    let (context, owner, domain) = unsafe { ((*pd).context, Context::of((*pd).context), Domain::of(pd)) };
    let limits = owner.limits();
    // SAFETY: as the caller promises.
    let refused = |errno, why: Arguments<'_>| unsafe { log::refused(context, errno, why) };
    if !matches!(attributes.qp_type, IBV_QPT_RC | IBV_QPT_UD) {
        let asked = attributes.qp_type;
        let why = format_args!("QP: type {asked} is neither RC ({IBV_QPT_RC}) nor UD ({IBV_QPT_UD})");
        return Err(refused(Errno::NOT_SUPPORTED, why));
    }
    let (Some(send_cq), Some(recv_cq)) = (NonNull::new(attributes.send_cq), NonNull::new(attributes.recv_cq))
    else {
        return Err(refused(Errno::INVALID, format_args!("QP: no CQ for sends, or none for receives")));
    };
    let (send_cq, recv_cq) = (send_cq.cast::<CompletionQueue>(), recv_cq.cast::<CompletionQueue>());
    let shared = NonNull::new(attributes.srq);
    // SAFETY: as the caller promises.
    if shared.is_some_and(|shared| unsafe { shared.as_ref() }.context != context) {
        return Err(refused(Errno::INVALID, format_args!("QP: the SRQ belongs to another context")));
    }
    let plan = plan(limits, attributes).map_err(|exceeded| {
        // SAFETY: as the caller promises.
        unsafe { log::exceeded(context, "QP", exceeded.quantity.name(), exceeded.asked, exceeded.limit) }
    })?;

    let layout = QueuePairMemory::new(plan.send, plan.receive);
    let memory = QueueMemory::allocate_in(
        domain,
        NonNull::new(pd).ok_or(Errno::INVALID)?,
        layout.bytes,
        RegisterMemoryRequest {
            reg_type: QUEUE_PAIR,
            sq_pages: plan.send.pages() as u16,
            rq_pages: plan.receive.pages() as u16,
            ..RegisterMemoryRequest::default()
        },
    )?;
    let table = owner.queue_pairs()?;
    let mut reserved = Reserved { table, slot: Some(table.reserve()?) };
    let completion_context = reserved.slot.as_ref().map_or(0, Slot::completion_context);

    let mut qp = Box::<QueuePair>::new_uninit();
    let at = qp.as_mut_ptr();
    let mut asked = attributes_for_kernel(pd, attributes, &plan, owner.capabilities());
    let addresses =
        CreateQpRequest { user_wqe_bufs: memory.buffer().address(), user_compl_ctx: completion_context };
    // SAFETY: the first field; what the request names is registered.
    let (response, kernel) = unsafe {
        (&raw mut (*at).head).write(UnsafeCell::new(QueuePairHead::default()));
        let head = (&raw mut (*at).head).cast::<QueuePairHead>();
        let response = command::create_qp(context, head, &mut asked, addresses)?;
        let qp = &raw mut (*head).qp;
        (*qp).qp_num = response.qp_id;
        (response, KernelQueuePair(NonNull::new(qp)))
    };
    let answered =
        (plan.send.answered(response.actual_sq_size), plan.receive.answered(response.actual_rq_size));
    let (Some(send), Some(receive)) = answered else {
        let (sq, rq) = (response.actual_sq_size, response.actual_rq_size);
        let (most_sq, most_rq) = (plan.send.quanta, plan.receive.quanta);
        let why = format_args!(
            "QP: the kernel answers impossible sizes, SQ {sq}, RQ {rq}, in rings of {most_sq} and {most_rq} quanta"
        );
        return Err(refused(Errno::INVALID, why));
    };

    // SAFETY: the sizes are within those that the memory was laid out for, and it lives
    // as long as the queues.
    let (send_ring, receive_ring) = unsafe {
        let base = memory.buffer().base();
        (QuantumRing::new(base, send.quanta), QuantumRing::new(base.add(layout.receive), receive.quanta))
    };
    let capabilities = QueuePairCapabilities::from_bits_retain(response.qp_caps);
    let postable = postable(limits, plan.service, capabilities);
    let has_type_2_windows = owner.capabilities().has_type_2_windows();
    let builders = qp_ex::supported(postable, has_type_2_windows);
    if let Some(asked) = send_operations.filter(|asked| asked & !builders != 0) {
        let why = format_args!("QP: send_ops_flags {asked:#x}, of which {builders:#x} are possible");
        return Err(refused(Errno::NOT_SUPPORTED, why));
    }
    // One thread at a time posts in a thread domain, but another one may poll.
    let single_threaded =
        owner.is_single_threaded() || domain.is_single_threaded() && process_barrier::is_available();
    let binds_windows = send_operations.is_some_and(|asked| asked & u64::from(IBV_QP_EX_WITH_BIND_MW) != 0);
    let bindable = if binds_windows { send.quanta } else { 0 };
    let builder = Builder::new(bindable)?;
    let queues = queue::QueuePair::new(
        SendQueue::new(SendQueueParts {
            ring: send_ring,
            doorbell: doorbell(owner)?,
            number: response.qp_id,
            chunk: limits.send_chunk.into(),
            max_fragments: plan.cap.max_send_sge,
            max_read_fragments: limits.max_read_fragments.into(),
            max_inline: plan.cap.max_inline_data,
            empty_fragment_counts: limits.generation.empty_fragment_counts(),
            connection_wqes: connection_wqes(owner.capabilities().is_legacy(), limits.features, &response),
        })?,
        ReceiveQueue::new(ReceiveQueueParts {
            ring: receive_ring,
            shift: receive.shift,
            // None are posted to a queue that is not used.
            max_fragments: if shared.is_some() { 0 } else { plan.cap.max_recv_sge },
        })?,
        plan.service,
        receive_opcodes(limits.generation, capabilities),
    );
    let mut created =
        ibv_qp_cap { max_send_wr: send.usable_entries(), max_recv_wr: receive.usable_entries(), ..asked.cap };
    if shared.is_some() {
        (created.max_recv_wr, created.max_recv_sge) = (0, 0);
    }
    // SAFETY: the first field was initialised above, each other field is written here, once.
    let qp = unsafe {
        (&raw mut (*at).queues).write(queues);
        (&raw mut (*at).send_lock).write(Lock::unless(single_threaded));
        (&raw mut (*at).receive_lock).write(Lock::unless(single_threaded));
        (&raw mut (*at).builder).write(builder);
        (&raw mut (*at).postable).write(postable);
        (&raw mut (*at).created).write(created);
        (&raw mut (*at).always).write(if attributes.sq_sig_all != 0 { IBV_SEND_SIGNALED } else { 0 });
        (&raw mut (*at).push_due_with).write(owner.push_wish().due_with(limits.generation, capabilities));
        (&raw mut (*at).operations).write(send_operations);
        (&raw mut (*at).is_fresh).write(AtomicBool::new(true));
        (&raw mut (*at).slot).write(OnceLock::new());
        (&raw mut (*at).send_cq).write(send_cq);
        (&raw mut (*at).recv_cq).write(recv_cq);
        (&raw mut (*at).shared).write(shared.map(NonNull::cast::<SharedReceiveQueue>));
        (&raw mut (*at).domain).write(NonNull::from(domain));
        (&raw mut (*at).kernel).write(kernel);
        (&raw mut (*at)._memory).write(memory);
        qp.assume_init()
    };
    if let Some(asked) = send_operations {
        // SAFETY: initialised, and not handed out yet.
        let head = unsafe { &mut *qp.head.get() };
        // SAFETY: all bytes of the head are initialised, and those of functions are NULL.
        qp_ex::install(unsafe { &mut head.qp_ex }, limits.generation, plan.service, asked);
        CompMaskOffset::probe().ok_or(Errno::INTERNAL)?.mark_extended(head);
    }
    let qp = owner.objects()?.adopt(qp)?;
    domain.enter();
    if let Some(slot) = reserved.slot.take() {
        // SAFETY: adopted, and not handed out yet.
        let slot = unsafe { qp.as_ref() }.slot.get_or_init(|| slot);
        with_both_cqs(send_cq, recv_cq, || table.publish(slot, qp, send_cq, recv_cq));
    }

    attributes.cap = created;
    Ok(qp)
}

/// The attributes that the kernel gets; the program's own stay as they are.
fn attributes_for_kernel(
    pd: *mut ibv_pd,
    attributes: &ibv_qp_init_attr,
    plan: &Plan,
    capabilities: &Capabilities,
) -> ibv_qp_init_attr_ex {
    let mut cap = plan.cap;
    if !capabilities.raw_attributes {
        cap.max_send_wr = plan.send.entries();
        cap.max_recv_wr = plan.receive.entries();
    }
    ibv_qp_init_attr_ex {
        qp_context: attributes.qp_context,
        send_cq: attributes.send_cq,
        recv_cq: attributes.recv_cq,
        srq: attributes.srq,
        cap,
        qp_type: attributes.qp_type,
        sq_sig_all: attributes.sq_sig_all,
        comp_mask: IBV_QP_INIT_ATTR_PD,
        pd,
        ..ibv_qp_init_attr_ex::default()
    }
}

/// The doorbell of send queues.
fn doorbell(context: &Context) -> Result<Doorbell> {
    let register = context.doorbell().at(SEND_DOORBELL, size_of::<u32>()).ok_or(Errno::INTERNAL)?;
    // SAFETY: the page is the device's, and mapped as long as the context is open.
    Ok(unsafe { Doorbell::new(register) })
}

/// WQEs that the kernel places before the program's to set up the connection, which is never one of RoCE:
/// a kernel whose answer is longer than this provider's takes it for an old one, and then speaks of some.
fn connection_wqes(is_legacy: bool, features: Features, response: &CreateQpResponse) -> u32 {
    let is_roce =
        QueuePairCapabilities::from_bits_retain(response.qp_caps).contains(QueuePairCapabilities::ROCE);
    match (is_legacy, response.lsmm != 0 && !is_roce) {
        (true, _) => 1,
        (false, true) if features.contains(Features::RTS_EVENT) => 3,
        (false, true) => 1,
        (false, false) => 0,
    }
}

/// How the opcode of a receive's CQE is to be read.
fn receive_opcodes(generation: HardwareGeneration, capabilities: QueuePairCapabilities) -> ReceiveOpcodes {
    if generation == HardwareGeneration::Gen3 {
        ReceiveOpcodes::WQE
    } else if capabilities.contains(QueuePairCapabilities::SEND_WITH_IMMEDIATE) {
        ReceiveOpcodes::WIRE
    } else {
        ReceiveOpcodes::IWARP
    }
}

/// Which work requests can be posted: bit N for `enum ibv_wr_opcode` N.
fn postable(limits: &DeviceLimits, service: Service, capabilities: QueuePairCapabilities) -> u32 {
    let bits = |opcodes: &[ibv_wr_opcode]| opcodes.iter().fold(0, |bits, opcode| bits | 1 << opcode);
    let mut opcodes = bits(&[IBV_WR_SEND]);
    if capabilities.contains(QueuePairCapabilities::SEND_WITH_IMMEDIATE) {
        opcodes |= bits(&[IBV_WR_SEND_WITH_IMM]);
    }
    if service == Service::Datagram {
        return opcodes;
    }
    opcodes |=
        bits(&[IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND_WITH_INV, IBV_WR_LOCAL_INV, IBV_WR_BIND_MW]);
    if capabilities.contains(QueuePairCapabilities::WRITE_WITH_IMMEDIATE) {
        opcodes |= bits(&[IBV_WR_RDMA_WRITE_WITH_IMM]);
    }
    if limits.features.contains(Features::ATOMICS) {
        opcodes |= bits(&[IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD]);
    }
    opcodes
}

unsafe extern "C" fn create_qp(pd: *mut ibv_pd, attributes: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: libibverbs calls with a domain of ours and the program's attributes.
    unsafe {
        boundary::object((*pd).context, "create_qp", || create(pd, &mut *attributes, None).map(NonNull::cast))
    }
}

unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    attributes: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    const KNOWN: u32 = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | IBV_QP_INIT_ATTR_CREATE_FLAGS;
    // SAFETY: libibverbs calls with an open context of ours and the program's attributes.
    unsafe {
        boundary::object(context, "create_qp_ex", || {
            let asked = &mut *attributes;
            let has = |mask| asked.comp_mask & mask != 0;
            if asked.comp_mask & !KNOWN != 0 {
                let mask = asked.comp_mask;
                let why = format_args!("QP: comp_mask {mask:#x}, of which {KNOWN:#x} are known");
                return Err(log::refused(context, Errno::NOT_SUPPORTED, why));
            }
            if has(IBV_QP_INIT_ATTR_CREATE_FLAGS) && asked.create_flags != 0 {
                let flags = asked.create_flags;
                let why = format_args!("QP: create_flags {flags:#x}, of which none are known");
                return Err(log::refused(context, Errno::NOT_SUPPORTED, why));
            }
            if !has(IBV_QP_INIT_ATTR_PD) || asked.pd.is_null() || (*asked.pd).context != context {
                return Err(log::refused(context, Errno::INVALID, format_args!("QP: no PD of this context")));
            }
            let operations = has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS).then_some(asked.send_ops_flags);
            let mut plain = ibv_qp_init_attr {
                qp_context: asked.qp_context,
                send_cq: asked.send_cq,
                recv_cq: asked.recv_cq,
                srq: asked.srq,
                cap: asked.cap,
                qp_type: asked.qp_type,
                sq_sig_all: asked.sq_sig_all,
            };
            let qp = create(asked.pd, &mut plain, operations)?;
            asked.cap = plain.cap;
            Ok(qp.cast())
        })
    }
}

/// Fills the operations of this file.
pub fn install(operations: &mut verbs_context_ops) {
    operations.create_qp = Some(create_qp);
    operations.create_qp_ex = Some(create_qp_ex);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_connects_where_there_is_iwarp() {
        let (iwarp, roce) = (QueuePairCapabilities::PUSH, QueuePairCapabilities::ROCE);
        let wqes = |features, lsmm, capabilities: QueuePairCapabilities| {
            let response =
                CreateQpResponse { lsmm, qp_caps: capabilities.bits(), ..CreateQpResponse::default() };
            [true, false].map(|is_legacy| connection_wqes(is_legacy, features, &response))
        };
        assert_eq!(wqes(Features::RTS_EVENT, 1, iwarp), [1, 3]);
        assert_eq!(wqes(Features::empty(), 1, iwarp), [1, 1]);
        assert_eq!(wqes(Features::RTS_EVENT, 0, iwarp), [1, 0]);
        for lsmm in [0, 1] {
            assert_eq!(wqes(Features::RTS_EVENT, lsmm, roce), [1, 0], "lsmm {lsmm}");
        }
    }
}
