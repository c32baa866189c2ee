//! Why a work request was refused: the errno, and a line in the log that says so.
//!
//! Posts come here once they have refused something, and only then: what was wrong is found
//! out anew from the work request, so that the common way carries no reasons along. The C
//! library does the formatting, and only if somebody listens.

use core::ffi::{CStr, c_int, c_longlong, c_ulonglong};

use irdma_hw::queue::Refusal;
use rdma_core_sys::bindings::*;

use crate::context::Context;
use crate::log::{self, Destination, Level};
use crate::post_recv::errno_of;
use crate::qp::QueuePair;
use crate::srq::SharedReceiveQueue;

/// Longest piece of a list on the devices that limit it.
const LONGEST_PIECE: u32 = 0x7FFF_FFFF;

/// More elements than a list can have on any device.
const MOST_PIECES: c_int = 16;

/// A line's text about a reason, which takes the value asked for and the limit.
macro_rules! text {
    ($text:literal) => {
        const {
            let line = concat!("%s: irdma: %s %u: %s of wr_id 0x%llx refused: ", $text, "\n\0");
            match CStr::from_bytes_with_nul(line.as_bytes()) {
                Ok(line) => line,
                Err(_) => panic!("one NUL, at the end"),
            }
        }
    };
}

/// A reason.
struct Reason {
    /// Made by [`text!`].
    text: &'static CStr,
    asked: c_longlong,
    limit: c_ulonglong,
}

impl Reason {
    fn new(text: &'static CStr, asked: impl Into<i128>, limit: impl Into<u64>) -> Reason {
        Reason { text, asked: asked.into() as c_longlong, limit: limit.into() }
    }
}

/// A refused send; its errno.
///
/// # Safety
/// What the work request points to is valid for its opcode.
#[cold]
#[inline(never)]
pub unsafe fn send(qp: &QueuePair, work: &ibv_send_wr, refusal: Refusal) -> c_int {
    let reason = match refusal {
        Refusal::Full => full(qp.created.max_send_wr),
        // SAFETY: as the caller promises.
        Refusal::Invalid => unsafe { why_send(qp, work) },
    };
    say_queue_pair(qp, c"post_send", work.wr_id, refusal, &reason);
    errno_of(refusal)
}

/// A refused receive; its errno.
///
/// # Safety
/// The list of the work request is valid.
#[cold]
#[inline(never)]
pub unsafe fn receive(qp: &QueuePair, work: &ibv_recv_wr, refusal: Refusal) -> c_int {
    let reason = match refusal {
        _ if qp.shared.is_some() => Reason::new(text!("receives come from its shared queue"), 0, 0u8),
        Refusal::Full => full(qp.created.max_recv_wr),
        // SAFETY: as the caller promises.
        Refusal::Invalid => unsafe { why_list(work.sg_list, work.num_sge, qp.created.max_recv_sge) },
    };
    say_queue_pair(qp, c"post_recv", work.wr_id, refusal, &reason);
    errno_of(refusal)
}

/// A refused receive of a shared queue; its errno.
///
/// # Safety
/// The list of the work request is valid.
#[cold]
#[inline(never)]
pub unsafe fn shared_receive(srq: &SharedReceiveQueue, work: &ibv_recv_wr, refusal: Refusal) -> c_int {
    let created = srq.created();
    let reason = match refusal {
        Refusal::Full => full(created.max_wr),
        // SAFETY: as the caller promises.
        Refusal::Invalid => unsafe { why_list(work.sg_list, work.num_sge, created.max_sge) },
    };
    // SAFETY: the queue is alive.
    unsafe {
        let srq = srq.as_ibv();
        say((*srq).context, c"SRQ", (*srq).handle, c"post_srq_recv", work.wr_id, refusal, &reason);
    }
    errno_of(refusal)
}

/// What has failed a batch of builders.
#[derive(Clone, Copy, Debug)]
pub enum BatchFailure {
    /// There is no batch.
    NotStarted,
    /// The work request added last lacks its data or its destination.
    Unfinished,
    /// A builder or setter was called out of turn, or with what is not possible.
    Invalid,
    /// The queue is full.
    Full,
}

impl From<Refusal> for BatchFailure {
    fn from(refusal: Refusal) -> BatchFailure {
        match refusal {
            Refusal::Invalid => BatchFailure::Invalid,
            Refusal::Full => BatchFailure::Full,
        }
    }
}

