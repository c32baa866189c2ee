//! Reliable connections: every operation that succeeds.

mod bed;

use bed::work::{READ, SEND, SEND_INVALIDATE, SEND_SOLICITED, WRITE, Work};
use bed::{Bed, Shape};
use irdma_engine::event::{Source, code};
use irdma_engine::spec::*;

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|byte| (byte * 7 + byte / 251) as u8).collect()
}

#[test]
fn send_arrives_in_order_and_completes_on_both_sides() {
    let mut bed = Bed::new(Generation::Gen2);
    let (mut left, mut right) = bed.pair();
    let (from, to) = (bed.region(4096), bed.region(4096));
    bed.fill(from, 0, &pattern(100));
    let receive = bed.receive(&mut right, &[to.sge(8, 200)]);
    let send = bed.send(&mut left, &Work::new(SEND, &[from.sge(0, 100)]));
    assert_eq!(bed.bytes(to, 8, 100), pattern(100));
    let sent = bed.completion(&mut left);
    assert!(sent.send_queue && !sent.error);
    assert_eq!((sent.opcode, sent.length, sent.index, sent.qp), (3, 100, send, left.qp.id.number));
    assert_eq!(sent.context, left.context());
    let got = bed.completion(&mut right);
    assert!(!got.send_queue && !got.error && !got.solicited);
    assert_eq!((got.opcode, got.length, got.index, got.qp), (0x04, 100, receive, right.qp.id.number));
    assert_eq!((got.immediate, got.slots, got.context), (None, 1, right.context()));
    assert!(bed.events().is_empty());
}

#[test]
fn messages_over_several_packets_end_with_a_last_packet() {
    let mut bed = Bed::new(Generation::Gen2);
    let (mut left, mut right) = bed.pair();
    let (from, to) = (bed.region(1 << 20), bed.region(1 << 20));
    bed.fill(from, 0, &pattern(1 << 20));
    bed.receive(&mut right, &[to.sge(0, 1 << 20)]);
    bed.send(&mut left, &Work::new(SEND, &[from.sge(0, 1 << 20)]));
    assert_eq!(bed.completion(&mut right).opcode, 0x02);
    assert_eq!(bed.bytes(to, 0, 1 << 20), pattern(1 << 20));
}

#[test]
fn immediate_solicited_and_invalidate_reach_the_receiver() {
    let mut bed = Bed::new(Generation::Gen2);
    let (mut left, mut right) = bed.pair();
    let (from, to, victim) = (bed.region(4096), bed.region(4096), bed.region(64));
    for _ in 0..3 {
        bed.receive(&mut right, &[to.sge(0, 64)]);
    }
    bed.post(&mut left, &Work::new(SEND, &[from.sge(0, 8)]).immediate(0xdead_beef));
    bed.post(&mut left, &Work::new(SEND_SOLICITED, &[]));
    bed.send(&mut left, &Work::new(SEND_INVALIDATE, &[from.sge(0, 4)]).invalidates(victim.key));
    let first = bed.poll(&mut right).expect("with immediate");
    assert_eq!((first.opcode, first.immediate, first.slots), (0x05, Some(0xdead_beef), 2));
    let second = bed.poll(&mut right).expect("solicited");
    assert_eq!((second.opcode, second.length, second.solicited), (0x04, 0, true));
    let third = bed.poll(&mut right).expect("with invalidate");
    assert_eq!((third.opcode, third.tag, third.invalidated_or_ipv4), (0x17, victim.key, true));
    // The invalidated region opens nothing any more.
    bed.send(&mut left, &Work::new(WRITE, &[from.sge(0, 4)]).remote(victim.address, victim.key));
    bed.expect_events(&[
        (&right, code::INVALID_STAG, Source::InboundRdma),
        (&left, code::REMOTE_ACCESS_ERROR, Source::SendQueue),
    ]);
}

