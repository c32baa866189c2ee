//! Where a message of `ibv_post_send` goes, and the end of placing it.

use irdma_hw::format::SendHeader;
use irdma_hw::generation::WqeFormat;
use irdma_hw::queue::{SendBatch, Service, Started};
use irdma_hw::registers;
use rdma_core_sys::bindings::*;

use crate::qp::QueuePair;
use crate::send_header::with_key;
use crate::work_request::{REMOTE, receiver};

/// Where a message goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// Nowhere in particular.
    Peer,
    /// Into the peer's memory, or from there.
    Memory,
    /// To a word of the peer's memory.
    Word,
    /// To some queue pair.
    Datagram,
    /// To the peer, and takes a key of its away.
    Invalidating,
}

impl Destination {
    /// That of a send, or else of a write or read.
    #[inline(always)]
    pub fn of_plain(qp: &QueuePair, is_send: bool) -> Destination {
        if !is_send {
            Destination::Memory
        } else if qp.queues.service() == Service::Connected {
            Destination::Peer
        } else {
            Destination::Datagram
        }
    }

    /// That of any message.
    ///
    /// # Safety
    /// There is a work request.
    #[inline(always)]
    pub unsafe fn of(qp: &QueuePair, work: *const ibv_send_wr) -> Destination {
        // SAFETY: as the caller promises.
        let operation = unsafe { (*work).opcode };
        if REMOTE.has(operation) {
            Destination::Memory
        } else if qp.queues.service() == Service::Datagram {
            Destination::Datagram
        } else if operation == IBV_WR_SEND_WITH_INV {
            Destination::Invalidating
        } else {
            Destination::Peer
        }
    }
}

/// Header, of which the lower half is to come, and word 2 of a message; `None` if it has no receiver.
///
/// # Safety
/// The destination is that of the work request, and what it points to is valid for its operation.
#[inline(always)]
pub unsafe fn addressed(
    work: *const ibv_send_wr,
    destination: Destination,
    header: SendHeader,
) -> Option<(SendHeader, u64)> {
    // SAFETY: the members of the unions are those of the operation; the rest as the caller promises.
    unsafe {
        Some(match destination {
            Destination::Memory => {
                let rdma = &(*work).wr.rdma;
                (with_key(header, rdma.rkey), rdma.remote_addr)
            }
            Destination::Word => {
                let word = &(*work).wr.atomic;
                (with_key(header, word.rkey), word.remote_addr)
            }
            Destination::Peer => (header, 0),
            Destination::Invalidating => (with_key(header, (*work).__bindgen_anon_1.invalidate_rkey), 0),
            Destination::Datagram => {
                let (number, remote) = receiver(&(*work).wr.ud)?;
                (settled(with_key(header, number)), remote())
            }
        })
    }
}

/// Whether a message has a receiver, as far as it must name one.
///
/// # Safety
/// There is a work request.
#[inline(always)]
pub unsafe fn has_receiver(qp: &QueuePair, work: *const ibv_send_wr) -> bool {
    // SAFETY: the member of the union is that of sends, all that such a queue pair takes.
    qp.queues.service() == Service::Connected || unsafe { !(*work).wr.ud.ah.is_null() }
}

/// Places a message whose data is written; `false`, and nothing is placed, if it has no receiver.
/// Destination and header are asked for when they are needed.
///
/// # Safety
/// As for [`addressed`]; destination and header are those of the work request.
#[inline(always)]
pub unsafe fn finish_started<'queue, G: WqeFormat>(
    batch: &mut SendBatch<'queue, G>,
    work: *const ibv_send_wr,
    started: Started<'queue>,
    destination: impl FnOnce() -> Destination,
    header: impl FnOnce() -> SendHeader,
) -> bool {
    registers::forget();
    // SAFETY: as the caller promises.
    unsafe {
        let Some((header, remote)) = addressed(work, destination(), header()) else { return false };
        let header = settled(SendHeader::from_bits(header.bits() | started.data().bits()));
        batch.set_remote(&started, remote);
        registers::forget();
        batch.finish_whole(started, || (*work).wr_id, header);
    }
    true
}

/// A header that is in one register from here on.
#[inline(always)]
fn settled(header: SendHeader) -> SendHeader {
    SendHeader::from_bits(registers::settled(header.bits()))
}
