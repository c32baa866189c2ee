//! The poster's side of a send queue: one function per shape of WQE, and one place
//! where every WQE is placed.

use core::marker::PhantomData;
use core::sync::atomic::Ordering;

use super::inline_data::{self, Gathered};
use super::send::SendQueue;
use super::slots::Tracking;
use super::work::{Atomic, Bind, Fragments, Refusal, SendRequest, Sge, Written, descriptor, total_length};
use crate::barrier;
use crate::format::{BindKeys, Fragment, IMMEDIATE_WORD, Opcode, SendHeader, VALID, VALID_WORD};
use crate::generation::Generation;
use crate::registers::settled_reference;
use crate::ring::{Quantum, QuantumRing};

impl SendQueue {
    /// Starts to post.
    ///
    /// # Safety
    /// One batch at a time: while this one is used, no other thread uses one of the same queue, and
    /// what it did with an earlier one happened before.
    #[inline(always)]
    pub unsafe fn batch<G: Generation>(&self) -> SendBatch<'_, G> {
        let head = self.head.load(Ordering::Relaxed);
        SendBatch { queue: self, start: head, head, last: head, first: 0, generation: PhantomData }
    }

    /// Goes on with a batch that began at `start`.
    ///
    /// # Safety
    /// As for [`batch`](Self::batch).
    #[inline(always)]
    pub unsafe fn batch_from<G: Generation>(&self, start: u32) -> SendBatch<'_, G> {
        let head = self.head.load(Ordering::Relaxed);
        SendBatch { queue: self, start, head, last: head, first: 0, generation: PhantomData }
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

/// A WQE of one fragment whose header is still to come: written to the ring in part, so that
/// nobody sees it.
#[derive(Debug)]
pub struct Single<'queue> {
    position: u32,
    quantum: &'queue Quantum,
    length: u32,
}

impl<G: Generation> SendBatch<'_, G> {
    /// Rings the doorbell if anything was placed. Returns whether it was.
    #[inline(always)]
    pub fn finish(self) -> bool {
        let placed = !self.is_empty();
        if placed {
            self.announce();
        }
        placed
    }

    /// Rings the doorbell. There is something to ring it for.
    #[inline(always)]
    pub fn announce(self) {
        self.queue.ring::<G>(self.start, self.head);
    }
}

