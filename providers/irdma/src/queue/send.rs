//! The send queue of a QP: what it is, and the poller's side. The poster's is in `send_batch`.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, Ordering};

use super::completion::Origin;
use super::inline_data::MAX_BYTES;
use super::push::Pushing;
use super::room::KnownRun;
use super::slots::{OutOfMemory, Slots, Tracking};
use crate::format::{CompletionOpcode, Opcode, SendHeader, VALID_WORD};
use crate::limits::{CLEAR_AHEAD, SEND_RESERVE};
use crate::ring::{Doorbell, QuantumRing};

/// A send queue.
///
/// The first cache line is what the poster needs for every WQE, the second is constant, the
/// third the poller's, the fourth is for pushes.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct SendQueue {
    pub(super) ring: QuantumRing,
    pub(super) tracking: Slots<Tracking>,
    /// Position after the last WQE. Written by the poster.
    pub(super) head: AtomicU32,
    /// Where the poster can go on from the head.
    pub(super) run: KnownRun,
    pub(super) doorbell: Doorbell,
    /// Number of the QP.
    pub(super) number: u32,
    /// A fragment that is alone in its WQE is shorter than this, whatever the operation; 0
    /// if not every operation can have one.
    pub(super) single_bytes: u32,
    /// Quanta that may be outstanding.
    pub(super) capacity: u32,
    /// Quanta of a chunk less one.
    pub(super) chunk_mask: u32,
    /// Fragments that every WQE may have.
    pub(super) fragments_of_all: u8,
    pub(super) max_fragments: u8,
    pub(super) max_fragments_with_immediate: u8,
    pub(super) max_read_fragments: u8,
    pub(super) max_inline: u8,
    /// See [`WqeFormat`](crate::generation::WqeFormat::EMPTY_FRAGMENT_COUNTS).
    pub(super) empty_fragment_counts: bool,
    /// One fragment of inline data is shorter than this; 0 if there cannot be one.
    pub(super) single_inline_bytes: u16,
    pub(super) retired: Retired,
    pub(super) pushing: Pushing,
}

const _: () = assert!(offset_of!(SendQueue, doorbell) < 64 && offset_of!(SendQueue, retired) == 128);

/// What the completion of a WQE is of, and whether the program asked for it: seldom needed, so
/// read from the WQE itself, which stays in the ring. (One that is flushed at the very moment at
/// which it is placed may lack its header yet; what a flushed work request was, the verbs leave
/// open.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind(SendHeader);

impl Kind {
    /// What the completion is of.
    pub(super) fn opcode(self) -> CompletionOpcode {
        // The poster places no others.
        Opcode::decode_completion(self.0.opcode()).unwrap_or(CompletionOpcode::Send)
    }

    /// Whether the program asked for a completion.
    pub(super) fn is_signaled(self) -> bool {
        self.0.signaled()
    }
}

/// What is the poller's alone.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Retired {
    /// Position of the first WQE that has not completed.
    pub(super) tail: AtomicU32,
    /// Whose completions are, if nothing came with them.
    origin: Origin,
}

