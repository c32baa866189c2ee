//! The two queues of a QP and what the poller must know of it.

use core::sync::atomic::{AtomicBool, Ordering};

use super::completion::Side;
use super::receive::ReceiveQueue;
use super::send::SendQueue;
use crate::format::ReceiveOpcodes;

/// What a QP's messages are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Of a connection, RoCE or iWARP.
    Connected,
    /// Datagrams.
    Datagram,
}

/// The queues of a QP.
#[derive(Debug)]
#[repr(C)]
pub struct QueuePair {
    /// Send queue.
    pub send: SendQueue,
    /// Receive queue; of the smallest size and unused if the QP has a shared one.
    pub receive: ReceiveQueue,
    service: Service,
    receive_opcodes: ReceiveOpcodes,
    in_error: AtomicBool,
    send_abandoned: AtomicBool,
    receive_abandoned: AtomicBool,
}

impl QueuePair {
    /// A QP of these queues.
    pub fn new(
        send: SendQueue,
        receive: ReceiveQueue,
        service: Service,
        receive_opcodes: ReceiveOpcodes,
    ) -> Self {
        Self {
            send,
            receive,
            service,
            receive_opcodes,
            in_error: AtomicBool::new(false),
            send_abandoned: AtomicBool::new(false),
            receive_abandoned: AtomicBool::new(false),
        }
    }

    /// What its messages are.
    #[inline(always)]
    pub fn service(&self) -> Service {
        self.service
    }

    #[inline(always)]
    pub(super) fn receive_opcodes(&self) -> ReceiveOpcodes {
        self.receive_opcodes
    }

    /// Whether the QP is known to be in the error state, where the device flushes
    /// work requests only when asked to.
    #[inline(always)]
    pub fn is_in_error(&self) -> bool {
        self.in_error.load(Ordering::Relaxed)
    }

    /// Whether the device completes nothing more of a queue.
    pub(super) fn abandoned(&self, side: Side) -> &AtomicBool {
        match side {
            Side::Send => &self.send_abandoned,
            Side::Receive => &self.receive_abandoned,
        }
    }

    /// Notes that the QP is in the error state.
    pub fn set_in_error(&self) {
        self.in_error.store(true, Ordering::Relaxed);
    }
}
