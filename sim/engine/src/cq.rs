//! Completion queues: the producer's side of the ring, overflow, resize.

use crate::arm::Arming;
use crate::cqe::{Completion, Q3_ERROR, Q3_EXTENDED, Q3_SOLICITED, slot_bytes};
use crate::engine::Engine;
use crate::event::{AsyncEvent, Source, Subject, code};
use crate::format::{Field, QUANTUM, word};
use crate::platform::{MemoryFault, Platform};
use crate::spec::{CqId, CqRing, CqSpec, EngineError, FunctionId, Span};

/// Most slots of a ring.
const MAX_ENTRIES: u32 = 1 << 21;
/// Bytes of the shadow area that the device reads: consumer index at 0, arm word at 32.
const SHADOW_BYTES: usize = 40;
/// Completed resizes, in the arm word: which ring the consumer index is about.
const RESIZES_SEEN: Field = Field::new(13, 0);

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Cq<B> {
    ring: CqRing<B>,
    shadow: Span<B>,
    slot_size: usize,
    /// Next slot to write.
    tail: u32,
    polarity: bool,
    /// Slots written and, as far as is known, not consumed.
    used: u32,
    /// Consumer index as last seen.
    head: u32,
    /// Slots written in all.
    produced: u64,
    /// `produced` after the last CQE that concerns solicited requests.
    solicited_at: u64,
    resizes: u64,
    /// Where the ring before the last resize ended, and whether it had solicited CQEs left.
    previous: Option<Previous>,
    pub(crate) arming: Arming,
    failed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Previous {
    tail: u64,
    solicited: bool,
}

/// Completions that the consumer has not taken yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pending {
    pub(crate) any: bool,
    pub(crate) solicited: bool,
}

/// Why a CQE could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CqFailure {
    /// No free slot.
    Overflow,
    /// The ring's or the shadow area's memory is gone.
    Fault,
    /// It failed before.
    Failed,
}

impl From<MemoryFault> for CqFailure {
    fn from(MemoryFault: MemoryFault) -> Self {
        Self::Fault
    }
}

impl<B> Cq<B> {
    fn new(spec: CqSpec<B>) -> Self {
        Self {
            ring: spec.ring,
            shadow: spec.shadow,
            slot_size: spec.slot_bytes,
            tail: 0,
            polarity: true,
            used: 0,
            head: 0,
            produced: 0,
            solicited_at: 0,
            resizes: 0,
            previous: None,
            arming: Arming::default(),
            failed: false,
        }
    }

    /// Reads what the consumer published: its index, and the arm word, which is returned.
    pub(crate) fn refresh<P: Platform<Backing = B>>(&mut self, platform: &mut P) -> Result<u64, MemoryFault> {
        let mut shadow = [0; SHADOW_BYTES];
        platform.read(&self.shadow.backing, self.shadow.offset, &mut shadow)?;
        let head = word(&shadow, 0);
        let arm_word = word(&shadow, 4);
        if RESIZES_SEEN.get(arm_word) == RESIZES_SEEN.get(self.resizes) {
            self.previous = None;
            if head < u64::from(self.ring.entries) {
                let head = head as u32;
                let consumed = (head + self.ring.entries - self.head) % self.ring.entries;
                if consumed <= self.used {
                    self.used -= consumed;
                    self.head = head;
                }
            }
        } else if let Some(previous) = self.previous
            && previous.tail == head
        {
            // The ring before is drained; the consumer has not taken anything newer yet.
            self.previous = None;
        }
        Ok(arm_word)
    }

    /// What the consumer has not taken, as of the last [`Self::refresh`].
    pub(crate) fn pending(&self) -> Pending {
        let previous = self.previous;
        Pending {
            any: self.used > 0 || previous.is_some(),
            solicited: (self.used > 0 && self.solicited_at > self.produced - u64::from(self.used))
                || previous.is_some_and(|ring| ring.solicited),
        }
    }

