//! Reliable connections, the requester's side: send, write, read, atomics.
//!
//! Both ends live in this engine, so a request, its packets, its acknowledgements and its
//! answer are one call into the peer. What the wire would carry back (receiver not ready,
//! the NAKs) comes back as a [`Refusal`].

use crate::engine::Engine;
use crate::event::code;
use crate::mr::Right;
use crate::platform::{CopyFault, Platform};
use crate::receive::{Arrival, Refusal};
use crate::send::{Outcome, Sender};
use crate::spec::{Id, QpId, QpState};
use crate::wqe::{Fragment, Fragments, Payload, Remote, Tail};

/// The event for memory of a region that is not there any more.
pub(crate) const MEMORY_GONE: u16 = code::INVALID_STAG;

impl From<Refusal> for Outcome {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotReady(timer) => Self::NotReady(timer),
            Refusal::Access => Self::Failed(code::REMOTE_ACCESS_ERROR),
            Refusal::Operation => Self::Failed(code::REMOTE_OPERATION_ERROR),
            Refusal::Request => Self::Failed(code::INVALID_REQUEST),
            Refusal::Requester(code) => Self::Failed(code),
        }
    }
}

impl<P: Platform> Engine<P> {
    /// The queue pair that hears what `qp` sends: at the address and number it is connected
    /// to, ready to receive, and connected back to it.
    fn peer(&self, qp: QpId) -> Option<QpId> {
        let sender = self.qps.get(qp)?;
        let to = &sender.attributes;
        let function = self.route(to.destination_mac, &to.destination_gid)?;
        let id = Id { function, number: to.destination_qp };
        let peer = self.qps.get(id)?;
        let back = &peer.attributes;
        let receives =
            matches!(peer.state, QpState::ReadyToReceive | QpState::ReadyToSend | QpState::SendQueueDrained);
        (receives
            && peer.service == sender.service
            && back.destination_qp == qp.number
            && self.route(back.destination_mac, &back.destination_gid) == Some(qp.function))
        .then_some(id)
    }

    pub(crate) fn send_message(&mut self, sender: &Sender, payload: &Payload, tail: &Tail) -> Outcome {
        let source = match self.local_source(sender.qp, sender.pd, payload) {
            Ok(source) => source,
            Err(code) => return Outcome::Failed(code),
        };
        let Some(peer) = self.peer(sender.qp) else { return Outcome::NoAnswer };
        let length = payload.length();
        match self.accept_send(peer, &source, length, tail) {
            Ok(()) => {
                self.count(peer.function, |counters| counters.sends_in += 1);
                Outcome::Done(length)
            }
            Err(refusal) => refusal.into(),
        }
    }

    pub(crate) fn write_remote(
        &mut self,
        sender: &Sender,
        payload: &Payload,
        tail: &Tail,
        remote: &Remote,
    ) -> Outcome {
        let source = match self.local_source(sender.qp, sender.pd, payload) {
            Ok(source) => source,
            Err(code) => return Outcome::Failed(code),
        };
        let Some(peer) = self.peer(sender.qp) else { return Outcome::NoAnswer };
        let length = payload.length();
        match self.accept_write(peer, &source, length, remote, tail) {
            Ok(()) => {
                self.count(peer.function, |counters| counters.writes_in += 1);
                Outcome::Done(length)
            }
            Err(refusal) => refusal.into(),
        }
    }

    pub(crate) fn read_remote(&mut self, sender: &Sender, sink: &Fragments, remote: &Remote) -> Outcome {
        let length = sink.length();
        if let Some(refused) = self.no_reads(sender) {
            return refused;
        }
        let target =
            match self.local_segments(sender.qp, sender.pd, sink.as_slice(), length, Right::LocalWrite) {
                Ok(target) => target,
                Err(code) => return Outcome::Failed(code),
            };
        let Some(peer) = self.peer(sender.qp) else { return Outcome::NoAnswer };
        let from = match self.accept_access(peer, remote, length, Arrival::Read) {
            Ok(from) => from,
            Err(refusal) => return refusal.into(),
        };
        match self.transfer(&from, &target) {
            Ok(()) => {
                self.count(peer.function, |counters| counters.reads_in += 1);
                Outcome::Done(length)
            }
            Err(CopyFault::Source) => self.refuse_access(peer, Arrival::Read, MEMORY_GONE).into(),
            Err(CopyFault::Destination) => Outcome::Failed(MEMORY_GONE),
        }
    }

    /// Replaces eight bytes at the peer by what `change` makes of them and brings the old
    /// ones home.
    pub(crate) fn atomic(
        &mut self,
        sender: &Sender,
        sink: &Fragment,
        remote: &Remote,
        change: impl FnOnce(u64) -> u64,
    ) -> Outcome {
        if let Some(refused) = self.no_reads(sender) {
            return refused;
        }
        let length = u64::from(sink.length);
        let fragments = std::slice::from_ref(sink);
        let target = match self.local_segments(sender.qp, sender.pd, fragments, length, Right::LocalWrite) {
            Ok(target) => target,
            Err(code) => return Outcome::Failed(code),
        };
        let Some(peer) = self.peer(sender.qp) else { return Outcome::NoAnswer };
        let place = match self.accept_access(peer, remote, length, Arrival::Atomic) {
            Ok(place) => place,
            Err(refusal) => return refusal.into(),
        };
        let source = crate::payload::Source::Segments(place.clone());
        let mut old = Vec::with_capacity(8);
        let read = self.gather(&source, &mut old);
        let Ok(bytes) = <[u8; 8]>::try_from(old.as_slice()) else {
            return self.refuse_access(peer, Arrival::Atomic, MEMORY_GONE).into();
        };
        let new = change(u64::from_le_bytes(bytes)).to_le_bytes();
        if read.and_then(|()| self.scatter(&new, &place)).is_err() {
            return self.refuse_access(peer, Arrival::Atomic, MEMORY_GONE).into();
        }
        self.count(peer.function, |counters| counters.atomics_in += 1);
        match self.scatter(&bytes, &target) {
            Ok(()) => Outcome::Done(length),
            Err(_) => Outcome::Failed(MEMORY_GONE),
        }
    }

    /// Reads and atomics need a place among those outstanding. As each is answered within
    /// its call, one place is as good as many.
    fn no_reads(&self, sender: &Sender) -> Option<Outcome> {
        let qp = self.qps.get(sender.qp)?;
        (qp.attributes.max_rd_atomic == 0).then_some(Outcome::Failed(code::READ_WHILE_ORD_ZERO))
    }
}
