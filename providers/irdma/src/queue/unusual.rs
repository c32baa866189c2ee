//! CQEs that take more than a look: with an immediate or another extension, of shared
//! receives, errors, flushes, and those that nobody waits for.

use super::completion::{Directory, Member, Origin, Outcome, Side};
use super::cqe::{Cqe, Failure};
use super::queue_pair::Service;
use crate::format::{CompletionOpcode, FlushCode, Status, VALID_WORD, is_datagram_note};
use crate::generation::Generation;
use crate::ring::{CompletionRing, ShadowArea};

/// A completion on its way to wherever the program wants it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    pub(super) outcome: Outcome,
    pub(super) origin: Origin,
    pub(super) timestamp: u32,
}

/// What came of looking at the next CQE.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// There is none.
    Empty,
    /// It was consumed and is none of the program's business, or not yet.
    Passed,
    /// It completes a work request.
    Completed(Made),
}

/// What a rare CQE is.
enum Rare {
    /// A completion of a work request. The CQE was handed back to the device, or is kept for more.
    Completion(Outcome, Origin),
    /// None that anybody waits for.
    Nothing,
    /// A flush of a queue that seems empty.
    Flush,
}

/// What a [`Generation`] is asked here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Habits {
    pub(super) flushes_each: bool,
    holds_back_page_ends: bool,
}

impl Habits {
    pub(super) const fn of<G: Generation>() -> Self {
        Self { flushes_each: G::FLUSHES_EACH, holds_back_page_ends: G::HOLDS_BACK_PAGE_ENDS }
    }
}

/// Reads one ring of a completion queue.
///
/// Compiled once, whatever the generation and wherever completions go: what comes here is rare, and
/// there is much of it.
pub(super) struct Reader<'queue, D> {
    pub(super) ring: &'queue mut CompletionRing,
    pub(super) shadow: &'queue ShadowArea,
    pub(super) directory: &'queue D,
    pub(super) habits: Habits,
}

