//! Queue pairs: life, states, attributes.

use std::time::Duration;

use crate::cqe::Completion;
use crate::engine::Engine;
use crate::event::{AsyncEvent, Source, Subject, code};
use crate::format::QUANTUM;
use crate::platform::Platform;
use crate::push::Pushes;
use crate::ring::WorkRing;
use crate::spec::{
    Access, CqId, EngineError, Gid, Id, Mac, PdId, QpChange, QpId, QpSpec, QpState, Service, Span, SrqId,
};
use crate::wqe::opcode;

/// Most quanta of a ring; WQE indexes in CQEs have 15 bits.
pub(crate) const MAX_QUANTA: u32 = 1 << 15;

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Qp<B> {
    pub(crate) pd: PdId,
    pub(crate) service: Service,
    pub(crate) send_cq: CqId,
    pub(crate) recv_cq: CqId,
    pub(crate) srq: Option<SrqId>,
    pub(crate) completion_context: u64,
    pub(crate) state: QpState,
    pub(crate) attributes: Attributes,
    pub(crate) sq: WorkRing<B>,
    pub(crate) rq: WorkRing<B>,
    pub(crate) rq_wqe_quanta: u32,
    /// What the WQE at the head of the send queue waits for.
    pub(crate) wait: Option<Wait>,
    /// Tries left for that WQE, once the first has failed.
    pub(crate) retries_left: Option<u8>,
    pub(crate) rnr_retries_left: Option<u8>,
    /// A message has arrived.
    pub(crate) established: bool,
    /// The send queue has been flushed; what comes later goes the same way (GEN3).
    pub(crate) sq_flushed: bool,
    /// What key 0 opens, of a queue pair of the kernel's own.
    pub(crate) privileged: Option<B>,
    /// Of one that has a push page.
    pub(crate) pushes: Option<Pushes>,
}

/// What the head of a send queue waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) reason: WaitReason,
    /// When to look again; `None`: when the doorbell rings.
    pub(crate) until: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitReason {
    /// The peer had no receive.
    ReceiverNotReady,
    /// Nobody answered.
    NoAnswer,
    /// Other queues' turn.
    Turn,
}

/// What modify-QP sets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attributes {
    pub(crate) access: Access,
    pub(crate) destination_gid: Gid,
    pub(crate) source_gid: Gid,
    pub(crate) destination_mac: Option<Mac>,
    pub(crate) destination_qp: u32,
    pub(crate) q_key: u32,
    p_key: u16,
    pub(crate) path_mtu: u32,
    pub(crate) timeout: Duration,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) min_rnr_timer: Duration,
    pub(crate) max_rd_atomic: u32,
    pub(crate) max_dest_rd_atomic: u32,
    sq_psn: u32,
    rq_psn: u32,
    traffic_class: u8,
}

impl Attributes {
    fn apply(&mut self, change: &QpChange) {
        fn set<T: Copy>(target: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *target = value;
            }
        }
        set(&mut self.access, change.access);
        set(&mut self.destination_gid, change.destination_gid);
        set(&mut self.source_gid, change.source_gid);
        self.destination_mac = change.destination_mac.or(self.destination_mac);
        set(&mut self.destination_qp, change.destination_qp);
        set(&mut self.q_key, change.q_key);
        set(&mut self.p_key, change.p_key);
        set(&mut self.path_mtu, change.path_mtu);
        set(&mut self.timeout, change.timeout);
        set(&mut self.retry_count, change.retry_count);
        set(&mut self.rnr_retry, change.rnr_retry);
        set(&mut self.min_rnr_timer, change.min_rnr_timer);
        set(&mut self.max_rd_atomic, change.max_rd_atomic);
        set(&mut self.max_dest_rd_atomic, change.max_dest_rd_atomic);
        set(&mut self.sq_psn, change.sq_psn);
        set(&mut self.rq_psn, change.rq_psn);
        set(&mut self.traffic_class, change.traffic_class);
    }

    fn show(&self, state: QpState, pd: PdId) -> QpChange {
        QpChange {
            state: Some(state),
            pd: Some(pd),
            access: Some(self.access),
            destination_gid: Some(self.destination_gid),
            source_gid: Some(self.source_gid),
            destination_mac: self.destination_mac,
            destination_qp: Some(self.destination_qp),
            q_key: Some(self.q_key),
            p_key: Some(self.p_key),
            path_mtu: Some(self.path_mtu),
            timeout: Some(self.timeout),
            retry_count: Some(self.retry_count),
            rnr_retry: Some(self.rnr_retry),
            min_rnr_timer: Some(self.min_rnr_timer),
            max_rd_atomic: Some(self.max_rd_atomic),
            max_dest_rd_atomic: Some(self.max_dest_rd_atomic),
            sq_psn: Some(self.sq_psn),
            rq_psn: Some(self.rq_psn),
            traffic_class: Some(self.traffic_class),
        }
    }
}

