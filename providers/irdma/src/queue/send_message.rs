//! Send WQEs that move a message: sends, writes and reads of any data.

use core::hint::cold_path;

use super::fragments::{self, Lengths, more_of, quanta_of};
use super::inline_data::{self, Gathered};
use super::send::SendQueue;
use super::send_batch::{SendBatch, Started};
use super::work::{Refusal, SendRequest, Sge, total_length};
use crate::format::{IMMEDIATE_WORD, Opcode, SendHeader};
use crate::generation::WqeFormat;
use crate::registers;
use crate::ring::Quanta;

/// What takes fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taker {
    /// A send or write.
    Message,
    /// A send or write with an immediate.
    MessageWithImmediate,
    /// A read.
    Read,
}

/// Why a WQE was not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// It needs more than a look, and nothing is changed.
    InTheWay,
    /// It is not possible, or takes a second look at its lengths, and what was written to the ring is to be
    /// [taken out](SendQueue::unwrite_started) before anything else is placed.
    Written,
}

impl SendQueue {
    /// Whether something takes a list of so many pieces, and there are some.
    #[inline(always)]
    pub fn takes(&self, pieces: u32, taker: impl FnOnce() -> Taker) -> bool {
        if pieces.wrapping_sub(1) < self.fragments_of_all.into() {
            return true;
        }
        cold_path();
        let most = match taker() {
            Taker::Message => self.max_fragments,
            Taker::MessageWithImmediate => self.max_fragments_with_immediate,
            Taker::Read => self.max_read_fragments,
        };
        (1..=most.into()).contains(&pieces)
    }
}