/// A batch that is not posted; the errno for it. `wr_id` is that of the work request that was
/// being built.
#[cold]
#[inline(never)]
pub fn batch(qp: &QueuePair, wr_id: u64, failure: BatchFailure) -> c_int {
    let (refusal, reason) = match failure {
        BatchFailure::NotStarted => {
            (Refusal::Invalid, Reason::new(text!("no ibv_wr_start, or nothing but misplaced calls"), 0, 0u8))
        }
        BatchFailure::Unfinished => {
            (Refusal::Invalid, Reason::new(text!("the last request lacks data or destination"), 0, 0u8))
        }
        BatchFailure::Invalid => {
            let text = text!("a builder or setter is out of turn, not this queue pair's, or over its limits");
            (Refusal::Invalid, Reason::new(text, 0, 0u8))
        }
        BatchFailure::Full => (Refusal::Full, full(qp.created.max_send_wr)),
    };
    say_queue_pair(qp, c"ibv_wr_complete", wr_id, refusal, &reason);
    errno_of(refusal)
}

fn full(limit: u32) -> Reason {
    Reason::new(text!("the queue is full: %lld more, limit %llu"), 1, limit)
}

/// What is wrong with a send.
///
/// # Safety
/// As for [`send`].
unsafe fn why_send(qp: &QueuePair, work: &ibv_send_wr) -> Reason {
    let opcode = work.opcode;
    if opcode > 31 || qp.postable >> opcode & 1 == 0 {
        let text = text!("opcode %lld is none of this queue pair's, which are the bits of 0x%llx");
        return Reason::new(text, opcode, qp.postable);
    }
    // SAFETY: the members of the unions are those of the opcode; the rest as the caller promises.
    unsafe {
        let context = Context::of((*qp.as_ibv()).context);
        let is_datagram = (*qp.as_ibv()).qp_type == IBV_QPT_UD;
        let (list, count) = (work.sg_list, work.num_sge);
        match opcode {
            IBV_WR_BIND_MW => why_bind(work),
            IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD => {
                if !work.wr.atomic.remote_addr.is_multiple_of(8) {
                    let text = text!("an atomic's remote address is a multiple of 8, not 0x%llx");
                    return Reason::new(text, work.wr.atomic.remote_addr, 8u8);
                }
                if count != 1 {
                    let text = text!("an atomic takes one piece of 8 bytes; num_sge %lld, limit %llu");
                    return Reason::new(text, count, 1u8);
                }
                match list.as_ref() {
                    None => why_list(list, count, 1),
                    Some(piece) => {
                        let text = text!("an atomic's piece has %lld bytes, not %llu");
                        Reason::new(text, piece.length, size_of::<u64>() as u8)
                    }
                }
            }
            _ if is_datagram && work.wr.ud.ah.is_null() => {
                Reason::new(text!("the address handle is NULL"), 0, 0u8)
            }
            IBV_WR_RDMA_READ => {
                why_list(list, count, qp.created.max_send_sge.min(context.limits().max_read_fragments.into()))
            }
            _ if work.send_flags & IBV_SEND_INLINE != 0 => why_inline(qp, list, count),
            IBV_WR_SEND_WITH_IMM | IBV_WR_RDMA_WRITE_WITH_IMM => {
                if !may_have(count, qp.created.max_send_sge) || !is_fit(list, count) {
                    return why_list(list, count, qp.created.max_send_sge);
                }
                // What is left, as without the immediate nothing is wrong.
                let text = text!("num_sge %lld and an immediate together exceed the device's limit of %llu");
                Reason::new(text, count, context.limits().max_fragments)
            }
            _ => why_list(list, count, qp.created.max_send_sge),
        }
    }
}

/// What is wrong with inline data.
///
/// # Safety
/// The list has `count` elements, unless it is NULL or that is more than the queue pair allows.
unsafe fn why_inline(qp: &QueuePair, list: *const ibv_sge, count: c_int) -> Reason {
    let most = qp.created.max_send_sge;
    // SAFETY: as the caller promises.
    unsafe {
        if !may_have(count, most) {
            return why_list(list, count, most);
        }
        match total(list, count) {
            Some(length) if length > qp.created.max_inline_data.into() => {
                let text = text!("%lld inline bytes, limit %llu");
                Reason::new(text, length, qp.created.max_inline_data)
            }
            Some(_) => Reason::new(text!("the device has no room for inline data with an immediate"), 0, 0u8),
            None => why_list(list, count, most),
        }
    }
}

