//! States of queue pairs: changes, and what is learnt of them.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use irdma_hw::generation::Generation;
use irdma_hw::queue::Side;
use rdma_core_sys::bindings::{
    IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_QP_CUR_STATE, IBV_QP_STATE,
    IBV_QPS_ERR, IBV_QPS_RESET, ibv_async_event, ibv_context, ibv_qp, ibv_qp_attr, verbs_context_ops,
};
use rdma_core_sys::driver_data::ModifyQpRequest;

use crate::boundary;
use crate::command;
use crate::errno::{Errno, Result};
use crate::log;
use crate::push;
use crate::qp::QueuePair;

/// Changes a queue pair.
///
/// # Safety
/// `qp` is alive, `attributes` valid as far as `mask` says.
unsafe fn modify(qp: *mut ibv_qp, attributes: *mut ibv_qp_attr, mask: c_int) -> Result<()> {
    // SAFETY: as the caller promises.
    unsafe {
        let pair = QueuePair::of(qp);
        let state = (mask as u32 & IBV_QP_STATE != 0).then(|| (*attributes).qp_state);
        let only_state = mask as u32 & !(IBV_QP_STATE | IBV_QP_CUR_STATE) == 0;
        // The kernel would move the hardware to the error state, and the queue pair could never
        // leave it.
        if state == Some(IBV_QPS_RESET) && !pair.is_fresh() {
            let number = (*qp).qp_num;
            let why = format_args!(
                "QP {number}: RESET of a used queue pair is not possible: destroy it and create another"
            );
            return Err(log::refused((*qp).context, Errno::NOT_SUPPORTED, why));
        }
        if state == Some(IBV_QPS_RESET) && only_state {
            return Ok(());
        }
        if push::is_due(pair, state) {
            let answer = command::modify_qp_ex(qp, attributes, mask, ModifyQpRequest::default())?;
            push::accept((*qp).context, pair, state, &answer);
        } else {
            command::modify_qp(qp, attributes, mask)?;
        }
        match state {
            None => {}
            Some(IBV_QPS_ERR) => {
                pair.is_fresh.store(false, Ordering::Relaxed);
                pair.set_failed();
            }
            Some(_) => pair.is_fresh.store(false, Ordering::Relaxed),
        }
        Ok(())
    }
}

unsafe extern "C" fn modify_qp(qp: *mut ibv_qp, attributes: *mut ibv_qp_attr, mask: c_int) -> c_int {
    // SAFETY: libibverbs calls with what `create_qp` returned and the program's attributes.
    unsafe { boundary::status((*qp).context, "modify_qp", || modify(qp, attributes, mask)) }
}

/// Sees to it that what was just posted to a queue pair in error, from position `start` on, is
/// flushed: the device did so with what it found when the queue pair went into error, and has
/// not looked since.
#[cold]
pub fn posted_in_error<G: Generation>(qp: &QueuePair, side: Side, start: u32) {
    if qp.queues.posted_in_error::<G>(side, start) {
        flush(qp, side);
    }
    if G::FLUSHES_EACH {
        qp.cq(side).note_abandoned();
    }
}

/// Asks the kernel to have the device flush a queue once more.
///
/// Best effort: the work request is posted whatever comes of it.
fn flush(qp: &QueuePair, side: Side) {
    let mut attributes = ibv_qp_attr { qp_state: IBV_QPS_ERR, ..ibv_qp_attr::default() };
    let request = ModifyQpRequest {
        sq_flush: (side == Side::Send).into(),
        rq_flush: (side == Side::Receive).into(),
        ..ModifyQpRequest::default()
    };
    // SAFETY: the queue pair is alive, the attributes are those that the mask names.
    let _ = unsafe { command::modify_qp_ex(qp.as_ibv(), &mut attributes, IBV_QP_STATE as c_int, request) };
}

/// Learns from an event that the program is given that a queue pair is in error.
unsafe extern "C" fn async_event(_context: *mut ibv_context, event: *mut ibv_async_event) {
    // SAFETY: libibverbs calls with an event it has just read; its object lives until the
    // event is acknowledged.
    unsafe {
        if let IBV_EVENT_QP_FATAL | IBV_EVENT_QP_REQ_ERR | IBV_EVENT_QP_ACCESS_ERR = (*event).event_type {
            QueuePair::of((*event).element.qp).set_in_error();
        }
    }
}

/// Fills the operations of this file.
pub fn install(operations: &mut verbs_context_ops) {
    operations.modify_qp = Some(modify_qp);
    operations.async_event = Some(async_event);
}
