//! Verbs that make, change and destroy queues.

use std::mem::zeroed;
use std::ptr::null_mut;

use rdma_core_sys::bindings::*;
use rdma_core_sys::inline::*;

use super::control::{PORT, object, status};
use super::objects::{Cq, Objects, free, of};
use super::tell;
use crate::program::{Change, Slot, Step};

/// Q_Key of every datagram queue pair.
pub const Q_KEY: u32 = 0x1234_5678;

/// Runs a step; `None` if an object it needs is not there.
pub fn perform(objects: &mut Objects<'_>, step: &Step) -> Option<()> {
    let context = objects.context;
    // SAFETY: every object in a slot is alive, and every argument valid for its call.
    unsafe {
        match *step {
            Step::CreateCq { cq, entries, channel, vector } => {
                let channel = channel.map_or(Some(null_mut()), |slot| of(&objects.channels, slot))?;
                let place = free(&mut objects.cqs, cq)?;
                *place = object("create_cq", || ibv_create_cq(context, entries, null_mut(), channel, vector))
                    .map(|raw| Cq { raw, extended: None });
                tell_cq(place);
            }
            Step::CreateCqEx { cq, entries, channel, wc_flags, flags } => {
                let channel = channel.map_or(Some(null_mut()), |slot| of(&objects.channels, slot))?;
                let place = free(&mut objects.cqs, cq)?;
                let mut attributes: ibv_cq_init_attr_ex = zeroed();
                (attributes.cqe, attributes.channel, attributes.wc_flags) = (entries, channel, wc_flags);
                if let Some(flags) = flags {
                    attributes.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
                    attributes.flags = flags;
                }
                *place = object("create_cq_ex", || ibv_create_cq_ex(context, &mut attributes))
                    .map(|raw| Cq { raw: raw.cast(), extended: Some(wc_flags) });
                tell("attributes", |line| line.with("cqe", attributes.cqe));
                tell_cq(place);
            }
            Step::ResizeCq { cq, entries } => {
                let raw = of(&objects.cqs, cq)?.raw;
                status("resize_cq", || ibv_resize_cq(raw, entries));
                tell_cq(&objects.cqs[usize::from(cq)]);
            }
            Step::DestroyCq { cq } => {
                let raw = of(&objects.cqs, cq)?.raw;
                if status("destroy_cq", || ibv_destroy_cq(raw)) {
                    objects.cqs[usize::from(cq)] = None;
                }
            }
            Step::Arm { cq, solicited } => {
                let raw = of(&objects.cqs, cq)?.raw;
                status("req_notify_cq", || ibv_req_notify_cq(raw, solicited.into()));
            }
            Step::CreateQp { .. } => create(objects, step)?,
            Step::ModifyQp { qp, change } => modify(objects, qp, change)?,
            Step::QueryQp { qp, mask } => query(objects, qp, mask)?,
            Step::DestroyQp { qp } => {
                let raw = of(&objects.qps, qp)?;
                if status("destroy_qp", || ibv_destroy_qp(raw)) {
                    objects.qps[usize::from(qp)] = None;
                }
            }
            _ => return None,
        }
    }
    Some(())
}

/// Tells what a completion queue says of itself.
fn tell_cq(cq: &Option<Cq>) {
    if let Some(cq) = cq {
        // SAFETY: alive.
        let entries = unsafe { (*cq.raw).cqe };
        tell("cq", |line| line.with("cqe", entries));
    }
}

fn create(objects: &mut Objects<'_>, step: &Step) -> Option<()> {
    let Step::CreateQp { qp, pd, send_cq, recv_cq, srq, kind, cap, signals_all } = *step else { return None };
    let pd = of(&objects.pds, pd)?;
    let (send, recv) = (of(&objects.cqs, send_cq)?.raw, of(&objects.cqs, recv_cq)?.raw);
    let srq = srq.map_or(Some(null_mut()), |slot| of(&objects.srqs, slot))?;
    let place = free(&mut objects.qps, qp)?;
    // SAFETY: all bytes zero is a value of the plain struct.
    let mut attributes: ibv_qp_init_attr = unsafe { zeroed() };
    (attributes.send_cq, attributes.recv_cq, attributes.qp_type) = (send, recv, kind);
    attributes.srq = srq;
    attributes.cap = ibv_qp_cap {
        max_send_wr: cap.send_wr,
        max_recv_wr: cap.recv_wr,
        max_send_sge: cap.send_sge,
        max_recv_sge: cap.recv_sge,
        max_inline_data: cap.inline,
    };
    attributes.sq_sig_all = signals_all.into();
    // SAFETY: the objects are alive, the attributes valid for the call.
    *place = object("create_qp", || unsafe { ibv_create_qp(pd, &mut attributes) });
    tell_cap(attributes.cap);
    if let Some(qp) = *place {
        // SAFETY: alive.
        let ibv_qp { qp_num, qp_type, state, .. } = unsafe { *qp };
        tell("qp", |line| line.with("number", qp_num).with("kind", qp_type).with("state", state));
    }
    Some(())
}