/// What is wrong with a bind.
///
/// # Safety
/// Window and region are alive, unless they are NULL.
unsafe fn why_bind(work: &ibv_send_wr) -> Reason {
    // SAFETY: the member of the opcode.
    let bind = unsafe { work.__bindgen_anon_2.bind_mw };
    if bind.mw.is_null() || bind.bind_info.mr.is_null() {
        return Reason::new(text!("the bind names no window or no region"), 0, 0u8);
    }
    Reason::new(text!("a window of type 2 on a region with IBV_ACCESS_ZERO_BASED"), 0, 0u8)
}

/// Whether a list of `count` elements is one of at most `most`. One that is not has been refused
/// unread, and is not read to find out why: nothing says that it is there.
fn may_have(count: c_int, most: u32) -> bool {
    u32::try_from(count).is_ok_and(|count| count <= most)
}

/// What is wrong with a list that may have `most` elements.
///
/// # Safety
/// The list has `count` elements, unless it is NULL or that is more than `most`.
unsafe fn why_list(list: *const ibv_sge, count: c_int, most: u32) -> Reason {
    if !may_have(count, most) {
        return Reason::new(text!("num_sge %lld, limit %llu"), count, most);
    }
    // SAFETY: as the caller promises.
    match unsafe { total(list, count) } {
        None => Reason::new(text!("sg_list is NULL with num_sge %lld"), count, 0u8),
        Some(bytes) if bytes > u32::MAX.into() => {
            Reason::new(text!("a message of %lld bytes, limit %llu"), bytes, u32::MAX)
        }
        // What is left: a single piece is too long.
        Some(bytes) => Reason::new(
            text!("a piece of a message of %lld bytes exceeds the limit of %llu"),
            bytes,
            LONGEST_PIECE,
        ),
    }
}

/// Whether a message can consist of that list.
///
/// # Safety
/// The list has `count` elements, unless it is NULL.
unsafe fn is_fit(list: *const ibv_sge, count: c_int) -> bool {
    // SAFETY: as the caller promises; it has elements if it has a total.
    unsafe {
        total(list, count).is_some_and(|bytes| bytes <= u32::MAX.into())
            && (0..count.clamp(0, MOST_PIECES) as usize)
                .all(|index| (*list.add(index)).length <= LONGEST_PIECE)
    }
}

/// Bytes of a list; `None` if there is no list.
///
/// # Safety
/// The list has `count` elements, unless it is NULL.
unsafe fn total(list: *const ibv_sge, count: c_int) -> Option<u64> {
    let mut bytes = 0;
    for index in 0..count.clamp(0, MOST_PIECES) as usize {
        // SAFETY: as the caller promises.
        bytes += u64::from(unsafe { list.add(index).as_ref() }?.length);
    }
    Some(bytes)
}

/// Writes the line about a queue pair.
fn say_queue_pair(qp: &QueuePair, verb: &CStr, wr_id: u64, refusal: Refusal, reason: &Reason) {
    let raw = qp.as_ibv();
    // SAFETY: the queue pair is alive, its context open.
    unsafe { say((*raw).context, c"QP", (*raw).qp_num, verb, wr_id, refusal, reason) }
}

/// Writes the line.
///
/// # Safety
/// `context` is open.
unsafe fn say(
    context: *mut ibv_context,
    object: &CStr,
    number: u32,
    verb: &CStr,
    wr_id: u64,
    refusal: Refusal,
    reason: &Reason,
) {
    let level = match refusal {
        Refusal::Invalid => Level::Error,
        // Programs may post until the queue is full on purpose.
        Refusal::Full => Level::Debug,
    };
    let (object, verb) = (object.as_ptr(), verb.as_ptr());
    let (wr_id, text) = (wr_id as c_ulonglong, reason.text.as_ptr());
    // SAFETY: as the caller promises; the text takes these, in this order.
    unsafe {
        let device = log::device_name(context);
        match log::destination(context, level) {
            Destination::StandardError => {
                log::dprintf(
                    libc::STDERR_FILENO,
                    text,
                    device,
                    object,
                    number,
                    verb,
                    wr_id,
                    reason.asked,
                    reason.limit,
                );
            }
            Destination::Libibverbs(verbs) => __verbs_log(
                verbs,
                level as u32,
                text,
                device,
                object,
                number,
                verb,
                wr_id,
                reason.asked,
                reason.limit,
            ),
        }
    }
}
