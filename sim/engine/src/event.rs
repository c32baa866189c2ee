//! Asynchronous events, as the hardware numbers them.

use crate::spec::{CqId, QpId, SrqId};

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A queue pair.
    Qp(QpId),
    /// A completion queue.
    Cq(CqId),
    /// A shared receive queue.
    Srq(SrqId),
}

/// One entry of the asynchronous event queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// The object.
    pub subject: Subject,
    /// Event code (AECODE; kernel: drivers/infiniband/hw/irdma/defs.h and type.h).
    pub code: u16,
    /// Which part of the device saw it.
    pub source: Source,
    /// WQE index (quanta) it concerns, where there is one.
    pub wqe_index: Option<u32>,
}

/// The source field of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Source {
    /// Receive queue.
    ReceiveQueue = 1,
    /// Completion queue.
    CompletionQueue = 2,
    /// Send queue.
    SendQueue = 5,
    /// Inbound RDMA read or write.
    InboundRdma = 9,
    /// Outbound RDMA read response.
    OutboundRead = 0xd,
}
