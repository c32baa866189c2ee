//! `ibv_post_send`.

use core::ffi::c_int;
use core::mem::offset_of;

use irdma_hw::format::SendHeader;
use irdma_hw::generation::{Gen1, Gen2, Gen3, Generation, WithPush};
use irdma_hw::limits::HardwareGeneration;
use irdma_hw::queue::{Refusal, SendBatch, Service, Sge, Side};
use irdma_hw::registers;
use rdma_core_sys::bindings::*;

use crate::post_recv::list_of;
use crate::qp::QueuePair;
use crate::qp_state::posted_in_error;
use crate::refusal;
use crate::work_request::{header_of, message_of, place_without_data, receiver};

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
        if !is_simple(qp, work)
            || !place_simply(&mut batch, work, || Destination::of(qp, work), || header_of(qp, work))
        {
            return post_other::<G>(qp, request, refused, start);
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

/// Posts a list that begins with a work request which is not of the simplest kind.
///
/// # Safety
/// As for `post_send`, under the send lock, which this releases.
#[inline(never)]
unsafe fn post_other<G: Generation>(
    qp: &QueuePair,
    request: *mut ibv_send_wr,
    refused: *mut *mut ibv_send_wr,
    start: u32,
) -> c_int {
    // SAFETY: as the caller promises; there is one.
    unsafe {
        if is_inline(&*request) {
            post_inline::<G>(qp, request, refused, start)
        } else {
            post_fragments::<G>(qp, request, refused, start)
        }
    }
}

/// Posts a list that begins with a work request whose data is elsewhere, if it has any.
///
/// # Safety
/// As for `post_send`, under the send lock, which this releases.
#[inline(never)]
unsafe fn post_fragments<G: Generation>(
    qp: &QueuePair,
    request: *mut ibv_send_wr,
    refused: *mut *mut ibv_send_wr,
    start: u32,
) -> c_int {
    // SAFETY: as the caller promises; there is one.
    unsafe {
        let outcome = place_fragments::<G>(qp, &*request);
        go_on::<G>(qp, request, refused, start, outcome)
    }
}

/// Posts a list that begins with a work request whose data is [in it](is_inline).
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
        let outcome = place_inline::<G>(qp, &*request);
        go_on::<G>(qp, request, refused, start, outcome)
    }
}

/// Goes on with a list of which the first one was placed or refused.
///
/// # Safety
/// As for `post_send`, under the send lock, which this releases.
#[inline(always)]
unsafe fn go_on<G: Generation>(
    qp: &QueuePair,
    request: *mut ibv_send_wr,
    refused: *mut *mut ibv_send_wr,
    start: u32,
    outcome: Result<(), Refusal>,
) -> c_int {
    // SAFETY: as the caller promises; there is one.
    unsafe {
        if let Err(refusal) = outcome {
            return refuse::<G>(qp, request, refused, start, refusal);
        }
        if !(*request).next.is_null() {
            return post_list::<G>(qp, (*request).next, refused, start);
        }
        announce(qp, qp.queues.send.batch_from::<G>(start))
    }
}

