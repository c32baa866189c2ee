//! One completion as a program sees it, and what the poller needs to know of QPs.

use core::mem::MaybeUninit;

use super::queue_pair::QueuePair;
use super::shared::SharedReceiveQueue;
use crate::format::{CompletionOpcode, Status};

bitflags::bitflags! {
    /// What else a completion says. The values are those of `enum ibv_wc_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CompletionFlags: u32 {
        /// The first 40 bytes of the receive are the header of the datagram.
        const HEADER = 1 << 0;
        /// [`Origin::data`] is an immediate.
        const IMMEDIATE = 1 << 1;
        /// [`Origin::data`] is the key that the peer invalidated.
        const INVALIDATED = 1 << 3;
    }
}

/// A completion. Laid out as `struct ibv_wc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Completion {
    /// The program's id of the work request.
    pub wr_id: u64,
    /// How it ended.
    pub status: Status,
    /// What it was.
    pub opcode: CompletionOpcode,
    /// Major and minor error of the device; 0 on success.
    pub vendor_error: u32,
    /// Bytes moved.
    pub length: u32,
    /// Whose it is.
    pub origin: Origin,
    /// What RoCE and iWARP do not have: index of a P_Key, LID, service level, path.
    pub absent: u64,
}

const _: () = assert!(size_of::<Completion>() == 48);

/// Whose a completion is, and what came with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Origin {
    /// An immediate, big-endian, or an invalidated key; see `flags`.
    pub data: u32,
    /// Number of the QP.
    pub queue_pair: u32,
    /// Number of the QP that sent the datagram; of a connection, the QP itself.
    pub source_queue_pair: u32,
    /// What else is said.
    pub flags: CompletionFlags,
}

impl Origin {
    /// Of no QP.
    pub const NONE: Self = Self::plain(0);

    /// A QP, and nothing came with the completion.
    pub(super) const fn plain(queue_pair: u32) -> Self {
        Self { data: 0, queue_pair, source_queue_pair: queue_pair, flags: CompletionFlags::empty() }
    }
}

/// What a completion says besides its [`Origin`]; as in [`Completion`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The program's id of the work request.
    pub wr_id: u64,
    /// How it ended.
    pub status: Status,
    /// What it was.
    pub opcode: CompletionOpcode,
    /// Major and minor error of the device; 0 on success.
    pub vendor_error: u32,
    /// Bytes moved.
    pub length: u32,
}

/// Where the poller puts completions.
pub trait Sink {
    /// Puts one there; `timestamp` reads the device's time (GEN3) from its CQE.
    fn put(&mut self, outcome: Outcome, origin: &Origin, timestamp: impl FnOnce() -> u32);
}

impl Sink for MaybeUninit<Completion> {
    #[inline(always)]
    fn put(&mut self, outcome: Outcome, origin: &Origin, _timestamp: impl FnOnce() -> u32) {
        let place = self.as_mut_ptr();
        // SAFETY: every field is in the place. One by one, so that the compiler does not put the
        // whole together somewhere else first.
        unsafe {
            (&raw mut (*place).wr_id).write(outcome.wr_id);
            (&raw mut (*place).status).write(outcome.status);
            (&raw mut (*place).opcode).write(outcome.opcode);
            (&raw mut (*place).vendor_error).write(outcome.vendor_error);
            (&raw mut (*place).length).write(outcome.length);
            (&raw mut (*place).origin).copy_from_nonoverlapping(origin, 1);
            (&raw mut (*place).absent).write(0);
        }
    }
}

/// Which queue of a QP a completion is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Send queue.
    Send,
    /// Receive queue, its own or a shared one.
    Receive,
}

/// A QP as the poller of its completion queue sees it.
pub trait Member {
    /// Its queues.
    fn queues(&self) -> &QueuePair;

    /// The shared receive queue that it takes receives from, if any.
    fn shared(&self) -> Option<&SharedReceiveQueue>;

    /// Makes sure that a work request that is being posted to one of the two queues is either
    /// seen by this thread afterwards, or its poster finds the QP in error when it has posted.
    ///
    /// Called after [`QueuePair::set_in_error`], before the last look at a queue: a barrier in
    /// the poster's thread, or the poster's lock.
    fn await_poster(&self, side: Side);
}

/// Finds the QPs of a completion queue.
pub trait Directory {
    /// What is found.
    type Member: Member;

    /// The QP that was created with this completion context, if it still lives and
    /// this side of it completes on this completion queue. `context` comes out of a
    /// CQE and may be anything.
    fn find(&self, context: u64, side: Side) -> Option<&Self::Member>;

    /// Notes that a QP may have work requests which the device does not complete (GEN3).
    fn note_abandoned(&self);

    /// Completes one of those that [`note_abandoned`](Self::note_abandoned) is about, by
    /// [`QueuePair::complete_abandoned`]; forgets the note if there is none. Called whenever
    /// no CQE has come on GEN3.
    fn complete_abandoned(&self) -> Option<(Outcome, Origin)>;
}
