//! Reliable connections, the responder's side, and taking receives off a queue.

use std::time::Duration;

use crate::connected::MEMORY_GONE;
use crate::cqe::Completion;
use crate::engine::Engine;
use crate::event::{AsyncEvent, Source as Where, Subject, code};
use crate::mr::{Right, Segment};
use crate::payload::Source;
use crate::platform::{CopyFault, Platform};
use crate::spec::{QpId, QpState, SrqId};
use crate::wire::{Message, receive_opcode};
use crate::wqe::{Fragments, Remote, Tail, decode_receive};

/// The answer of a responder that does not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Receiver not ready: try again after so long.
    NotReady(Duration),
    /// NAK, remote access error.
    Access,
    /// NAK, remote operational error.
    Operation,
    /// NAK, invalid request.
    Request,
    /// Not the responder's fault: the requester's own memory failed, with this event.
    Requester(u16),
}

/// One-sided requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    Write,
    Read,
    Atomic,
}

impl Arrival {
    fn source(self) -> Where {
        match self {
            Self::Write | Self::Atomic => Where::InboundRdma,
            Self::Read => Where::OutboundRead,
        }
    }

    fn right(self) -> Right {
        match self {
            Self::Write => Right::RemoteWrite,
            Self::Read => Right::RemoteRead,
            Self::Atomic => Right::RemoteAtomic,
        }
    }
}

/// A receive at the head of its queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receive {
    fragments: Fragments,
    /// WQE index in quanta.
    pub(crate) index: u32,
    quanta: u32,
    /// The shared queue it comes from, and its wr_id.
    shared: Option<(SrqId, u64)>,
}

impl Receive {
    /// Bytes it takes.
    pub(crate) fn capacity(&self) -> u64 {
        self.fragments.length()
    }
}

impl<P: Platform> Engine<P> {
    /// The next receive of `qp`, still in its queue; `None` if there is none, an error if the
    /// queue pair has failed over it.
    pub(crate) fn next_receive(&mut self, qp: QpId) -> Result<Option<Receive>, Refusal> {
        let generation = self.config.generation;
        let Some(owner) = self.qps.get_mut(qp) else { return Ok(None) };
        let srq = owner.srq;
        let (ring, quanta) = match srq.and_then(|srq| self.srqs.get_mut(srq)) {
            Some(shared) => (&mut shared.ring, shared.wqe_quanta),
            None => (&mut owner.rq, owner.rq_wqe_quanta),
        };
        let index = ring.position();
        let polarity = ring.polarity();
        let decoded = match ring.peek(&mut self.platform, |_| quanta, false) {
            Ok(None) => return Ok(None),
            Ok(Some(bytes)) => decode_receive(bytes, polarity, generation),
            Err(_) => Err(code::LOCAL_QP_CATASTROPHIC),
        };
        match decoded {
            Ok(wqe) => {
                let shared = srq.map(|srq| (srq, wqe.wr_id));
                Ok(Some(Receive { fragments: wqe.fragments, index, quanta, shared }))
            }
            Err(code) => {
                if let Some(srq) = srq {
                    self.platform.async_event(AsyncEvent {
                        subject: Subject::Srq(srq),
                        code: code::SRQ_CATASTROPHIC,
                        source: Where::Unspecified,
                        wqe_index: Some(index),
                    });
                }
                self.fail_qp(qp, code, Where::ReceiveQueue, Some(index));
                Err(Refusal::Operation)
            }
        }
    }

    /// Checks a receive against a message of `length` bytes. If it does not fit or is not
    /// allowed the queue pair fails, and the receive stays for the flush.
    pub(crate) fn receive_segments(
        &mut self,
        qp: QpId,
        receive: &Receive,
        length: u64,
    ) -> Result<Vec<Segment>, Refusal> {
        if length > receive.capacity() {
            self.fail_qp(qp, code::MESSAGE_TOO_LONG, Where::ReceiveQueue, Some(receive.index));
            return Err(Refusal::Request);
        }
        let pd = match (receive.shared, self.qps.get(qp)) {
            (Some((srq, _)), _) => self.srqs.get(srq).map(|srq| srq.pd),
            (None, owner) => owner.map(|owner| owner.pd),
        };
        let pd = pd.unwrap_or_default();
        self.local_segments(qp, pd, receive.fragments.as_slice(), length, Right::LocalWrite)
            .map_err(|code| self.receive_failed(qp, receive, code))
    }

    /// The queue pair fails over a receive.
    pub(crate) fn receive_failed(&mut self, qp: QpId, receive: &Receive, code: u16) -> Refusal {
        self.fail_qp(qp, code, Where::ReceiveQueue, Some(receive.index));
        Refusal::Operation
    }

    /// Takes the receive off its queue and completes it.
    pub(crate) fn finish_receive(
        &mut self,
        qp: QpId,
        receive: &Receive,
        mut completion: Completion,
    ) -> Result<(), Refusal> {
        let Some(owner) = self.qps.get_mut(qp) else { return Err(Refusal::Operation) };
        let recv_cq = owner.recv_cq;
        completion.index = receive.index;
        match receive.shared {
            Some((srq, wr_id)) => {
                if let Some(shared) = self.srqs.get_mut(srq) {
                    shared.ring.consume(receive.quanta);
                }
                completion.srq = true;
                completion.context = wr_id;
                self.check_srq_limit(srq);
            }
            None => owner.rq.consume(receive.quanta),
        }
        self.complete_for(qp, recv_cq, completion)
            .map_err(|_| self.receive_failed(qp, receive, code::LOCAL_QP_CATASTROPHIC))
    }

