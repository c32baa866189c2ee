//! The receive queue of a QP.

use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::completion::Origin;
use super::queue_pair::Service;
use super::slots::{OutOfMemory, Slots};
use super::work::{Fragments, Refusal, Sge, total_length};
use crate::barrier;
use crate::format::{ReceiveHeader, ReceiveOpcodes, VALID_WORD};
use crate::generation::Generation;
use crate::ring::QuantumRing;

/// A receive queue: WQEs of one size, completed in the order they were posted.
///
/// Positions count WQEs. There is no doorbell: the device finds a WQE by its
/// valid bit.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct ReceiveQueue {
    ring: QuantumRing,
    /// The program's ids.
    wr_ids: Slots<AtomicU64>,
    /// Log2 of the quanta of a WQE.
    shift: u32,
    /// WQEs of the ring less one; also how many may be outstanding.
    mask: u32,
    max_fragments: u32,
    /// Position after the last WQE. Written by the poster.
    head: AtomicU32,
    /// A tail of the past. Written by the poster.
    known_tail: AtomicU32,
    pub(super) retired: Retired,
}

/// What is the poller's alone.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Retired {
    /// Position of the first WQE that has not completed.
    tail: AtomicU32,
    /// What completions are, as the QP says that the queue is of.
    pub(super) messages: Messages,
}

/// What the receives of a QP are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Messages {
    /// Which come of an RDMA write.
    pub(super) opcodes: ReceiveOpcodes,
    /// What messages are.
    pub(super) service: Service,
    /// Whose completions are, if nothing came with them.
    pub(super) origin: Origin,
}

impl Messages {
    /// Those of no QP.
    const NONE: Self =
        Self { opcodes: ReceiveOpcodes::WIRE, service: Service::Connected, origin: Origin::NONE };
}

/// What a receive queue is made of.
#[derive(Debug)]
pub struct ReceiveQueueParts {
    /// Its ring.
    pub ring: QuantumRing,
    /// Log2 of the quanta of a WQE.
    pub shift: u32,
    /// Fragments of a WQE.
    pub max_fragments: u32,
}

impl ReceiveQueue {
    /// An empty queue.
    ///
    /// # Errors
    /// There is no memory for the bookkeeping.
    ///
    /// # Panics
    /// If the parts do not fit together: see
    /// [`WorkQueueSize::answered`](crate::limits::WorkQueueSize::answered).
    pub fn new(parts: ReceiveQueueParts) -> Result<Self, OutOfMemory> {
        assert!(parts.shift <= 3, "a WQE has at most eight quanta");
        let entries = parts.ring.quanta() >> parts.shift;
        assert!(entries >= 2, "one WQE stays free");
        // One fragment in the first quantum, two in each further one.
        assert!(parts.max_fragments < 2 << parts.shift, "a WQE has room for its fragments");
        Ok(Self {
            wr_ids: Slots::new(entries)?,
            ring: parts.ring,
            shift: parts.shift,
            mask: entries - 1,
            max_fragments: parts.max_fragments,
            head: AtomicU32::new(0),
            known_tail: AtomicU32::new(0),
            retired: Retired { tail: AtomicU32::new(0), messages: Messages::NONE },
        })
    }

    /// Starts to post. Only one batch at a time.
    #[inline(always)]
    pub fn batch<G: Generation>(&self) -> ReceiveBatch<'_, G> {
        ReceiveBatch { queue: self, head: self.head.load(Ordering::Relaxed), generation: PhantomData }
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
}

/// Receives on their way into a queue. What is placed is the device's at once.
#[derive(Debug)]
pub struct ReceiveBatch<'queue, G> {
    queue: &'queue ReceiveQueue,
    head: u32,
    generation: PhantomData<G>,
}

