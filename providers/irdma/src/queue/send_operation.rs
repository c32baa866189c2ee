//! Send WQEs that move no message: atomics, binds and invalidates.

use super::send_batch::{SendBatch, Started};
use super::work::{Atomic, Bind, Refusal, SendRequest, Sge};
use crate::format::{BindKeys, Fragment, SendHeader};
use crate::generation::WqeFormat;
use crate::ring::QuantumRing;

/// Bytes of what an atomic changes.
const WORD: u32 = 8;

/// Quanta of an atomic: its operands have one of their own.
const ATOMIC_QUANTA: u32 = 2;

/// What the header of an atomic says about the piece that the old value goes to, and the operands.
const ATOMIC_DATA: SendHeader = SendHeader::from_bits(0).with_more_fragments(1);

impl<'queue, G: WqeFormat> SendBatch<'queue, G> {
    /// Starts to place what [`atomic`](Self::atomic) does, if nothing stands in the way; else
    /// changes nothing. The word of the peer's lies at a multiple of eight.
    #[inline(always)]
    pub fn start_atomic(
        &self,
        local: &Sge,
        operand: impl FnOnce() -> u64,
        compare: impl FnOnce() -> u64,
    ) -> Option<Started<'queue>> {
        let queue = self.queue;
        if local.length != WORD || queue.max_fragments == 0 {
            return None;
        }
        let position = self.room(ATOMIC_QUANTA)?;
        let place = queue.ring.quanta_from(position).settled();
        let quantum = place.first();
        quantum[0].store(local.address);
        quantum[1].store(Fragment::default().with_key(local.key).bits());
        // SAFETY: the run has two quanta there.
        let operands = unsafe { place.after(1) }.first();
        operands[0].store(operand());
        operands[1].store(compare());
        operands[2].store(0);
        operands[3].store(queue.run.get().valid);
        Some(Started { position, quantum, length: WORD, quanta: ATOMIC_QUANTA, data: ATOMIC_DATA })
    }
}

impl<G: WqeFormat, const HELD: bool> SendBatch<'_, G, HELD> {
    /// Places an atomic of eight bytes, whose old value goes to the one piece of the list.
    ///
    /// # Errors
    /// [`Refusal`]; nothing is changed.
    #[inline(never)]
    pub fn atomic(&mut self, request: &SendRequest, list: &[Sge], atomic: Atomic) -> Result<(), Refusal> {
        let [local] = list else { return Err(Refusal::Invalid) };
        if local.length != WORD
            || !request.remote.is_multiple_of(WORD.into())
            || self.queue.max_fragments == 0
        {
            return Err(Refusal::Invalid);
        }
        self.place(request, WORD, ATOMIC_QUANTA, |ring, position, valid| {
            let quantum = ring.at(position);
            quantum[0].store(local.address);
            quantum[1].store(Fragment::default().with_key(local.key).bits());
            quantum[2].store(request.remote);
            let operands = ring.at(position.wrapping_add(1));
            operands[0].store(atomic.operand);
            operands[1].store(atomic.compare);
            operands[2].store(0);
            operands[3].store(valid);
            ATOMIC_DATA
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
}
