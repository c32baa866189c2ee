//! What a message looks like on the wire, as far as programs get to see it: the opcode
//! in a receive completion and the network header in front of a datagram.

use crate::ah::ipv4;
use crate::spec::{AddressHandle, Generation};
use crate::wqe::{Tail, opcode};

/// Bytes of the network header in front of a datagram.
pub(crate) const GRH_BYTES: usize = 40;
/// Base and datagram transport headers, invariant CRC.
const TRANSPORT_BYTES: usize = 12 + 8 + 4;
const UDP_HEADER_BYTES: usize = 8;
const IPV4_HEADER_BYTES: usize = 20;
const IMMEDIATE_BYTES: usize = 4;
/// IP protocol number of UDP.
const UDP: u8 = 17;

/// Messages that complete a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Send,
    WriteImmediate,
    Datagram,
}

/// The opcode field of a receive completion. On GEN2 it holds the low six bits of the
/// base transport header's opcode of the message's last packet (InfiniBand Architecture
/// Specification, volume 1, 9.2.1); `several`: that packet is not the only one. The other
/// generations name the operation as a send queue would.
pub(crate) fn receive_opcode(generation: Generation, message: Message, several: bool, tail: &Tail) -> u8 {
    const SEND_LAST: u8 = 0x02;
    const SEND_LAST_IMMEDIATE: u8 = 0x03;
    const SEND_ONLY: u8 = 0x04;
    const SEND_ONLY_IMMEDIATE: u8 = 0x05;
    const WRITE_LAST_IMMEDIATE: u8 = 0x09;
    const WRITE_ONLY_IMMEDIATE: u8 = 0x0b;
    const SEND_LAST_INVALIDATE: u8 = 0x16;
    const SEND_ONLY_INVALIDATE: u8 = 0x17;
    const DATAGRAM: u8 = 0x64 & 0x3f;
    const DATAGRAM_IMMEDIATE: u8 = 0x65 & 0x3f;

    let choose = |only, last| if several { last } else { only };
    let immediate = tail.immediate.is_some();
    if generation == Generation::Gen2 {
        return match message {
            Message::Datagram if immediate => DATAGRAM_IMMEDIATE,
            Message::Datagram => DATAGRAM,
            Message::WriteImmediate => choose(WRITE_ONLY_IMMEDIATE, WRITE_LAST_IMMEDIATE),
            Message::Send if immediate => choose(SEND_ONLY_IMMEDIATE, SEND_LAST_IMMEDIATE),
            Message::Send if tail.invalidate.is_some() => choose(SEND_ONLY_INVALIDATE, SEND_LAST_INVALIDATE),
            Message::Send => choose(SEND_ONLY, SEND_LAST),
        };
    }
    match (message, tail.solicited, tail.invalidate.is_some()) {
        (Message::WriteImmediate, false, _) => opcode::WRITE,
        (Message::WriteImmediate, true, _) => opcode::WRITE_SOLICITED,
        (_, false, false) => opcode::SEND,
        (_, false, true) => opcode::SEND_INVALIDATE,
        (_, true, false) => opcode::SEND_SOLICITED,
        (_, true, true) => opcode::SEND_SOLICITED_INVALIDATE,
    }
}

/// Whether datagrams of this handle travel over IPv4.
pub(crate) fn is_ipv4(handle: &AddressHandle) -> bool {
    ipv4(&handle.source_gid).is_some() && ipv4(&handle.destination_gid).is_some()
}