impl<D: Directory> Reader<'_, D> {
    /// Looks at the next CQE.
    #[inline(always)]
    pub(super) fn step(&mut self) -> Step {
        let Some(cqe) = Cqe::read(self.ring) else { return Step::Empty };
        let side = if cqe.status.send() { Side::Send } else { Side::Receive };
        if side == Side::Receive && cqe.status.shared() {
            return self.step_shared(&cqe);
        }
        let Some(member) = self.directory.find(cqe.context, side) else { return self.pass(&cqe) };
        let rare = match side {
            Side::Send => self.rare_send(&cqe, member),
            Side::Receive if cqe.status.error() => self.failed_receive(&cqe, member),
            Side::Receive => return self.step_receive(&cqe, member),
        };
        match rare {
            Rare::Completion(outcome, origin) => Self::completed(&cqe, outcome, origin),
            Rare::Nothing => self.pass(&cqe),
            Rare::Flush => self.pass_flush(&cqe, member, side),
        }
    }

    #[inline(always)]
    fn completed(cqe: &Cqe, outcome: Outcome, origin: Origin) -> Step {
        Step::Completed(Made { outcome, origin, timestamp: cqe.payload.timestamp() })
    }

    fn rare_send(&mut self, cqe: &Cqe, member: &D::Member) -> Rare {
        let queues = member.queues();
        let send = &queues.send;
        if cqe.status.push_dropped() {
            send.note_dropped_push();
        }
        let failure = cqe.status.error().then(|| cqe.failure());
        if let Some((Failure::Flushed(code), vendor_error)) = failure {
            queues.set_in_error();
            let Some((cell, kind)) = send.oldest() else { return Rare::Flush };
            let (mut outcome, own) = (cqe.send_outcome(cell, kind), kind.opcode());
            outcome.opcode = own;
            outcome.length = cell.length();
            outcome.vendor_error = vendor_error;
            // A bind that the region does not allow is reported as a fault of protection.
            outcome.status = match (own, code) {
                (CompletionOpcode::BindWindow, FlushCode::PROTECTION) => Status::WindowBind,
                _ => code.status(),
            };
            send.retire(cell.end());
            self.consume_flush(cqe, member, Side::Send);
            return Rare::Completion(outcome, cqe.origin(send.origin()));
        }
        let index = cqe.status.wqe_index().into();
        let Some((cell, kind)) = send.outstanding_kind(index) else { return Rare::Nothing };
        let mut outcome = cqe.send_outcome(cell, kind);
        if let Some((_, vendor_error)) = failure {
            if queues.service() == Service::Datagram && is_datagram_note(cqe.status.major_error()) {
                if !kind.is_signaled() {
                    return Rare::Nothing;
                }
            } else {
                outcome.status = Status::General;
                outcome.vendor_error = vendor_error;
                outcome.length = 0;
            }
        }
        // The slot of the CQE goes back first: see `take_send` in `poll`.
        self.consume(cqe);
        send.retire(cell.end());
        Rare::Completion(outcome, cqe.origin(send.origin()))
    }

    #[inline(always)]
    fn step_receive(&mut self, cqe: &Cqe, member: &D::Member) -> Step {
        let queues = member.queues();
        let receive = &queues.receive;
        let index = cqe.status.wqe_index().into();
        let Some(position) = receive.outstanding(index) else { return self.pass(cqe) };
        let (outcome, origin) = cqe.receive_outcome(receive.wr_id(position), queues);
        // As in `rare_send`.
        self.consume(cqe);
        receive.retire(position);
        Self::completed(cqe, outcome, origin)
    }

    fn failed_receive(&mut self, cqe: &Cqe, member: &D::Member) -> Rare {
        let queues = member.queues();
        let receive = &queues.receive;
        let (failure, vendor_error) = cqe.failure();
        if failure != Failure::Unknown {
            queues.set_in_error();
        }
        let Some(position) = receive.oldest() else {
            return if failure == Failure::Unknown { Rare::Nothing } else { Rare::Flush };
        };
        let (mut outcome, origin) = cqe.receive_outcome(receive.wr_id(position), queues);
        outcome.vendor_error = vendor_error;
        receive.retire(position);
        match failure {
            Failure::Flushed(code) => {
                outcome.status = code.status();
                // No message, so nothing to tell the kinds of receives apart by.
                outcome.opcode = CompletionOpcode::Receive;
                self.consume_flush(cqe, member, Side::Receive);
            }
            Failure::Unknown => {
                outcome.status = Status::General;
                self.consume(cqe);
            }
        }
        Rare::Completion(outcome, origin)
    }

    #[inline(always)]
    fn step_shared(&mut self, cqe: &Cqe) -> Step {
        let directory = self.directory;
        let member = cqe.shared_context(self.ring).and_then(|context| directory.find(context, Side::Receive));
        let Some(member) = member else { return self.pass(cqe) };
        let Some(shared) = member.shared() else { return self.pass(cqe) };
        let queues = member.queues();
        // Here the word of the context is the program's id.
        let (mut outcome, origin) = cqe.receive_outcome(cqe.context, queues);
        if cqe.status.error() {
            let (failure, vendor_error) = cqe.failure();
            outcome.vendor_error = vendor_error;
            outcome.status = match failure {
                Failure::Flushed(code) => {
                    queues.set_in_error();
                    outcome.opcode = CompletionOpcode::Receive;
                    code.status()
                }
                Failure::Unknown => Status::General,
            };
        }
        // As in `rare_send`.
        self.consume(cqe);
        if shared.retire_one() { Self::completed(cqe, outcome, origin) } else { Step::Passed }
    }

    /// Hands the slot of the CQE back to the device.
    #[inline(always)]
    fn consume(&mut self, cqe: &Cqe) {
        self.ring.pass(cqe.status.extended(), self.shadow, self.habits.holds_back_page_ends);
    }

    /// Passes over a CQE that nobody waits for.
    #[inline(always)]
    fn pass(&mut self, cqe: &Cqe) -> Step {
        self.consume(cqe);
        Step::Passed
    }

    /// After a completion was made of a flush CQE: hands it back, or keeps it to make
    /// further completions of.
    fn consume_flush(&mut self, cqe: &Cqe, member: &D::Member, side: Side) {
        if self.habits.flushes_each {
            self.abandon(member, side);
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
    fn pass_flush(&mut self, cqe: &Cqe, member: &D::Member, side: Side) -> Step {
        if self.habits.flushes_each {
            self.abandon(member, side);
            self.consume(cqe);
        } else if Self::is_drained(member, side) {
            self.consume(cqe);
        }
        Step::Passed
    }

    /// Whether a queue is empty, and whoever posts to it from now on knows that the
    /// QP is in error.
    fn is_drained(member: &D::Member, side: Side) -> bool {
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
    fn abandon(&self, member: &D::Member, side: Side) {
        if member.queues().abandon(side) {
            member.await_poster(side);
        }
        // After that, so that the search sees all that nobody else will look for.
        self.directory.note_abandoned();
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
#[inline]
pub(super) fn is_ready(ring: &CompletionRing) -> bool {
    Cqe::read(ring).is_some()
}
