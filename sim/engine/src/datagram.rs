//! Unreliable datagrams, both sides: addressing, Q_Keys, multicast, the header in front.

use crate::ah::is_multicast;
use crate::connected::MEMORY_GONE;
use crate::cqe::Completion;
use crate::engine::Engine;
use crate::event::code;
use crate::platform::Platform;
use crate::send::{Outcome, Sender};
use crate::spec::{AddressHandle, Gid, Id, Mac, QpId, QpState, Service};
use crate::wire::{GRH_BYTES, Message, is_ipv4, network_header, receive_opcode};
use crate::wqe::{Payload, Tail, Target};

/// The queue pair number that multicast is sent to.
const MULTICAST_QP: u32 = 0xff_ffff;
/// A Q_Key with this bit means the sender's own.
const OWN_Q_KEY: u32 = 1 << 31;

/// A datagram on its way.
struct Datagram<'a> {
    /// Network header and payload.
    packet: &'a [u8],
    q_key: u32,
    completion: Completion,
}

impl<P: Platform> Engine<P> {
    pub(crate) fn send_datagram(
        &mut self,
        sender: &Sender,
        payload: &Payload,
        tail: &Tail,
        target: &Target,
    ) -> Outcome {
        let length = payload.length();
        if length > self.config.port_mtu.into() {
            return Outcome::Failed(code::DATAGRAM_TOO_LONG);
        }
        let handle = Id { function: sender.qp.function, number: target.handle };
        let Some(handle) = self.address_handles.get(handle).cloned() else {
            return Outcome::Failed(code::INVALID_ADDRESS_HANDLE);
        };
        if handle.pd != sender.pd {
            return Outcome::Failed(code::DATAGRAM_BAD_PD);
        }
        let source = match self.local_source(sender.qp, sender.pd, payload) {
            Ok(source) => source,
            Err(code) => return Outcome::Failed(code),
        };
        let mut packet = Vec::with_capacity(GRH_BYTES + length as usize);
        packet.extend_from_slice(&network_header(&handle, length as usize, tail.immediate.is_some()));
        if self.gather(&source, &mut packet).is_err() {
            return Outcome::Failed(MEMORY_GONE);
        }
        let own_q_key = self.qps.get(sender.qp).map(|qp| qp.attributes.q_key).unwrap_or_default();
        let datagram = Datagram {
            packet: &packet,
            q_key: if target.q_key & OWN_Q_KEY == 0 { target.q_key } else { own_q_key },
            completion: Completion {
                length: packet.len() as u32,
                tag: sender.qp.number,
                invalidated_or_ipv4: is_ipv4(&handle),
                solicited: tail.solicited,
                opcode: receive_opcode(self.config.generation, Message::Datagram, false, tail),
                immediate: tail.immediate,
                source_mac: Some(self.source_mac(&handle)),
                ..Completion::default()
            },
        };
        for receiver in self.receivers(&handle, target.qp) {
            self.receive_datagram(receiver, &datagram);
        }
        Outcome::Done(length)
    }

    /// Whom a datagram reaches.
    fn receivers(&self, handle: &AddressHandle, number: u32) -> Vec<QpId> {
        let group = &handle.destination_gid;
        if is_multicast(group) {
            let members = self.multicast.get(group).filter(|_| number == MULTICAST_QP);
            return members.into_iter().flatten().copied().collect();
        }
        let id = self.route(handle.destination_mac, group).map(|function| Id { function, number });
        let there = |id: &QpId| self.qps.get(*id).is_some_and(|qp| qp.service == Service::UnreliableDatagram);
        id.filter(there).into_iter().collect()
    }

    /// A datagram reaches `qp`. It is dropped without a word if it is not welcome; a receive
    /// that cannot take it is an error of its queue pair.
    fn receive_datagram(&mut self, qp: QpId, datagram: &Datagram<'_>) {
        let Some(owner) = self.qps.get(qp) else { return };
        let receives =
            matches!(owner.state, QpState::ReadyToReceive | QpState::ReadyToSend | QpState::SendQueueDrained);
        if !receives || owner.attributes.q_key != datagram.q_key {
            return;
        }
        let Ok(Some(receive)) = self.next_receive(qp) else { return };
        let Ok(target) = self.receive_segments(qp, &receive, datagram.packet.len() as u64) else { return };
        if self.scatter(datagram.packet, &target).is_err() {
            self.receive_failed(qp, &receive, MEMORY_GONE);
            return;
        }
        self.count(qp.function, |counters| counters.sends_in += 1);
        // A completion that cannot be written has failed the queue pair; the sender does not care.
        let _ = self.finish_receive(qp, &receive, datagram.completion);
    }

    /// The Ethernet address that a datagram comes from: the function's, or the one inside its
    /// link-local GID, or one made of its number.
    fn source_mac(&self, handle: &AddressHandle) -> Mac {
        let function = self.functions.get(handle.pd.function as usize);
        if let Some(mac) = function.and_then(|function| function.mac) {
            return mac;
        }
        let gids = function.map(|function| function.gids.as_slice()).unwrap_or_default();
        let number = (handle.pd.function as u16).to_be_bytes();
        std::iter::once(&handle.source_gid)
            .chain(gids)
            .find_map(embedded_mac)
            .unwrap_or([0x02, 0, 0, 0, number[0], number[1]])
    }
}

/// The Ethernet address inside a link-local GID of the EUI-64 kind (RFC 4291, appendix A).
fn embedded_mac(gid: &Gid) -> Option<Mac> {
    let link_local = gid[..8] == [0xfe, 0x80, 0, 0, 0, 0, 0, 0];
    let eui64 = gid[11..13] == [0xff, 0xfe];
    (link_local && eui64).then(|| [gid[8] ^ 0x02, gid[9], gid[10], gid[13], gid[14], gid[15]])
}