    /// A send arrives at `qp`.
    pub(crate) fn accept_send(
        &mut self,
        qp: QpId,
        source: &Source<'_>,
        length: u64,
        tail: &Tail,
    ) -> Result<(), Refusal> {
        self.arrived(qp);
        let receive = self.receive_or_wait(qp)?;
        let target = self.receive_segments(qp, &receive, length)?;
        match self.deliver(source, &target) {
            Ok(()) => {}
            Err(CopyFault::Source) => return Err(Refusal::Requester(MEMORY_GONE)),
            Err(CopyFault::Destination) => return Err(self.receive_failed(qp, &receive, MEMORY_GONE)),
        }
        if let Some(key) = tail.invalidate {
            let pd = self.qps.get(qp).map(|owner| owner.pd).unwrap_or_default();
            if let Err(code) = self.invalidate(qp, pd, key, true) {
                self.receive_failed(qp, &receive, code);
                return Err(Refusal::Access);
            }
        }
        self.finish_receive(qp, &receive, self.arrival(qp, Message::Send, length, tail))
    }

    /// An RDMA write arrives at `qp`. With an immediate it needs a receive, before anything
    /// is written.
    pub(crate) fn accept_write(
        &mut self,
        qp: QpId,
        source: &Source<'_>,
        length: u64,
        remote: &Remote,
        tail: &Tail,
    ) -> Result<(), Refusal> {
        let receive = match tail.immediate {
            Some(_) => {
                self.arrived(qp);
                Some(self.receive_or_wait(qp)?)
            }
            None => None,
        };
        let target = self.accept_access(qp, remote, length, Arrival::Write)?;
        match self.deliver(source, &target) {
            Ok(()) => {}
            Err(CopyFault::Source) => return Err(Refusal::Requester(MEMORY_GONE)),
            Err(CopyFault::Destination) => return Err(self.refuse_access(qp, Arrival::Write, MEMORY_GONE)),
        }
        match receive {
            Some(receive) => {
                self.finish_receive(qp, &receive, self.arrival(qp, Message::WriteImmediate, length, tail))
            }
            None => Ok(()),
        }
    }

    /// A one-sided request arrives at `qp`: checks it and says where its memory is. Nothing
    /// is asked of a key that opens no byte.
    pub(crate) fn accept_access(
        &mut self,
        qp: QpId,
        remote: &Remote,
        length: u64,
        arrival: Arrival,
    ) -> Result<Vec<Segment>, Refusal> {
        self.arrived(qp);
        let Some(owner) = self.qps.get(qp) else { return Err(Refusal::Operation) };
        let (pd, attributes) = (owner.pd, &owner.attributes);
        let serves = match arrival {
            Arrival::Write => attributes.access.remote_write,
            Arrival::Read => attributes.access.remote_read,
            Arrival::Atomic => attributes.access.remote_atomic,
        };
        let places = attributes.max_dest_rd_atomic;
        if !serves {
            return Err(self.refuse_request(qp, arrival, code::INVALID_REQUEST));
        }
        if arrival != Arrival::Write && places == 0 {
            return Err(self.refuse_request(qp, arrival, code::READ_QUEUE_FULL));
        }
        if arrival == Arrival::Atomic && !remote.address.is_multiple_of(8) {
            return Err(self.refuse_request(qp, arrival, code::ATOMIC_ALIGNMENT));
        }
        if length == 0 {
            return Ok(Vec::new());
        }
        match self.resolve(qp, pd, remote.key, remote.address, length, arrival.right()) {
            Ok(segment) => Ok(vec![segment]),
            Err(code) => Err(self.refuse_access(qp, arrival, code)),
        }
    }

    /// The responder fails over memory it must not or cannot give.
    pub(crate) fn refuse_access(&mut self, qp: QpId, arrival: Arrival, code: u16) -> Refusal {
        self.fail_qp(qp, code, arrival.source(), None);
        Refusal::Access
    }

    fn refuse_request(&mut self, qp: QpId, arrival: Arrival, code: u16) -> Refusal {
        self.fail_qp(qp, code, arrival.source(), None);
        Refusal::Request
    }

    fn receive_or_wait(&mut self, qp: QpId) -> Result<Receive, Refusal> {
        let timer = self.qps.get(qp).map(|owner| owner.attributes.min_rnr_timer).unwrap_or_default();
        let receive = self.next_receive(qp)?;
        if receive.is_none() {
            self.count(qp.function, |counters| counters.not_ready_out += 1);
        }
        receive.ok_or(Refusal::NotReady(timer))
    }

    /// Reports the first message that reaches a queue pair not yet ready to send: the peer
    /// is there.
    fn arrived(&mut self, qp: QpId) {
        let Some(owner) = self.qps.get_mut(qp) else { return };
        if !owner.established {
            owner.established = true;
            if owner.state == QpState::ReadyToReceive {
                self.platform.async_event(AsyncEvent {
                    subject: Subject::Qp(qp),
                    code: code::CONNECTION_ESTABLISHED,
                    source: Where::Unspecified,
                    wqe_index: None,
                });
            }
        }
    }

    fn arrival(&self, qp: QpId, message: Message, length: u64, tail: &Tail) -> Completion {
        let several = self.qps.get(qp).is_some_and(|owner| length > owner.attributes.path_mtu.into());
        Completion {
            length: length as u32,
            opcode: receive_opcode(self.config.generation, message, several, tail),
            immediate: tail.immediate,
            tag: tail.invalidate.unwrap_or_default(),
            invalidated_or_ipv4: tail.invalidate.is_some(),
            solicited: tail.solicited,
            ..Completion::default()
        }
    }
}
