//! Unreliable datagrams.

mod bed;

use bed::work::{READ, SEND, SEND_INVALIDATE, SEND_SOLICITED, WRITE, Work};
use bed::{Bed, Buffer, FULL, Q_KEY, Side, gid};
use irdma_engine::event::{Source, code};
use irdma_engine::spec::*;

const MULTICAST_QP: u32 = 0xff_ffff;

fn scene() -> (Bed, Side, Side, Buffer, Buffer, u32) {
    let mut bed = Bed::new(Generation::Gen2);
    let left = bed.datagram(0, Q_KEY);
    let right = bed.datagram(1, Q_KEY);
    let (from, to) = (bed.region(8192), bed.region(8192));
    bed.fill(from, 0, &(0..200).collect::<Vec<u8>>());
    let handle = bed.handle(0, gid(1));
    (bed, left, right, from, to, handle)
}

#[test]
fn a_datagram_arrives_behind_its_network_header() {
    let (mut bed, mut left, mut right, from, to, handle) = scene();
    bed.receive(&mut right, &[to.sge(0, 40), to.sge(100, 200)]);
    bed.send(&mut left, &Work::new(SEND, &[from.sge(0, 150)]).to(handle, right.qp.id.number, Q_KEY));
    let sent = bed.completion(&mut left);
    assert_eq!((sent.opcode, sent.length, sent.error), (3, 150, false));
    let got = bed.completion(&mut right);
    assert_eq!((got.opcode, got.length, got.tag), (0x24, 190, left.qp.id.number));
    assert_eq!((got.invalidated_or_ipv4, got.immediate), (true, None));
    assert_eq!(got.mac, Some([2, 0, 0, 0, 0, 0]));
    let header = bed.bytes(to, 0, 40);
    assert_eq!(header[..21], [[0; 20].as_slice(), &[0x45]].concat());
    assert_eq!(header[32..], [10, 0, 0, 1, 10, 0, 0, 2]);
    assert_eq!(bed.bytes(to, 100, 150), (0..150).collect::<Vec<u8>>());
}

#[test]
fn over_ipv6_the_header_is_whole_and_the_mac_real() {
    let (mut bed, mut left, mut right, from, to, _) = scene();
    let own = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x50, 0x54, 0, 0xff, 0xfe, 1, 2, 3];
    let other = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x50, 0x54, 0, 0xff, 0xfe, 1, 2, 4];
    bed.engine.set_gids(0, vec![gid(0), own]);
    bed.engine.set_gids(1, vec![gid(1), other]);
    let pd = bed.pd;
    let handle = AddressHandle {
        pd: bed.left(pd),
        source_gid: own,
        destination_gid: other,
        destination_mac: None,
        traffic_class: 3,
        hop_limit: 7,
        flow_label: 9,
    };
    let handle = bed.engine.create_ah(handle, None).expect("a handle").number;
    bed.receive(&mut right, &[to.sge(0, 200)]);
    bed.send(&mut left, &Work::new(SEND, &[from.sge(0, 10)]).to(handle, right.qp.id.number, Q_KEY));
    let got = bed.completion(&mut right);
    assert!(!got.invalidated_or_ipv4);
    assert_eq!(got.mac, Some([0x52, 0x54, 0, 1, 2, 3]));
    let header = bed.bytes(to, 0, 40);
    assert_eq!(header[..4], [0x60, 0x30, 0, 9]);
    assert_eq!((&header[8..24], &header[24..]), (own.as_slice(), other.as_slice()));
}

#[test]
fn immediate_inline_and_solicited_arrive() {
    let (mut bed, mut left, mut right, _, to, handle) = scene();
    bed.receive(&mut right, &[to.sge(0, 200)]);
    let work = Work::inline(SEND_SOLICITED, &[9; 50]).immediate(0x0102_0304);
    bed.send(&mut left, &work.to(handle, right.qp.id.number, Q_KEY));
    let got = bed.completion(&mut right);
    assert_eq!((got.opcode, got.length, got.solicited), (0x25, 90, true));
    assert_eq!((got.immediate, got.slots), (Some(0x0102_0304), 2));
    assert_eq!(bed.bytes(to, 40, 50), [9; 50]);
}

