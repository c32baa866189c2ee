//! The receive queue of a QP.

use core::hint::cold_path;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::completion::Origin;
use super::fragments::{self, more_of};
use super::queue_pair::Service;
use super::slots::{Cells, OutOfMemory, Slots};
use super::work::{Refusal, Sge, are_expressible};
use crate::barrier;
use crate::format::{QUANTUM_BYTES, ReceiveHeader, ReceiveOpcodes, VALID, VALID_WORD};
use crate::generation::Generation;
use crate::ring::{Offsets, Quantum, QuantumRing};

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
    /// Log2 of the bytes of a WQE.
    log_bytes: u32,
    /// WQEs of the ring less one; also how many may be outstanding.
    mask: u32,
    /// WQEs of the ring: the bit of a position that counts laps.
    lap: u32,
    /// How many WQEs with a fragment may be outstanding: as many as any, or none.
    simple: u32,
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
            log_bytes: parts.shift + QUANTUM_BYTES.ilog2(),
            mask: entries - 1,
            lap: entries,
            simple: if parts.max_fragments > 0 { entries - 1 } else { 0 },
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

    /// Places a receive of one fragment, if nothing at all stands in the way, and returns its
    /// position; else changes nothing, and a [`batch`](Self::batch) is to do it.
    #[inline(always)]
    pub fn place_simple<G: Generation>(&self, wr_id: u64, sge: &Sge) -> Option<u32> {
        let position = self.head.load(Ordering::Relaxed);
        let used = position.wrapping_sub(self.known_tail.load(Ordering::Relaxed));
        if used >= self.simple {
            cold_path();
            if self.simple == 0 || position.wrapping_sub(self.look()) >= self.simple {
                return None;
            }
        }
        let descriptor = simple_descriptor::<G>(sge)?;
        let (index, cell) = self.wr_ids.index_and_cell(position);
        cell.store(wr_id, Ordering::Relaxed);
        // As in `ReceiveBatch::place`.
        self.head.store(position.wrapping_add(1), Ordering::Release);
        // SAFETY: `new` has made as many cells as there are WQEs.
        let quantum = unsafe { self.ring.offsets().at(index << self.log_bytes) };
        write_simple::<G>(quantum, sge.address, descriptor, 0, self.valid(position));
        Some(position)
    }

    /// The tail as it is now.
    #[inline(always)]
    fn look(&self) -> u32 {
        // Acquire: the poller has read the cells below the tail (`retire_before`) before they
        // are written anew.
        let tail = self.retired.tail.load(Ordering::Acquire);
        self.known_tail.store(tail, Ordering::Relaxed);
        tail
    }

    /// The valid bit, in its place, of a WQE at a position.
    #[inline(always)]
    fn valid(&self, position: u32) -> u64 {
        u64::from(position & self.lap == 0) << 63
    }

    /// Starts to post receives of one fragment, as long as nothing at all stands in the way.
    /// What it does not take, a [`batch`](Self::batch) that is started afterwards does.
    #[inline(always)]
    pub fn simple_run<G: Generation>(&self) -> SimpleRun<'_, G> {
        let position = self.head.load(Ordering::Relaxed);
        let used = position.wrapping_sub(self.known_tail.load(Ordering::Relaxed));
        SimpleRun {
            ring: self.ring.offsets(),
            cells: self.wr_ids.cells(),
            head: &self.head,
            log_bytes: self.log_bytes,
            room: self.simple.saturating_sub(used),
            position,
            valid: self.valid(position),
            generation: PhantomData,
        }
    }

    /// Whether all that was posted has completed.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.retired.tail.load(Ordering::Acquire) == self.head.load(Ordering::Acquire)
    }

    /// Position after the last WQE.
    #[inline]
    pub(super) fn head(&self) -> u32 {
        self.head.load(Ordering::Acquire)
    }

    /// Whether all before a position at or below the head has completed.
    #[inline]
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
    #[inline(never)]
    pub fn place(&mut self, wr_id: u64, list: &[Sge]) -> Result<(), Refusal> {
        let queue = self.queue;
        if list.len() > queue.max_fragments as usize || !are_expressible::<G>(list) {
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
        // SAFETY: WQEs are of one size, which has room for `max_fragments`, and divides the ring.
        unsafe { write_receive::<G>(&queue.ring, position << queue.shift, list, 0) };
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
        let tail = self.queue.look();
        if self.head.wrapping_sub(tail) < self.queue.mask { Ok(()) } else { Err(Refusal::Full) }
    }
}