#[test]
fn inline_data_of_every_length_arrives() {
    for (generation, most) in [(Generation::Gen1, 48), (Generation::Gen2, 101), (Generation::Gen3, 216)] {
        let mut bed = Bed::new(generation);
        let (mut left, mut right) = bed.pair();
        let to = bed.region(4096);
        for length in 0..=most {
            let bytes = pattern(length + 1)[1..].to_vec();
            bed.receive(&mut right, &[to.sge(0, 256)]);
            bed.send(&mut left, &Work::inline(SEND, &bytes));
            assert_eq!(bed.completion(&mut left).length as usize, length);
            assert_eq!(bed.completion(&mut right).length as usize, length);
            assert_eq!(bed.bytes(to, 0, length), bytes, "{generation:?}, {length} bytes");
        }
    }
}

#[test]
fn inline_write_with_immediate_uses_both_places() {
    let mut bed = Bed::new(Generation::Gen2);
    let (mut left, mut right) = bed.pair();
    let to = bed.region(64);
    bed.receive(&mut right, &[]);
    bed.send(&mut left, &Work::inline(WRITE, &pattern(40)).immediate(5).remote(to.address, to.key));
    let got = bed.completion(&mut right);
    assert_eq!((got.opcode, got.immediate, got.length), (0x0b, Some(5), 40));
    assert_eq!(bed.bytes(to, 0, 40), pattern(40));
}

#[test]
fn fragments_of_every_number_are_gathered_and_scattered() {
    for (generation, most) in [(Generation::Gen1, 3), (Generation::Gen2, 13), (Generation::Gen3, 14)] {
        let mut bed = Bed::new(generation);
        let shape = Shape { rq_wqe_quanta: 8, ..bed.shape() };
        let (mut left, mut right) = bed.pair_of(shape);
        let (from, to) = (bed.region(4096), bed.region(4096));
        bed.fill(from, 0, &pattern(4096));
        for count in 1..=most {
            let mut expected = Vec::new();
            let sges: Vec<_> = (0..count)
                .map(|index| {
                    let (offset, length) = (index * 100, index + 1);
                    expected.extend(&pattern(4096)[offset..offset + length]);
                    from.sge(offset as u64, length as u32)
                })
                .collect();
            let total = expected.len() as u32;
            let halves = [to.sge(0, total / 2), to.sge(2000, total - total / 2)];
            bed.receive(&mut right, &halves);
            bed.send(&mut left, &Work::new(SEND, &sges));
            assert!(!bed.completion(&mut left).error);
            assert_eq!(bed.completion(&mut right).length, total);
            let mut got = bed.bytes(to, 0, (total / 2) as usize);
            got.extend(bed.bytes(to, 2000, (total - total / 2) as usize));
            assert_eq!(got, expected, "{generation:?}, {count} fragments");
        }
        // An immediate takes one slot more.
        if generation != Generation::Gen1 {
            let sges: Vec<_> = (0..most).map(|index| from.sge(index as u64, 1)).collect();
            bed.receive(&mut right, &[to.sge(0, 64)]);
            bed.send(&mut left, &Work::new(SEND, &sges).immediate(9));
            let got = bed.completion(&mut right);
            assert_eq!((got.immediate, got.length), (Some(9), most as u32));
            assert_eq!(bed.bytes(to, 0, most), pattern(4096)[..most]);
        }
    }
}

#[test]
fn writes_and_reads_move_data_without_a_receive() {
    let mut bed = Bed::new(Generation::Gen2);
    let (mut left, mut right) = bed.pair();
    let (near, far) = (bed.region(300_000), bed.region(300_000));
    bed.fill(near, 0, &pattern(300_000));
    bed.send(&mut left, &Work::new(WRITE, &[near.sge(0, 300_000)]).remote(far.address, far.key));
    assert_eq!(bed.bytes(far, 0, 300_000), pattern(300_000));
    let wrote = bed.completion(&mut left);
    assert_eq!((wrote.opcode, wrote.length), (0, 300_000));
    bed.fill(near, 0, &[0; 1000]);
    let sink = [near.sge(0, 400), near.sge(500, 200)];
    bed.send(&mut left, &Work::new(READ, &sink).remote(far.address + 10, far.key));
    assert_eq!(bed.bytes(near, 0, 400), pattern(300_000)[10..410]);
    assert_eq!(bed.bytes(near, 400, 100), [0; 100]);
    assert_eq!(bed.bytes(near, 500, 200), pattern(300_000)[410..610]);
    let read = bed.completion(&mut left);
    assert_eq!((read.opcode, read.length), (1, 600));
    assert_eq!(bed.poll(&mut right), None);
}