    /// Writes one CQE of `slots` slots (the words of two go into one 64-byte slot).
    fn produce<P: Platform<Backing = B>>(
        &mut self,
        platform: &mut P,
        words: &[u64; 8],
        slots: u32,
    ) -> Result<(), CqFailure> {
        self.make_room(platform, slots)?;
        let second = if self.tail + 1 == self.ring.entries { 0 } else { self.tail + 1 };
        let second_polarity = self.polarity ^ (second == 0);
        let first_words = [words[0], words[1], words[2], words[3]];
        let second_words = [words[4], words[5], words[6], words[7]];
        let wide = self.slot_size > QUANTUM;
        let first = slot_bytes(&first_words, self.polarity);
        let first_offset = self.slot_offset(self.tail);
        // The consumer looks at the first slot's valid word: it appears after all else.
        if wide {
            let extended = Q3_EXTENDED.is_set(words[3]);
            let rest = slot_bytes(&second_words, self.polarity ^ !extended);
            platform.write_pieces(
                &self.ring.ring.backing,
                &[
                    (first_offset + QUANTUM as u64, &rest),
                    (first_offset, &first[..24]),
                    (first_offset + 24, &first[24..]),
                ],
            )?;
        } else if slots == 2 {
            let rest = slot_bytes(&second_words, second_polarity);
            platform.write_pieces(
                &self.ring.ring.backing,
                &[
                    (self.slot_offset(second), &rest),
                    (first_offset, &first[..24]),
                    (first_offset + 24, &first[24..]),
                ],
            )?;
        } else {
            platform.write_pieces(
                &self.ring.ring.backing,
                &[(first_offset, &first[..24]), (first_offset + 24, &first[24..])],
            )?;
        }
        for _ in 0..slots {
            self.tail += 1;
            if self.tail == self.ring.entries {
                self.tail = 0;
                self.polarity = !self.polarity;
            }
        }
        self.used += slots;
        self.produced += u64::from(slots);
        if Q3_SOLICITED.is_set(words[3]) || Q3_ERROR.is_set(words[3]) {
            self.solicited_at = self.produced;
        }
        Ok(())
    }

    /// Makes sure of `slots` free slots, looking for what the consumer has freed if need be.
    fn make_room<P: Platform<Backing = B>>(&mut self, platform: &mut P, slots: u32) -> Result<(), CqFailure> {
        if self.failed {
            return Err(CqFailure::Failed);
        }
        // One slot stays free, so that a full ring and an empty one have different indexes.
        if self.used + slots >= self.ring.entries {
            self.refresh(platform)?;
            if self.used + slots >= self.ring.entries {
                return Err(CqFailure::Overflow);
            }
        }
        Ok(())
    }

    fn slot_offset(&self, slot: u32) -> u64 {
        self.ring.ring.offset + u64::from(slot) * self.slot_size as u64
    }

    fn resize(&mut self, ring: CqRing<B>) {
        let pending = self.pending();
        self.previous = (self.used > 0 || self.previous.is_some())
            .then_some(Previous { tail: self.tail.into(), solicited: pending.solicited });
        self.ring = ring;
        self.tail = 0;
        self.polarity = true;
        self.used = 0;
        self.head = 0;
        self.resizes += 1;
    }
}

fn check_cq_ring<B>(ring: &CqRing<B>, slot_bytes: usize) -> Result<(), EngineError> {
    let bytes = u64::from(ring.entries) * slot_bytes as u64;
    let fits = (2..=MAX_ENTRIES).contains(&ring.entries) && ring.ring.offset.checked_add(bytes).is_some();
    if fits && matches!(slot_bytes, 32 | 64) { Ok(()) } else { Err(EngineError::Invalid) }
}

impl<P: Platform> Engine<P> {
    /// Creates a completion queue; its ring is empty and starts with polarity 1.
    ///
    /// # Errors
    /// Unknown function; slots of another size; a ring of less than two or more than 2^21 slots, or beyond the address
    /// space; the number is taken, or none is left.
    pub fn create_cq(
        &mut self,
        function: FunctionId,
        spec: CqSpec<P::Backing>,
        number: Option<u32>,
    ) -> Result<CqId, EngineError> {
        self.check_function(function)?;
        check_cq_ring(&spec.ring, spec.slot_bytes)?;
        spec.shadow.offset.checked_add(SHADOW_BYTES as u64).ok_or(EngineError::Invalid)?;
        self.cqs.insert(function, number, Cq::new(spec))
    }