/// Refuses a ring that is empty, too large, or beyond the address space.
pub(crate) fn check_ring<B>(span: &Span<B>, quanta: u32, most: u32) -> Result<(), EngineError> {
    let bytes = u64::from(quanta) * QUANTUM as u64;
    if quanta == 0 || quanta > most || span.offset.checked_add(bytes).is_none() {
        return Err(EngineError::Invalid);
    }
    Ok(())
}

/// Refuses a receive WQE size that there is not, or that does not divide the ring.
pub(crate) fn check_receive_size(quanta: u32, wqe_quanta: u32) -> Result<(), EngineError> {
    if !matches!(wqe_quanta, 1 | 2 | 4 | 8) || !quanta.is_multiple_of(wqe_quanta) {
        return Err(EngineError::Invalid);
    }
    Ok(())
}

impl<P: Platform> Engine<P> {
    /// Creates a queue pair in state RESET.
    ///
    /// # Errors
    /// Unknown domain or queue, or one of another function; impossible ring sizes; the number is
    /// taken, or none is left.
    pub fn create_qp(&mut self, spec: QpSpec<P::Backing>, number: Option<u32>) -> Result<QpId, EngineError> {
        let function = spec.pd.function;
        let own = |id: Id| id.function == function;
        let known = self.pds.contains(spec.pd)
            && self.cqs.contains(spec.send_cq)
            && self.cqs.contains(spec.recv_cq)
            && spec.srq.is_none_or(|srq| self.srqs.contains(srq) && own(srq))
            && own(spec.send_cq)
            && own(spec.recv_cq);
        if !known {
            return Err(EngineError::NotFound);
        }
        check_ring(&spec.sq, spec.sq_quanta, MAX_QUANTA)?;
        check_ring(&spec.rq, spec.rq_quanta, MAX_QUANTA)?;
        check_receive_size(spec.rq_quanta, spec.rq_wqe_quanta)?;
        let qp = Qp {
            pd: spec.pd,
            service: spec.service,
            send_cq: spec.send_cq,
            recv_cq: spec.recv_cq,
            srq: spec.srq,
            completion_context: spec.completion_context,
            state: QpState::Reset,
            attributes: Attributes::default(),
            sq: WorkRing::new(spec.sq, spec.sq_quanta),
            rq: WorkRing::new(spec.rq, spec.rq_quanta),
            rq_wqe_quanta: spec.rq_wqe_quanta,
            wait: None,
            retries_left: None,
            rnr_retries_left: None,
            established: false,
            sq_flushed: false,
            privileged: spec.privileged,
            pushes: None,
        };
        self.qps.insert(function, number, qp)
    }

