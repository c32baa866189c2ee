//! Work requests of `ibv_post_send` that are not of the simplest kind: of several elements, with an
//! immediate, of inline data.
//!
//! Each has a function for the case that nothing stands in the way. It needs neither a stack nor
//! saved registers, and calls nobody: what it cannot do, it leaves to `post_list`.

use core::ffi::c_int;

use irdma_hw::generation::{Generation, WqeFormat};
use irdma_hw::queue::{Obstacle, Refusal, SendBatch, Sge, Started, Taker};
use rdma_core_sys::bindings::*;

use crate::destination::{Destination, finish_started, has_receiver};
use crate::post_atomic::post_atomic;
use crate::post_recv::list_of;
use crate::post_send::{announce, post_list, refuse};
use crate::qp::QueuePair;
use crate::work_request::{
    ATOMICS, MESSAGES, OUTGOING, WITH_IMMEDIATE, header_of, immediate_of, place_without_data, request_of,
};

/// Posts a list that begins with a work request of another than the simplest kind.
///
/// # Safety
/// As for `post_send`, under the send lock, which this releases.
#[inline(always)]
pub unsafe fn post_other<G: Generation>(
    qp: &QueuePair,
    request: *mut ibv_send_wr,
    refused: *mut *mut ibv_send_wr,
    start: u32,
) -> c_int {
    // SAFETY: as the caller promises; there is one.
    unsafe {
        if (*request).send_flags & IBV_SEND_INLINE != 0 {
            post_inline::<G, false>(qp, request, refused, start)
        } else if G::HAS_ATOMICS && ATOMICS.can_be_posted(qp, (*request).opcode) {
            post_atomic::<G>(qp, request, refused, start)
        } else {
            post_immediate::<G>(qp, request, refused, start)
        }
    }
}

/// Posts a list that begins with a plain send, write or read of any number of elements.
///
/// # Safety
/// As for `post_send`, under the send lock, which this releases.
#[inline(never)]
pub unsafe fn post_several<G: Generation>(
    qp: &QueuePair,
    request: *mut ibv_send_wr,
    refused: *mut *mut ibv_send_wr,
    start: u32,
) -> c_int {
    // SAFETY: as the caller promises; there is one.
    unsafe {
        let work = &*request;
        let taker = || if work.opcode == IBV_WR_RDMA_READ { Taker::Read } else { Taker::Message };
        let Some(list) = some_of(qp, work, taker) else {
            return post_with_room::<G>(qp, request, refused, start);
        };
        let batch = qp.queues.send.batch::<G>();
        let started = batch.start_fragments(list, taker, None);
        go_on(qp, request, refused, batch, started, || Destination::of_plain(qp, work.opcode == IBV_WR_SEND))
    }
}

/// Posts a list that begins with a message with an immediate.
///
/// # Safety
/// As for `post_send`, under the send lock, which this releases.
#[inline(never)]
unsafe fn post_immediate<G: Generation>(
    qp: &QueuePair,
    request: *mut ibv_send_wr,
    refused: *mut *mut ibv_send_wr,
    start: u32,
) -> c_int {
    // SAFETY: as the caller promises; there is one.
    unsafe {
        let work = &*request;
        if !WITH_IMMEDIATE.can_be_posted(qp, work.opcode) {
            return post_list::<G>(qp, request, refused, start);
        }
        let taker = || Taker::MessageWithImmediate;
        let Some(list) = some_of(qp, work, taker) else {
            return post_with_room::<G>(qp, request, refused, start);
        };
        let batch = qp.queues.send.batch::<G>();
        let started = batch.start_fragments(list, taker, Some(immediate_of(work)));
        let is_send = work.opcode == IBV_WR_SEND_WITH_IMM;
        go_on(qp, request, refused, batch, started, || Destination::of_plain(qp, is_send))
    }
}

