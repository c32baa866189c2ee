//! `ibv_wr_*`: the builders and setters, and which of them a queue pair has.
//!
//! The functions are made for a generation and chosen when the queue pair is created, so
//! none asks what the device or the queue pair can do. Those that it was not created for
//! are there as well, and fail the batch.

use core::ffi::{c_int, c_void};
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;

use irdma_hw::format::{DatagramDestination, Opcode};
use irdma_hw::generation::{Gen1, Gen2, Gen3, Generation, WithPush, WqeFormat};
use irdma_hw::limits::HardwareGeneration;
use irdma_hw::queue::{Atomic, Refusal, Service, Sge};
use rdma_core_sys::bindings::*;

use crate::ah::AddressHandle;
use crate::post_recv::list_of;
use crate::qp::QueuePair;
use crate::qp_batch::{
    Bound, CLOSED, FAILED, NEEDS_DATA, NEEDS_DESTINATION, SPECIAL, Special, abort, add, complete, pair_of,
    place, start,
};
use crate::work_request::bind_of;

unsafe extern "C" fn send<const NEEDS: u8>(qp: *mut ibv_qp_ex) {
    // SAFETY: of ours.
    unsafe { add(qp, NEEDS, IBV_WR_SEND, 0, 0) };
}

unsafe extern "C" fn send_imm<const NEEDS: u8>(qp: *mut ibv_qp_ex, immediate: __be32) {
    // SAFETY: of ours.
    if let Some((_, batch)) = unsafe { add(qp, NEEDS | SPECIAL, IBV_WR_SEND, 0, 0) } {
        batch.special = Special::Immediate(u32::from_be(immediate));
    }
}

unsafe extern "C" fn send_inv(qp: *mut ibv_qp_ex, key: u32) {
    // SAFETY: of ours.
    unsafe { add(qp, NEEDS_DATA, IBV_WR_SEND_WITH_INV, key, 0) };
}

unsafe extern "C" fn rdma_write(qp: *mut ibv_qp_ex, key: u32, address: u64) {
    // SAFETY: of ours.
    unsafe { add(qp, NEEDS_DATA, IBV_WR_RDMA_WRITE, key, address) };
}

unsafe extern "C" fn rdma_write_imm(qp: *mut ibv_qp_ex, key: u32, address: u64, immediate: __be32) {
    // SAFETY: of ours.
    let added = unsafe { add(qp, NEEDS_DATA | SPECIAL, IBV_WR_RDMA_WRITE_WITH_IMM, key, address) };
    if let Some((_, batch)) = added {
        batch.special = Special::Immediate(u32::from_be(immediate));
    }
}

unsafe extern "C" fn rdma_read(qp: *mut ibv_qp_ex, key: u32, address: u64) {
    // SAFETY: of ours.
    unsafe { add(qp, NEEDS_DATA, IBV_WR_RDMA_READ, key, address) };
}

unsafe extern "C" fn compare_swap(qp: *mut ibv_qp_ex, key: u32, address: u64, compare: u64, swap: u64) {
    // SAFETY: of ours.
    let added = unsafe { add(qp, NEEDS_DATA | SPECIAL, IBV_WR_ATOMIC_CMP_AND_SWP, key, address) };
    if let Some((_, batch)) = added {
        batch.special = Special::Atomic(Atomic { operand: swap, compare });
    }
}

unsafe extern "C" fn fetch_add(qp: *mut ibv_qp_ex, key: u32, address: u64, operand: u64) {
    // SAFETY: of ours.
    let added = unsafe { add(qp, NEEDS_DATA | SPECIAL, IBV_WR_ATOMIC_FETCH_AND_ADD, key, address) };
    if let Some((_, batch)) = added {
        batch.special = Special::Atomic(Atomic { operand, compare: 0 });
    }
}

unsafe extern "C" fn local_inv<F: WqeFormat>(qp: *mut ibv_qp_ex, key: u32) {
    // SAFETY: of ours.
    if let Some((pair, batch)) = unsafe { add(qp, NEEDS_DATA, IBV_WR_LOCAL_INV, 0, 0) } {
        // SAFETY: with a batch the lock is held.
        unsafe { place::<F>(pair, batch, 0, |held, request, _| held.invalidate(request, key)) };
    }
}

