//! Work requests of `ibv_post_send` that are not of the simplest kind: of several elements, with an
//! immediate, of inline data.
//!
//! Each has a function for the case that nothing stands in the way. It needs neither a stack nor
//! saved registers, and calls nobody: what it cannot do, it leaves to `post_list`.

use core::ffi::c_int;

use irdma_hw::generation::Generation;
use irdma_hw::queue::{Obstacle, Refusal, SendBatch, Sge, Started, Taker};
use rdma_core_sys::bindings::*;

use crate::destination::{Destination, finish_started, has_receiver};
use crate::post_recv::list_of;
use crate::post_send::{announce, post_list, refuse};
use crate::qp::QueuePair;
use crate::work_request::{
    MESSAGES, OUTGOING, WITH_IMMEDIATE, header_of, immediate_of, place_without_data, request_of,
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
            post_inline::<G>(qp, request, refused, start)
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
        let Some(list) = some_of(work) else { return post_with_room::<G>(qp, request, refused, start) };
        let taker = if work.opcode == IBV_WR_RDMA_READ { Taker::Read } else { Taker::Message };
        let batch = qp.queues.send.batch::<G>();
        let started = batch.start_fragments(list, taker, None);
        if let Err(Obstacle::InTheWay) = started {
            return pad_for_several::<G>(qp, request, refused, batch.start());
        }
        go_on(qp, request, refused, batch, started, || Destination::of_simple(qp, work))
    }
}

/// As [`post_several`], where the chunk of the ring has too little left.
///
/// # Safety
/// As for [`post_several`].
#[inline(never)]
unsafe fn pad_for_several<G: Generation>(
    qp: &QueuePair,
    request: *mut ibv_send_wr,
    refused: *mut *mut ibv_send_wr,
    start: u32,
) -> c_int {
    // SAFETY: as the caller promises; there is one.
    unsafe {
        let work = &*request;
        if work.num_sge == 1 {
            // It is the run that has ended, of which lists take care.
            return post_list::<G>(qp, request, refused, start);
        }
        let taker = if work.opcode == IBV_WR_RDMA_READ { Taker::Read } else { Taker::Message };
        if let Some(list) = some_of(work)
            && has_receiver(qp, work)
            && qp.queues.send.batch::<G>().pad_for_fragments(list, taker)
        {
            return post_several::<G>(qp, request, refused, start);
        }
        post_with_room::<G>(qp, request, refused, start)
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
        let Some(list) = some_of(work) else { return post_with_room::<G>(qp, request, refused, start) };
        let batch = qp.queues.send.batch::<G>();
        let started = batch.start_fragments(list, Taker::MessageWithImmediate, Some(immediate_of(work)));
        if let Err(Obstacle::InTheWay) = started {
            return pad_for_immediate::<G>(qp, request, refused, batch.start());
        }
        go_on(qp, request, refused, batch, started, || Destination::of(qp, work))
    }
}

/// As [`post_immediate`], where the chunk of the ring has too little left.
///
/// # Safety
/// As for [`post_immediate`], for a message that can be posted.
#[inline(never)]
unsafe fn pad_for_immediate<G: Generation>(
    qp: &QueuePair,
    request: *mut ibv_send_wr,
    refused: *mut *mut ibv_send_wr,
    start: u32,
) -> c_int {
    // SAFETY: as the caller promises; there is one.
    unsafe {
        let work = &*request;
        if let Some(list) = some_of(work)
            && has_receiver(qp, work)
            && qp.queues.send.batch::<G>().pad_for_fragments(list, Taker::MessageWithImmediate)
        {
            return post_immediate::<G>(qp, request, refused, start);
        }
        post_with_room::<G>(qp, request, refused, start)
    }
}