    /// Gives the queue another ring; completions from now on go there, from index 0 with
    /// polarity 1. The old ring is not touched any more.
    ///
    /// # Errors
    /// Unknown queue; a ring as [`Self::create_cq`] refuses it.
    pub fn resize_cq(&mut self, cq: CqId, ring: CqRing<P::Backing>) -> Result<(), EngineError> {
        let queue = self.cqs.get_mut(cq).ok_or(EngineError::NotFound)?;
        check_cq_ring(&ring, queue.slot_size)?;
        // A shadow area out of reach shows itself when the next CQE is written.
        let _ = queue.refresh(&mut self.platform);
        queue.resize(ring);
        Ok(())
    }

    /// Takes the queue away.
    ///
    /// # Errors
    /// Unknown queue; a queue pair still uses it.
    pub fn destroy_cq(&mut self, cq: CqId) -> Result<(), EngineError> {
        if !self.cqs.contains(cq) {
            return Err(EngineError::NotFound);
        }
        if self.qps.values().any(|qp| qp.send_cq == cq || qp.recv_cq == cq) {
            return Err(EngineError::Busy);
        }
        self.cqs.remove(cq);
        Ok(())
    }

    /// Puts a hand-made CQE into the queue (of the control queue's commands; fault injection);
    /// the device sets the valid bits.
    /// `bytes` is a slot, or two slots of 32 bytes: a CQE and its extension.
    ///
    /// # Errors
    /// Unknown queue; another length; the queue is full, failed or out of reach.
    pub fn write_cqe(&mut self, cq: CqId, bytes: &[u8]) -> Result<(), EngineError> {
        let queue = self.cqs.get_mut(cq).ok_or(EngineError::NotFound)?;
        let slots = match (bytes.len(), queue.slot_size) {
            (32, 32) | (64, 64) => 1,
            (64, 32) => 2,
            _ => return Err(EngineError::Invalid),
        };
        let mut words = [0; 8];
        for (index, target) in words.iter_mut().enumerate().take(bytes.len() / 8) {
            *target = word(bytes, index);
        }
        match queue.produce(&mut self.platform, &words, slots) {
            Ok(()) => {}
            Err(CqFailure::Overflow | CqFailure::Failed) => return Err(EngineError::Exhausted),
            Err(CqFailure::Fault) => return Err(EngineError::Fault),
        }
        self.notify_cq(cq, Q3_SOLICITED.is_set(words[3]) || Q3_ERROR.is_set(words[3]));
        Ok(())
    }

    /// Writes a completion and tells the consumer if it asked. A queue that cannot take it
    /// has failed for good: the event is reported, once.
    pub(crate) fn complete(&mut self, cq: CqId, completion: &Completion) -> Result<(), CqFailure> {
        let queue = self.cqs.get_mut(cq).ok_or(CqFailure::Failed)?;
        let slots = if completion.is_extended() && queue.slot_size == QUANTUM { 2 } else { 1 };
        if let Err(failure) = queue.produce(&mut self.platform, &completion.words(), slots) {
            if !queue.failed {
                queue.failed = true;
                self.platform.async_event(AsyncEvent {
                    subject: Subject::Cq(cq),
                    code: code::CQ_OPERATION_ERROR,
                    source: Source::CompletionQueue,
                    wqe_index: None,
                });
            }
            return Err(failure);
        }
        self.notify_cq(cq, completion.solicited || completion.error);
        Ok(())
    }

    /// Whether the queue would take one more CQE.
    pub(crate) fn cq_has_room(&mut self, cq: CqId) -> bool {
        self.cqs.get_mut(cq).is_some_and(|queue| queue.make_room(&mut self.platform, 1).is_ok())
    }
}
