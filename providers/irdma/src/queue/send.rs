//! The send queue of a QP: what it is, and the poller's side. The poster's is in `send_batch`.

use core::sync::atomic::{AtomicU32, Ordering};

use super::inline_data::MAX_BYTES;
use super::push::Pushing;
use super::slots::{MIN_TRACKED_QUANTA, OutOfMemory, Slots, Tracked, Tracking};
use crate::limits::{CLEAR_AHEAD, SEND_RESERVE};
use crate::ring::{Doorbell, QuantumRing};

/// A send queue.
///
/// The first cache line is the poster's (what is constant, and the head), the
/// second the poller's, the third is for pushes.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct SendQueue {
    pub(super) ring: QuantumRing,
    pub(super) tracking: Slots<Tracking>,
    pub(super) doorbell: Doorbell,
    /// Number of the QP.
    pub(super) number: u32,
    /// Quanta that may be outstanding.
    pub(super) capacity: u32,
    /// Quanta of a chunk less one.
    pub(super) chunk_mask: u32,
    pub(super) max_fragments: u8,
    pub(super) max_fragments_with_immediate: u8,
    pub(super) max_read_fragments: u8,
    pub(super) max_inline: u8,
    /// Position after the last WQE. Written by the poster.
    pub(super) head: AtomicU32,
    /// A tail of the past. Written by the poster.
    pub(super) known_tail: AtomicU32,
    pub(super) retired: Retired,
    pub(super) pushing: Pushing,
}

/// What the poller writes.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Retired {
    /// Position of the first WQE that has not completed.
    pub(super) tail: AtomicU32,
    /// Quanta at the start that hold the kernel's connection WQEs, while their
    /// completions are still to come.
    connection: AtomicU32,
}

/// What a send queue is made of.
#[derive(Debug)]
pub struct SendQueueParts {
    /// Its ring.
    pub ring: QuantumRing,
    /// Doorbell that takes QP numbers.
    pub doorbell: Doorbell,
    /// Number of the QP.
    pub number: u32,
    /// Quanta that a WQE must not cross a multiple of.
    pub chunk: u32,
    /// Fragments of a WQE.
    pub max_fragments: u32,
    /// Fragments of an RDMA read.
    pub max_read_fragments: u32,
    /// Bytes of inline data.
    pub max_inline: u32,
    /// WQEs of one quantum that the kernel places first to set up the connection.
    pub connection_wqes: u32,
}

impl SendQueue {
    /// An empty queue.
    ///
    /// # Errors
    /// There is no memory for the bookkeeping.
    ///
    /// # Panics
    /// If the parts do not fit together: see
    /// [`DeviceLimits::check`](crate::limits::DeviceLimits::check) and
    /// [`WorkQueueSize::answered`](crate::limits::WorkQueueSize::answered).
    pub fn new(parts: SendQueueParts) -> Result<Self, OutOfMemory> {
        let quanta = parts.ring.quanta();
        assert!(quanta >= MIN_TRACKED_QUANTA, "a send ring has room for the reserve");
        assert!(parts.chunk.is_power_of_two() && parts.chunk <= CLEAR_AHEAD, "chunk");
        // A WQE within a chunk has one fragment in its first quantum, two in each more.
        let slots = (2 * parts.chunk - 1).min(15);
        assert!(parts.max_fragments <= slots && parts.max_inline as usize <= MAX_BYTES);
        Ok(Self {
            tracking: Slots::new(quanta)?,
            ring: parts.ring,
            doorbell: parts.doorbell,
            number: parts.number,
            // The reserve holds two blocks to clear ahead, the quantum that tells full
            // from empty, and one more that only sizing counts.
            capacity: quanta - (SEND_RESERVE - 1),
            chunk_mask: parts.chunk - 1,
            max_fragments: parts.max_fragments as u8,
            max_fragments_with_immediate: parts.max_fragments.min(slots - 1) as u8,
            max_read_fragments: parts.max_read_fragments.min(parts.max_fragments) as u8,
            max_inline: parts.max_inline as u8,
            head: AtomicU32::new(parts.connection_wqes),
            known_tail: AtomicU32::new(parts.connection_wqes),
            retired: Retired {
                tail: AtomicU32::new(parts.connection_wqes),
                connection: AtomicU32::new(parts.connection_wqes),
            },
            pushing: Pushing::none(),
        })
    }