    /// Changes attributes and state. Going to READY TO SEND starts what was posted before;
    /// going to SEND QUEUE DRAINED starts no more, and is reported
    /// ([`code::SUSPEND_COMPLETE`]) once what has begun is done;
    /// going to ERROR stops everything (flushing is for [`Self::flush_qp`]); going to RESET makes
    /// both queues empty and fresh.
    ///
    /// # Errors
    /// Unknown queue pair; unknown domain, or one of another function.
    pub fn modify_qp(&mut self, qp: QpId, change: &QpChange) -> Result<(), EngineError> {
        if change.pd.is_some_and(|pd| !self.pds.contains(pd) || pd.function != qp.function) {
            return Err(EngineError::NotFound);
        }
        let target = self.qps.get_mut(qp).ok_or(EngineError::NotFound)?;
        target.pd = change.pd.unwrap_or(target.pd);
        target.attributes.apply(change);
        let Some(state) = change.state else { return Ok(()) };
        target.state = state;
        match state {
            QpState::Reset => {
                target.sq.restart();
                target.rq.restart();
                target.established = false;
                target.sq_flushed = false;
                self.stop_waiting(qp);
            }
            QpState::Error => self.stop_waiting(qp),
            QpState::ReadyToSend => {
                self.run_send_queue(qp);
            }
            QpState::SendQueueDrained => {
                if target.wait.is_none_or(|wait| wait.reason == WaitReason::Turn) {
                    self.stop_waiting(qp);
                    self.report_drained(qp);
                }
            }
            QpState::Init | QpState::ReadyToReceive => {}
        }
        Ok(())
    }

    /// Passes over the WQEs of one quantum each by which the kernel sets up an iWARP
    /// connection, before the first one of the program; the first has a completion.
    ///
    /// # Errors
    /// Unknown queue pair; a full completion queue.
    pub fn pass_connection_wqes(&mut self, qp: QpId, count: u32) -> Result<(), EngineError> {
        let target = self.qps.get_mut(qp).ok_or(EngineError::NotFound)?;
        let (index, send_cq) = (target.sq.position(), target.send_cq);
        target.sq.pass(count);
        let completion =
            Completion { opcode: opcode::SEND, send_queue: true, index, ..Completion::default() };
        self.complete_for(qp, send_cq, completion).map_err(|_| EngineError::Exhausted)
    }

    /// The state, which errors change too; `None` for an unknown queue pair.
    pub fn qp_state(&self, qp: QpId) -> Option<QpState> {
        self.qps.get(qp).map(|qp| qp.state)
    }

    /// All attributes (every field but the next hop is `Some`); `None` for an unknown queue pair.
    pub fn qp_attributes(&self, qp: QpId) -> Option<QpChange> {
        self.qps.get(qp).map(|qp| qp.attributes.show(qp.state, qp.pd))
    }

    /// Takes the queue pair away, with what is outstanding on it. Its peer, if it has one,
    /// finds nobody there any more.
    ///
    /// # Errors
    /// Unknown queue pair.
    pub fn destroy_qp(&mut self, qp: QpId) -> Result<(), EngineError> {
        if !self.qps.contains(qp) {
            return Err(EngineError::NotFound);
        }
        self.stop_waiting(qp);
        self.qps.remove(qp);
        self.multicast.retain(|_, members| {
            members.remove(&qp);
            !members.is_empty()
        });
        Ok(())
    }

    /// Forgets what the send queue waited for.
    pub(crate) fn stop_waiting(&mut self, qp: QpId) {
        let Some(target) = self.qps.get_mut(qp) else { return };
        target.retries_left = None;
        target.rnr_retries_left = None;
        if let Some(Wait { until: Some(time), .. }) = target.wait.take() {
            self.timers.clear(time, qp);
        }
    }

    /// The send queue has come to rest, as SEND QUEUE DRAINED asked.
    pub(crate) fn report_drained(&mut self, qp: QpId) {
        self.platform.async_event(AsyncEvent {
            subject: Subject::Qp(qp),
            code: code::SUSPEND_COMPLETE,
            source: Source::Unspecified,
            wqe_index: None,
        });
    }

    /// Moves a queue pair to ERROR and reports why; the first error counts.
    pub(crate) fn fail_qp(&mut self, qp: QpId, code: u16, source: Source, wqe_index: Option<u32>) {
        let Some(target) = self.qps.get_mut(qp) else { return };
        if target.state == QpState::Error {
            return;
        }
        target.state = QpState::Error;
        self.stop_waiting(qp);
        self.platform.async_event(AsyncEvent { subject: Subject::Qp(qp), code, source, wqe_index });
    }
}
