//! `ibv_post_send`.

use core::ffi::c_int;
use core::mem::offset_of;

use irdma_hw::format::SendHeader;
use irdma_hw::generation::{Gen1, Gen2, Gen3, Generation, WithPush};
use irdma_hw::limits::HardwareGeneration;
use irdma_hw::queue::{Refusal, SendBatch, Service, Sge, Side};
use irdma_hw::registers;
use rdma_core_sys::bindings::*;

use crate::destination::{Destination, finish_started};
use crate::post_message::{place_out_of_line, place_several, post_inline, post_other, post_several};
use crate::qp::QueuePair;
use crate::qp_state::posted_in_error;
use crate::refusal;
use crate::work_request::header_of;

// Without a call but such as end it, so that the common way needs no stack.
unsafe extern "C" fn post_send<G: Generation>(
    qp: *mut ibv_qp,
    request: *mut ibv_send_wr,
    refused: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the program posts to a queue pair of ours a list that ends with NULL.
    unsafe {
        let qp = QueuePair::of(qp);
        match qp.send_lock.try_lock() {
            Some(guard) => guard.keep(),
            None => return post_after_waiting::<G>(qp, request, refused),
        }
        let mut batch = qp.queues.send.batch::<G>();
        let start = batch.start();
        let Some(work) = request.as_ref() else { return post_list::<G>(qp, request, refused, start) };
        if !is_plain(qp, work) {
            return post_other::<G>(qp, request, refused, start);
        }
        if work.send_flags & IBV_SEND_INLINE != 0 {
            return post_inline::<G, true>(qp, request, refused, start);
        }
        if !place_simply(
            &mut batch,
            work,
            || Destination::of_plain(qp, work.opcode == IBV_WR_SEND),
            || header_of(qp, work),
        ) {
            return post_several::<G>(qp, request, refused, start);
        }
        if !work.next.is_null() {
            return post_list::<G>(qp, work.next, refused, start);
        }
        announce(qp, batch)
    }
}

/// Posts to a queue that another thread is posting to.
///
/// # Safety
/// As for `post_send`.
#[cold]
#[inline(never)]
unsafe fn post_after_waiting<G: Generation>(
    qp: &QueuePair,
    request: *mut ibv_send_wr,
    refused: *mut *mut ibv_send_wr,
) -> c_int {
    qp.send_lock.lock().keep();
    // SAFETY: as the caller promises, under the lock.
    unsafe {
        let start = qp.queues.send.batch::<G>().start();
        post_list::<G>(qp, request, refused, start)
    }
}

/// Posts the rest of a list of which something may have been posted.
///
/// # Safety
/// As for `post_send`, under the send lock, which this releases.
#[inline(never)]
pub unsafe fn post_list<G: Generation>(
    qp: &QueuePair,
    mut request: *mut ibv_send_wr,
    refused: *mut *mut ibv_send_wr,
    start: u32,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        while let Some(work) = request.as_ref() {
            if is_simple(qp, work) {
                qp.queues.send.renew_run();
                let rest = place_alike::<G>(qp, request);
                if rest != request {
                    request = rest;
                    continue;
                }
                if place_several::<G>(qp, work) {
                    request = work.next;
                    continue;
                }
            }
            if let Err(refusal) = place_out_of_line::<G::General>(qp, work) {
                return refuse::<G>(qp, request, refused, start, refusal);
            }
            request = work.next;
        }
        finish(qp, qp.queues.send.batch_from::<G>(start))
    }
}

/// Places work requests as long as they are of one kind, as those of a list usually are, and
/// nothing stands in the way. Returns the rest of the list.
///
/// # Safety
/// As for `post_send`, under the send lock; the first one [`is_simple`].
#[inline(always)]
unsafe fn place_alike<G: Generation>(qp: &QueuePair, mut request: *mut ibv_send_wr) -> *mut ibv_send_wr {
    // SAFETY: as the caller promises.
    unsafe {
        let mut batch = qp.queues.send.batch::<G>();
        let kind = kind_of(request);
        let (destination, header) =
            (Destination::of_plain(qp, (*request).opcode == IBV_WR_SEND), header_of(qp, request));
        while place_simply(&mut batch, request, || destination, || header) {
            request = (*request).next;
            if request.is_null() || kind_of(request) != kind {
                break;
            }
        }
    }
    request
}

/// Ends a post with a work request that was refused; those before it are posted.
///
/// # Safety
/// As for `post_send`, under the send lock, which this releases.
#[cold]
#[inline(never)]
pub unsafe fn refuse<G: Generation>(
    qp: &QueuePair,
    request: *mut ibv_send_wr,
    refused: *mut *mut ibv_send_wr,
    start: u32,
    refusal: Refusal,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        finish(qp, qp.queues.send.batch_from::<G>(start));
        refused.write(request);
        refusal::send(qp, &*request, refusal)
    }
}

