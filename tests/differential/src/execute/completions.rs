//! Completions, every field of them.

use std::mem::MaybeUninit;

use rdma_core_sys::bindings::*;
use rdma_core_sys::inline::*;

use super::objects::{Objects, of};
use super::observe::Observer;
use super::{hook, queues, tell};
use crate::program::{Slot, slots};

/// Every byte of a completion before it is polled.
const POISON: u8 = 0xa5;
/// The most that are polled at once.
pub const MOST: usize = 32;

/// Empty polls in a row after which a queue is empty. A provider may stop early, and go on when asked again:
/// at a flush of a queue that is empty, and each queue pair has two.
const EMPTY: u8 = 2 * slots::QPS + 1;

/// `ibv_poll_cq`, until there are `count` or no more.
pub fn poll(objects: &Objects<'_>, cq: Slot, count: i32) -> Option<()> {
    let cq = of(&objects.cqs, cq)?.raw;
    let mut left = count.min(MOST as i32);
    let mut empty = 0;
    let mut failed = Vec::new();
    hook::observer(Observer::mark_progress);
    loop {
        let polled = poll_once(cq, left, &mut failed);
        empty = if polled == 0 { empty + 1 } else { 0 };
        left -= polled;
        if polled < 0 || left <= 0 || empty >= EMPTY {
            break;
        }
    }
    hook::observer(Observer::tell_progress);
    queues::give_up(objects, &failed);
    Some(())
}

/// One call; how many completions came, and of which queue pairs failed ones.
fn poll_once(cq: *mut ibv_cq, count: i32, failed: &mut Vec<u32>) -> i32 {
    let mut completions = [MaybeUninit::<ibv_wc>::uninit(); MOST];
    // SAFETY: room for all; any bytes are a value of the plain struct.
    unsafe { completions.as_mut_ptr().write_bytes(POISON, MOST) };
    // SAFETY: the CQ is alive, and there is room for as many as asked for.
    let polled = unsafe { ibv_poll_cq(cq, count, completions.as_mut_ptr().cast()) };
    tell("poll_cq", |line| line.with("result", polled));
    for completion in completions.iter().take(usize::try_from(polled).unwrap_or(0)) {
        // SAFETY: every byte was written above.
        let wc = unsafe { completion.assume_init_ref() };
        if wc.status != IBV_WC_SUCCESS {
            failed.push(wc.qp_num);
        }
        // SAFETY: both members of the union are 32-bit integers.
        let immediate = unsafe { wc.__bindgen_anon_1.invalidated_rkey };
        tell("wc", |line| {
            line.with("wr_id", wc.wr_id)
                .with("status", wc.status)
                .with("opcode", wc.opcode)
                .hex("vendor_err", wc.vendor_err.into())
                .with("byte_len", wc.byte_len)
                .hex("imm", immediate.into())
                .with("qp_num", wc.qp_num)
                .with("src_qp", wc.src_qp)
                .hex("flags", wc.wc_flags.into())
                .hex("pkey_index", wc.pkey_index.into())
                .hex("slid", wc.slid.into())
                .hex("sl", wc.sl.into())
                .hex("path_bits", wc.dlid_path_bits.into())
        });
    }
    polled
}

/// The extended interface, until there are `count` or no more.
pub fn poll_extended(objects: &Objects<'_>, slot: Slot, count: u8) -> Option<()> {
    let cq = of(&objects.cqs, slot)?;
    let wc_flags = cq.extended?;
    let cq: *mut ibv_cq_ex = cq.raw.cast();
    let (mut taken, mut empty) = (0, 0);
    let mut failed = Vec::new();
    hook::observer(Observer::mark_progress);
    while taken < count && empty < EMPTY {
        // SAFETY: the CQ is alive and has the extended interface; completions are read while they are there.
        unsafe {
            let mut attributes = ibv_poll_cq_attr { comp_mask: 0 };
            let mut result = ibv_start_poll(cq, &mut attributes);
            tell("start_poll", |line| line.with("result", result));
            if result != 0 {
                empty += 1;
                continue;
            }
            empty = 0;
            while result == 0 {
                tell_current(cq, wc_flags);
                if (*cq).status != IBV_WC_SUCCESS && wc_flags & u64::from(IBV_WC_EX_WITH_QP_NUM) != 0 {
                    failed.push(ibv_wc_read_qp_num(cq));
                }
                taken += 1;
                if taken >= count {
                    break;
                }
                result = ibv_next_poll(cq);
                tell("next_poll", |line| line.with("result", result));
            }
            ibv_end_poll(cq);
        }
    }
    hook::observer(Observer::tell_progress);
    queues::give_up(objects, &failed);
    Some(())
}

/// Writes the current completion, as far as the queue was asked for its fields.
///
/// # Safety
/// There is one.
unsafe fn tell_current(cq: *mut ibv_cq_ex, wc_flags: u64) {
    // SAFETY: as the caller promises; functions of fields asked for at creation are there.
    unsafe {
        let (wr_id, status) = ((*cq).wr_id, (*cq).status);
        tell("current", |line| {
            let mut line = line
                .with("wr_id", wr_id)
                .with("status", status)
                .with("opcode", ibv_wc_read_opcode(cq))
                .hex("vendor_err", ibv_wc_read_vendor_err(cq).into())
                .hex("flags", ibv_wc_read_wc_flags(cq).into());
            let has = |flag: u32| wc_flags & u64::from(flag) != 0;
            if has(IBV_WC_EX_WITH_BYTE_LEN) {
                line = line.with("byte_len", ibv_wc_read_byte_len(cq));
            }
            if has(IBV_WC_EX_WITH_IMM) {
                line = line.hex("imm", ibv_wc_read_imm_data(cq).into());
            }
            if has(IBV_WC_EX_WITH_QP_NUM) {
                line = line.with("qp_num", ibv_wc_read_qp_num(cq));
            }
            if has(IBV_WC_EX_WITH_SRC_QP) {
                line = line.with("src_qp", ibv_wc_read_src_qp(cq));
            }
            if has(IBV_WC_EX_WITH_SLID) {
                line = line.hex("slid", ibv_wc_read_slid(cq).into());
            }
            if has(IBV_WC_EX_WITH_SL) {
                line = line.hex("sl", ibv_wc_read_sl(cq).into());
            }
            line
        });
    }
}
