//! The poster's side of a send queue: one function per shape of WQE, and one place
//! where every WQE is placed.

use core::marker::PhantomData;
use core::sync::atomic::Ordering;

use super::inline_data::InlineData;
use super::send::SendQueue;
use super::slots::Tracked;
use super::work::{Atomic, Bind, Fragments, Refusal, SendRequest, Sge, total_length};
use crate::barrier;
use crate::format::{
    BindKeys, CompletionOpcode, Fragment, IMMEDIATE_WORD, Opcode, SendHeader, VALID, VALID_WORD,
};
use crate::generation::Generation;
use crate::limits::CLEAR_AHEAD;
use crate::ring::QuantumRing;

impl SendQueue {
    /// Starts to post. Only one batch at a time.
    #[inline(always)]
    pub fn batch<G: Generation>(&self) -> SendBatch<'_, G> {
        let head = self.head.load(Ordering::Relaxed);
        SendBatch { queue: self, start: head, head, last: head, first: 0, generation: PhantomData }
    }
}

/// Work requests on their way into a send queue.
///
/// What is placed here is the device's at once; [`finish`](Self::finish) tells
/// the device to look. One that is `HELD` is nobody's before it is finished: see
/// [`HeldBatch`](super::HeldBatch).
#[must_use = "the device is told by `finish`"]
#[derive(Debug)]
pub struct SendBatch<'queue, G, const HELD: bool = false> {
    pub(super) queue: &'queue SendQueue,
    /// Head when the batch was started.
    pub(super) start: u32,
    pub(super) head: u32,
    /// Position of the work request placed last. Of a held batch only.
    pub(super) last: u32,
    /// Header of the WQE at `start`, kept out of the ring. Of a held batch only.
    pub(super) first: u64,
    pub(super) generation: PhantomData<G>,
}

impl<G: Generation> SendBatch<'_, G> {
    /// Rings the doorbell if anything was placed. Returns whether it was.
    #[inline(always)]
    pub fn finish(self) -> bool {
        let placed = self.head != self.start;
        if placed {
            self.queue.ring::<G>(self.start, self.head);
        }
        placed
    }
}