#[test]
fn what_is_not_welcome_is_dropped_and_the_send_succeeds() {
    let (mut bed, mut left, mut right, from, to, handle) = scene();
    let send = |q_key, qp| Work::new(SEND, &[from.sge(0, 8)]).to(handle, qp, q_key);
    let id = right.qp.id.number;
    bed.send(&mut left, &send(Q_KEY, id)); // no receive
    bed.receive(&mut right, &[to.sge(0, 200)]);
    bed.send(&mut left, &send(Q_KEY + 1, id)); // wrong Q_Key
    bed.send(&mut left, &send(Q_KEY, id + 1000)); // nobody
    let own = left.qp.id.number;
    bed.send(&mut left, &send(Q_KEY, own)); // that number lives elsewhere
    let connected = bed.pair().1.qp.id.number;
    bed.send(&mut left, &send(Q_KEY, connected)); // not a datagram queue pair
    let change = QpChange { state: Some(QpState::Init), ..QpChange::default() };
    bed.engine.modify_qp(right.qp.id, &change).expect("not ready");
    bed.send(&mut left, &send(Q_KEY, id));
    for _ in 0..6 {
        assert!(!bed.poll(&mut left).expect("sent").error);
    }
    assert_eq!(bed.poll(&mut right), None);
    assert!(bed.events().is_empty());
}

#[test]
fn the_high_bit_of_a_q_key_means_the_senders_own() {
    let (mut bed, mut left, mut right, from, to, handle) = scene();
    bed.receive(&mut right, &[to.sge(0, 200)]);
    bed.send(&mut left, &Work::new(SEND, &[from.sge(0, 8)]).to(handle, right.qp.id.number, 0x8000_0000));
    assert_eq!(bed.completion(&mut right).length, 48);
}

#[test]
fn a_datagram_is_at_most_one_packet() {
    let (mut bed, mut left, mut right, from, to, handle) = scene();
    bed.receive(&mut right, &[to.sge(0, 4136)]);
    bed.send(&mut left, &Work::new(SEND, &[from.sge(0, 4096)]).to(handle, right.qp.id.number, Q_KEY));
    assert_eq!(bed.completion(&mut right).length, 4136);
    bed.send(&mut left, &Work::new(SEND, &[from.sge(0, 4097)]).to(handle, right.qp.id.number, Q_KEY));
    bed.expect_events(&[(&left, code::DATAGRAM_TOO_LONG, Source::SendQueue)]);
}

#[test]
fn wrong_handles_and_operations_fail_the_sender() {
    let other_domain = |bed: &mut Bed| {
        let pd = bed.domain();
        let handle = AddressHandle {
            pd: bed.left(pd),
            source_gid: gid(0),
            destination_gid: gid(1),
            destination_mac: None,
            traffic_class: 0,
            hop_limit: 1,
            flow_label: 0,
        };
        bed.engine.create_ah(handle, None).expect("a handle").number
    };
    type Make = fn(&mut Bed, u32, Buffer) -> Work;
    let cases: [(Make, u16); 5] = [
        (|_, handle, _| Work::new(SEND, &[]).to(handle + 1, 2, Q_KEY), code::INVALID_ADDRESS_HANDLE),
        (
            |bed, handle, _| {
                bed.engine.destroy_ah(bed.left(handle)).expect("gone");
                Work::new(SEND, &[]).to(handle, 2, Q_KEY)
            },
            code::INVALID_ADDRESS_HANDLE,
        ),
        (|_, _, from| Work::new(WRITE, &[from.sge(0, 8)]), code::UNEXPECTED_OPCODE),
        (|_, _, from| Work::new(READ, &[from.sge(0, 8)]), code::UNEXPECTED_OPCODE),
        (|_, handle, _| Work::new(SEND_INVALIDATE, &[]).to(handle, 2, Q_KEY), code::UNEXPECTED_OPCODE),
    ];
    for (make, expected) in cases {
        let (mut bed, mut left, _right, from, _, handle) = scene();
        let work = make(&mut bed, handle, from);
        bed.send(&mut left, &work);
        bed.expect_events(&[(&left, expected, Source::SendQueue)]);
    }
    let (mut bed, mut left, ..) = scene();
    let handle = other_domain(&mut bed);
    bed.send(&mut left, &Work::new(SEND, &[]).to(handle, 2, Q_KEY));
    bed.expect_events(&[(&left, code::DATAGRAM_BAD_PD, Source::SendQueue)]);
}