/// Posts a list that begins with a work request whose data is to be taken into it; `SIMPLE`: with a plain
/// send, write or read, which the queue pair takes.
///
/// # Safety
/// As for `post_send`, under the send lock, which this releases.
#[inline(never)]
pub unsafe fn post_inline<G: Generation, const SIMPLE: bool>(
    qp: &QueuePair,
    request: *mut ibv_send_wr,
    refused: *mut *mut ibv_send_wr,
    start: u32,
) -> c_int {
    // SAFETY: as the caller promises; there is one.
    unsafe {
        let work = &*request;
        // What is read cannot be in the work request.
        let can_be =
            if SIMPLE { work.opcode != IBV_WR_RDMA_READ } else { OUTGOING.can_be_posted(qp, work.opcode) };
        if !can_be {
            return post_list::<G>(qp, request, refused, start);
        }
        if work.num_sge != 1 {
            return post_with_room::<G>(qp, request, refused, start);
        }
        let Some(piece) = work.sg_list.cast::<Sge>().as_ref() else {
            return post_with_room::<G>(qp, request, refused, start);
        };
        let batch = qp.queues.send.batch::<G>();
        let immediate = || (!SIMPLE && WITH_IMMEDIATE.has(work.opcode)).then(|| immediate_of(work));
        if immediate().is_some() && !batch.takes_immediate_inline() {
            return post_with_room::<G>(qp, request, refused, start);
        }
        let Some(started) = batch.start_inline(piece) else {
            return post_with_room::<G>(qp, request, refused, batch.start());
        };
        batch.set_immediate(&started, immediate());
        let destination = || {
            if SIMPLE {
                Destination::of_plain(qp, work.opcode == IBV_WR_SEND)
            } else {
                Destination::of(qp, work)
            }
        };
        go_on(qp, request, refused, batch, Ok(started), destination)
    }
}

/// Goes on with a list of which the first one was started.
///
/// # Safety
/// As for `post_send`, under the send lock, which this releases.
#[inline(always)]
pub unsafe fn go_on<'queue, G: Generation>(
    qp: &QueuePair,
    request: *mut ibv_send_wr,
    refused: *mut *mut ibv_send_wr,
    mut batch: SendBatch<'queue, G>,
    started: Result<Started<'queue>, Obstacle>,
    destination: impl FnOnce() -> Destination,
) -> c_int {
    let start = batch.start();
    // SAFETY: as the caller promises; there is one.
    unsafe {
        let started = match started {
            Ok(started) => started,
            Err(Obstacle::InTheWay) => return post_with_room::<G>(qp, request, refused, start),
            Err(Obstacle::Written) => return post_again::<G>(qp, request, refused, start),
        };
        if !place_started(qp, request, &mut batch, started, destination) {
            return post_again::<G>(qp, request, refused, batch.start());
        }
        if !(*request).next.is_null() {
            return post_list::<G>(qp, (*request).next, refused, batch.start());
        }
        announce(qp, batch)
    }
}

/// Places a message that was started, behind the padding that it needs; `false`, and nothing is placed,
/// if it has no receiver.
///
/// # Safety
/// As for [`finish_started`]; the destination is that of the request.
#[inline(always)]
unsafe fn place_started<'queue, G: Generation>(
    qp: &QueuePair,
    work: *const ibv_send_wr,
    batch: &mut SendBatch<'queue, G>,
    started: Started<'queue>,
    destination: impl FnOnce() -> Destination,
) -> bool {
    // SAFETY: as the caller promises.
    unsafe {
        if batch.needs_padding(&started) {
            // Padding stays, so nothing must go wrong any more.
            if !has_receiver(qp, work) {
                return false;
            }
            batch.pad_before(&started);
        }
        finish_started(batch, work, started, destination, || header_of(qp, work))
    }
}

