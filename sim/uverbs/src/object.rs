//! The objects that a program creates, as the kernel keeps them.

use irdma_engine::spec::{AhId, CqId, Gid, Key, PdId, QpId, QpState, SrqId};

use crate::abi::core::QpCap;
use crate::events::{ChannelId, Serial};
use crate::platform::Memory;

/// Any object that has a handle.
#[derive(Debug)]
pub enum Object {
    /// Protection domain.
    Pd(Pd),
    /// Memory region or ring registration.
    Mr(Mr),
    /// Memory window.
    Mw(Mw),
    /// Completion queue.
    Cq(Cq),
    /// Queue pair.
    Qp(Box<Qp>),
    /// Shared receive queue.
    Srq(Srq),
    /// Address handle.
    Ah(Ah),
}

/// Protection domain.
#[derive(Debug)]
pub struct Pd {
    /// The device's name for it.
    pub id: PdId,
    /// Objects that live in it.
    pub users: u32,
}

/// What a ring registration is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingKind {
    /// SQ, RQ and shadow area of a QP.
    Qp,
    /// Ring of a CQ, or its shadow area.
    Cq,
    /// Ring and shadow area of an SRQ.
    Srq,
}

/// Memory region or ring registration.
#[derive(Debug)]
pub struct Mr {
    /// Handle of its PD.
    pub pd: u32,
    /// Names a ring registration among those of the file.
    pub serial: Serial,
    /// Its key; `None` for a ring, which the device does not know as a region.
    pub key: Option<Key>,
    /// Address of the first byte.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// `IB_ACCESS_*`.
    pub access: u32,
    /// Its memory.
    pub memory: Memory,
}

/// Memory window.
#[derive(Debug)]
pub struct Mw {
    /// Handle of its PD.
    pub pd: u32,
    /// Key at creation.
    pub key: Key,
}

/// How an object that has events reports them.
#[derive(Debug)]
pub struct EventSource {
    /// Names the object.
    pub serial: Serial,
    /// What the program calls it.
    pub user_handle: u64,
    /// Channel of its asynchronous events.
    pub channel: Option<ChannelId>,
    /// Asynchronous events put into the channel.
    pub sent: u32,
}

/// Completion queue.
#[derive(Debug)]
pub struct Cq {
    /// The device's name for it.
    pub id: CqId,
    /// Asynchronous events.
    pub source: EventSource,
    /// Channel of its completion events.
    pub completion_channel: Option<ChannelId>,
    /// Completion events put into it.
    pub completions_sent: u32,
    /// CQEs in its ring.
    pub entries: u32,
    /// What the kernel tells programs of it.
    pub reported: u32,
    /// The registration of its ring.
    pub ring: Serial,
    /// That of its shadow area, if it has one of its own.
    pub shadow: Option<Serial>,
    /// Queue pairs that complete to it, once per use.
    pub users: u32,
}

/// `enum ib_qp_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum IbState {
    /// Fresh.
    Reset = 0,
    /// Initialised.
    Init = 1,
    /// Ready to receive.
    ReadyToReceive = 2,
    /// Ready to send.
    ReadyToSend = 3,
    /// Send queue drained.
    SendQueueDrained = 4,
    /// Send queue error.
    SendQueueError = 5,
    /// Error.
    Error = 6,
}

impl IbState {
    /// The state with that number.
    pub fn from_number(number: u8) -> Option<IbState> {
        Some(match number {
            0 => IbState::Reset,
            1 => IbState::Init,
            2 => IbState::ReadyToReceive,
            3 => IbState::ReadyToSend,
            4 => IbState::SendQueueDrained,
            5 => IbState::SendQueueError,
            6 => IbState::Error,
            _ => return None,
        })
    }
}

/// Kind of queue pair (`enum ib_qp_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpKind {
    /// Reliable connection.
    Rc,
    /// Unreliable datagram.
    Ud,
}