/// Posts a list that begins with a work request whose data is taken into it.
///
/// # Safety
/// As for `post_send`, under the send lock, which this releases.
#[inline(never)]
unsafe fn post_inline<G: Generation>(
    qp: &QueuePair,
    request: *mut ibv_send_wr,
    refused: *mut *mut ibv_send_wr,
    start: u32,
) -> c_int {
    // SAFETY: as the caller promises; there is one.
    unsafe {
        let work = &*request;
        if !OUTGOING.can_be_posted(qp, work.opcode) {
            return post_list::<G>(qp, request, refused, start);
        }
        if work.num_sge != 1 {
            return post_with_room::<G>(qp, request, refused, start);
        }
        let Some(piece) = work.sg_list.cast::<Sge>().as_ref() else {
            return post_with_room::<G>(qp, request, refused, start);
        };
        let batch = qp.queues.send.batch::<G>();
        let has_immediate = WITH_IMMEDIATE.has(work.opcode);
        if has_immediate && !batch.takes_immediate_inline() {
            return post_with_room::<G>(qp, request, refused, start);
        }
        let Some(started) = batch.start_inline(piece) else {
            return pad_for_inline::<G>(qp, request, refused, batch.start());
        };
        batch.set_immediate(&started, WITH_IMMEDIATE.has(work.opcode).then(|| immediate_of(work)));
        go_on(qp, request, refused, batch, Ok(started), || Destination::of(qp, work))
    }
}

/// As [`post_inline`], where the chunk of the ring has too little left.
///
/// # Safety
/// As for [`post_inline`], for a message that can be posted.
#[inline(never)]
unsafe fn pad_for_inline<G: Generation>(
    qp: &QueuePair,
    request: *mut ibv_send_wr,
    refused: *mut *mut ibv_send_wr,
    start: u32,
) -> c_int {
    // SAFETY: as the caller promises; there is one.
    unsafe {
        let work = &*request;
        if let Some([piece]) = some_of(work)
            && has_receiver(qp, work)
            && qp.queues.send.batch::<G>().pad_for_inline(piece.length)
        {
            return post_inline::<G>(qp, request, refused, start);
        }
        post_with_room::<G>(qp, request, refused, start)
    }
}

/// Goes on with a list of which the first one was started.
///
/// # Safety
/// As for `post_send`, under the send lock, which this releases.
#[inline(always)]
unsafe fn go_on<'queue, G: Generation>(
    qp: &QueuePair,
    request: *mut ibv_send_wr,
    refused: *mut *mut ibv_send_wr,
    batch: SendBatch<'queue, G>,
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
        // Anew, so that no register keeps it while data is written.
        let mut batch = qp.queues.send.batch::<G>();
        if !finish_started(&mut batch, request, started, destination, || header_of(qp, request)) {
            return post_again::<G>(qp, request, refused, batch.start());
        }
        if !(*request).next.is_null() {
            return post_list::<G>(qp, (*request).next, refused, batch.start());
        }
        announce(qp, batch)
    }
}

/// The elements of a work request, if it has any and they are not absurdly many.
///
/// # Safety
/// What the request points to is valid.
#[inline(always)]
unsafe fn some_of(work: &ibv_send_wr) -> Option<&[Sge]> {
    let list = work.sg_list.cast::<Sge>();
    if list.is_null() || !(1..16).contains(&work.num_sge) {
        return None;
    }
    // SAFETY: as the caller promises; the types are laid out alike.
    Some(unsafe { core::slice::from_raw_parts(list, work.num_sge as usize) })
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
        match place_out_of_line::<G>(qp, &*request) {
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
pub unsafe fn place_out_of_line<G: Generation>(qp: &QueuePair, work: &ibv_send_wr) -> Result<(), Refusal> {
    let operation = work.opcode;
    // SAFETY: as the caller promises.
    unsafe {
        if !MESSAGES.can_be_posted(qp, operation) {
            return place_without_data::<G>(qp, work);
        }
        let request = request_of(qp, work).ok_or(Refusal::Invalid)?;
        let list = list_of(work.sg_list, work.num_sge)?;
        let immediate = WITH_IMMEDIATE.has(operation).then(|| immediate_of(work));
        // What it places is announced by the caller.
        let mut batch = qp.queues.send.batch::<G>();
        // What is read cannot be in the work request: there the flag has no meaning.
        if work.send_flags & IBV_SEND_INLINE != 0 && OUTGOING.has(operation) {
            batch.inline(&request, list, immediate)
        } else {
            batch.fragments(&request, list, immediate)
        }
    }
}