unsafe extern "C" fn bind_mw<F: WqeFormat>(
    qp: *mut ibv_qp_ex,
    window: *mut ibv_mw,
    key: u32,
    bind: *const ibv_mw_bind_info,
) {
    // SAFETY: of ours; window and request are the program's, or NULL.
    unsafe {
        let Some((pair, batch)) = add(qp, NEEDS_DATA, IBV_WR_BIND_MW, 0, 0) else { return };
        let mut bound = None;
        place::<F>(pair, batch, 0, |held, request, has_room| {
            let (window, bind) = (NonNull::new(window), bind.as_ref());
            let (window, bind) = window.zip(bind).ok_or(Refusal::Invalid)?;
            // That of a window of type 1 is ibv_bind_mw's business.
            if window.as_ref().type_ != IBV_MW_TYPE_2 || !has_room {
                return Err(Refusal::Invalid);
            }
            let bind = bind_of(pair, window.as_ref(), key, bind)?;
            held.bind(request, &bind)?;
            bound = Some(Bound { window, key: bind.window_key });
            Ok(())
        });
        if let (Some(bound), Some(slot)) = (bound, batch.bound.get_mut(batch.bound_count)) {
            *slot = Some(bound);
            batch.bound_count += 1;
        }
    }
}

unsafe extern "C" fn set_sge<G: Generation>(qp: *mut ibv_qp_ex, key: u32, address: u64, length: u32) {
    // SAFETY: of ours; with a batch the lock is held.
    unsafe {
        let pair = pair_of(qp);
        let stage = pair.builder.stage.load(Relaxed);
        if stage & !NEEDS_DESTINATION == NEEDS_DATA {
            let batch = pair.builder.batch();
            let mut held = pair.queues.send.resume::<G>(&batch.held);
            if let Some(single) = held.start_single(&Sge { address, length, key }) {
                held.set_remote(&single, batch.request.remote);
                held.finish_started(single, batch.request.wr_id, batch.request.header);
                batch.held = held.pause();
                pair.builder.stage.store(stage & NEEDS_DESTINATION, Relaxed);
                return;
            }
        }
        // Out of line, so that the common case needs no stack.
        set_any_sge::<G::General>(pair, key, address, length);
    }
}

/// Gives the work request added last its one piece of data, whatever has to be done for it.
///
/// # Safety
/// With a batch, the caller holds the lock.
#[inline(never)]
unsafe fn set_any_sge<F: WqeFormat>(pair: &QueuePair, key: u32, address: u64, length: u32) {
    // SAFETY: as the caller promises.
    unsafe { set_list::<F>(pair, &[Sge { address, length, key }]) }
}

unsafe extern "C" fn set_sge_list<F: WqeFormat>(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    // SAFETY: of ours; the list is the program's.
    unsafe {
        let pair = pair_of(qp);
        match list_of(list, c_int::try_from(count).unwrap_or(c_int::MAX)) {
            Ok(list) => set_list::<F>(pair, list),
            Err(_) => pair.builder.misused(),
        }
    }
}

/// Gives the work request added last its data: any list, for any kind.
///
/// # Safety
/// With a batch, the caller holds the lock.
#[inline(never)]
unsafe fn set_list<F: WqeFormat>(pair: &QueuePair, list: &[Sge]) {
    let stage = pair.builder.stage.load(Relaxed);
    if stage & (NEEDS_DATA | CLOSED | FAILED) != NEEDS_DATA {
        return pair.builder.misused();
    }
    // SAFETY: there is a batch.
    let batch = unsafe { pair.builder.batch() };
    let special =
        (stage & SPECIAL != 0).then(|| core::mem::replace(&mut batch.special, Special::Immediate(0)));
    // SAFETY: with a batch the lock is held.
    unsafe {
        place::<F>(pair, batch, stage & NEEDS_DESTINATION, |held, request, _| match special {
            None => held.fragments(request, list, None),
            Some(Special::Immediate(immediate)) => held.fragments(request, list, Some(immediate)),
            Some(Special::Atomic(atomic)) => held.atomic(request, list, atomic),
        });
    }
}

unsafe extern "C" fn set_inline_data<G: Generation>(qp: *mut ibv_qp_ex, data: *mut c_void, length: usize) {
    // Longer data is refused with the longest length there is.
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    let data = Sge { address: data.expose_provenance() as u64, length, key: 0 };
    // SAFETY: of ours; with a batch the lock is held. The data is readable, or too long to be read.
    unsafe {
        let pair = pair_of(qp);
        let stage = pair.builder.stage.load(Relaxed);
        if stage & !NEEDS_DESTINATION == NEEDS_DATA {
            let batch = pair.builder.batch();
            let mut held = pair.queues.send.resume::<G>(&batch.held);
            if batch.request.header.opcode() != Opcode::RdmaRead as u8
                && let Some(started) = held.start_inline(&data)
            {
                held.pad_before(&started);
                held.set_immediate(&started, None);
                held.set_remote(&started, batch.request.remote);
                held.finish_started(started, batch.request.wr_id, batch.request.header);
                batch.held = held.pause();
                pair.builder.stage.store(stage & NEEDS_DESTINATION, Relaxed);
                return;
            }
        }
        // Out of line, so that the common case needs little stack.
        set_inline::<G::General>(pair, data.address, data.length);
    }
}

/// More than a work request has room for.
const INLINE_ROOM: usize = 256;