impl<'queue, G: WqeFormat, const HELD: bool> SendBatch<'queue, G, HELD> {
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
        let is_read = request.header.opcode() == Opcode::RdmaRead as u8;
        let taker = match immediate {
            _ if is_read => Taker::Read,
            None => Taker::Message,
            Some(_) => Taker::MessageWithImmediate,
        };
        if !list.is_empty() && !self.queue.takes(list.len() as u32, || taker) {
            return Err(Refusal::Invalid);
        }
        let slots = list.len() as u32 + u32::from(immediate.is_some());
        let quanta = quanta_of(slots);
        let position = self.reserve(quanta, || check_length::<G>(list))?;
        let place = self.queue.ring.quanta_from(position);
        // Lengths are looked at while the fragments are written. That they cannot be expressed is
        // the program's mistake.
        // SAFETY: the run has as many quanta.
        let lengths = unsafe { self.write_fragments(place, immediate, list) };
        let Some(length) = lengths.total::<G>(list) else {
            self.queue.unwrite(position, quanta);
            return Err(Refusal::Invalid);
        };
        place.first()[2].store(request.remote);
        let header = SendHeader::default()
            .with_immediate(immediate.is_some())
            .with_more_fragments(self.more_of(slots));
        self.complete(position, request, length, quanta, header);
        Ok(())
    }

    /// Starts to place what [`fragments`](Self::fragments) does, if nothing stands in the way. Needs
    /// so few registers that none is to be saved.
    ///
    /// # Errors
    /// [`Obstacle`].
    #[inline(always)]
    pub fn start_fragments(
        &self,
        list: &[Sge],
        taker: impl FnOnce() -> Taker,
        immediate: Option<u32>,
    ) -> Result<Started<'queue>, Obstacle> {
        let queue = self.queue;
        let slots = list.len() as u32 + u32::from(immediate.is_some());
        if !queue.takes(list.len() as u32, taker) {
            return Err(Obstacle::InTheWay);
        }
        let position = self.room(quanta_of(slots)).ok_or(Obstacle::InTheWay)?;
        let place = queue.ring.quanta_from(position).settled();
        // SAFETY: the run has as many quanta.
        let lengths = unsafe { self.write_fragments(place, immediate, list) };
        let length = lengths.total_if_short().ok_or(Obstacle::Written)?;
        registers::forget();
        let data = SendHeader::default().with_more_fragments(self.more_of(slots));
        Ok(Started { position, quantum: place.first(), length, quanta: quanta_of(slots), data })
    }

    /// Starts to place what [`inline`](Self::inline) does with a list of one element, if nothing
    /// stands in the way. Needs so few registers that none is to be saved.
    ///
    /// # Safety
    /// As for [`inline_bytes`](Self::inline_bytes).
    #[inline(always)]
    pub unsafe fn start_inline(&self, piece: &Sge) -> Option<Started<'queue>> {
        let queue = self.queue;
        let (from, length) = (piece.address as usize as *const u8, piece.length);
        if length >= queue.single_inline_bytes.into() {
            return None;
        }
        let quanta = G::INLINE.quanta(length as usize);
        let position = self.room(quanta)?;
        let place = queue.ring.quanta_from(position).settled();
        // SAFETY: as the caller promises; the run has as many quanta, of which only the poster uses any.
        unsafe { inline_data::write::<G>(place, || queue.run.get().valid, from, length as usize) };
        registers::forget();
        Some(Started { position, quantum: place.first(), length, quanta, data: inline_header(length) })
    }

    /// Whether inline data can have an immediate.
    #[inline(always)]
    pub fn takes_immediate_inline(&self) -> bool {
        G::INLINE.with_immediate
    }

    /// Gives inline data that was started its immediate, or none.
    #[inline(always)]
    pub fn set_immediate(&self, started: &Started<'queue>, immediate: Option<u32>) {
        if G::INLINE.first_word > IMMEDIATE_WORD {
            started.quantum[IMMEDIATE_WORD].store(immediate.unwrap_or(0).into());
        }
    }

    /// Value of the count of further fragments for so many slots.
    #[inline(always)]
    fn more_of(&self, slots: u32) -> u8 {
        more_of(slots, G::EMPTY_FRAGMENT_COUNTS.unwrap_or(self.queue.empty_fragment_counts))
    }

    /// Writes the fragments of a WQE.
    ///
    /// # Safety
    /// The run has as many quanta there as they take. (So the ring has: blocks divide it, and no run
    /// crosses the end of one.)
    #[inline(always)]
    unsafe fn write_fragments(&self, place: Quanta<'_>, immediate: Option<u32>, list: &[Sge]) -> Lengths {
        // SAFETY: as the caller promises; of the quanta of the run only the poster uses any.
        unsafe { fragments::write::<G>(place, self.queue.run.get().valid, immediate, list) }
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
        // SAFETY: readable by the caller's promise.
        unsafe {
            // One piece is copied from where it is.
            if let [sge] = list {
                return self.inline_bytes(request, sge, immediate);
            }
            self.inline_gathered(request, list, immediate)
        }
    }

    /// The same for any number of pieces. Out of line for its buffer.
    ///
    /// # Errors
    /// [`Refusal`]; nothing is changed.
    ///
    /// # Safety
    /// All bytes of the list are readable.
    #[inline(never)]
    unsafe fn inline_gathered(
        &mut self,
        request: &SendRequest,
        list: &[Sge],
        immediate: Option<u32>,
    ) -> Result<(), Refusal> {
        // SAFETY: readable by the caller's promise.
        unsafe {
            let gathered = Gathered::new(list, self.queue.max_inline.into()).ok_or(Refusal::Invalid)?;
            self.inline_bytes(request, &gathered.piece(), immediate)
        }
    }

    /// The same for one piece of any length; its key is not looked at.
    ///
    /// # Errors
    /// [`Refusal`]; nothing is changed.
    ///
    /// # Safety
    /// All its bytes are readable, or there are more than the queue takes.
    #[inline(always)]
    pub unsafe fn inline_bytes(
        &mut self,
        request: &SendRequest,
        piece: &Sge,
        immediate: Option<u32>,
    ) -> Result<(), Refusal> {
        if piece.length > self.queue.max_inline.into() || immediate.is_some() && !G::INLINE.with_immediate {
            return Err(Refusal::Invalid);
        }
        let (from, length) = (piece.address as usize as *const u8, piece.length as usize);
        let quanta = G::INLINE.quanta(length);
        let position = self.reserve(quanta, || Ok(()))?;
        let queue = self.queue;
        let place = queue.ring.quanta_from(position);
        // SAFETY: as the caller promises; the run has as many quanta, of which only the poster uses any.
        unsafe { inline_data::write::<G>(place, || queue.run.get().valid, from, length) };
        if G::INLINE.first_word > IMMEDIATE_WORD {
            place.first()[IMMEDIATE_WORD].store(immediate.unwrap_or(0).into());
        }
        place.first()[2].store(request.remote);
        let header = inline_header(piece.length).with_immediate(immediate.is_some());
        self.complete(position, request, piece.length, quanta, header);
        Ok(())
    }
}

/// What the header of a WQE says about its inline data.
#[inline(always)]
fn inline_header(length: u32) -> SendHeader {
    SendHeader::default().with_inline(true).with_inline_length(length as u8)
}

/// Whether the bytes of a list can be expressed, before there is a place for it.
#[cold]
#[inline(never)]
fn check_length<G: WqeFormat>(list: &[Sge]) -> Result<(), Refusal> {
    total_length::<G>(list).map(|_| ()).ok_or(Refusal::Invalid)
}