fn tell_cap(cap: ibv_qp_cap) {
    tell("cap", |line| {
        line.with("send_wr", cap.max_send_wr)
            .with("recv_wr", cap.max_recv_wr)
            .with("send_sge", cap.max_send_sge)
            .with("recv_sge", cap.max_recv_sge)
            .with("inline", cap.max_inline_data)
    });
}

/// The attributes that a change to that state needs.
fn needed(state: u32, is_datagram: bool) -> u32 {
    match (state, is_datagram) {
        (IBV_QPS_INIT, false) => IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
        (IBV_QPS_INIT, true) => IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY,
        (IBV_QPS_RTR, false) => {
            IBV_QP_STATE
                | IBV_QP_AV
                | IBV_QP_PATH_MTU
                | IBV_QP_DEST_QPN
                | IBV_QP_RQ_PSN
                | IBV_QP_MAX_DEST_RD_ATOMIC
                | IBV_QP_MIN_RNR_TIMER
        }
        (IBV_QPS_RTS, false) => {
            IBV_QP_STATE
                | IBV_QP_SQ_PSN
                | IBV_QP_TIMEOUT
                | IBV_QP_RETRY_CNT
                | IBV_QP_RNR_RETRY
                | IBV_QP_MAX_QP_RD_ATOMIC
        }
        (IBV_QPS_RTS, true) => IBV_QP_STATE | IBV_QP_SQ_PSN,
        _ => IBV_QP_STATE,
    }
}

fn modify(objects: &Objects<'_>, qp: Slot, change: Change) -> Option<()> {
    let raw = of(&objects.qps, qp)?;
    let peer = of(&objects.qps, change.peer)?;
    // SAFETY: both are alive; all bytes zero is a value of the plain struct.
    let (is_datagram, mut attributes, peer) =
        unsafe { ((*raw).qp_type == IBV_QPT_UD, zeroed::<ibv_qp_attr>(), (*peer).qp_num) };
    attributes.qp_state = change.state;
    attributes.cur_qp_state = IBV_QPS_RTS;
    attributes.port_num = change.port;
    attributes.qp_access_flags = change.access;
    attributes.qkey = Q_KEY;
    attributes.path_mtu = IBV_MTU_1024;
    attributes.dest_qp_num = peer;
    (attributes.rq_psn, attributes.sq_psn) = (0x123, 0x123);
    (attributes.max_rd_atomic, attributes.max_dest_rd_atomic) = (4, 4);
    attributes.min_rnr_timer = change.patience & 0x1f;
    (attributes.timeout, attributes.retry_cnt) = (change.patience & 0x1f, change.patience & 7);
    attributes.rnr_retry = change.patience >> 5;
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.port_num = PORT;
    attributes.ah_attr.grh.dgid = objects.gid(change.gid_index);
    attributes.ah_attr.grh.sgid_index = change.gid_index;
    attributes.ah_attr.grh.hop_limit = 64;
    let mask = needed(change.state, is_datagram) ^ change.mask;
    // SAFETY: the queue pair is alive, the attributes are those that the mask names.
    status("modify_qp", || unsafe { ibv_modify_qp(raw, &mut attributes, mask as i32) });
    // SAFETY: alive.
    let state = unsafe { (*raw).state };
    tell("qp", |line| line.with("state", state));
    Some(())
}

/// Moves queue pairs to the error state whose requests have failed, in a careful program.
pub fn give_up(objects: &Objects<'_>, failed: &[u32]) {
    if !objects.careful {
        return;
    }
    for raw in objects.qps.iter().copied().flatten() {
        // SAFETY: what is in a slot is alive.
        let ibv_qp { qp_num, state, .. } = unsafe { *raw };
        if failed.contains(&qp_num) && state != IBV_QPS_ERR {
            // SAFETY: all bytes zero is a value of the plain struct; the queue pair is alive.
            unsafe {
                let mut attributes: ibv_qp_attr = zeroed();
                attributes.qp_state = IBV_QPS_ERR;
                status("modify_qp", || ibv_modify_qp(raw, &mut attributes, IBV_QP_STATE as i32));
            }
        }
    }
}

fn query(objects: &Objects<'_>, qp: Slot, mask: u32) -> Option<()> {
    let raw = of(&objects.qps, qp)?;
    // SAFETY: the queue pair is alive; all bytes zero is a value of the plain structs.
    unsafe {
        let (mut attributes, mut created): (ibv_qp_attr, ibv_qp_init_attr) = (zeroed(), zeroed());
        if status("query_qp", || ibv_query_qp(raw, &mut attributes, mask as i32, &mut created)) {
            let all = std::slice::from_raw_parts((&raw const attributes).cast(), size_of_val(&attributes));
            tell("attributes", |line| line.bytes("attr", all));
            tell_cap(created.cap);
            let (kind, signals) = (created.qp_type, created.sq_sig_all);
            tell("created", |line| line.with("kind", kind).with("signals_all", signals));
        }
    }
    Some(())
}