/// Posts the rest of a list of which something may have been posted.
///
/// # Safety
/// As for `post_send`, under the send lock, which this releases.
#[inline(never)]
unsafe fn post_list<G: Generation>(
    qp: &QueuePair,
    mut request: *mut ibv_send_wr,
    refused: *mut *mut ibv_send_wr,
    start: u32,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        while let Some(work) = request.as_ref() {
            if is_simple(qp, work) {
                let rest = place_alike::<G>(qp, request);
                if rest != request {
                    request = rest;
                    continue;
                }
            }
            if let Err(refusal) = place_out_of_line::<G>(qp, work) {
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
        let (destination, header) = (Destination::of(qp, request), header_of(qp, request));
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
unsafe fn refuse<G: Generation>(
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
unsafe fn announce<G: Generation>(qp: &QueuePair, batch: SendBatch<'_, G>) -> c_int {
    let start = batch.start();
    batch.announce();
    // SAFETY: as the caller promises.
    unsafe { qp.send_lock.unlock() };
    if qp.queues.is_in_error() { announce_in_error::<G>(qp, start) } else { 0 }
}

/// What follows a post to a queue pair in error; the post has succeeded.
#[cold]
#[inline(never)]
fn announce_in_error<G: Generation>(qp: &QueuePair, start: u32) -> c_int {
    posted_in_error::<G>(qp, Side::Send, start);
    0
}

/// Whether a work request has a flag.
#[inline(always)]
fn has(work: &ibv_send_wr, flag: ibv_send_flags) -> bool {
    work.send_flags & flag != 0
}

/// Whether operation and flags of a work request are such as need no more than its one element
/// and perhaps a destination: [`place_simply`] is to be tried.
///
/// # Safety
/// There is one.
#[inline(always)]
unsafe fn is_simple(qp: &QueuePair, work: *const ibv_send_wr) -> bool {
    const _: () = assert!(IBV_WR_RDMA_WRITE | IBV_WR_RDMA_READ == IBV_WR_RDMA_READ);
    // SAFETY: as the caller promises.
    let (opcode, flags) = unsafe { ((*work).opcode, (*work).send_flags) };
    // The mask lets these two pass and no other.
    let has_remote = opcode & !IBV_WR_RDMA_READ == 0 && qp.queues.service() == Service::Connected;
    (has_remote || opcode == IBV_WR_SEND) && flags & IBV_SEND_INLINE == 0
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

/// Where a work request that [`is_simple`] goes: nowhere in particular, to the peer's memory,
/// or to some other queue pair.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Destination {
    Peer,
    Memory,
    Datagram,
}

impl Destination {
    /// That of a work request.
    ///
    /// # Safety
    /// There is one.
    #[inline(always)]
    unsafe fn of(qp: &QueuePair, work: *const ibv_send_wr) -> Destination {
        // SAFETY: as the caller promises.
        if unsafe { (*work).opcode } != IBV_WR_SEND {
            Destination::Memory
        } else if qp.queues.service() == Service::Connected {
            Destination::Peer
        } else {
            Destination::Datagram
        }
    }
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
        registers::forget();
        let header = header().bits();
        let (key, remote) = match destination() {
            Destination::Memory => {
                (registers::settled((*work).wr.rdma.rkey.into()), (*work).wr.rdma.remote_addr)
            }
            Destination::Peer => (0, 0),
            Destination::Datagram => match receiver(&(*work).wr.ud) {
                Ok((key, remote)) => (key.into(), remote),
                Err(_) => return false,
            },
        };
        let header = registers::settled(header | key);
        batch.set_remote(&single, remote);
        registers::forget();
        batch.finish_single(single, (*work).wr_id, SendHeader::from_bits(header));
    }
    true
}

/// Whether the data of a work request is to be taken into it. What is read cannot be: there the
/// flag has no meaning.
#[inline(always)]
fn is_inline(work: &ibv_send_wr) -> bool {
    has(work, IBV_SEND_INLINE) && work.opcode != IBV_WR_RDMA_READ
}

/// Places any work request.
///
/// # Safety
/// What the request points to is valid for its opcode, and the send lock is held.
#[inline(never)]
unsafe fn place_out_of_line<G: Generation>(qp: &QueuePair, work: &ibv_send_wr) -> Result<(), Refusal> {
    // SAFETY: as the caller promises.
    unsafe { if is_inline(work) { place_inline::<G>(qp, work) } else { place_fragments::<G>(qp, work) } }
}

/// Places a work request that is not [inline](is_inline).
///
/// # Safety
/// What the request points to is valid for its opcode, and the send lock is held.
#[inline(always)]
unsafe fn place_fragments<G: Generation>(qp: &QueuePair, work: &ibv_send_wr) -> Result<(), Refusal> {
    // SAFETY: as the caller promises.
    unsafe {
        let Some(message) = message_of(qp, work)? else { return place_without_data::<G>(qp, work) };
        let list = list_of(work.sg_list, work.num_sge)?;
        // What it places is announced by the caller.
        qp.queues.send.batch::<G>().fragments(&message.request, list, message.immediate)
    }
}

/// Places a work request that is [inline](is_inline).
///
/// # Safety
/// What the request points to is valid for its opcode, and the send lock is held.
#[inline(always)]
unsafe fn place_inline<G: Generation>(qp: &QueuePair, work: &ibv_send_wr) -> Result<(), Refusal> {
    // SAFETY: as the caller promises.
    unsafe {
        let Some(message) = message_of(qp, work)? else { return place_without_data::<G>(qp, work) };
        let list = list_of(work.sg_list, work.num_sge)?;
        // As above.
        qp.queues.send.batch::<G>().inline(&message.request, list, message.immediate)
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
