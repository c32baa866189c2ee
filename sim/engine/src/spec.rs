//! What the front hands over when it creates, changes or asks for an object.

use std::time::Duration;

/// A NIC function of the fabric (one per PCI function; the software device has one).
pub type FunctionId = u32;
/// Names an object: every function numbers its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    /// The function it belongs to.
    pub function: FunctionId,
    /// Its number there.
    pub number: u32,
}
/// A protection domain.
pub type PdId = Id;
/// A completion queue; its number stands in arming doorbells.
pub type CqId = Id;
/// A queue pair.
pub type QpId = Id;
/// A shared receive queue.
pub type SrqId = Id;
/// An address handle; its number stands in a UD send.
pub type AhId = Id;
/// Lkey, rkey, STag: index in the upper 24 bits, consumer's key in the lower 8. Every function
/// has keys of its own.
pub type Key = u32;
/// An Ethernet address.
pub type Mac = [u8; 6];
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

impl Access {
    /// From the rights bits of registrations (kernel: `IRDMA_ACCESS_FLAGS_*`,
    /// drivers/infiniband/hw/irdma/user.h), which say nothing of atomics and bases.
    pub fn from_rights(bits: u64) -> Self {
        Self {
            local_write: bits & 0x02 != 0,
            remote_read: bits & 0x04 != 0,
            remote_write: bits & 0x08 != 0,
            window_bind: bits & 0x10 != 0,
            ..Self::default()
        }
    }
}

/// Size of the pages that a registration is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageSize {
    /// 4 KiB.
    Small,
    /// 2 MiB.
    Large,
    /// 1 GiB.
    Huge,
}

impl PageSize {
    /// From its code in registrations (kernel: `enum irdma_page_size`).
    pub fn from_code(code: u64) -> Option<Self> {
        match code {
            0 => Some(Self::Small),
            1 => Some(Self::Large),
            2 => Some(Self::Huge),
            _ => None,
        }
    }

    /// Bytes of a page.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Small => 1 << 12,
            Self::Large => 1 << 21,
            Self::Huge => 1 << 30,
        }
    }
}

/// How the device finds the pages of a registration (kernel: `LPBLSIZE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Translation {
    /// They follow each other from this physical address on.
    Contiguous(u64),
    /// Page list entries from this one on hold their addresses.
    OneLevel(u32),
    /// Page list entries from this one on name blocks of 512 entries that hold their addresses.
    TwoLevels(u32),
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
    /// Owner, of the same function.
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
    /// Bytes of a slot: 32 or 64.
    pub slot_bytes: usize,
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
    /// Owner, whose function it sends from.
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
    /// Of a queue pair that the kernel keeps to itself: what key 0 opens to its own work, at
    /// offsets that are addresses. It may also register memory by work requests.
    pub privileged: Option<B>,
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
    /// Another owner, of the same function: a driver may tell it late.
    pub pd: Option<PdId>,
    /// Remote reads, writes, atomics accepted.
    pub access: Option<Access>,
    /// Peer.
    pub destination_gid: Option<Gid>,
    /// GID sent from.
    pub source_gid: Option<Gid>,
    /// Next hop to the peer: decides, where it is given, which function the peer is on.
    pub destination_mac: Option<Mac>,
    /// Peer's number.
    pub destination_qp: Option<u32>,
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
    /// Owner, whose function it sends from.
    pub pd: PdId,
    /// GID sent from.
    pub source_gid: Gid,
    /// Destination, unicast or multicast.
    pub destination_gid: Gid,
    /// Next hop, which decides, where it is given, which function a unicast reaches.
    pub destination_mac: Option<Mac>,
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
    /// There is an object of that number.
    Taken,
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
            Self::Taken => "there is an object of that number",
            Self::Busy => "the object is still in use",
            Self::Invalid => "a value is out of range",
            Self::Exhausted => "no room",
            Self::Fault => "memory could not be reached",
        })
    }
}

impl std::error::Error for EngineError {}