unsafe extern "C" fn set_inline_data_list<F: WqeFormat>(
    qp: *mut ibv_qp_ex,
    count: usize,
    list: *const ibv_data_buf,
) {
    let mut bytes = [0u8; INLINE_ROOM];
    let mut length = 0;
    // SAFETY: of ours; the list has that many pieces, unless it is NULL, each of which is readable.
    unsafe {
        let pair = pair_of(qp);
        if list.is_null() && count > 0 {
            return pair.builder.misused();
        }
        for index in 0..count {
            let piece = &*list.add(index);
            if piece.length > INLINE_ROOM - length {
                return pair.builder.misused();
            }
            if piece.length > 0 {
                let to = bytes.as_mut_ptr().add(length);
                core::ptr::copy_nonoverlapping(piece.addr.cast(), to, piece.length);
                length += piece.length;
            }
        }
        let address = bytes.as_ptr().expose_provenance() as u64;
        set_inline::<F>(pair, address, length as u32);
    }
}

/// Gives the work request added last its data, to be taken now.
///
/// # Safety
/// With a batch, the caller holds the lock; the data is readable, or too long to be read.
#[inline(never)]
unsafe fn set_inline<F: WqeFormat>(pair: &QueuePair, address: u64, length: u32) {
    let data = Sge { address, length, key: 0 };
    let stage = pair.builder.stage.load(Relaxed);
    if stage & (NEEDS_DATA | CLOSED | FAILED) != NEEDS_DATA {
        return pair.builder.misused();
    }
    // SAFETY: there is a batch.
    let batch = unsafe { pair.builder.batch() };
    let immediate = match batch.special {
        Special::Immediate(immediate) if stage & SPECIAL != 0 => Some(immediate),
        _ => None,
    };
    // What comes from afar cannot be in the work request.
    let opcode = batch.request.header.opcode();
    let from_afar =
        [Opcode::RdmaRead, Opcode::CompareSwap, Opcode::FetchAdd].iter().any(|&none| opcode == none as u8);
    // SAFETY: with a batch the lock is held; the data is as the caller promises.
    unsafe {
        let mut held = pair.queues.send.resume::<F>(&batch.held);
        let outcome = if from_afar {
            Err(Refusal::Invalid)
        } else {
            held.inline_bytes(&batch.request, &data, immediate)
        };
        batch.held = held.pause();
        pair.builder.note(batch, stage & NEEDS_DESTINATION, outcome);
    }
}

unsafe extern "C" fn set_ud_addr<F: WqeFormat>(
    qp: *mut ibv_qp_ex,
    handle: *mut ibv_ah,
    queue_pair: u32,
    q_key: u32,
) {
    // SAFETY: of ours; the handle is alive, or NULL.
    unsafe {
        let pair = pair_of(qp);
        let stage = pair.builder.stage.load(Relaxed);
        if stage & (NEEDS_DESTINATION | CLOSED | FAILED) != NEEDS_DESTINATION || handle.is_null() {
            return pair.builder.misused();
        }
        let batch = pair.builder.batch();
        let key = AddressHandle::number_of(handle);
        let remote = DatagramDestination::default().with_q_key(q_key).with_queue_pair(queue_pair).bits();
        if stage & NEEDS_DATA != 0 {
            batch.request.header = batch.request.header.with_remote_key(key);
            batch.request.remote = remote;
        } else {
            let mut held = pair.queues.send.resume::<F>(&batch.held);
            held.redirect(key, remote);
            batch.held = held.pause();
        }
        pair.builder.stage.store(stage & !NEEDS_DESTINATION, Relaxed);
    }
}

/// Functions for what the queue pair was not created for.
macro_rules! refusing {
    ($($name:ident($($type:ty),*);)*) => {
        $(unsafe extern "C" fn $name(qp: *mut ibv_qp_ex $(, _: $type)*) {
            // SAFETY: of ours.
            unsafe { pair_of(qp) }.builder.misused();
        })*
    };
}

refusing! {
    no_atomic(u32, u64, u64);
    no_compare_swap(u32, u64, u64, u64);
    no_bind(*mut ibv_mw, u32, *const ibv_mw_bind_info);
    no_key(u32);
    no_remote(u32, u64);
    no_write_imm(u32, u64, __be32);
    no_send();
    no_tso(*mut c_void, u16, u16);
    no_destination(*mut ibv_ah, u32, u32);
}

