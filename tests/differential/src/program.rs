//! Programs: lists of verbs calls on objects in numbered slots.
//!
//! A step names the objects it uses and makes by slot, so that taking a step out changes
//! nothing about the others. A step whose object is not there is left out by who runs it.

use serde::{Deserialize, Serialize};

/// Number of a slot for an object of a kind.
pub type Slot = u8;

/// Slots of each kind.
pub mod slots {
    #![allow(missing_docs, reason = "the names say it")]
    pub const PDS: u8 = 3;
    pub const MRS: u8 = 6;
    pub const MWS: u8 = 4;
    pub const CHANNELS: u8 = 2;
    pub const CQS: u8 = 4;
    pub const SRQS: u8 = 2;
    pub const QPS: u8 = 4;
    pub const AHS: u8 = 4;
}

/// A program.
pub type Program = Vec<Step>;

/// One verbs call, or one thing that is done to the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the verbs' own arguments")]
pub enum Step {
    /// From now on the program does as it should with a queue pair whose requests fail: it moves it to the
    /// error state, and may post no more to it.
    Careful {
        posts_on: bool,
    },
    /// `ibv_query_device_ex`, `ibv_query_port` of that port.
    QueryDevice {
        port: u8,
    },
    AllocPd {
        pd: Slot,
    },
    DeallocPd {
        pd: Slot,
    },
    /// `length` bytes from `offset` of the arena on.
    RegMr {
        mr: Slot,
        pd: Slot,
        offset: u32,
        length: u64,
        access: u32,
    },
    ReregMr {
        mr: Slot,
        flags: u32,
        pd: Slot,
        offset: u32,
        length: u64,
        access: u32,
    },
    DeregMr {
        mr: Slot,
    },
    AllocMw {
        mw: Slot,
        pd: Slot,
        kind: u32,
    },
    DeallocMw {
        mw: Slot,
    },
    /// `ibv_bind_mw`.
    BindMw {
        qp: Slot,
        mw: Slot,
        bind: Bind,
        flags: u32,
    },
    CreateChannel {
        channel: Slot,
    },
    DestroyChannel {
        channel: Slot,
    },
    CreateCq {
        cq: Slot,
        entries: i32,
        channel: Option<Slot>,
        vector: i32,
    },
    /// `ibv_create_cq_ex`.
    CreateCqEx {
        cq: Slot,
        entries: u32,
        channel: Option<Slot>,
        wc_flags: u64,
        flags: Option<u32>,
    },
    ResizeCq {
        cq: Slot,
        entries: i32,
    },
    DestroyCq {
        cq: Slot,
    },
    Arm {
        cq: Slot,
        solicited: bool,
    },
    /// Takes and acknowledges every event of the channel.
    TakeEvents {
        channel: Slot,
    },
    /// Takes and acknowledges every asynchronous event.
    TakeAsyncEvents,
    CreateSrq {
        srq: Slot,
        pd: Slot,
        wr: u32,
        sge: u32,
        limit: u32,
    },
    ModifySrq {
        srq: Slot,
        mask: u32,
        wr: u32,
        limit: u32,
    },
    QuerySrq {
        srq: Slot,
    },
    DestroySrq {
        srq: Slot,
    },
    PostSrqRecv {
        srq: Slot,
        list: Vec<Receive>,
    },
    CreateQp {
        qp: Slot,
        pd: Slot,
        send_cq: Slot,
        recv_cq: Slot,
        srq: Option<Slot>,
        kind: u32,
        cap: Cap,
        signals_all: bool,
    },
    ModifyQp {
        qp: Slot,
        change: Change,
    },
    QueryQp {
        qp: Slot,
        mask: u32,
    },
    DestroyQp {
        qp: Slot,
    },
    CreateAh {
        ah: Slot,
        pd: Slot,
        gid_index: u8,
        port: u8,
        is_global: bool,
        destination: u8,
    },
    DestroyAh {
        ah: Slot,
    },
    AttachMulticast {
        qp: Slot,
        group: u8,
    },
    DetachMulticast {
        qp: Slot,
        group: u8,
    },
    PostSend {
        qp: Slot,
        list: Vec<Send>,
    },
    PostRecv {
        qp: Slot,
        list: Vec<Receive>,
    },
    Poll {
        cq: Slot,
        count: i32,
    },
    /// By `ibv_start_poll`, at most that many.
    PollEx {
        cq: Slot,
        count: u8,
    },
    /// The device works for a while.
    Run {
        times: u8,
    },
    /// The `nth` command of that name from now on fails once.
    Fail {
        command: Command,
        nth: u8,
        errno: i32,
    },
    /// No command fails any more.
    FailNoMore,
}

/// `struct ibv_qp_cap`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the library's names")]
pub struct Cap {
    pub send_wr: u32,
    pub recv_wr: u32,
    pub send_sge: u32,
    pub recv_sge: u32,
    pub inline: u32,
}

/// What a queue pair is changed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// `IBV_QPS_*`.
    pub state: u32,
    /// The other queue pair of a connection.
    pub peer: Slot,
    /// Attributes beyond those that the change needs, or (`^`) some of those left out.
    pub mask: u32,
    /// `qp_access_flags`.
    pub access: u32,
    /// `rnr_retry`, `retry_cnt`, `timeout` and `min_rnr_timer`.
    pub patience: u8,
    /// `port_num`.
    pub port: u8,
    /// `ah_attr.grh.sgid_index`.
    pub gid_index: u8,
}

/// A command of the kernel that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Command {
    AllocPd,
    RegMr,
    DeregMr,
    CreateCq,
    DestroyCq,
    ResizeCq,
    CreateSrq,
    ModifySrq,
    CreateQp,
    ModifyQp,
    DestroyQp,
    CreateAh,
    AllocMw,
}

/// Memory that a work request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Where from the start of the arena.
    pub offset: u32,
    /// By which key.
    pub key: Key,
}

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Key {
    /// Of a region.
    Mr(Slot),
    /// Of a window.
    Mw(Slot),
    /// Any number.
    Number(u32),
}

/// A scatter or gather element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Element {
    pub place: Place,
    pub length: u32,
}

/// What a window is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Bind {
    pub mr: Slot,
    pub offset: u32,
    pub length: u64,
    pub access: u32,
}

/// A send work request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Send {
    /// `IBV_WR_*`.
    pub opcode: u32,
    /// `IBV_SEND_*`.
    pub flags: u32,
    /// `sg_list`.
    pub elements: Vec<Element>,
    /// Without elements `sg_list` still points to one that is none of the request's.
    pub stale: bool,
    /// Immediate, or the key to invalidate if `remote` has none.
    pub immediate: u32,
    /// Memory of the peer; its key is the one to invalidate, the window's to bind.
    pub remote: Place,
    /// Destination of a datagram.
    pub ah: Slot,
    /// The same.
    pub peer: Slot,
    /// Of a bind.
    pub bind: Bind,
}

/// A receive work request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receive {
    /// `sg_list`.
    pub elements: Vec<Element>,
    /// Without elements `sg_list` still points to one that is none of the request's.
    pub stale: bool,
}
