//! The one decoder of CQEs.
//!
//! A CQE is believed only as far as it agrees with what is outstanding: one that
//! names no living QP, or no outstanding WQE, is consumed and passed over.

use core::marker::PhantomData;

use super::completion::{Completion, CompletionFlags, Directory, Member, Side};
use super::queue_pair::{QueuePair, Service};
use super::send::SendQueue;
use super::slots::Tracked;
use crate::barrier;
use crate::format::{
    CompletionOpcode, CqeExtensionFlags, CqeIdentity, CqePayload, CqeStatus, EXTENSION_FLAGS,
    EXTENSION_IMMEDIATE, EXTENSION_SHARED_CONTEXT, FlushCode, MAJOR_FLUSHED, MAJOR_SHARED_FLUSHED, Opcode,
    SHADOW_INDEX, Status, VALID, VALID_WORD, is_datagram_note,
};
use crate::generation::Generation;
use crate::ring::{CompletionRing, ShadowArea};

/// What came of looking at the next CQE.
pub(super) enum Step {
    /// There is none.
    Empty,
    /// It was consumed and is none of the program's business.
    Passed,
    /// It completes a work request.
    Completed(Completion),
}

/// A CQE that has come.
struct Cqe {
    payload: CqePayload,
    context: u64,
    identity: CqeIdentity,
    status: CqeStatus,
    immediate: Option<u32>,
}

/// How a CQE with the error bit ended its work request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// In a flush.
    Flushed(FlushCode),
    /// In some other way.
    Unknown,
}

impl Cqe {
    /// The next CQE, if it has come in full.
    #[inline(always)]
    fn read(ring: &CompletionRing) -> Option<Self> {
        let entry = ring.entry();
        let status = entry[VALID_WORD].load();
        if (status ^ ring.valid()) & VALID != 0 {
            return None;
        }
        barrier::after_valid_bit();
        let status = CqeStatus::from_bits(status);
        let mut immediate = None;
        if status.extended() {
            let (extension, valid) = ring.extension();
            let flags = extension[EXTENSION_FLAGS].load();
            if (flags ^ valid) & VALID != 0 {
                return None;
            }
            barrier::after_valid_bit();
            if CqeExtensionFlags::from_bits(flags).has_immediate() {
                immediate = Some(extension[EXTENSION_IMMEDIATE].load() as u32);
            }
        }
        Some(Self {
            payload: CqePayload::from_bits(entry[0].load()),
            context: entry[1].load(),
            identity: CqeIdentity::from_bits(entry[2].load()),
            status,
            immediate,
        })
    }

    /// The completion context of the QP whose shared receive completed.
    #[inline(always)]
    fn shared_context(&self, ring: &CompletionRing) -> Option<u64> {
        // In a 64-byte slot the word is there whether or not the rest of the
        // extension is.
        (ring.is_wide() || self.status.extended())
            .then(|| ring.extension().0[EXTENSION_SHARED_CONTEXT].load())
    }

    /// Of a CQE with the error bit: how it ended, and the code for the program.
    fn failure(&self) -> (Failure, u32) {
        let (major, minor) = (self.status.major_error(), self.status.minor_error());
        let (failure, minor) = match major {
            MAJOR_FLUSHED => (Failure::Flushed(FlushCode::from_minor(minor)), minor),
            MAJOR_SHARED_FLUSHED => {
                let code = FlushCode::from_event(minor);
                (Failure::Flushed(code), code.number())
            }
            _ => (Failure::Unknown, minor),
        };
        (failure, u32::from(major) << 16 | u32::from(minor))
    }