#[test]
fn write_with_immediate_takes_a_receive() {
    let mut bed = Bed::new(Generation::Gen2);
    let (mut left, mut right) = bed.pair();
    let (near, far) = (bed.region(4096), bed.region(4096));
    bed.fill(near, 0, &pattern(2000));
    bed.receive(&mut right, &[]);
    bed.send(&mut left, &Work::new(WRITE, &[near.sge(0, 2000)]).immediate(77).remote(far.address, far.key));
    let got = bed.completion(&mut right);
    assert_eq!((got.opcode, got.length, got.immediate), (0x09, 2000, Some(77)));
    assert_eq!(bed.bytes(far, 0, 2000), pattern(2000));
    assert_eq!(bed.completion(&mut left).length, 2000);
}

#[test]
fn nothing_is_checked_of_keys_that_open_no_byte() {
    let mut bed = Bed::new(Generation::Gen2);
    let (mut left, mut right) = bed.pair();
    let near = bed.region(64);
    bed.receive(&mut right, &[bed::work::Sge { address: 1, length: 0, key: 0x1234 }]);
    bed.post(&mut left, &Work::new(SEND, &[bed::work::Sge { address: 0, length: 0, key: 0xffff }]));
    bed.post(&mut left, &Work::new(WRITE, &[]).remote(0, 0));
    bed.send(&mut left, &Work::new(READ, &[near.sge(0, 0)]).remote(0, 0));
    for opcode in [3, 0, 1] {
        let wc = bed.poll(&mut left).expect("a completion");
        assert_eq!((wc.opcode, wc.length, wc.error), (opcode, 0, false));
    }
    assert_eq!(bed.completion(&mut right).length, 0);
    assert!(bed.events().is_empty());
}

#[test]
fn unsignaled_work_completes_silently_and_rings_wrap() {
    let mut bed = Bed::new(Generation::Gen2);
    let shape = Shape { sq_quanta: 64, rq_quanta: 16, ..bed.shape() };
    let (mut left, mut right) = bed.pair_of(shape);
    let (from, to) = (bed.region(4096), bed.region(4096));
    // Several laps of both rings, with WQEs of one to four quanta and padding between.
    for round in 0..200_u32 {
        let length = (round % 4) * 31 + 5;
        let bytes = vec![round as u8; length as usize];
        bed.receive(&mut right, &[to.sge(0, 128)]);
        let work = if round % 2 == 0 {
            Work::inline(SEND, &bytes)
        } else {
            bed.fill(from, 0, &bytes);
            Work::new(SEND, &[from.sge(0, 3), from.sge(3, length - 3)])
        };
        let index = bed.send(&mut left, &if round % 3 == 0 { work.clone() } else { work.unsignaled() });
        let got = bed.completion(&mut right);
        assert_eq!((got.length, got.index), (length, round % 8 * 2));
        assert_eq!(bed.bytes(to, 0, length as usize), bytes);
        match bed.poll(&mut left) {
            Some(wc) => assert_eq!((wc.index, round % 3), (index, 0)),
            None => assert_ne!(round % 3, 0),
        }
    }
}

#[test]
fn a_queue_pair_may_be_connected_to_itself() {
    let mut bed = Bed::new(Generation::Gen2);
    let cq = bed.cq(16);
    let shape = bed.shape();
    let qp = bed.qp(shape, &cq, &cq);
    let change = bed.connection(qp.id, 0, 0);
    bed.engine.modify_qp(qp.id, &change).expect("connects");
    let mut side = bed::Side { qp, cq };
    let (from, to) = (bed.region(64), bed.region(64));
    bed.fill(from, 0, &pattern(64));
    bed.receive(&mut side, &[to.sge(0, 64)]);
    bed.send(&mut side, &Work::new(SEND, &[from.sge(0, 64)]));
    assert!(!bed.poll(&mut side).expect("received").send_queue);
    assert!(bed.completion(&mut side).send_queue);
    assert_eq!(bed.bytes(to, 0, 64), pattern(64));
    // Its own error is one error.
    bed.send(&mut side, &Work::new(WRITE, &[from.sge(0, 8)]).remote(1, 1));
    bed.expect_events(&[(&side, code::BAD_STAG_INDEX, Source::InboundRdma)]);
}