impl<G: Generation, const HELD: bool> SendBatch<'_, G, HELD> {
    /// Position where it began.
    #[inline(always)]
    pub fn start(&self) -> u32 {
        self.start
    }

    /// Places a send, write or read whose data lies in the program's regions.
    ///
    /// # Errors
    /// [`Refusal`]; nothing is changed.
    #[inline(always)]
    pub fn fragments(
        &mut self,
        request: &SendRequest,
        list: &[Sge],
        immediate: Option<u32>,
    ) -> Result<(), Refusal> {
        // By far the most common one; the others are not worth its registers.
        let ([sge], None) = (list, immediate) else { return self.many_fragments(request, list, immediate) };
        let most = self.most_fragments(request.opcode, false);
        if most == 0 || sge.length > G::MAX_FRAGMENT_BYTES {
            return Err(Refusal::Invalid);
        }
        self.place(request, sge.length, 1, |header, ring, position, valid| {
            Fragments::<G>::new(ring, position, valid).write_first(sge);
            ring.at(position)[2].store(request.remote);
            header
        })
    }

    /// Any number of fragments, with or without an immediate.
    #[inline(never)]
    fn many_fragments(
        &mut self,
        request: &SendRequest,
        list: &[Sge],
        immediate: Option<u32>,
    ) -> Result<(), Refusal> {
        if list.len() > usize::from(self.most_fragments(request.opcode, immediate.is_some())) {
            return Err(Refusal::Invalid);
        }
        let length = total_length::<G>(list).ok_or(Refusal::Invalid)?;
        let slots = list.len() as u32 + u32::from(immediate.is_some());
        let quanta = 1 + slots / 2;
        self.place(request, length, quanta, |header, ring, position, valid| {
            let fragments = Fragments::<G>::new(ring, position, valid);
            let more = match immediate {
                Some(immediate) => fragments.write_after_immediate(immediate, list),
                None => fragments.write(list),
            };
            ring.at(position)[2].store(request.remote);
            header.with_immediate(immediate.is_some()).with_more_fragments(more)
        })
    }

    /// Fragments that a WQE of this operation may have.
    #[inline(always)]
    fn most_fragments(&self, opcode: Opcode, immediate: bool) -> u8 {
        match (opcode, immediate) {
            (Opcode::RdmaRead, _) => self.queue.max_read_fragments,
            (_, true) => self.queue.max_fragments_with_immediate,
            (_, false) => self.queue.max_fragments,
        }
    }

    /// Places a send or write whose data is copied into the WQE.
    ///
    /// # Errors
    /// [`Refusal`]; nothing is changed.
    ///
    /// # Safety
    /// All bytes of the list are readable.
    #[inline(never)]
    pub unsafe fn inline(
        &mut self,
        request: &SendRequest,
        list: &[Sge],
        immediate: Option<u32>,
    ) -> Result<(), Refusal> {
        if list.len() > usize::from(self.queue.max_fragments) {
            return Err(Refusal::Invalid);
        }
        // SAFETY: as the caller promises.
        unsafe { self.inline_pieces(request, list, immediate) }
    }

    /// The same in any number of pieces.
    ///
    /// # Errors
    /// [`Refusal`]; nothing is changed.
    ///
    /// # Safety
    /// All bytes of the list are readable, or more than the queue takes.
    #[inline(always)]
    pub unsafe fn inline_pieces(
        &mut self,
        request: &SendRequest,
        list: &[Sge],
        immediate: Option<u32>,
    ) -> Result<(), Refusal> {
        if immediate.is_some() && !G::INLINE.with_immediate {
            return Err(Refusal::Invalid);
        }
        let length = list.iter().map(|sge| u64::from(sge.length)).sum::<u64>();
        if length > u64::from(self.queue.max_inline) {
            return Err(Refusal::Invalid);
        }
        let length = length as u32;
        let quanta = G::INLINE.quanta(length as usize);
        self.place(request, length, quanta, |header, ring, position, valid| {
            // SAFETY: readable by the caller's promise; `length` is the sum, and at
            // most `MAX_BYTES` as `max_inline` is.
            let data = unsafe { InlineData::gather(list, length as usize) };
            data.write::<G>(ring, position, valid, quanta);
            let quantum = ring.at(position);
            if G::INLINE.first_word > IMMEDIATE_WORD {
                quantum[IMMEDIATE_WORD].store(immediate.unwrap_or(0).into());
            }
            quantum[2].store(request.remote);
            header.with_immediate(immediate.is_some()).with_inline(true).with_inline_length(length as u8)
        })
    }

    /// Places an atomic of eight bytes, whose old value goes to the one piece of the list.
    ///
    /// # Errors
    /// [`Refusal`]; nothing is changed.
    #[inline(never)]
    pub fn atomic(&mut self, request: &SendRequest, list: &[Sge], atomic: Atomic) -> Result<(), Refusal> {
        let [local] = list else { return Err(Refusal::Invalid) };
        if local.length != 8 || !request.remote.is_multiple_of(8) || self.queue.max_fragments == 0 {
            return Err(Refusal::Invalid);
        }
        self.place(request, 8, 2, |header, ring, position, valid| {
            let quantum = ring.at(position);
            quantum[0].store(local.address);
            quantum[1].store(Fragment::default().with_key(local.key).bits());
            quantum[2].store(request.remote);
            let operands = ring.at(position.wrapping_add(1));
            operands[0].store(atomic.operand);
            operands[1].store(atomic.compare);
            operands[2].store(0);
            operands[3].store(valid);
            header.with_more_fragments(1)
        })
    }

    /// Places a window bind. Of the request, `remote` and `remote_key` are not used.
    ///
    /// # Errors
    /// [`Refusal`]; nothing is changed.
    #[inline(never)]
    pub fn bind(&mut self, request: &SendRequest, bind: &Bind) -> Result<(), Refusal> {
        let (window, region) = if G::BIND_KEYS_EXCHANGED {
            (bind.region_key, bind.window_key)
        } else {
            (bind.window_key, bind.region_key)
        };
        let request = SendRequest { remote_key: 0, ..*request };
        self.place(&request, 0, 1, |header, ring, position, _| {
            let quantum = ring.at(position);
            quantum[0].store(bind.address.unwrap_or(0));
            quantum[1].store(BindKeys::default().with_window(window).with_region(region).bits());
            quantum[2].store(bind.length);
            header
                .with_rights(u8::from(bind.remote_read) << 2 | u8::from(bind.remote_write) << 3)
                .with_virtual_addresses(bind.address.is_some())
                .with_window_type_1(bind.type_1)
                .with_remote_atomics(bind.remote_atomic)
        })
    }

    /// Places a local invalidate of a key. Of the request, `remote` and
    /// `remote_key` are not used.
    ///
    /// # Errors
    /// [`Refusal`]; nothing is changed.
    #[inline(never)]
    pub fn invalidate(&mut self, request: &SendRequest, key: u32) -> Result<(), Refusal> {
        let key = if G::FRAGMENTS_CARRY_VALID {
            Fragment::default().with_key(key)
        } else {
            Fragment::default().with_gen1_key(key)
        };
        let request = SendRequest { remote_key: 0, ..*request };
        self.place(&request, 0, 1, |header, ring, position, _| {
            let quantum = ring.at(position);
            quantum[0].store(0);
            quantum[1].store(key.bits());
            quantum[2].store(0);
            header
        })
    }

    /// Finds room for a WQE, lets `write` fill all of it but its header, and makes
    /// it valid.
    ///
    /// `write` gets the header so far, the ring, the WQE's position and its valid
    /// bit; it returns the header to write.
    #[inline(always)]
    fn place(
        &mut self,
        request: &SendRequest,
        length: u32,
        quanta: u32,
        write: impl FnOnce(SendHeader, &QuantumRing, u32, u64) -> SendHeader,
    ) -> Result<(), Refusal> {
        let Some(completion) = request.opcode.completion() else { return Err(Refusal::Invalid) };
        let queue = self.queue;
        let position = self.reserve(quanta)?;
        let valid = queue.ring.valid(position);
        if position % CLEAR_AHEAD == 0 {
            self.clear_ahead(position.wrapping_add(CLEAR_AHEAD));
        }
        let next = position.wrapping_add(quanta);
        if G::FETCHES_PAIRS && quanta == 1 && next % 2 == 1 {
            queue.ring.at(next)[VALID_WORD].store(valid ^ VALID);
        }
        let header = write(request.header(), &queue.ring, position, valid);
        let header = queue.say_pushing::<G>(header);
        self.remember(position, quanta, length, completion, request);
        barrier::wqe_before_valid();
        self.make_valid(position, header.bits() | valid);
        Ok(())
    }

    /// Writes a WQE's header; that of a held batch's first one is kept instead.
    #[inline(always)]
    fn make_valid(&mut self, position: u32, header: u64) {
        if HELD && position == self.start {
            self.first = header;
        } else {
            self.queue.ring.at(position)[VALID_WORD].store(header);
        }
    }

    /// Notes a WQE for the poller and moves the head past it.
    ///
    /// Comes before the valid bit: the device may complete the WQE as soon as it
    /// is valid, and the poller takes completions only of what lies below the head.
    #[inline(always)]
    fn remember(
        &mut self,
        position: u32,
        quanta: u32,
        length: u32,
        completion: CompletionOpcode,
        request: &SendRequest,
    ) {
        let tracked = Tracked::new(position, quanta, length, completion, request.signaled);
        self.queue.tracker.set(position, request.wr_id, tracked);
        self.head = position.wrapping_add(quanta);
        if HELD {
            self.last = position;
        } else {
            self.publish_head();
        }
    }

    /// Lets the poller see what lies below the head.
    #[inline(always)]
    pub(super) fn publish_head(&self) {
        // Release: see `SendQueue::outstanding`.
        self.queue.head.store(self.head, Ordering::Release);
    }

    /// Position for a WQE of that many quanta, after padding if the chunk does not
    /// hold it.
    #[inline(always)]
    fn reserve(&mut self, quanta: u32) -> Result<u32, Refusal> {
        let left = (self.queue.chunk_mask + 1) - (self.head & self.queue.chunk_mask);
        if quanta <= left {
            self.require(quanta)?;
        } else {
            self.require(quanta + left)?;
            self.pad(left);
        }
        Ok(self.head)
    }

    /// Whether that many quanta are free.
    #[inline(always)]
    fn require(&self, quanta: u32) -> Result<(), Refusal> {
        let known_tail = self.queue.known_tail.load(Ordering::Relaxed);
        if self.head.wrapping_sub(known_tail) + quanta <= self.queue.capacity {
            return Ok(());
        }
        self.require_after_looking(quanta)
    }

    #[cold]
    #[inline(never)]
    fn require_after_looking(&self, quanta: u32) -> Result<(), Refusal> {
        // Acquire: the poller has read what it needs of the cells below the tail
        // (`SendQueue::retire`) before they are written anew.
        let tail = self.queue.retired.tail.load(Ordering::Acquire);
        self.queue.known_tail.store(tail, Ordering::Relaxed);
        if self.head.wrapping_sub(tail) + quanta <= self.queue.capacity { Ok(()) } else { Err(Refusal::Full) }
    }

    /// Fills the rest of a chunk with WQEs that do nothing.
    #[cold]
    #[inline(never)]
    fn pad(&mut self, quanta: u32) {
        let queue = self.queue;
        let header = SendHeader::default().with_opcode(Opcode::Nop as u8);
        for _ in 0..quanta {
            queue.tracker.set(self.head, 0, Tracked::none(self.head));
            let quantum = queue.ring.at(self.head);
            quantum[0].store(0);
            quantum[1].store(0);
            quantum[2].store(0);
            barrier::wqe_before_valid();
            self.make_valid(self.head, header.bits() | queue.ring.valid(self.head));
            self.head = self.head.wrapping_add(1);
        }
    }

    /// Makes a block of quanta read as not valid on the lap of `position`, its first.
    #[cold]
    #[inline(never)]
    fn clear_ahead(&self, position: u32) {
        let ring = &self.queue.ring;
        let byte = if ring.valid(position) != 0 { 0x00 } else { 0xFF };
        ring.fill(position, CLEAR_AHEAD, byte);
    }
}
