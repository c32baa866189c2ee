//! A shared receive queue (GEN3).

use core::hint::cold_path;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, Ordering};

use super::receive::{simple_descriptor, write_receive, write_simple};
use super::work::{Refusal, Sge, are_expressible};
use crate::barrier;
use crate::format::{QUANTUM_BYTES, SHADOW_INDEX};
use crate::generation::Generation;
use crate::ring::{QuantumRing, ShadowArea};

/// A shared receive queue: receives of many QPs, completed in any order.
///
/// The device hands the program's id back in the completion, so nothing is
/// remembered of a WQE but that it is outstanding. Pollers of several completion
/// queues retire WQEs at the same time.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct SharedReceiveQueue {
    ring: QuantumRing,
    shadow: ShadowArea,
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
    /// WQEs posted in all. Written by the poster.
    head: AtomicU32,
    /// A tail of the past. Written by the poster.
    known_tail: AtomicU32,
    retired: Retired,
}

/// What is the pollers' alone.
#[derive(Debug)]
#[repr(align(64))]
struct Retired {
    /// WQEs completed in all.
    tail: AtomicU32,
}

/// What a shared receive queue is made of.
#[derive(Debug)]
pub struct SharedReceiveQueueParts {
    /// Its ring.
    pub ring: QuantumRing,
    /// Its shadow area, which tells the device how far WQEs go.
    pub shadow: ShadowArea,
    /// Log2 of the quanta of a WQE.
    pub shift: u32,
    /// Fragments of a WQE.
    pub max_fragments: u32,
}

impl SharedReceiveQueue {
    /// An empty queue.
    ///
    /// # Panics
    /// If the parts do not fit together: see
    /// [`WorkQueueSize::answered`](crate::limits::WorkQueueSize::answered).
    pub fn new(parts: SharedReceiveQueueParts) -> Self {
        assert!(parts.shift <= 3, "a WQE has at most eight quanta");
        let entries = parts.ring.quanta() >> parts.shift;
        assert!(entries >= 2, "one WQE stays free");
        assert!(parts.max_fragments < 2 << parts.shift, "a WQE has room for its fragments");
        Self {
            ring: parts.ring,
            shadow: parts.shadow,
            shift: parts.shift,
            log_bytes: parts.shift + QUANTUM_BYTES.ilog2(),
            mask: entries - 1,
            lap: entries,
            simple: if parts.max_fragments > 0 { entries - 1 } else { 0 },
            max_fragments: parts.max_fragments,
            head: AtomicU32::new(0),
            known_tail: AtomicU32::new(0),
            retired: Retired { tail: AtomicU32::new(0) },
        }
    }

    /// Posts a receive of one fragment, if nothing at all stands in the way, and tells the
    /// device; else changes nothing, and a [`batch`](Self::batch) is to do it.
    #[inline(always)]
    pub fn post_simple<G: Generation>(&self, wr_id: u64, sge: &Sge) -> bool {
        let mut run = self.simple_run::<G>();
        if run.room == 0 {
            cold_path();
            run.room = self.simple.saturating_sub(run.position.wrapping_sub(self.look()));
        }
        let is_placed = run.place(wr_id, sge);
        if is_placed {
            run.tell();
        }
        is_placed
    }

    /// Starts to post receives of one fragment, as long as nothing at all stands in the way.
    /// What it does not take, a [`batch`](Self::batch) that is started afterwards does.
    #[inline(always)]
    pub fn simple_run<G: Generation>(&self) -> SharedRun<'_, G> {
        let position = self.head.load(Ordering::Relaxed);
        let used = position.wrapping_sub(self.known_tail.load(Ordering::Relaxed));
        SharedRun {
            queue: self,
            start: position,
            position,
            room: self.simple.saturating_sub(used),
            generation: PhantomData,
        }
    }

    /// The tail as it is now.
    #[inline(always)]
    fn look(&self) -> u32 {
        // Acquire: a slot is written anew only after its completion was taken.
        let tail = self.retired.tail.load(Ordering::Acquire);
        self.known_tail.store(tail, Ordering::Relaxed);
        tail
    }

    /// Tells the device how far WQEs go.
    #[inline(always)]
    fn tell(&self, head: u32) {
        barrier::before_doorbell();
        self.shadow.words()[SHADOW_INDEX].store(u64::from(head & self.mask));
    }

    /// Starts to post. Only one batch at a time.
    #[inline(always)]
    pub fn batch<G: Generation>(&self) -> SharedReceiveBatch<'_, G> {
        let head = self.head.load(Ordering::Relaxed);
        SharedReceiveBatch { queue: self, start: head, head, tail: self.look(), generation: PhantomData }
    }

    /// Counts a completion; false if nothing is outstanding, so that it cannot be one.
    #[inline(always)]
    pub(super) fn retire_one(&self) -> bool {
        let mut tail = self.retired.tail.load(Ordering::Relaxed);
        loop {
            // Acquire: a WQE counts as posted before the device can complete it.
            if tail == self.head.load(Ordering::Acquire) {
                return false;
            }
            // Release: see `look`.
            match self.retired.tail.compare_exchange_weak(
                tail,
                tail.wrapping_add(1),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => tail = now,
            }
        }
    }
}