impl Retired {
    /// The tail, as the poller reads it. Not as an atomic: the compiler then makes an instruction
    /// more of every use.
    #[inline(always)]
    fn own_tail(&self) -> u32 {
        // SAFETY: the poller alone writes it, and there is one at a time: it has the completion queue
        // (`CompletionQueue::take_usual`) to which a queue pair's sends report.
        unsafe { self.tail.as_ptr().read() }
    }
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
    /// The empty fragment that fills a quantum counts as a fragment.
    pub empty_fragment_counts: bool,
    /// WQEs of one quantum that the kernel places first to set up the connection. Their
    /// completions are passed over, as they were never outstanding here.
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
        assert!(quanta > SEND_RESERVE, "a send ring has room for the reserve");
        assert!(parts.chunk.is_power_of_two() && parts.chunk <= CLEAR_AHEAD, "chunk");
        // A WQE within a chunk has one fragment in its first quantum, two in each more.
        let slots = (2 * parts.chunk - 1).min(15);
        assert!(parts.max_fragments <= slots && parts.max_inline as usize <= MAX_BYTES);
        let max_fragments_with_immediate = parts.max_fragments.min(slots - 1);
        let max_read_fragments = parts.max_fragments.min(parts.max_read_fragments);
        Ok(Self {
            tracking: Slots::new(quanta)?,
            ring: parts.ring,
            doorbell: parts.doorbell,
            number: parts.number,
            // The reserve holds two blocks to clear ahead, the quantum that tells full
            // from empty, and one more that only sizing counts.
            capacity: quanta - (SEND_RESERVE - 1),
            chunk_mask: parts.chunk - 1,
            fragments_of_all: max_fragments_with_immediate.min(max_read_fragments) as u8,
            max_fragments: parts.max_fragments as u8,
            max_fragments_with_immediate: max_fragments_with_immediate as u8,
            max_read_fragments: max_read_fragments as u8,
            max_inline: parts.max_inline as u8,
            empty_fragment_counts: parts.empty_fragment_counts,
            single_inline_bytes: if parts.max_fragments > 0 { parts.max_inline as u16 + 1 } else { 0 },
            single_bytes: if max_read_fragments > 0 { 1 << 31 } else { 0 },
            head: AtomicU32::new(parts.connection_wqes),
            run: KnownRun::none(parts.connection_wqes),
            retired: Retired {
                tail: AtomicU32::new(parts.connection_wqes),
                origin: Origin::plain(parts.number),
            },
            pushing: Pushing::none(),
        })
    }

    /// Whether all that was posted has completed.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.has_completed(self.head())
    }

    /// Position after the last WQE.
    #[inline]
    pub(super) fn head(&self) -> u32 {
        self.head.load(Ordering::Acquire)
    }

    /// Whether all before a position at or below the head has completed.
    #[inline]
    pub(super) fn has_completed(&self, position: u32) -> bool {
        let mut tail = self.retired.tail.load(Ordering::Acquire);
        // Padding does not complete before what follows it.
        while (tail.wrapping_sub(position) as i32) < 0 {
            if self.tracking.at(tail).quanta(tail).is_some() {
                return false;
            }
            tail = tail.wrapping_add(1);
        }
        true
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
    /// What is remembered of the outstanding WQE that starts at an index of the ring, and the
    /// position behind it; `None` if there is none.
    #[inline(always)]
    pub(super) fn outstanding(&self, index: usize) -> Option<(&Tracking, u32)> {
        // Acquire: the cells below the head are written (`SendBatch::advance`).
        let head = self.head.load(Ordering::Acquire);
        let outstanding = head.wrapping_sub(self.retired.own_tail());
        let cell = self.tracking.get(index)?;
        let end = cell.end();
        // It ends above the tail and not above the head.
        (head.wrapping_sub(end) < outstanding).then_some((cell, end))
    }

    #[inline]
    fn kind(&self, position: u32) -> Kind {
        Kind(SendHeader::from_bits(self.ring.at(position)[VALID_WORD].load()))
    }

    /// The same with the kind of the WQE.
    #[inline]
    pub(super) fn outstanding_kind(&self, index: usize) -> Option<(&Tracking, Kind)> {
        let (cell, _) = self.outstanding(index)?;
        Some((cell, self.kind(index as u32)))
    }

    /// The oldest outstanding WQE that is not padding; `None` if there is none.
    #[inline]
    pub(super) fn oldest(&self) -> Option<(&Tracking, Kind)> {
        let mut position = self.retired.tail.load(Ordering::Relaxed);
        // Acquire: as in `outstanding`.
        let head = self.head.load(Ordering::Acquire);
        while position != head {
            let cell = self.tracking.at(position);
            if head.wrapping_sub(cell.end()) < head.wrapping_sub(position) {
                return Some((cell, self.kind(position)));
            }
            position = position.wrapping_add(1);
        }
        None
    }

    /// Hands back all quanta before `end`, the position behind a WQE.
    #[inline(always)]
    pub(super) fn retire(&self, end: u32) {
        // Release: the poster writes the cells anew once it has seen the tail pass
        // them (`SendQueue::extend_run`).
        self.retired.tail.store(end, Ordering::Release);
    }

    /// Whose completions are, if nothing came with them.
    #[inline(always)]
    pub(super) fn origin(&self) -> &Origin {
        &self.retired.origin
    }
}