/// The operations of `send_ops_flags` that such a queue pair has: bit N of `postable` is
/// `enum ibv_wr_opcode` N. Builders bind windows of type 2 only.
pub fn supported(postable: u32, has_type_2_windows: bool) -> u64 {
    let flags = [
        (IBV_WR_SEND, IBV_QP_EX_WITH_SEND),
        (IBV_WR_SEND_WITH_IMM, IBV_QP_EX_WITH_SEND_WITH_IMM),
        (IBV_WR_SEND_WITH_INV, IBV_QP_EX_WITH_SEND_WITH_INV),
        (IBV_WR_RDMA_WRITE, IBV_QP_EX_WITH_RDMA_WRITE),
        (IBV_WR_RDMA_WRITE_WITH_IMM, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM),
        (IBV_WR_RDMA_READ, IBV_QP_EX_WITH_RDMA_READ),
        (IBV_WR_LOCAL_INV, IBV_QP_EX_WITH_LOCAL_INV),
        (IBV_WR_ATOMIC_CMP_AND_SWP, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP),
        (IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD),
        (IBV_WR_BIND_MW, if has_type_2_windows { IBV_QP_EX_WITH_BIND_MW } else { 0 }),
    ];
    flags
        .iter()
        .filter(|(opcode, _)| postable >> opcode & 1 != 0)
        .fold(0, |all, (_, flag)| all | u64::from(*flag))
}

/// Fills the functions of a queue pair for the operations `flags`.
pub fn install(qp: &mut ibv_qp_ex, generation: HardwareGeneration, service: Service, flags: u64) {
    match generation {
        HardwareGeneration::Gen1 => fill::<Gen1>(qp, service, flags),
        HardwareGeneration::Gen2 => fill::<Gen2>(qp, service, flags),
        HardwareGeneration::Gen3 => fill::<Gen3>(qp, service, flags),
    }
}

/// Has a queue pair that was created with those builders push what they build. GEN1 has no pushes.
pub fn install_pushing(pair: &QueuePair, generation: HardwareGeneration, flags: u64) {
    // SAFETY: the functions are written by nobody else once the queue pair is created, and who
    // reads one meanwhile finds the old or the new one, which both go on with any batch.
    let qp = unsafe { &mut (*pair.head.get()).qp_ex };
    let service = pair.queues.service();
    match generation {
        HardwareGeneration::Gen1 => {}
        HardwareGeneration::Gen2 => fill::<WithPush<Gen2>>(qp, service, flags),
        HardwareGeneration::Gen3 => fill::<WithPush<Gen3>>(qp, service, flags),
    }
}

fn fill<G: Generation>(qp: &mut ibv_qp_ex, service: Service, flags: u64) {
    const BOTH: u8 = NEEDS_DATA | NEEDS_DESTINATION;
    let is_datagram = service == Service::Datagram;
    macro_rules! choose {
        ($field:ident: $flag:expr => $function:expr, $refusing:ident) => {
            qp.$field = if flags & u64::from($flag) != 0 { Some($function) } else { Some($refusing) };
        };
    }
    choose!(wr_atomic_cmp_swp: IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP => compare_swap, no_compare_swap);
    choose!(wr_atomic_fetch_add: IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD => fetch_add, no_atomic);
    choose!(wr_bind_mw: IBV_QP_EX_WITH_BIND_MW => bind_mw::<G::General>, no_bind);
    choose!(wr_local_inv: IBV_QP_EX_WITH_LOCAL_INV => local_inv::<G::General>, no_key);
    choose!(wr_rdma_read: IBV_QP_EX_WITH_RDMA_READ => rdma_read, no_remote);
    choose!(wr_rdma_write: IBV_QP_EX_WITH_RDMA_WRITE => rdma_write, no_remote);
    choose!(wr_rdma_write_imm: IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM => rdma_write_imm, no_write_imm);
    choose!(wr_send_inv: IBV_QP_EX_WITH_SEND_WITH_INV => send_inv, no_key);
    if is_datagram {
        choose!(wr_send: IBV_QP_EX_WITH_SEND => send::<BOTH>, no_send);
        choose!(wr_send_imm: IBV_QP_EX_WITH_SEND_WITH_IMM => send_imm::<BOTH>, no_key);
        qp.wr_set_ud_addr = Some(set_ud_addr::<G::General>);
    } else {
        choose!(wr_send: IBV_QP_EX_WITH_SEND => send::<NEEDS_DATA>, no_send);
        choose!(wr_send_imm: IBV_QP_EX_WITH_SEND_WITH_IMM => send_imm::<NEEDS_DATA>, no_key);
        qp.wr_set_ud_addr = Some(no_destination);
    }
    qp.wr_send_tso = Some(no_tso);
    qp.wr_set_xrc_srqn = Some(no_key);
    qp.wr_set_inline_data = Some(set_inline_data::<G>);
    qp.wr_set_inline_data_list = Some(set_inline_data_list::<G::General>);
    qp.wr_set_sge = Some(set_sge::<G>);
    qp.wr_set_sge_list = Some(set_sge_list::<G::General>);
    qp.wr_start = Some(start);
    qp.wr_complete = Some(complete::<G>);
    qp.wr_abort = Some(abort::<G::General>);
}
