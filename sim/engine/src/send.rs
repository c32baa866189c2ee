//! The send queue: walking it, completing, waiting, failing.

use std::time::Duration;

use crate::cq::CqFailure;
use crate::cqe::Completion;
use crate::engine::Engine;
use crate::event::{Source, code};
use crate::platform::Platform;
use crate::push::Pushes;
use crate::qp::{Wait, WaitReason};
use crate::ring::RingError;
use crate::spec::{CqId, Generation, PdId, QpId, QpState, Service};
use crate::wqe::{Operation, SendWqe, decode_send, is_pushed, send_quanta};

/// Payload bytes after which a queue lets others have their turn.
const TURN_BYTES: u64 = 64 << 20;
/// A retry count that means "for ever".
const RNR_FOR_EVER: u8 = 7;
/// Shortest wait for a receiver (the shortest that the wire can express).
const SHORTEST_RNR_WAIT: Duration = Duration::from_micros(10);

/// Why a send queue is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// Its doorbell; `true`: the producer stands still until the call is over.
    Doorbell(bool),
    /// What its head waited for is over.
    Timer,
    /// A push, which is all there is to look at.
    Push,
}

/// Who sends, for the time of one WQE.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    pub(crate) qp: QpId,
    pub(crate) pd: PdId,
    pub(crate) service: Service,
}

/// How the execution of a WQE ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Done; so many bytes were moved.
    Done(u64),
    /// The receiver has no receive; it asked to be left alone for so long.
    NotReady(Duration),
    /// Nobody answered.
    NoAnswer,
    /// The queue pair fails with this event.
    Failed(u16),
}

impl<P: Platform> Engine<P> {
    /// The send doorbell: executes what has been posted. Unknown numbers are ignored.
    pub fn ring_sq(&mut self, qp: QpId) {
        let settled = self.platform.doorbell_waits();
        self.run(qp, Trigger::Doorbell(settled));
    }

    /// Executes what has been posted, the producer perhaps being busy; true if anything moved.
    pub(crate) fn run_send_queue(&mut self, qp: QpId) -> bool {
        self.run(qp, Trigger::Doorbell(false))
    }

    /// Goes on with a queue whose wait is over.
    pub(crate) fn resume_send_queue(&mut self, qp: QpId) {
        let Some(target) = self.qps.get_mut(qp) else { return };
        target.wait = None;
        self.run(qp, Trigger::Timer);
    }

    /// Executes WQEs until there are none, one must wait, or it is others' turn.
    pub(crate) fn run(&mut self, qp: QpId, trigger: Trigger) -> bool {
        let Some(target) = self.qps.get_mut(qp) else { return false };
        let sender = Sender { qp, pd: target.pd, service: target.service };
        match target.state {
            QpState::ReadyToSend => {}
            // What has begun is finished.
            QpState::SendQueueDrained if trigger == Trigger::Timer => {}
            QpState::Error if target.sq_flushed => return self.flush_late_sends(qp),
            _ => return false,
        }
        // A doorbell ends no wait, except that a new request makes the peer, if there is
        // one by now, notice the loss of those before.
        if target.wait.is_some_and(|wait| wait.reason != WaitReason::NoAnswer) {
            return false;
        }
        let generation = self.config.generation;
        let settled = trigger == Trigger::Doorbell(true);
        if trigger != Trigger::Push {
            target.sq.begin();
        }
        let mut quanta_left = target.sq.quanta();
        let mut bytes_left = TURN_BYTES;
        let mut moved = false;
        loop {
            let Some(target) = self.qps.get_mut(qp) else { return moved };
            if target.state == QpState::SendQueueDrained && moved {
                self.report_drained(qp);
                return moved;
            }
            if moved && target.sq.is_drained() {
                return moved;
            }
            let index = target.sq.position();
            let polarity = target.sq.polarity();
            let size = |header| send_quanta(header, generation);
            let has_page = target.pushes.is_some();
            let decoded = match target.sq.peek(&mut self.platform, size, settled) {
                Ok(None) => return moved,
                Ok(Some(bytes)) if is_pushed(bytes) && !has_page => Err(code::WQE_INVALID_PARAMETER),
                Ok(Some(bytes)) => decode_send(bytes, polarity, generation),
                Err(RingError::Fault) => Err(code::LOCAL_QP_CATASTROPHIC),
                Err(RingError::Overrun) => Err(code::WQE_INVALID_FRAGMENTS),
            };
            if quanta_left == 0 || bytes_left == 0 {
                let now = self.platform.now();
                self.wait(qp, WaitReason::Turn, Some(now));
                return moved;
            }
            let (wqe, outcome) = match decoded {
                Ok(wqe) => (wqe, self.execute(&sender, &wqe)),
                Err(code) => {
                    self.fail_qp(qp, code, Source::SendQueue, Some(index));
                    return true;
                }
            };
            match outcome {
                Outcome::Done(length) => {
                    if !self.finish(&sender, &wqe, index, length) {
                        return true;
                    }
                    moved = true;
                    quanta_left = quanta_left.saturating_sub(wqe.quanta);
                    bytes_left = bytes_left.saturating_sub(length);
                }
                Outcome::NotReady(timer) => {
                    self.receiver_not_ready(qp, index, timer);
                    return moved;
                }
                Outcome::NoAnswer => {
                    self.no_answer(qp, index);
                    return moved;
                }
                Outcome::Failed(code) => {
                    self.fail_qp(qp, code, Source::SendQueue, Some(index));
                    return true;
                }
            }
        }
    }