#[test]
fn sends_wait_for_ready_to_send_and_hold_in_drained() {
    let mut bed = Bed::new(Generation::Gen2);
    let (mut left, mut right) = bed.pair();
    let state = |state| QpChange { state: Some(state), ..QpChange::default() };
    bed.engine.modify_qp(left.qp.id, &state(QpState::SendQueueDrained)).expect("drains");
    bed.expect_events(&[(&left, code::SUSPEND_COMPLETE, Source::Unspecified)]);
    bed.receive(&mut right, &[]);
    bed.receive(&mut left, &[]);
    bed.send(&mut left, &Work::new(SEND, &[]));
    assert_eq!(bed.poll(&mut left), None, "held back");
    bed.send(&mut right, &Work::new(SEND, &[]));
    assert!(!bed.completion(&mut left).send_queue, "receives go on");
    bed.engine.modify_qp(left.qp.id, &state(QpState::ReadyToSend)).expect("resumes");
    assert!(bed.completion(&mut left).send_queue);
}

#[test]
fn the_first_message_to_a_side_not_yet_sending_is_reported_once() {
    let mut bed = Bed::new(Generation::Gen2);
    let (mut left, mut right) = bed.pair();
    let change = QpChange { state: Some(QpState::ReadyToReceive), ..QpChange::default() };
    bed.engine.modify_qp(right.qp.id, &change).expect("receives only");
    for _ in 0..2 {
        bed.receive(&mut right, &[]);
        bed.send(&mut left, &Work::new(SEND, &[]));
        assert!(bed.poll(&mut right).is_some());
    }
    bed.expect_events(&[(&right, code::CONNECTION_ESTABLISHED, Source::Unspecified)]);
}

#[test]
fn a_small_write_costs_few_accesses() {
    let mut bed = Bed::new(Generation::Gen2);
    let (mut left, _right) = bed.pair();
    let (near, far) = (bed.region(64), bed.region(64));
    bed.memory().doorbell_waits = true;
    for _ in 0..8 {
        bed.post(&mut left, &Work::new(WRITE, &[near.sge(0, 8)]).remote(far.address, far.key));
    }
    bed.memory().calls = 0;
    bed.engine.ring_sq(left.qp.id);
    // Per WQE: payload in, payload out, completion in two pieces; the ring once in all.
    assert_eq!(bed.memory().calls, 8 * 4 + 1);
}

#[test]
fn a_body_that_the_valid_bit_overtook_is_read_again() {
    let mut bed = Bed::new(Generation::Gen2);
    let (mut left, mut right) = bed.pair();
    let (from, to) = (bed.region(64), bed.region(64));
    bed.fill(from, 0, &pattern(64));
    let send = bed.post(&mut left, &Work::new(SEND, &[from.sge(0, 32), from.sge(32, 32)])) as usize;
    let receive = bed.receive(&mut right, &[to.sge(0, 64)]) as usize;
    // A read that passes the producer sees its valid bit, but not yet what it wrote before.
    for (area, offset) in [(left.qp.sq.area, send * 32 + 32), (right.qp.rq.area, receive * 32)] {
        let address = bed.memory().word(area, offset);
        bed.memory().set_word(area, offset, 0x666);
        bed.memory().late.push((area, offset, address));
    }
    bed.engine.ring_sq(left.qp.id);
    assert!(bed.events().is_empty());
    assert_eq!(bed.completion(&mut right).length, 64);
    assert_eq!(bed.bytes(to, 0, 64), pattern(64));
}