#[test]
fn a_receive_that_cannot_take_it_fails_the_receiver_alone() {
    let (mut bed, mut left, mut right, from, to, handle) = scene();
    bed.receive(&mut right, &[to.sge(0, 47)]);
    bed.send(&mut left, &Work::new(SEND, &[from.sge(0, 8)]).to(handle, right.qp.id.number, Q_KEY));
    bed.expect_events(&[(&right, code::MESSAGE_TOO_LONG, Source::ReceiveQueue)]);
    assert!(!bed.completion(&mut left).error);

    let (mut bed, mut left, mut right, from, _, handle) = scene();
    let pd = bed.domain();
    let foreign = bed.region_of(64, FULL, pd);
    bed.receive(&mut right, &[foreign.sge(0, 64)]);
    bed.send(&mut left, &Work::new(SEND, &[from.sge(0, 8)]).to(handle, right.qp.id.number, Q_KEY));
    bed.expect_events(&[(&right, code::BAD_PD, Source::ReceiveQueue)]);
}

#[test]
fn multicast_reaches_all_members_the_sender_only_if_it_is_one() {
    let (mut bed, mut left, mut right, from, to, _) = scene();
    let mut third = bed.datagram(1, Q_KEY);
    let mut outsider = bed.datagram(1, Q_KEY + 1);
    let group: Gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 1, 1];
    for member in [&right, &third, &outsider] {
        bed.engine.attach_multicast(member.qp.id, group).expect("joins");
    }
    bed.engine.attach_multicast(right.qp.id, group).expect("joins again");
    let handle = bed.handle(0, group);
    for side in [&mut left, &mut right, &mut third, &mut outsider] {
        for _ in 0..4 {
            bed.receive(side, &[to.sge(0, 200)]);
        }
    }
    let work = Work::new(SEND, &[from.sge(0, 8)]).to(handle, MULTICAST_QP, Q_KEY);
    bed.send(&mut left, &work);
    assert!(bed.completion(&mut left).send_queue, "the sender is no member");
    assert_eq!(bed.completion(&mut right).tag, left.qp.id.number);
    assert_eq!(bed.completion(&mut third).length, 48);
    assert_eq!(bed.poll(&mut outsider), None, "another Q_Key");

    bed.engine.attach_multicast(left.qp.id, group).expect("joins");
    bed.engine.detach_multicast(third.qp.id, group).expect("leaves");
    bed.engine.destroy_qp(right.qp.id).expect("destroyed");
    bed.send(&mut left, &work);
    assert!(!bed.poll(&mut left).expect("its own").send_queue);
    assert!(bed.completion(&mut left).send_queue);
    assert_eq!(bed.poll(&mut third), None);
    // To another number than the multicast one nothing is delivered.
    let work = Work::new(SEND, &[from.sge(0, 8)]).to(handle, left.qp.id.number, Q_KEY);
    bed.send(&mut left, &work);
    assert!(bed.completion(&mut left).send_queue);

    assert_eq!(bed.engine.detach_multicast(third.qp.id, group), Err(EngineError::NotFound));
    assert_eq!(bed.engine.attach_multicast(left.qp.id, gid(1)), Err(EngineError::Invalid));
    let connected = bed.pair().0.qp.id;
    assert_eq!(bed.engine.attach_multicast(connected, group), Err(EngineError::Invalid));
}