/// What query_qp tells of a queue pair beyond its state and sizes.
#[derive(Clone, Debug, Default)]
pub struct QpAttributes {
    /// `enum ib_mtu`.
    pub path_mtu: u8,
    /// Q_Key.
    pub q_key: u32,
    /// First PSN expected.
    pub rq_psn: u32,
    /// First PSN sent.
    pub sq_psn: u32,
    /// Peer.
    pub destination_qp: u32,
    /// P_Key, which the driver reports in the place of its index.
    pub p_key: u16,
    /// Tries after a time-out.
    pub retry_count: u8,
    /// Tries after receiver not ready.
    pub rnr_retry: u8,
    /// Code of the RNR timer.
    pub min_rnr_timer: u8,
    /// Reads and atomics outstanding.
    pub max_rd_atomic: u32,
    /// Reads and atomics accepted.
    pub max_dest_rd_atomic: u32,
    /// Remote atomics accepted.
    pub remote_atomic: bool,
}

/// Queue pair.
#[derive(Debug)]
pub struct Qp {
    /// Its number.
    pub id: QpId,
    /// Asynchronous events.
    pub source: EventSource,
    /// Kind.
    pub kind: QpKind,
    /// Handle of its PD.
    pub pd: u32,
    /// Handle of the send queue's CQ.
    pub send_cq: u32,
    /// Handle of the receive queue's CQ.
    pub recv_cq: u32,
    /// Handle of its SRQ.
    pub srq: Option<u32>,
    /// Comes back in its CQEs.
    pub completion_context: u64,
    /// State in the verbs' sense.
    pub state: IbState,
    /// State that the hardware was put into; RESET stands for one that was never touched.
    pub hardware: QpState,
    /// Sizes as query_qp reports them.
    pub cap: QpCap,
    /// The rest of what query_qp reports.
    pub attributes: QpAttributes,
    /// Port it was bound to, 0 before INIT.
    pub port: u8,
    /// The queues have been flushed.
    pub flush_issued: bool,
    /// The program wants to hear when the send queue has drained.
    pub notify_drained: bool,
    /// Multicast groups it belongs to, with their LIDs.
    pub groups: Vec<(Gid, u16)>,
    /// The registration of its rings.
    pub ring: Serial,
    /// Its push page.
    pub push_page: Option<u32>,
    /// The program knows of it.
    pub push_told: bool,
    /// The connection manager has connected it (iWARP).
    pub connected: bool,
}

/// Shared receive queue.
#[derive(Debug)]
pub struct Srq {
    /// The device's name for it.
    pub id: SrqId,
    /// Asynchronous events.
    pub source: EventSource,
    /// Handle of its PD.
    pub pd: u32,
    /// Work requests that can be outstanding.
    pub max_wr: u32,
    /// Fragments per work request.
    pub max_sge: u32,
    /// WQEs in its ring.
    pub ring_entries: u32,
    /// Limit that is armed, 0 if none.
    pub limit: u32,
    /// The registration of its ring.
    pub ring: Serial,
    /// Queue pairs on it.
    pub users: u32,
}

/// Address handle.
#[derive(Debug)]
pub struct Ah {
    /// The device's name for it.
    pub id: AhId,
    /// Handle of its PD.
    pub pd: u32,
}

/// The types of objects, to be asked for by type.
pub trait Kind: Sized {
    /// The object if it is of this type.
    fn of(object: &Object) -> Option<&Self>;
    /// The object if it is of this type.
    fn of_mut(object: &mut Object) -> Option<&mut Self>;
}

macro_rules! kinds {
    ($($kind:ident)*) => {
        $(
            impl Kind for $kind {
                fn of(object: &Object) -> Option<&Self> {
                    match object {
                        Object::$kind(found) => Some(found),
                        _ => None,
                    }
                }

                fn of_mut(object: &mut Object) -> Option<&mut Self> {
                    match object {
                        Object::$kind(found) => Some(found),
                        _ => None,
                    }
                }
            }
        )*
    };
}

kinds! { Pd Mr Mw Cq Qp Srq Ah }
