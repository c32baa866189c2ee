//! The two queues of a QP and what the poller must know of it.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::completion::Side;
use super::receive::{Messages, ReceiveQueue};
use super::send::SendQueue;
use crate::barrier;
use crate::format::ReceiveOpcodes;
use crate::generation::Generation;

/// What a QP's messages are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Of a connection, RoCE or iWARP.
    Connected,
    /// Datagrams.
    Datagram,
}

/// No position: those have 32 bits.
const NOT_KNOWN: u64 = u64::MAX;

/// The queues of a QP.
#[derive(Debug)]
#[repr(C)]
pub struct QueuePair {
    /// Send queue.
    pub send: SendQueue,
    /// Receive queue; of the smallest size and unused if the QP has a shared one.
    pub receive: ReceiveQueue,
    in_error: AtomicBool,
    /// Heads of the send and the receive queue when it became known that the QP is in
    /// error; [`NOT_KNOWN`] before.
    known_from: [AtomicU64; 2],
    send_abandoned: AtomicBool,
    receive_abandoned: AtomicBool,
}

impl QueuePair {
    /// A QP of these queues.
    pub fn new(
        send: SendQueue,
        mut receive: ReceiveQueue,
        service: Service,
        opcodes: ReceiveOpcodes,
    ) -> Self {
        receive.retired.messages = Messages { opcodes, service, origin: *send.origin() };
        Self {
            send,
            receive,
            in_error: AtomicBool::new(false),
            known_from: [const { AtomicU64::new(NOT_KNOWN) }; 2],
            send_abandoned: AtomicBool::new(false),
            receive_abandoned: AtomicBool::new(false),
        }
    }

    /// What its messages are.
    #[inline(always)]
    pub fn service(&self) -> Service {
        self.receive.retired.messages.service
    }

    /// Whether the QP is known to be in the error state, where the device flushes
    /// work requests only when asked to.
    ///
    /// Asked by a poster when it has posted; if so, [`posted_in_error`](Self::posted_in_error)
    /// is next.
    #[inline(always)]
    pub fn is_in_error(&self) -> bool {
        barrier::posted_before_error_check();
        self.in_error.load(Ordering::Relaxed)
    }

    /// What is to be done about a batch that began at position `start` and was posted to a QP
    /// known to be in error: whether the device must be asked to flush once more. Where it
    /// cannot be asked (GEN3), this gives the queue up if need be, and whoever polls it is to
    /// look for [work of this kind](super::Directory::note_abandoned).
    ///
    /// Nothing needs to be done if something else was outstanding in the queue: the CQE that
    /// the poller draws from, or that is still to come, covers all that it finds there.
    #[cold]
    pub fn posted_in_error<G: Generation>(&self, side: Side, start: u32) -> bool {
        let was_empty = match side {
            Side::Send => self.send.has_completed(start),
            Side::Receive => self.receive.has_completed(start),
        };
        if !G::FLUSHES_EACH {
            return was_empty;
        }
        // Work of before the error was known may be what has caused it: the device will say so.
        // Acquire: after `set_in_error`.
        let known_from = self.known_from[side as usize].load(Ordering::Acquire);
        if was_empty && start.wrapping_sub(known_from as u32) as i32 >= 0 {
            self.abandon(side);
        }
        false
    }

    /// Whether the device completes nothing more of a queue.
    pub(super) fn abandoned(&self, side: Side) -> &AtomicBool {
        match side {
            Side::Send => &self.send_abandoned,
            Side::Receive => &self.receive_abandoned,
        }
    }

    /// Notes that the QP is in the error state.
    #[inline]
    pub fn set_in_error(&self) {
        let heads = [self.send.head(), self.receive.head()];
        for (known_from, head) in self.known_from.iter().zip(heads) {
            // Whoever was first stays right.
            let _ = known_from.compare_exchange(NOT_KNOWN, head.into(), Ordering::Release, Ordering::Relaxed);
        }
        self.in_error.store(true, Ordering::Release);
    }
}