    /// A completion of a send WQE.
    #[inline(always)]
    fn send_completion(&self, wr_id: u64, tracked: Tracked, own: CompletionOpcode) -> Completion {
        let (opcode, status, length) = match Opcode::decode_completion(self.status.opcode()) {
            Some(opcode) => (opcode, Status::Success, tracked.length()),
            None => (own, Status::General, 0),
        };
        let (data, flags) = match self.immediate {
            Some(immediate) => (immediate.to_be(), CompletionFlags::IMMEDIATE),
            None => (0, CompletionFlags::empty()),
        };
        Completion {
            wr_id,
            status,
            opcode,
            vendor_error: 0,
            length,
            data,
            queue_pair: self.identity.queue_pair(),
            source_queue_pair: self.identity.queue_pair(),
            flags,
            timestamp: self.payload.timestamp(),
        }
    }

    /// A completion of a receive WQE.
    #[inline(always)]
    fn receive_completion(&self, wr_id: u64, queues: &QueuePair) -> Completion {
        let opcode = queues.receive_opcodes().decode(self.status.opcode(), self.immediate.is_some());
        let (mut data, mut flags) = match self.immediate {
            Some(immediate) => (immediate.to_be(), CompletionFlags::IMMEDIATE),
            None => (0, CompletionFlags::empty()),
        };
        let source_queue_pair = match queues.service() {
            Service::Datagram => {
                flags |= CompletionFlags::HEADER;
                self.identity.source_queue_pair()
            }
            Service::Connected => {
                // No message has both.
                if self.status.key_invalidated() {
                    data = self.identity.invalidated_key();
                    flags = CompletionFlags::INVALIDATED;
                }
                self.identity.queue_pair()
            }
        };
        Completion {
            wr_id,
            status: Status::Success,
            opcode,
            vendor_error: 0,
            length: self.payload.length(),
            data,
            queue_pair: self.identity.queue_pair(),
            source_queue_pair,
            flags,
            timestamp: self.payload.timestamp(),
        }
    }
}

/// Reads one ring of a completion queue.
pub(super) struct Reader<'queue, G> {
    ring: &'queue mut CompletionRing,
    shadow: &'queue ShadowArea,
    generation: PhantomData<G>,
}

impl<'queue, G: Generation> Reader<'queue, G> {
    #[inline(always)]
    pub(super) fn new(ring: &'queue mut CompletionRing, shadow: &'queue ShadowArea) -> Self {
        Self { ring, shadow, generation: PhantomData }
    }

    /// Looks at the next CQE.
    #[inline(always)]
    pub(super) fn step<D: Directory>(&mut self, directory: &D) -> Step {
        let Some(cqe) = Cqe::read(self.ring) else { return Step::Empty };
        if cqe.status.send() {
            match directory.find(cqe.context, Side::Send) {
                Some(member) => self.step_send(&cqe, member, directory),
                None => self.pass(&cqe),
            }
        } else if cqe.status.shared() {
            self.step_shared(&cqe, directory)
        } else {
            match directory.find(cqe.context, Side::Receive) {
                Some(member) => self.step_receive(&cqe, member, directory),
                None => self.pass(&cqe),
            }
        }
    }

    #[inline(always)]
    fn step_send<D: Directory>(&mut self, cqe: &Cqe, member: &D::Member, directory: &D) -> Step {
        let send = &member.queues().send;
        let index = cqe.status.wqe_index().into();
        if send.is_connection_completion(index) {
            return self.pass(cqe);
        }
        if cqe.status.is_special() {
            return self.step_special_send(cqe, member, directory);
        }
        self.complete_send(cqe, send)
    }

    /// A send that succeeded.
    #[inline(always)]
    fn complete_send(&mut self, cqe: &Cqe, send: &SendQueue) -> Step {
        let index = cqe.status.wqe_index().into();
        let Some((position, tracked)) = send.outstanding(index) else { return self.pass(cqe) };
        let Some(own) = tracked.opcode() else { return self.pass(cqe) };
        let completion = cqe.send_completion(send.wr_id(position), tracked, own);
        // The slot of the CQE goes back before the quanta of the WQE do, so that what
        // is posted into them finds room in the completion queue.
        self.consume(cqe);
        send.retire(position, tracked);
        Step::Completed(completion)
    }