/// Ends a batch: rings the doorbell, if it has anything, and releases the send lock.
///
/// # Safety
/// It is held.
#[inline(always)]
unsafe fn finish<G: Generation>(qp: &QueuePair, batch: SendBatch<'_, G>) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        if batch.is_empty() {
            qp.send_lock.unlock();
            return 0;
        }
        announce(qp, batch)
    }
}

/// Ends a batch that has something.
///
/// # Safety
/// The send lock is held.
#[inline(always)]
pub unsafe fn announce<G: Generation>(qp: &QueuePair, batch: SendBatch<'_, G>) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        if G::PUSHES && qp.queues.send.is_pushing() {
            return announce_pushing::<G>(qp, batch.start());
        }
        let start = batch.start();
        batch.announce();
        leave::<G>(qp, start)
    }
}

/// The same for a queue pair with a push page. Out of line, so that whoever calls this last need not save
/// registers.
///
/// # Safety
/// As for [`announce`].
#[inline(never)]
unsafe fn announce_pushing<G: Generation>(qp: &QueuePair, start: u32) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        if !qp.queues.send.batch_from::<G>(start).announce_one::<false>() {
            return announce_padded::<G>(qp, start);
        }
        leave::<G>(qp, start)
    }
}

/// The same for a work request behind padding, or any number of them.
///
/// # Safety
/// As for [`announce`].
#[inline(never)]
unsafe fn announce_padded<G: Generation>(qp: &QueuePair, start: u32) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        if !qp.queues.send.batch_from::<G>(start).announce_one::<true>() {
            qp.queues.send.batch_from::<G>(start).announce();
        }
        leave::<G>(qp, start)
    }
}

/// Releases the send lock after a batch that began at `start`.
///
/// # Safety
/// It is held.
#[inline(always)]
unsafe fn leave<G: Generation>(qp: &QueuePair, start: u32) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { qp.send_lock.unlock() };
    if qp.queues.is_in_error() { announce_in_error::<G>(qp, start) } else { 0 }
}

/// What follows a post to a queue pair in error; the post has succeeded.
#[cold]
#[inline(never)]
fn announce_in_error<G: Generation>(qp: &QueuePair, start: u32) -> c_int {
    posted_in_error::<G>(qp, Side::Send, start);
    // 0, but a compiler that knows so has the callers save registers, to return it themselves.
    registers::settled(0) as c_int
}

/// Whether a work request is a plain send, write or read, by its operation.
///
/// # Safety
/// There is one.
#[inline(always)]
unsafe fn is_plain(qp: &QueuePair, work: *const ibv_send_wr) -> bool {
    const _: () = assert!(IBV_WR_RDMA_WRITE | IBV_WR_RDMA_READ == IBV_WR_RDMA_READ);
    // SAFETY: as the caller promises.
    let opcode = unsafe { (*work).opcode };
    // The mask lets these two pass and no other.
    let has_remote = opcode & !IBV_WR_RDMA_READ == 0 && qp.queues.service() == Service::Connected;
    has_remote || opcode == IBV_WR_SEND
}

/// Whether operation and flags of a work request are such as need no more than its one element
/// and perhaps a destination: [`place_simply`] is to be tried.
///
/// # Safety
/// There is one.
#[inline(always)]
unsafe fn is_simple(qp: &QueuePair, work: *const ibv_send_wr) -> bool {
    // SAFETY: as the caller promises.
    unsafe { is_plain(qp, work) && (*work).send_flags & IBV_SEND_INLINE == 0 }
}

/// Operation and flags.
///
/// # Safety
/// There is a work request.
#[inline(always)]
unsafe fn kind_of(work: *const ibv_send_wr) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { u64::from((*work).opcode) | u64::from((*work).send_flags) << 32 }
}

/// Places a work request that [`is_simple`], if it has one element and nothing at all stands in the
/// way; else changes nothing. Destination and header are asked for once there is a place.
///
/// # Safety
/// What the request points to is valid for its opcode; destination and header are its own.
#[inline(always)]
unsafe fn place_simply<G: Generation>(
    batch: &mut SendBatch<'_, G>,
    work: *const ibv_send_wr,
    destination: impl FnOnce() -> Destination,
    header: impl FnOnce() -> SendHeader,
) -> bool {
    // SAFETY: the members of the unions are those of the opcode; the rest as the caller promises.
    unsafe {
        if (*work).num_sge != 1 {
            return false;
        }
        let Some(sge) = (*work).sg_list.cast::<Sge>().as_ref() else { return false };
        let Some(single) = batch.start_single(sge) else { return false };
        finish_started(batch, work, single, destination, header)
    }
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