/// Receives of one fragment on their way into a queue, one after the other. What is placed is
/// the device's at once.
#[derive(Debug)]
pub struct SimpleRun<'queue, G> {
    ring: Offsets<'queue>,
    cells: Cells<'queue, AtomicU64>,
    /// Of the queue.
    head: &'queue AtomicU32,
    /// Log2 of the bytes of a WQE.
    log_bytes: u32,
    /// Receives for which there is room, for all that is known.
    room: u32,
    /// Position where the next receive will be.
    position: u32,
    /// The valid bit, in its place, of a WQE there.
    valid: u64,
    generation: PhantomData<G>,
}

impl<G: Generation> SimpleRun<'_, G> {
    /// Position where the next receive will be.
    #[inline(always)]
    pub fn position(&self) -> u32 {
        self.position
    }

    /// Places a receive, or changes nothing and returns false.
    #[inline(always)]
    pub fn place(&mut self, wr_id: u64, sge: &Sge) -> bool {
        let Some(descriptor) = simple_descriptor::<G>(sge) else { return false };
        let Some(less) = self.room.checked_sub(1) else { return false };
        self.room = less;
        let (index, cell) = self.cells.index_and_cell(self.position);
        cell.store(wr_id, Ordering::Relaxed);
        self.position = self.position.wrapping_add(1);
        // As in `ReceiveBatch::place`.
        self.head.store(self.position, Ordering::Release);
        // SAFETY: `ReceiveQueue::new` has made as many cells as there are WQEs.
        let quantum = unsafe { self.ring.at(index << self.log_bytes) };
        write_simple::<G>(quantum, sge.address, descriptor, 0, self.valid);
        if self.cells.is_first(self.position) {
            cold_path();
            self.valid ^= VALID;
        }
        true
    }
}

/// The second word of a fragment, without the valid bit; `None` if the fragment is too long.
#[inline(always)]
pub(super) fn simple_descriptor<G: Generation>(sge: &Sge) -> Option<u64> {
    if !G::FRAGMENTS_CARRY_VALID {
        return Some(sge.length_and_key());
    }
    let descriptor = sge.length_and_key().rotate_left(32);
    // The longest length has no bit where the valid bit is.
    (descriptor & VALID == 0).then_some(descriptor)
}

/// Writes a receive WQE of one fragment in one quantum, and makes it valid.
#[inline(always)]
pub(super) fn write_simple<G: Generation>(
    quantum: &Quantum,
    address: u64,
    descriptor: u64,
    word_2: u64,
    valid: u64,
) {
    quantum[0].store(address);
    quantum[1].store(descriptor | if G::FRAGMENTS_CARRY_VALID { valid } else { 0 });
    quantum[2].store(word_2);
    barrier::wqe_before_valid();
    quantum[VALID_WORD].store(ReceiveHeader::from_bits(valid).bits());
}

/// Writes a receive WQE and makes it valid.
///
/// # Safety
/// The ring has a WQE at that position, of as many quanta as the list takes.
#[inline(always)]
pub(super) unsafe fn write_receive<G: Generation>(
    ring: &QuantumRing,
    position: u32,
    list: &[Sge],
    word_2: u64,
) {
    let valid = ring.valid(position);
    // SAFETY: as the caller promises.
    unsafe { fragments::write::<G>(ring.quanta_from(position), valid, None, list) };
    let quantum = ring.at(position);
    quantum[2].store(word_2);
    let more = more_of(list.len() as u32, G::EMPTY_FRAGMENT_COUNTS == Some(true));
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
