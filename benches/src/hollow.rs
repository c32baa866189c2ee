//! Verbs objects whose functions do nothing, to measure what is around a provider's.

use std::ffi::c_void;
use std::mem::{transmute_copy, zeroed};

use irdma_tests::sys::*;

use crate::row::Handles;

/// Returns: one instruction.
#[unsafe(naked)]
unsafe extern "C" fn hollow() {
    std::arch::naked_asm!("ret")
}

/// The hollow function as an operation of whatever signature. What it returns is any number.
macro_rules! function {
    () => {
        // SAFETY: operations are pointers to functions of C, or null. Any signature will do: the
        // function reads no argument, and every result is an integer.
        unsafe { transmute_copy(&(hollow as *const c_void)) }
    };
}

/// Objects of a hollow provider, for a thread. They are never freed.
pub fn handles() -> Handles {
    thread_local! { static HANDLES: Handles = make(); }
    HANDLES.with(|handles| *handles)
}

fn make() -> Handles {
    // SAFETY: in these structs of C all bytes zero are null pointers, absent functions and zeroes.
    let (mut context, mut qp, mut srq, mut cq): (ibv_context, ibv_qp_ex, ibv_srq, ibv_cq_ex) =
        unsafe { (zeroed(), zeroed(), zeroed(), zeroed()) };
    context.ops.post_send = function!();
    context.ops.post_recv = function!();
    context.ops.post_srq_recv = function!();
    context.ops.poll_cq = function!();
    context.ops.req_notify_cq = function!();
    let context = Box::into_raw(Box::new(context));

    qp.wr_start = function!();
    qp.wr_send = function!();
    qp.wr_rdma_write = function!();
    qp.wr_set_sge = function!();
    qp.wr_set_inline_data = function!();
    qp.wr_complete = function!();
    qp.qp_base.context = context;
    let qp = Box::into_raw(Box::new(qp));

    srq.context = context;
    let srq = Box::into_raw(Box::new(srq));

    cq.context = context;
    cq.start_poll = function!();
    cq.next_poll = function!();
    cq.end_poll = function!();
    cq.read_opcode = function!();
    cq.read_byte_len = function!();
    cq.read_wc_flags = function!();
    let cq = Box::into_raw(Box::new(cq));

    Handles { qp: qp.cast(), qp_ex: qp, srq, send_cq: cq.cast(), recv_cq: cq.cast(), are_hollow: true }
}