    /// Whether all that was posted has completed.
    pub fn is_empty(&self) -> bool {
        self.retired.tail.load(Ordering::Acquire) == self.head.load(Ordering::Acquire)
    }

    /// Position after the last WQE.
    pub(super) fn head(&self) -> u32 {
        self.head.load(Ordering::Acquire)
    }

    /// Whether all before a position at or below the head has completed.
    pub(super) fn has_completed(&self, position: u32) -> bool {
        self.retired.tail.load(Ordering::Acquire).wrapping_sub(position) as i32 >= 0
    }

    /// Number of the QP.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Quanta that may still be posted.
    pub fn free_quanta(&self) -> u32 {
        let head = self.head.load(Ordering::Acquire);
        let used = head.wrapping_sub(self.retired.tail.load(Ordering::Acquire));
        self.capacity.saturating_sub(used)
    }
}

/// The poller's side.
impl SendQueue {
    /// Position of the outstanding WQE that starts at an index of the ring, and what
    /// is remembered of it; `None` if there is none.
    #[inline(always)]
    pub(super) fn outstanding(&self, index: u32) -> Option<(u32, Tracked)> {
        let tail = self.retired.tail.load(Ordering::Relaxed);
        // Acquire: the cells below the head are written (`SendBatch::remember`).
        let head = self.head.load(Ordering::Acquire);
        let ahead = index.wrapping_sub(tail) & self.ring.mask();
        if index > self.ring.mask() || ahead >= head.wrapping_sub(tail) {
            return None;
        }
        let position = tail.wrapping_add(ahead);
        let tracked = self.tracking.at(position).tracked();
        tracked.starts_at(position).then_some((position, tracked))
    }

    /// The oldest outstanding WQE that is not padding; `None` if there is none.
    #[inline(always)]
    pub(super) fn oldest(&self) -> Option<(u32, Tracked)> {
        let mut position = self.retired.tail.load(Ordering::Relaxed);
        // Acquire: as in `outstanding`.
        let head = self.head.load(Ordering::Acquire);
        while position != head {
            let tracked = self.tracking.at(position).tracked();
            if tracked.opcode().is_some() {
                return Some((position, tracked));
            }
            position = position.wrapping_add(1);
        }
        None
    }

    /// The program's id of the WQE at a position below the head.
    #[inline(always)]
    pub(super) fn wr_id(&self, position: u32) -> u64 {
        self.tracking.at(position).wr_id()
    }

    /// Hands back all quanta up to and with the WQE at `position`.
    #[inline(always)]
    pub(super) fn retire(&self, position: u32, tracked: Tracked) {
        // Release: the poster writes the cells anew once it has seen the tail pass
        // them (`SendBatch::require_after_looking`).
        self.retired.tail.store(position.wrapping_add(tracked.quanta()), Ordering::Release);
    }

    /// Whether the completion of the WQE at an index is of the kernel's making and
    /// none of the program's business.
    #[inline(always)]
    pub(super) fn is_connection_completion(&self, index: u32) -> bool {
        let connection = self.retired.connection.load(Ordering::Relaxed);
        connection != 0 && self.note_connection_completion(index, connection)
    }

    #[cold]
    fn note_connection_completion(&self, index: u32, connection: u32) -> bool {
        if index + 1 >= connection {
            self.retired.connection.store(0, Ordering::Relaxed);
        }
        index < connection && self.is_empty()
    }
}
