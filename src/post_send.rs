//! `ibv_post_send`.

use core::ffi::c_int;
use core::mem::offset_of;

use irdma_hw::format::{DatagramDestination, SendHeader};
use irdma_hw::generation::{Gen1, Gen2, Gen3, Generation, WithPush};
use irdma_hw::limits::HardwareGeneration;
use irdma_hw::queue::{Atomic, Bind, Refusal, SendBatch, SendRequest, Service, Sge, Side};
use irdma_hw::registers;
use rdma_core_sys::bindings::*;

use crate::ah::AddressHandle;
use crate::post_recv::list_of;
use crate::qp::QueuePair;
use crate::qp_state::posted_in_error;
use crate::refusal;
use crate::send_header;

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

/// The header of a work request, without its lower half.
///
/// # Safety
/// There is one.
#[inline(always)]
unsafe fn header_of(qp: &QueuePair, work: *const ibv_send_wr) -> SendHeader {
    // SAFETY: as the caller promises.
    unsafe { send_header::of((*work).opcode, (*work).send_flags | qp.always) }
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

/// A work request that moves a message, without its data.
struct Message {
    request: SendRequest,
    immediate: Option<u32>,
}

/// The message of a work request; `None` if it is not about moving one.
///
/// # Safety
/// What the request points to is valid for its opcode.
#[inline(always)]
unsafe fn message_of(qp: &QueuePair, work: &ibv_send_wr) -> Result<Option<Message>, Refusal> {
    let opcode = work.opcode;
    if opcode > 31 || qp.postable >> opcode & 1 == 0 {
        return Err(Refusal::Invalid);
    }
    // SAFETY: the members of the unions are those of the opcode; the rest as the caller promises.
    unsafe {
        let (key, remote) = match opcode {
            IBV_WR_SEND | IBV_WR_SEND_WITH_IMM if qp.queues.service() == Service::Datagram => {
                receiver(&work.wr.ud)?
            }
            IBV_WR_SEND | IBV_WR_SEND_WITH_IMM => (0, 0),
            IBV_WR_SEND_WITH_INV => (work.__bindgen_anon_1.invalidate_rkey, 0),
            IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM | IBV_WR_RDMA_READ => {
                (work.wr.rdma.rkey, work.wr.rdma.remote_addr)
            }
            _ => return Ok(None),
        };
        let header = send_header::with_key(header_of(qp, work), key);
        let immediate = matches!(opcode, IBV_WR_SEND_WITH_IMM | IBV_WR_RDMA_WRITE_WITH_IMM)
            .then(|| u32::from_be(work.__bindgen_anon_1.imm_data));
        Ok(Some(Message { request: SendRequest { wr_id: work.wr_id, header, remote }, immediate }))
    }
}

/// Places a work request that is not about moving messages.
///
/// # Safety
/// What the request points to is valid for its opcode, and the send lock is held.
#[inline(never)]
unsafe fn place_without_data<G: Generation>(qp: &QueuePair, work: &ibv_send_wr) -> Result<(), Refusal> {
    // SAFETY: the members of the unions are those of the opcode; the rest as the caller promises.
    unsafe {
        // What it places is announced by the caller.
        let batch = &mut qp.queues.send.batch::<G>();
        let mut request = SendRequest { wr_id: work.wr_id, header: header_of(qp, work), remote: 0 };
        match work.opcode {
            IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD => {
                request.remote = work.wr.atomic.remote_addr;
                request.header = request.header.with_remote_key(work.wr.atomic.rkey);
                let list = list_of(work.sg_list, work.num_sge)?;
                place_atomic(batch, request, work, list)
            }
            IBV_WR_LOCAL_INV => batch.invalidate(&request, work.__bindgen_anon_1.invalidate_rkey),
            IBV_WR_BIND_MW => place_bind(qp, batch, request, work),
            _ => Err(Refusal::Invalid),
        }
    }
}

/// The receiver of a datagram: lower half of the header, and word 2.
///
/// # Safety
/// The address handle is alive, unless it is NULL.
#[inline(always)]
unsafe fn receiver(to: &ibv_send_wr__bindgen_ty_2__bindgen_ty_3) -> Result<(u32, u64), Refusal> {
    if to.ah.is_null() {
        return Err(Refusal::Invalid);
    }
    let remote = DatagramDestination::default().with_q_key(to.remote_qkey).with_queue_pair(to.remote_qpn);
    // SAFETY: as the caller promises.
    Ok((unsafe { AddressHandle::number_of(to.ah) }, remote.bits()))
}

/// Places an atomic.
fn place_atomic<G: Generation>(
    batch: &mut SendBatch<'_, G>,
    request: SendRequest,
    work: &ibv_send_wr,
    list: &[Sge],
) -> Result<(), Refusal> {
    // SAFETY: the member of the opcode.
    let operands = unsafe { work.wr.atomic };
    let atomic = if work.opcode == IBV_WR_ATOMIC_CMP_AND_SWP {
        Atomic { operand: operands.swap, compare: operands.compare_add }
    } else {
        Atomic { operand: operands.compare_add, compare: 0 }
    };
    batch.atomic(&request, list, atomic)
}

/// Places a window bind; a window of type 2 has its new key once that is done.
///
/// # Safety
/// Window and region are alive, unless they are NULL.
unsafe fn place_bind<G: Generation>(
    qp: &QueuePair,
    batch: &mut SendBatch<'_, G>,
    request: SendRequest,
    work: &ibv_send_wr,
) -> Result<(), Refusal> {
    // SAFETY: the member of the opcode, and as the caller promises.
    unsafe {
        let work = work.__bindgen_anon_2.bind_mw;
        let window = work.mw.as_mut().ok_or(Refusal::Invalid)?;
        let bind = bind_of(qp, window, work.rkey, &work.bind_info)?;
        batch.bind(&request, &bind)?;
        if !bind.type_1 {
            window.rkey = bind.window_key;
        }
    }
    Ok(())
}

/// A bind as the hardware half takes it; a window of type 2 takes the low byte of `rkey` only.
///
/// # Safety
/// The region is alive, unless it is NULL.
pub unsafe fn bind_of(
    qp: &QueuePair,
    window: &ibv_mw,
    rkey: u32,
    asked: &ibv_mw_bind_info,
) -> Result<Bind, Refusal> {
    // SAFETY: as the caller promises; every region is inside a verbs_mr, as its first field.
    let region = unsafe { asked.mr.cast::<verbs_mr>().as_ref() }.ok_or(Refusal::Invalid)?;
    let type_1 = window.type_ == IBV_MW_TYPE_1;
    if !type_1 && region.access as u32 & IBV_ACCESS_ZERO_BASED != 0 {
        return Err(Refusal::Invalid);
    }
    let allows = |right: ibv_access_flags| asked.mw_access_flags & right != 0;
    let has_atomics = qp.postable >> IBV_WR_ATOMIC_FETCH_AND_ADD & 1 != 0;
    Ok(Bind {
        window_key: if type_1 { rkey } else { window.rkey & !0xFF | rkey & 0xFF },
        region_key: region.ibv_mr.rkey,
        address: (!allows(IBV_ACCESS_ZERO_BASED)).then_some(asked.addr),
        length: asked.length,
        remote_read: allows(IBV_ACCESS_REMOTE_READ),
        remote_write: allows(IBV_ACCESS_REMOTE_WRITE),
        remote_atomic: has_atomics && allows(IBV_ACCESS_REMOTE_ATOMIC),
        type_1,
    })
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