/// Places a plain send, write or read of any number of elements, if nothing stands in the way.
///
/// # Safety
/// As for [`place_out_of_line`]; the work request is of such an operation.
#[inline(never)]
pub unsafe fn place_several<G: Generation>(qp: &QueuePair, work: &ibv_send_wr) -> bool {
    let taker = || if work.opcode == IBV_WR_RDMA_READ { Taker::Read } else { Taker::Message };
    // SAFETY: as the caller promises. What is placed is announced by the caller.
    unsafe {
        let Some(list) = some_of(qp, work, taker) else { return false };
        let mut batch = qp.queues.send.batch::<G>();
        let is_placed = match batch.start_fragments(list, taker, None) {
            Ok(started) => {
                let destination = || Destination::of_plain(qp, work.opcode == IBV_WR_SEND);
                place_started(qp, work, &mut batch, started, destination)
            }
            Err(Obstacle::InTheWay) => return false,
            Err(Obstacle::Written) => false,
        };
        if !is_placed {
            qp.queues.send.unwrite_started();
        }
        is_placed
    }
}

/// The elements of a work request, if it has any and they are not too many.
///
/// # Safety
/// What the request points to is valid.
#[inline(always)]
unsafe fn some_of<'list>(
    qp: &QueuePair,
    work: &'list ibv_send_wr,
    taker: impl FnOnce() -> Taker,
) -> Option<&'list [Sge]> {
    let (list, pieces) = (work.sg_list.cast::<Sge>(), work.num_sge as u32);
    if list.is_null() || !qp.queues.send.takes(pieces, taker) {
        return None;
    }
    // SAFETY: as the caller promises; the types are laid out alike.
    Some(unsafe { core::slice::from_raw_parts(list, pieces as usize) })
}

/// Posts a list of which something was written to the ring in vain.
///
/// # Safety
/// As for `post_send`, under the send lock, which this releases.
#[cold]
#[inline(never)]
unsafe fn post_again<G: Generation>(
    qp: &QueuePair,
    request: *mut ibv_send_wr,
    refused: *mut *mut ibv_send_wr,
    start: u32,
) -> c_int {
    qp.queues.send.unwrite_started();
    // SAFETY: as the caller promises.
    unsafe { post_list::<G>(qp, request, refused, start) }
}

/// Posts a list of whose first one was not placed because something stands in the way.
///
/// # Safety
/// As for `post_send`, under the send lock, which this releases.
#[inline(never)]
unsafe fn post_with_room<G: Generation>(
    qp: &QueuePair,
    request: *mut ibv_send_wr,
    refused: *mut *mut ibv_send_wr,
    start: u32,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        if (*request).num_sge == 1 && (*request).send_flags & IBV_SEND_INLINE == 0 {
            // It is the run that has ended, of which lists take care.
            return post_list::<G>(qp, request, refused, start);
        }
        match place_out_of_line::<G::General>(qp, &*request) {
            Err(refusal) => refuse::<G>(qp, request, refused, start, refusal),
            Ok(()) if (*request).next.is_null() => announce(qp, qp.queues.send.batch_from::<G>(start)),
            Ok(()) => post_list::<G>(qp, (*request).next, refused, start),
        }
    }
}

/// Places any work request.
///
/// # Safety
/// What the request points to is valid for its opcode, and the send lock is held.
#[inline(never)]
pub unsafe fn place_out_of_line<F: WqeFormat>(qp: &QueuePair, work: &ibv_send_wr) -> Result<(), Refusal> {
    let operation = work.opcode;
    // SAFETY: as the caller promises.
    unsafe {
        if !MESSAGES.can_be_posted(qp, operation) {
            return place_without_data::<F>(qp, work);
        }
        let request = request_of(qp, work).ok_or(Refusal::Invalid)?;
        let list = list_of(work.sg_list, work.num_sge)?;
        let immediate = WITH_IMMEDIATE.has(operation).then(|| immediate_of(work));
        // What it places is announced by the caller.
        let mut batch = qp.queues.send.batch::<F>();
        // What is read cannot be in the work request: there the flag has no meaning.
        if work.send_flags & IBV_SEND_INLINE != 0 && OUTGOING.has(operation) {
            batch.inline(&request, list, immediate)
        } else {
            batch.fragments(&request, list, immediate)
        }
    }
}