    #[cold]
    fn step_special_send<D: Directory>(&mut self, cqe: &Cqe, member: &D::Member, directory: &D) -> Step {
        let queues = member.queues();
        let send = &queues.send;
        if cqe.status.push_dropped() {
            send.note_dropped_push();
        }
        if !cqe.status.error() {
            return self.complete_send(cqe, send);
        }
        let (failure, vendor_error) = cqe.failure();
        let Failure::Flushed(code) = failure else {
            let index = cqe.status.wqe_index().into();
            let Some((position, tracked)) = send.outstanding(index) else { return self.pass(cqe) };
            let Some(own) = tracked.opcode() else { return self.pass(cqe) };
            let note = queues.service() == Service::Datagram && is_datagram_note(cqe.status.major_error());
            if note && !tracked.is_signaled() {
                return self.pass(cqe);
            }
            let mut completion = cqe.send_completion(send.wr_id(position), tracked, own);
            if !note {
                completion.status = Status::General;
                completion.vendor_error = vendor_error;
                completion.length = 0;
            }
            self.consume(cqe);
            send.retire(position, tracked);
            return Step::Completed(completion);
        };

        queues.set_in_error();
        let Some((position, tracked)) = send.oldest() else {
            return self.pass_flush(cqe, member, Side::Send, directory);
        };
        // `oldest` finds no padding.
        let Some(own) = tracked.opcode() else { return self.pass(cqe) };
        let mut completion = cqe.send_completion(send.wr_id(position), tracked, own);
        completion.opcode = own;
        completion.length = tracked.length();
        completion.vendor_error = vendor_error;
        // A bind that the region does not allow is reported as a fault of protection.
        completion.status = match (own, code) {
            (CompletionOpcode::BindWindow, FlushCode::PROTECTION) => Status::WindowBind,
            _ => code.status(),
        };
        send.retire(position, tracked);
        self.consume_flush(cqe, member, Side::Send, directory);
        Step::Completed(completion)
    }

    #[inline(always)]
    fn step_receive<D: Directory>(&mut self, cqe: &Cqe, member: &D::Member, directory: &D) -> Step {
        if cqe.status.error() {
            return self.step_failed_receive(cqe, member, directory);
        }
        let queues = member.queues();
        let receive = &queues.receive;
        let index = cqe.status.wqe_index().into();
        let Some(position) = receive.outstanding(index) else { return self.pass(cqe) };
        let completion = cqe.receive_completion(receive.wr_id(position), queues);
        // As in `step_send`.
        self.consume(cqe);
        receive.retire(position);
        Step::Completed(completion)
    }

    #[cold]
    fn step_failed_receive<D: Directory>(&mut self, cqe: &Cqe, member: &D::Member, directory: &D) -> Step {
        let queues = member.queues();
        let receive = &queues.receive;
        let (failure, vendor_error) = cqe.failure();
        if failure != Failure::Unknown {
            queues.set_in_error();
        }
        let Some(position) = receive.oldest() else {
            return match failure {
                Failure::Flushed(_) => self.pass_flush(cqe, member, Side::Receive, directory),
                Failure::Unknown => self.pass(cqe),
            };
        };
        let mut completion = cqe.receive_completion(receive.wr_id(position), queues);
        completion.vendor_error = vendor_error;
        receive.retire(position);
        match failure {
            Failure::Flushed(code) => {
                completion.status = code.status();
                // No message, so nothing to tell the kinds of receives apart by.
                completion.opcode = CompletionOpcode::Receive;
                self.consume_flush(cqe, member, Side::Receive, directory);
            }
            Failure::Unknown => {
                completion.status = Status::General;
                self.consume(cqe);
            }
        }
        Step::Completed(completion)
    }

