//! A shared receive queue (GEN3).

use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, Ordering};

use super::receive::write_receive;
use super::work::{Refusal, Sge, are_expressible};
use crate::barrier;
use crate::format::SHADOW_INDEX;
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
    /// WQEs of the ring less one; also how many may be outstanding.
    mask: u32,
    max_fragments: u32,
    /// WQEs posted in all. Written by the poster.
    head: AtomicU32,
    /// WQEs completed in all. Written by pollers.
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
            mask: entries - 1,
            max_fragments: parts.max_fragments,
            head: AtomicU32::new(0),
            tail: AtomicU32::new(0),
        }
    }

    /// Starts to post. Only one batch at a time.
    #[inline(always)]
    pub fn batch<G: Generation>(&self) -> SharedReceiveBatch<'_, G> {
        let head = self.head.load(Ordering::Relaxed);
        SharedReceiveBatch {
            queue: self,
            start: head,
            head,
            // Acquire: a slot is written anew only after its completion was taken.
            tail: self.tail.load(Ordering::Acquire),
            generation: PhantomData,
        }
    }

    /// Counts a completion; false if nothing is outstanding, so that it cannot be one.
    #[inline(always)]
    pub(super) fn retire_one(&self) -> bool {
        let mut tail = self.tail.load(Ordering::Relaxed);
        loop {
            // Acquire: a WQE counts as posted before the device can complete it.
            if tail == self.head.load(Ordering::Acquire) {
                return false;
            }
            // Release: see `batch`.
            match self.tail.compare_exchange_weak(
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
            self.tail = queue.tail.load(Ordering::Acquire);
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
            barrier::before_doorbell();
            let index = self.head & self.queue.mask;
            self.queue.shadow.words()[SHADOW_INDEX].store(index.into());
        }
    }
}
