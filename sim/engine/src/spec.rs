//! What the front hands over when it creates, changes or asks for an object.

use std::time::Duration;

/// A protection domain.
pub type PdId = u32;
/// A completion queue, as it stands in arming doorbells.
pub type CqId = u32;
/// A queue pair number.
pub type QpId = u32;
/// A shared receive queue.
pub type SrqId = u32;
/// An address handle, as it stands in a UD send.
pub type AhId = u32;
/// A NIC function of the fabric (one per PCI function; the software device has one or more).
pub type FunctionId = u32;
/// Lkey, rkey, STag: index in the upper 24 bits, consumer's key in the lower 8.
pub type Key = u32;
/// A GID; IPv4 addresses are mapped (`::ffff:a.b.c.d`).
pub type Gid = [u8; 16];

/// Hardware generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Generation {
    /// X722, iWARP.
    Gen1,
    /// E810 family.
    Gen2,
    /// IPU E2000 and later.
    Gen3,
}

/// What the device is; the front reports the same numbers to its drivers.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// Which WQE and CQE rules hold.
    pub generation: Generation,
    /// Bytes of a CQE slot: 32 or 64.
    pub cqe_size: usize,
    /// Largest datagram payload in bytes (the port's MTU).
    pub port_mtu: u32,
    /// Seed of everything the device chooses at random (keys, initial QP numbers).
    pub seed: u64,
}

/// Rights of a memory region or window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// May be written by local receives and read responses.
    pub local_write: bool,
    /// May be written by the remote side.
    pub remote_write: bool,
    /// May be read by the remote side.
    pub remote_read: bool,
    /// May be the target of remote atomics.
    pub remote_atomic: bool,
    /// A window may be bound to it.
    pub window_bind: bool,
    /// Addresses count from zero instead of from the base address.
    pub zero_based: bool,
}

/// A ring or shadow area inside memory the device was given.
#[derive(Clone, Debug)]
pub struct Span<B> {
    /// The memory.
    pub backing: B,
    /// First byte.
    pub offset: u64,
}

/// A memory region.
#[derive(Clone, Debug)]
pub struct MemoryRegion<B> {
    /// Owner.
    pub pd: PdId,
    /// Address (iova) of its first byte.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// Rights.
    pub access: Access,
    /// Its memory; offset 0 is `address`.
    pub backing: B,
}

/// The two kinds of memory window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowKind {
    /// Bound with `ibv_bind_mw`; belongs to its protection domain.
    Type1,
    /// Bound with a work request; belongs to the queue pair it was bound on.
    Type2,
}

/// A completion queue's ring.
#[derive(Clone, Debug)]
pub struct CqRing<B> {
    /// Where it starts.
    pub ring: Span<B>,
    /// CQE slots.
    pub entries: u32,
}

/// A completion queue.
#[derive(Clone, Debug)]
pub struct CqSpec<B> {
    /// Ring.
    pub ring: CqRing<B>,
    /// 64-byte shadow area (head at 0, arm word at 32).
    pub shadow: Span<B>,
}

/// Transport service of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Reliable connection over RoCEv2.
    ReliableConnection,
    /// Unreliable datagram over RoCEv2.
    UnreliableDatagram,
    /// iWARP.
    Iwarp,
}

/// A queue pair at creation, state RESET.
#[derive(Clone, Debug)]
pub struct QpSpec<B> {
    /// The function it sends from.
    pub function: FunctionId,
    /// Owner.
    pub pd: PdId,
    /// Transport.
    pub service: Service,
    /// CQ of the send queue.
    pub send_cq: CqId,
    /// CQ of the receive queue.
    pub recv_cq: CqId,
    /// Receives come from here instead of from the receive queue.
    pub srq: Option<SrqId>,
    /// Send ring.
    pub sq: Span<B>,
    /// Its size in quanta.
    pub sq_quanta: u32,
    /// Receive ring.
    pub rq: Span<B>,
    /// Its size in quanta.
    pub rq_quanta: u32,
    /// Quanta per receive WQE.
    pub rq_wqe_quanta: u32,
    /// 64-byte shadow area.
    pub shadow: Span<B>,
    /// Comes back in q1 of its CQEs.
    pub completion_context: u64,
}

/// A shared receive queue.
#[derive(Clone, Debug)]
pub struct SrqSpec<B> {
    /// Owner.
    pub pd: PdId,
    /// Ring.
    pub ring: Span<B>,
    /// Its size in quanta.
    pub quanta: u32,
    /// Quanta per WQE.
    pub wqe_quanta: u32,
    /// 64-byte shadow area (producer index at 0).
    pub shadow: Span<B>,
}

/// Queue pair states of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpState {
    /// Created, nothing set.
    Reset,
    /// Receives may be posted.
    Init,
    /// Receives are served.
    ReadyToReceive,
    /// Sends are served.
    ReadyToSend,
    /// Sends are held back.
    SendQueueDrained,
    /// Nothing is served; outstanding work is flushed on request.
    Error,
}

/// Change of a queue pair; `None` keeps a value.
#[derive(Clone, Debug, Default)]
pub struct QpChange {
    /// State to go to. The front has checked that the transition is a legal one.
    pub state: Option<QpState>,
    /// Remote reads, writes, atomics accepted.
    pub access: Option<Access>,
    /// Peer.
    pub destination_gid: Option<Gid>,
    /// GID sent from.
    pub source_gid: Option<Gid>,
    /// Peer's number.
    pub destination_qp: Option<QpId>,
    /// Q_Key accepted (UD).
    pub q_key: Option<u32>,
    /// P_Key.
    pub p_key: Option<u16>,
    /// Bytes per packet.
    pub path_mtu: Option<u32>,
    /// Time without an answer after which a send is tried again; zero: for ever.
    pub timeout: Option<Duration>,
    /// Tries after a time-out.
    pub retry_count: Option<u8>,
    /// Tries after receiver not ready; 7: for ever.
    pub rnr_retry: Option<u8>,
    /// How long a peer is told to wait when no receive is there.
    pub min_rnr_timer: Option<Duration>,
    /// Reads and atomics outstanding as requester.
    pub max_rd_atomic: Option<u32>,
    /// Reads and atomics accepted as responder.
    pub max_dest_rd_atomic: Option<u32>,
    /// First PSN sent.
    pub sq_psn: Option<u32>,
    /// First PSN expected.
    pub rq_psn: Option<u32>,
    /// Traffic class, hop limit, flow label: carried into the GRH of datagrams.
    pub traffic_class: Option<u8>,
}

/// Destination of datagrams.
#[derive(Clone, Debug)]
pub struct AddressHandle {
    /// Owner.
    pub pd: PdId,
    /// The function it sends from.
    pub function: FunctionId,
    /// GID sent from.
    pub source_gid: Gid,
    /// Destination, unicast or multicast.
    pub destination_gid: Gid,
    /// Traffic class of the GRH.
    pub traffic_class: u8,
    /// Hop limit of the GRH.
    pub hop_limit: u8,
    /// Flow label of the GRH.
    pub flow_label: u32,
}

/// A refused request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineError {
    /// No such object.
    NotFound,
    /// Others still use it.
    Busy,
    /// A value is out of range.
    Invalid,
    /// No room.
    Exhausted,
    /// Memory handed to the device could not be reached.
    Fault,
}

impl std::fmt::Display for EngineError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::NotFound => "no such object",
            Self::Busy => "the object is still in use",
            Self::Invalid => "a value is out of range",
            Self::Exhausted => "no room",
            Self::Fault => "memory could not be reached",
        })
    }
}

impl std::error::Error for EngineError {}