    #[inline(never)]
    fn step_shared<D: Directory>(&mut self, cqe: &Cqe, directory: &D) -> Step {
        let member = cqe.shared_context(self.ring).and_then(|context| directory.find(context, Side::Receive));
        let Some(member) = member else { return self.pass(cqe) };
        let Some(shared) = member.shared() else { return self.pass(cqe) };
        let queues = member.queues();
        // Here the word of the context is the program's id.
        let mut completion = cqe.receive_completion(cqe.context, queues);
        if cqe.status.error() {
            let (failure, vendor_error) = cqe.failure();
            completion.vendor_error = vendor_error;
            completion.status = match failure {
                Failure::Flushed(code) => {
                    queues.set_in_error();
                    completion.opcode = CompletionOpcode::Receive;
                    code.status()
                }
                Failure::Unknown => Status::General,
            };
        }
        // As in `step_send`.
        self.consume(cqe);
        if shared.retire_one() { Step::Completed(completion) } else { Step::Passed }
    }

    /// Hands the slot of the CQE back to the device.
    #[inline(always)]
    fn consume(&mut self, cqe: &Cqe) {
        self.ring.advance(cqe.status.extended());
        barrier::before_consumer_index();
        self.shadow.words()[SHADOW_INDEX].store(self.ring.index().into());
    }

    #[cold]
    fn pass(&mut self, cqe: &Cqe) -> Step {
        self.consume(cqe);
        Step::Passed
    }

    /// After a completion was made of a flush CQE: hands it back, or keeps it to make
    /// further completions of.
    fn consume_flush<D: Directory>(&mut self, cqe: &Cqe, member: &D::Member, side: Side, directory: &D) {
        if G::FLUSHES_EACH {
            Self::abandon(member, side, directory);
            self.consume(cqe);
            return;
        }
        if Self::is_drained(member, side) {
            self.consume(cqe);
            return;
        }
        // Only the first work request is told what went wrong.
        let rest = cqe.status.with_minor_error(FlushCode::GENERAL.number());
        self.ring.entry()[VALID_WORD].store(rest.bits());
    }

    /// A flush CQE of a queue that seems empty: unless something was posted at this
    /// very moment, it is of no more use.
    fn pass_flush<D: Directory>(&mut self, cqe: &Cqe, member: &D::Member, side: Side, directory: &D) -> Step {
        if G::FLUSHES_EACH {
            Self::abandon(member, side, directory);
            self.consume(cqe);
        } else if Self::is_drained(member, side) {
            self.consume(cqe);
        }
        Step::Passed
    }

    /// Whether a queue is empty, and whoever posts to it from now on knows that the
    /// QP is in error.
    fn is_drained<M: Member>(member: &M, side: Side) -> bool {
        let is_empty = || match side {
            Side::Send => member.queues().send.is_empty(),
            Side::Receive => member.queues().receive.is_empty(),
        };
        is_empty() && {
            member.await_poster(side);
            is_empty()
        }
    }

    /// Gives up a queue of which the device has written a flush CQE.
    fn abandon<D: Directory>(member: &D::Member, side: Side, directory: &D) {
        if member.queues().abandon(side) {
            member.await_poster(side);
        }
        // After that, so that the search sees all that nobody else will look for.
        directory.note_abandoned();
    }
}

/// CQEs that have come in a ring for shared receives of the QP with that completion context.
pub(super) fn shared_receives(ring: &CompletionRing, context: u64) -> u32 {
    let mut ring = ring.reader();
    let mut count = 0;
    for _ in 0..ring.slots() {
        let Some(cqe) = Cqe::read(&ring) else { break };
        let is_shared = !cqe.status.send() && cqe.status.shared();
        count += u32::from(is_shared && cqe.shared_context(&ring) == Some(context));
        ring.advance(cqe.status.extended());
    }
    count
}

/// Whether a CQE has come in a ring.
pub(super) fn is_ready(ring: &CompletionRing) -> bool {
    Cqe::read(ring).is_some()
}
