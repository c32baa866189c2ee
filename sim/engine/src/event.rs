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
    /// What happened, one of [`code`].
    pub code: u16,
    /// Which part of the device saw it.
    pub source: Source,
    /// WQE index (quanta) it concerns, where there is one.
    pub wqe_index: Option<u32>,
}

/// The source field of an event (kernel: `IRDMA_AE_SOURCE_*`, drivers/infiniband/hw/irdma/defs.h).
///
/// The driver gives the flush code of the event to the send queue for
/// [`Source::SendQueue`], to the receive queue for [`Source::ReceiveQueue`], and to
/// neither for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Source {
    /// Nobody in particular.
    Unspecified = 0,
    /// Receive queue.
    ReceiveQueue = 1,
    /// Completion queue.
    CompletionQueue = 2,
    /// Send queue.
    SendQueue = 5,
    /// Inbound RDMA write (or read response).
    InboundRdma = 9,
    /// Outbound RDMA read response.
    OutboundRead = 0xd,
}

/// Event codes (kernel: `IRDMA_AE_*`, drivers/infiniband/hw/irdma/user.h).
pub mod code {
    /// The STag's index names nothing.
    pub const BAD_STAG_INDEX: u16 = 0x0107;
    /// The STag names something that is not usable: an unbound window, an
    /// invalidated region, memory that is gone.
    pub const INVALID_STAG: u16 = 0x0103;
    /// A type-2 window bound on another queue pair.
    pub const BAD_QP: u16 = 0x0104;
    /// Another protection domain's memory.
    pub const BAD_PD: u16 = 0x0105;
    /// The STag's low byte is not the present key.
    pub const BAD_STAG_KEY: u16 = 0x0106;
    /// Outside the region or window.
    pub const BOUNDS_VIOLATION: u16 = 0x0108;
    /// The region or window does not allow it.
    pub const RIGHTS_VIOLATION: u16 = 0x0109;
    /// Address plus length runs over the end of the address space.
    pub const ADDRESS_WRAP: u16 = 0x010a;
    /// Registration by a work request of a region that is valid.
    pub const FAST_REGISTER_VALID_STAG: u16 = 0x010c;
    /// Registration where the STag is a window's.
    pub const FAST_REGISTER_OF_WINDOW: u16 = 0x010d;
    /// Registration of nothing, or of more than was set aside.
    pub const FAST_REGISTER_INVALID_LENGTH: u16 = 0x0110;
    /// Invalidation by the peer of something it has no right to.
    pub const INVALIDATE_NO_REMOTE_ACCESS: u16 = 0x0112;
    /// Invalidation of a region that has windows.
    pub const INVALIDATE_REGION_WITH_WINDOWS: u16 = 0x0113;
    /// Bind of a type-2 window that is bound.
    pub const BIND_VALID_STAG: u16 = 0x0114;
    /// Bind where the window's STag is a region's.
    pub const BIND_OF_REGION_STAG: u16 = 0x0115;
    /// Bind to a zero-based region.
    pub const BIND_TO_ZERO_BASED: u16 = 0x0116;
    /// Bind to another window.
    pub const BIND_TO_WINDOW_STAG: u16 = 0x0117;
    /// Bind with rights that the region does not have.
    pub const BIND_INVALID_RIGHTS: u16 = 0x0118;
    /// Bind outside the region.
    pub const BIND_INVALID_BOUNDS: u16 = 0x0119;
    /// Bind to nothing.
    pub const BIND_INVALID_PARENT: u16 = 0x011a;
    /// Bind to a region that does not allow windows.
    pub const BIND_DISABLED: u16 = 0x011b;
    /// Registration by a queue pair that is not the kernel's own.
    pub const PRIVILEGED_OPERATION: u16 = 0x011c;
    /// Invalidation of a type-1 window.
    pub const INVALIDATE_TYPE1_WINDOW: u16 = 0x011d;
    /// A zero-based type-1 window.
    pub const BIND_ZERO_BASED_TYPE1: u16 = 0x011e;
    /// Registration with pages that cannot be.
    pub const FAST_REGISTER_INVALID_PAGES: u16 = 0x011f;
    /// Bind of one kind of window as the other.
    pub const BIND_WRONG_TYPE: u16 = 0x0120;
    /// A datagram above the MTU.
    pub const DATAGRAM_TOO_LONG: u16 = 0x0132;
    /// The address handle is another protection domain's.
    pub const DATAGRAM_BAD_PD: u16 = 0x0133;
    /// A completion queue failed: overflow, or its memory is gone.
    pub const CQ_OPERATION_ERROR: u16 = 0x0203;
    /// A read where none may be outstanding.
    pub const READ_WHILE_ORD_ZERO: u16 = 0x0205;
    /// A read arrived where none is accepted.
    pub const READ_QUEUE_FULL: u16 = 0x0207;
    /// A request that the receiving side does not serve.
    pub const INVALID_REQUEST: u16 = 0x0208;
    /// A shared receive queue fell below its limit.
    pub const SRQ_LIMIT: u16 = 0x0209;
    /// An opcode this queue does not know.
    pub const UNEXPECTED_OPCODE: u16 = 0x020a;
    /// A WQE field out of range.
    pub const WQE_INVALID_PARAMETER: u16 = 0x020b;
    /// A WQE's fragments make no sense.
    pub const WQE_INVALID_FRAGMENTS: u16 = 0x020c;
    /// The peer refused the access.
    pub const REMOTE_ACCESS_ERROR: u16 = 0x020d;
    /// The peer could not do it.
    pub const REMOTE_OPERATION_ERROR: u16 = 0x020e;
    /// A shared receive queue failed.
    pub const SRQ_CATASTROPHIC: u16 = 0x020f;
    /// An atomic's address is not a multiple of eight.
    pub const ATOMIC_ALIGNMENT: u16 = 0x0221;
    /// A message longer than the receive that it met.
    pub const MESSAGE_TOO_LONG: u16 = 0x0303;
    /// A message longer than any may be (2 GiB).
    pub const INVALID_MESSAGE_OFFSET: u16 = 0x0305;
    /// The address handle names nothing.
    pub const INVALID_ADDRESS_HANDLE: u16 = 0x0406;
    /// No answer, as often as was allowed.
    pub const TOO_MANY_RETRIES: u16 = 0x050a;
    /// The first message reached a queue pair that is ready to receive.
    pub const CONNECTION_ESTABLISHED: u16 = 0x050e;
    /// The peer had no receive, as often as was allowed.
    pub const TOO_MANY_RNRS: u16 = 0x050f;
    /// The queue pair's own memory or completion queue failed.
    pub const LOCAL_QP_CATASTROPHIC: u16 = 0x0704;
    /// A send queue has come to rest.
    pub const SUSPEND_COMPLETE: u16 = 0x0900;
}