impl<G: Generation> ReceiveBatch<'_, G> {
    /// Position where the next receive will be.
    #[inline(always)]
    pub fn position(&self) -> u32 {
        self.head
    }

    /// Places a receive.
    ///
    /// # Errors
    /// [`Refusal`]; nothing is changed.
    #[inline(always)]
    pub fn place(&mut self, wr_id: u64, list: &[Sge]) -> Result<(), Refusal> {
        let queue = self.queue;
        if list.len() > queue.max_fragments as usize || total_length::<G>(list).is_none() {
            return Err(Refusal::Invalid);
        }
        self.require_one()?;
        let position = self.head;
        queue.wr_ids.at(position).store(wr_id, Ordering::Relaxed);
        self.head = position.wrapping_add(1);
        // Release: the poller reads the cells of what lies below the head
        // (`ReceiveQueue::outstanding`). Before the valid bit, as the device may
        // complete the WQE as soon as it is valid.
        queue.head.store(self.head, Ordering::Release);
        write_receive::<G>(&queue.ring, position << queue.shift, list, 0);
        Ok(())
    }

    #[inline(always)]
    fn require_one(&self) -> Result<(), Refusal> {
        let known_tail = self.queue.known_tail.load(Ordering::Relaxed);
        if self.head.wrapping_sub(known_tail) < self.queue.mask {
            return Ok(());
        }
        self.require_one_after_looking()
    }

    #[cold]
    #[inline(never)]
    fn require_one_after_looking(&self) -> Result<(), Refusal> {
        // Acquire: the poller has read the cells below the tail (`ReceiveQueue::retire`)
        // before they are written anew.
        let tail = self.queue.retired.tail.load(Ordering::Acquire);
        self.queue.known_tail.store(tail, Ordering::Relaxed);
        if self.head.wrapping_sub(tail) < self.queue.mask { Ok(()) } else { Err(Refusal::Full) }
    }
}

/// Writes a receive WQE and makes it valid.
#[inline(always)]
pub(super) fn write_receive<G: Generation>(ring: &QuantumRing, position: u32, list: &[Sge], word_2: u64) {
    let valid = ring.valid(position);
    let more = Fragments::<G>::new(ring, position, valid).write(list);
    let quantum = ring.at(position);
    quantum[2].store(word_2);
    let header = ReceiveHeader::from_bits(valid).with_more_fragments(more);
    barrier::wqe_before_valid();
    quantum[VALID_WORD].store(header.bits());
}

/// The poller's side.
impl ReceiveQueue {
    /// Position of the outstanding WQE that starts at a quantum of the ring; `None`
    /// if there is none.
    #[inline(always)]
    pub(super) fn outstanding(&self, index: u32) -> Option<u32> {
        let entry = index >> self.shift;
        let tail = self.retired.tail.load(Ordering::Relaxed);
        // Acquire: the cells below the head are written (`ReceiveBatch::place`).
        let head = self.head.load(Ordering::Acquire);
        let ahead = entry.wrapping_sub(tail) & self.mask;
        (entry <= self.mask && ahead < head.wrapping_sub(tail)).then_some(tail.wrapping_add(ahead))
    }

    /// The program's id of the oldest outstanding WQE and the position behind it, if it is
    /// the one that starts at a quantum of the ring.
    #[inline(always)]
    pub(super) fn oldest_at(&self, index: usize) -> Option<(u64, u32)> {
        let tail = self.retired.tail.load(Ordering::Relaxed);
        // Acquire: as in `outstanding`.
        if tail == self.head.load(Ordering::Acquire) {
            return None;
        }
        let (oldest, wr_id) = self.wr_ids.index_and_cell(tail);
        (oldest == index >> self.shift).then(|| (wr_id.load(Ordering::Relaxed), tail.wrapping_add(1)))
    }

    /// Hands back all WQEs before a position.
    #[inline(always)]
    pub(super) fn retire_before(&self, position: u32) {
        // Release: the poster writes the cells anew once it has seen the tail pass
        // them (`ReceiveBatch::require_one_after_looking`).
        self.retired.tail.store(position, Ordering::Release);
    }

    /// Position of the oldest outstanding WQE; `None` if there is none.
    #[inline(always)]
    pub(super) fn oldest(&self) -> Option<u32> {
        let tail = self.retired.tail.load(Ordering::Relaxed);
        // Acquire: as in `outstanding`.
        (tail != self.head.load(Ordering::Acquire)).then_some(tail)
    }

    /// The program's id of the WQE at a position below the head.
    #[inline(always)]
    pub(super) fn wr_id(&self, position: u32) -> u64 {
        self.wr_ids.at(position).load(Ordering::Relaxed)
    }

    /// Hands back all WQEs up to and with that at `position`.
    #[inline(always)]
    pub(super) fn retire(&self, position: u32) {
        self.retire_before(position.wrapping_add(1));
    }
}