/// The 40 bytes in front of a datagram of `length` bytes: the IPv6 header, or the IPv4
/// header in the last 20 (RoCEv2 annex A17, "IPv4 in GRH").
pub(crate) fn network_header(handle: &AddressHandle, length: usize, immediate: bool) -> [u8; GRH_BYTES] {
    let payload = length.next_multiple_of(4) + if immediate { IMMEDIATE_BYTES } else { 0 };
    let udp = UDP_HEADER_BYTES + TRANSPORT_BYTES + payload;
    let mut header = [0; GRH_BYTES];
    if let (Some(source), Some(destination)) = (ipv4(&handle.source_gid), ipv4(&handle.destination_gid)) {
        let start = GRH_BYTES - IPV4_HEADER_BYTES;
        let ip = &mut header[start..];
        ip[0] = 0x45;
        ip[1] = handle.traffic_class;
        ip[2..4].copy_from_slice(&((IPV4_HEADER_BYTES + udp) as u16).to_be_bytes());
        ip[6] = 0x40; // do not fragment
        ip[8] = handle.hop_limit;
        ip[9] = UDP;
        ip[12..16].copy_from_slice(&source);
        ip[16..20].copy_from_slice(&destination);
        let checksum = internet_checksum(ip).to_be_bytes();
        ip[10..12].copy_from_slice(&checksum);
    } else {
        let class = u32::from(handle.traffic_class) << 20 | handle.flow_label & 0xf_ffff;
        header[..4].copy_from_slice(&(6 << 28 | class).to_be_bytes());
        header[4..6].copy_from_slice(&(udp as u16).to_be_bytes());
        header[6] = UDP;
        header[7] = handle.hop_limit;
        header[8..24].copy_from_slice(&handle.source_gid);
        header[24..].copy_from_slice(&handle.destination_gid);
    }
    header
}

fn internet_checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes.chunks_exact(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::PdId;

    fn handle(source_gid: [u8; 16], destination_gid: [u8; 16]) -> AddressHandle {
        AddressHandle {
            pd: PdId::default(),
            source_gid,
            destination_gid,
            destination_mac: None,
            traffic_class: 0x20,
            hop_limit: 64,
            flow_label: 0x12345,
        }
    }

    #[test]
    fn ipv4_header_stands_in_the_last_twenty_bytes() {
        let mapped = |last| [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last];
        let header = network_header(&handle(mapped(1), mapped(2)), 5, true);
        assert_eq!(header[..20], [0; 20]);
        assert_eq!(header[20], 0x45);
        assert_eq!(u16::from_be_bytes([header[22], header[23]]), 20 + 8 + 24 + 8 + 4);
        assert_eq!(header[29], UDP);
        assert_eq!(header[32..], [10, 0, 0, 1, 10, 0, 0, 2]);
        assert_eq!(internet_checksum(&header[20..]), 0, "a header with its checksum sums to zero");
    }

    #[test]
    fn ipv6_header_is_whole() {
        let gid = |last| [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
        let header = network_header(&handle(gid(1), gid(2)), 8, false);
        assert_eq!(header[..4], [0x62, 0x01, 0x23, 0x45]);
        assert_eq!(u16::from_be_bytes([header[4], header[5]]), 8 + 24 + 8);
        assert_eq!((header[23], header[39]), (1, 2));
    }

    #[test]
    fn gen2_opcodes_are_those_of_the_last_packet() {
        let plain = Tail::default();
        let immediate = Tail { immediate: Some(1), ..plain };
        let invalidate = Tail { invalidate: Some(1), ..plain };
        let opcode = |message, several, tail: &Tail| receive_opcode(Generation::Gen2, message, several, tail);
        assert_eq!(opcode(Message::Send, false, &plain), 0x04);
        assert_eq!(opcode(Message::Send, true, &plain), 0x02);
        assert_eq!(opcode(Message::Send, false, &immediate), 0x05);
        assert_eq!(opcode(Message::Send, true, &invalidate), 0x16);
        assert_eq!(opcode(Message::WriteImmediate, false, &immediate), 0x0b);
        assert_eq!(opcode(Message::WriteImmediate, true, &immediate), 0x09);
        assert_eq!(opcode(Message::Datagram, false, &plain), 0x24);
        assert_eq!(receive_opcode(Generation::Gen3, Message::WriteImmediate, false, &immediate), 0x00);
        assert_eq!(receive_opcode(Generation::Gen3, Message::Send, true, &plain), 0x03);
    }
}