    fn execute(&mut self, sender: &Sender, wqe: &SendWqe) -> Outcome {
        let datagrams = sender.service == Service::UnreliableDatagram;
        match &wqe.operation {
            Operation::Nop => Outcome::Done(0),
            Operation::Send { payload, tail, target } if datagrams => {
                if tail.invalidate.is_some() {
                    return Outcome::Failed(code::UNEXPECTED_OPCODE);
                }
                self.send_datagram(sender, payload, tail, target)
            }
            _ if datagrams => Outcome::Failed(code::UNEXPECTED_OPCODE),
            Operation::Send { payload, tail, .. } => self.send_message(sender, payload, tail),
            Operation::Write { payload, tail, remote } => self.write_remote(sender, payload, tail, remote),
            Operation::Read { sink, remote } => self.read_remote(sender, sink, remote),
            Operation::FetchAdd { sink, remote, add } => {
                self.atomic(sender, sink, remote, |old| old.wrapping_add(*add))
            }
            Operation::CompareSwap { sink, remote, swap, compare } => {
                self.atomic(sender, sink, remote, |old| if old == *compare { *swap } else { old })
            }
            Operation::Bind(bind) => settle(self.bind(sender.qp, sender.pd, bind)),
            Operation::FastRegister(request) => settle(self.fast_register(sender.qp, request)),
            Operation::Invalidate(key) => settle(self.invalidate(sender.qp, sender.pd, *key, false)),
        }
    }

    /// Retires a WQE that was executed; false if its queue pair is out of service now.
    fn finish(&mut self, sender: &Sender, wqe: &SendWqe, index: u32, length: u64) -> bool {
        self.stop_waiting(sender.qp);
        self.count_done(sender.qp.function, &wqe.operation);
        let Some(target) = self.qps.get_mut(sender.qp) else { return false };
        // A queue pair connected to itself may have failed as the receiver.
        if target.state == QpState::Error {
            return false;
        }
        target.sq.consume(wqe.quanta);
        let send_cq = target.send_cq;
        if !wqe.signaled {
            return true;
        }
        let completion = Completion {
            length: length as u32,
            opcode: wqe.opcode,
            send_queue: true,
            index,
            push_dropped: target.pushes.as_mut().is_some_and(Pushes::take_dropped),
            ..Completion::default()
        };
        if self.complete_for(sender.qp, send_cq, completion).is_err() {
            self.fail_qp(sender.qp, code::LOCAL_QP_CATASTROPHIC, Source::SendQueue, Some(index));
            return false;
        }
        true
    }

    /// Completes on behalf of `qp`: fills in who and when.
    pub(crate) fn complete_for(
        &mut self,
        qp: QpId,
        cq: CqId,
        mut completion: Completion,
    ) -> Result<(), CqFailure> {
        completion.qp = qp.number;
        if let Some(owner) = self.qps.get(qp) {
            if completion.srq {
                completion.qp_context = owner.completion_context;
            } else {
                completion.context = owner.completion_context;
            }
        }
        if self.config.generation >= Generation::Gen3 {
            completion.timestamp = self.platform.now().as_nanos() as u32;
        }
        self.complete(cq, &completion)
    }

    fn receiver_not_ready(&mut self, qp: QpId, index: u32, timer: Duration) {
        self.count(qp.function, |counters| counters.not_ready_in += 1);
        let Some(target) = self.qps.get_mut(qp) else { return };
        if target.attributes.rnr_retry < RNR_FOR_EVER {
            let left = target.rnr_retries_left.unwrap_or(target.attributes.rnr_retry);
            if left == 0 {
                self.fail_qp(qp, code::TOO_MANY_RNRS, Source::SendQueue, Some(index));
                return;
            }
            target.rnr_retries_left = Some(left - 1);
        }
        target.retries_left = None;
        let until = self.platform.now().saturating_add(timer.max(SHORTEST_RNR_WAIT));
        self.wait(qp, WaitReason::ReceiverNotReady, Some(until));
    }

    fn no_answer(&mut self, qp: QpId, index: u32) {
        let Some(target) = self.qps.get_mut(qp) else { return };
        if target.wait.is_some() {
            // Tried out of turn; the wait goes on.
            return;
        }
        let timeout = target.attributes.timeout;
        if timeout.is_zero() {
            self.wait(qp, WaitReason::NoAnswer, None);
            return;
        }
        let tries_left = target.retries_left;
        if tries_left.is_some() {
            self.count(qp.function, |counters| counters.timeouts += 1);
        }
        let Some(target) = self.qps.get_mut(qp) else { return };
        match tries_left {
            None => target.retries_left = Some(target.attributes.retry_count),
            Some(0) => {
                self.fail_qp(qp, code::TOO_MANY_RETRIES, Source::SendQueue, Some(index));
                return;
            }
            Some(left) => target.retries_left = Some(left - 1),
        }
        let until = self.platform.now().saturating_add(timeout);
        self.wait(qp, WaitReason::NoAnswer, Some(until));
    }

    fn wait(&mut self, qp: QpId, reason: WaitReason, until: Option<Duration>) {
        let Some(target) = self.qps.get_mut(qp) else { return };
        if let Some(Wait { until: Some(time), .. }) = target.wait {
            self.timers.clear(time, qp);
        }
        target.wait = Some(Wait { reason, until });
        if let Some(time) = until {
            self.timers.set(time, qp);
        }
    }
}

fn settle(result: Result<(), u16>) -> Outcome {
    match result {
        Ok(()) => Outcome::Done(0),
        Err(code) => Outcome::Failed(code),
    }
}