/// Receives on their way into a shared receive queue.
#[must_use = "the device is told by `finish`"]
#[derive(Debug)]
pub struct SharedReceiveBatch<'queue, G> {
    queue: &'queue SharedReceiveQueue,
    /// Head when the batch was started.
    start: u32,
    head: u32,
    /// A tail of the past.
    tail: u32,
    generation: PhantomData<G>,
}

impl<G: Generation> SharedReceiveBatch<'_, G> {
    /// Places a receive.
    ///
    /// # Errors
    /// [`Refusal`]; nothing is changed.
    #[inline(always)]
    pub fn place(&mut self, wr_id: u64, list: &[Sge]) -> Result<(), Refusal> {
        let queue = self.queue;
        if list.len() > queue.max_fragments as usize || !are_expressible::<G>(list) {
            return Err(Refusal::Invalid);
        }
        if self.head.wrapping_sub(self.tail) >= queue.mask {
            self.tail = queue.look();
            if self.head.wrapping_sub(self.tail) >= queue.mask {
                return Err(Refusal::Full);
            }
        }
        let position = self.head;
        self.head = position.wrapping_add(1);
        // Before the valid bit, as the device may complete the WQE as soon as it is valid.
        queue.head.store(self.head, Ordering::Release);
        // SAFETY: WQEs are of one size, which has room for `max_fragments`, and divides the ring.
        unsafe { write_receive::<G>(&queue.ring, position << queue.shift, list, wr_id) };
        Ok(())
    }

    /// Tells the device how far WQEs go now.
    #[inline(always)]
    pub fn finish(self) {
        if self.head != self.start {
            self.queue.tell(self.head);
        }
    }
}

/// Receives of one fragment on their way into a shared receive queue, one after the other.
#[must_use = "the device is told by `finish`"]
#[derive(Debug)]
pub struct SharedRun<'queue, G> {
    queue: &'queue SharedReceiveQueue,
    /// Where the first one is.
    start: u32,
    /// Where the next one will be.
    position: u32,
    /// Receives for which there is room, for all that is known.
    room: u32,
    generation: PhantomData<G>,
}

impl<G: Generation> SharedRun<'_, G> {
    /// Places a receive, or changes nothing and returns false.
    #[inline(always)]
    pub fn place(&mut self, wr_id: u64, sge: &Sge) -> bool {
        let queue = self.queue;
        let Some(descriptor) = simple_descriptor::<G>(sge) else { return false };
        let Some(less) = self.room.checked_sub(1) else { return false };
        self.room = less;
        let position = self.position;
        self.position = position.wrapping_add(1);
        // As in `SharedReceiveBatch::place`.
        queue.head.store(self.position, Ordering::Release);
        let offset = ((position & queue.mask) as usize) << queue.log_bytes;
        // SAFETY: of a WQE of the ring.
        let quantum = unsafe { queue.ring.offsets().at(offset) };
        let valid = u64::from(position & queue.lap == 0) << 63;
        write_simple::<G>(quantum, sge.address, descriptor, wr_id, valid);
        true
    }

    /// Tells the device how far WQEs go now.
    #[inline(always)]
    pub fn finish(self) {
        if self.position != self.start {
            self.tell();
        }
    }

    #[inline(always)]
    fn tell(&self) {
        self.queue.tell(self.position);
    }
}