impl<'queue, G: Generation, const HELD: bool> SendBatch<'queue, G, HELD> {
    /// Whether nothing was placed.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.head == self.start
    }

    /// Position where it began.
    #[inline(always)]
    pub fn start(&self) -> u32 {
        self.start
    }

    /// Starts to place a send, write or read of one fragment, if nothing at all stands in the
    /// way; else changes nothing, and [`fragments`](Self::fragments) is to do it.
    #[inline(always)]
    pub fn start_single(&self, sge: &Sge) -> Option<Single<'queue>> {
        let (queue, position) = (self.queue, self.head);
        if position == queue.run.get().end || sge.length >= queue.single_bytes {
            return None;
        }
        let quantum = settled_reference(queue.ring.at(position));
        quantum[0].store(sge.address);
        quantum[1]
            .store(descriptor::<G>(sge) | if G::FRAGMENTS_CARRY_VALID { queue.run.get().valid } else { 0 });
        Some(Single { position, quantum, length: sge.length })
    }

    /// Gives what was started its word 2.
    #[inline(always)]
    pub fn set_remote(&self, single: &Single<'queue>, remote: u64) {
        single.quantum[2].store(remote);
    }

    /// Places what was started.
    #[inline(always)]
    pub fn finish_single(&mut self, single: Single<'queue>, wr_id: u64, header: SendHeader) {
        let cell = settled_reference(self.cell(single.position));
        cell.set_wr_id(wr_id);
        self.make_one(single.position, 1, header, single.length, single.quantum, cell);
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
        if list.len() > usize::from(self.most_fragments(request, immediate.is_some())) {
            return Err(Refusal::Invalid);
        }
        let slots = list.len() as u32 + u32::from(immediate.is_some());
        let quanta = 1 + slots / 2;
        let position = self.reserve(quanta, || check_length::<G>(list))?;
        let queue = self.queue;
        let fragments = Fragments::<G>::new(queue.ring.run(position, quanta), queue.run.get().valid);
        // One pass: lengths are looked at while the fragments are written. That they cannot be
        // expressed is the program's mistake.
        let Written { more, sum } = fragments.write(immediate, list);
        let Some(length) = sum.total::<G>() else {
            queue.unwrite(position, quanta);
            return Err(Refusal::Invalid);
        };
        queue.ring.at(position)[2].store(request.remote);
        let header = SendHeader::default().with_immediate(immediate.is_some()).with_more_fragments(more);
        self.complete(position, request, length, quanta, header);
        Ok(())
    }

    /// Fragments that a WQE of this operation may have.
    #[inline(always)]
    fn most_fragments(&self, request: &SendRequest, immediate: bool) -> u8 {
        if request.header.opcode() == Opcode::RdmaRead as u8 {
            self.queue.max_read_fragments
        } else if immediate {
            self.queue.max_fragments_with_immediate
        } else {
            self.queue.max_fragments
        }
    }

    /// Places a send or write whose data is copied into the WQE.
    ///
    /// # Errors
    /// [`Refusal`]; nothing is changed.
    ///
    /// # Safety
    /// All bytes of the list are readable.
    #[inline(always)]
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
        // One piece is copied from where it is.
        let (gathered, bytes, length);
        if let [sge] = list {
            (bytes, length) = (sge.address as usize as *const u8, sge.length);
            if length > self.queue.max_inline.into() {
                return Err(Refusal::Invalid);
            }
        } else {
            // SAFETY: readable by the caller's promise.
            let put_together = unsafe { Gathered::new(list, self.queue.max_inline.into()) };
            gathered = put_together.ok_or(Refusal::Invalid)?;
            (bytes, length) = (gathered.bytes(), gathered.length());
        }
        let quanta = G::INLINE.quanta(length as usize);
        let position = self.reserve(quanta, || Ok(()))?;
        let queue = self.queue;
        let place = queue.ring.run(position, quanta);
        // SAFETY: `length` bytes are readable there.
        unsafe { inline_data::write::<G>(place, queue.run.get().valid, bytes, length as usize) };
        let quantum = queue.ring.at(position);
        if G::INLINE.first_word > IMMEDIATE_WORD {
            quantum[IMMEDIATE_WORD].store(immediate.unwrap_or(0).into());
        }
        quantum[2].store(request.remote);
        let header = SendHeader::default()
            .with_immediate(immediate.is_some())
            .with_inline(true)
            .with_inline_length(length as u8);
        self.complete(position, request, length, quanta, header);
        Ok(())
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
        self.place(request, 8, 2, |ring, position, valid| {
            let quantum = ring.at(position);
            quantum[0].store(local.address);
            quantum[1].store(Fragment::default().with_key(local.key).bits());
            quantum[2].store(request.remote);
            let operands = ring.at(position.wrapping_add(1));
            operands[0].store(atomic.operand);
            operands[1].store(atomic.compare);
            operands[2].store(0);
            operands[3].store(valid);
            SendHeader::default().with_more_fragments(1)
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
        let request = SendRequest { header: request.header.with_remote_key(0), ..*request };
        self.place(&request, 0, 1, |ring, position, _| {
            let quantum = ring.at(position);
            quantum[0].store(bind.address.unwrap_or(0));
            quantum[1].store(BindKeys::default().with_window(window).with_region(region).bits());
            quantum[2].store(bind.length);
            SendHeader::default()
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
        let request = SendRequest { header: request.header.with_remote_key(0), ..*request };
        self.place(&request, 0, 1, |ring, position, _| {
            let quantum = ring.at(position);
            quantum[0].store(0);
            quantum[1].store(key.bits());
            quantum[2].store(0);
            SendHeader::default()
        })
    }

    /// Finds room for a WQE, lets `write` fill all of it but its header, and makes
    /// it valid.
    ///
    /// `write` gets the ring, the WQE's position and its valid bit; it returns what the header
    /// has besides that of the request.
    #[inline(always)]
    fn place(
        &mut self,
        request: &SendRequest,
        length: u32,
        quanta: u32,
        write: impl FnOnce(&QuantumRing, u32, u64) -> SendHeader,
    ) -> Result<(), Refusal> {
        let position = self.reserve(quanta, || Ok(()))?;
        let more = write(&self.queue.ring, position, self.queue.run.get().valid);
        self.complete(position, request, length, quanta, more);
        Ok(())
    }

    /// Makes a WQE valid that has all but its header, at a position that was
    /// [reserved](Self::reserve). `more` is what the header has besides that of the request.
    #[inline(always)]
    fn complete(&mut self, position: u32, request: &SendRequest, length: u32, quanta: u32, more: SendHeader) {
        self.pad_up_to(position);
        let queue = self.queue;
        let header = SendHeader::from_bits(request.header.bits() | more.bits());
        let cell = self.cell(position);
        cell.set_wr_id(request.wr_id);
        self.make_one(position, quanta, header, length, queue.ring.at(position), cell);
    }

    /// What is remembered of the WQE at a position.
    #[inline(always)]
    fn cell(&self, position: u32) -> &'queue Tracking {
        let queue = self.queue;
        // SAFETY: there are as many cells as the ring has quanta (`SendQueue::new`).
        unsafe { queue.tracking.at_index(queue.ring.index(position)) }
    }

    /// Makes the quanta at a position of the run, which have all but the header, a WQE.
    #[inline(always)]
    fn make_one(
        &mut self,
        position: u32,
        quanta: u32,
        header: SendHeader,
        length: u32,
        quantum: &Quantum,
        cell: &Tracking,
    ) {
        let run = self.queue.run.get();
        let next = position.wrapping_add(quanta);
        if G::FETCHES_PAIRS && quanta == 1 && next % 2 == 1 {
            self.queue.ring.at(next)[VALID_WORD].store(run.valid ^ VALID);
        }
        cell.set_extent(length, next);
        if HELD {
            self.last = position;
        }
        self.advance(quanta);
        barrier::wqe_before_valid();
        self.make_valid(position, quantum, self.queue.say_pushing::<G>(header).bits() | run.valid);
    }

    /// Writes a WQE's header; that of a held batch's first one is kept instead.
    #[inline(always)]
    pub(super) fn make_valid(&mut self, position: u32, quantum: &Quantum, header: u64) {
        if HELD && position == self.start {
            self.first = header;
        } else {
            quantum[VALID_WORD].store(header);
        }
    }

    /// Moves the head past a WQE; that of a held batch is nobody's business before it is finished.
    ///
    /// Comes before the valid bit: the device may complete the WQE as soon as it is valid, and the
    /// poller takes completions only of what lies below the head.
    #[inline(always)]
    pub(super) fn advance(&mut self, quanta: u32) {
        self.head = self.head.wrapping_add(quanta);
        if !HELD {
            // As it is the same, an addition in memory.
            let head = self.queue.head.load(Ordering::Relaxed).wrapping_add(quanta);
            // Release: see `SendQueue::outstanding`.
            self.queue.head.store(head, Ordering::Release);
        }
    }
}

/// Whether the bytes of a list can be expressed, before there is a place for it.
#[cold]
#[inline(never)]
fn check_length<G: Generation>(list: &[Sge]) -> Result<(), Refusal> {
    total_length::<G>(list).map(|_| ()).ok_or(Refusal::Invalid)
}
