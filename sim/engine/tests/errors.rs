//! Reliable connections: every error, with its event on each side.

mod bed;

use bed::work::{READ, SEND, SEND_INVALIDATE, Sge, WRITE, Work};
use bed::{Bed, Buffer, FULL, Side};
use irdma_engine::event::{Source, Subject, code};
use irdma_engine::spec::*;

/// A fresh connection with a region on either side.
fn scene() -> (Bed, Side, Side, Buffer, Buffer) {
    let mut bed = Bed::new(Generation::Gen2);
    let (left, right) = bed.pair();
    let (near, far) = (bed.region(4096), bed.region(4096));
    (bed, left, right, near, far)
}

fn without(change: impl FnOnce(&mut Access)) -> Access {
    let mut access = FULL;
    change(&mut access);
    access
}

/// A send whose own memory is wrong fails at its sender, and the receiver notices nothing.
#[track_caller]
fn local_error(make: impl FnOnce(&mut Bed, Buffer) -> Work, expected: u16) {
    let (mut bed, mut left, mut right, near, _) = scene();
    bed.receive(&mut right, &[]);
    let work = make(&mut bed, near);
    let index = bed.send(&mut left, &work);
    assert_eq!(bed.engine.platform().events[0].wqe_index, Some(index));
    bed.expect_events(&[(&left, expected, Source::SendQueue)]);
    assert_eq!((bed.state(&left), bed.state(&right)), (QpState::Error, QpState::ReadyToSend));
    assert_eq!((bed.poll(&mut left), bed.poll(&mut right)), (None, None));
}

#[test]
fn wrong_local_keys_are_told_apart() {
    let send = |sge: Sge| Work::new(SEND, &[sge]);
    local_error(|_, near| send(Sge { key: near.key ^ 1, ..near.sge(0, 8) }), code::BAD_STAG_KEY);
    local_error(|_, near| send(Sge { key: near.key ^ 0x8000_0000, ..near.sge(0, 8) }), code::BAD_STAG_INDEX);
    local_error(|_, near| send(near.sge(0, 4097)), code::BOUNDS_VIOLATION);
    local_error(|_, near| send(Sge { address: near.address - 1, ..near.sge(0, 8) }), code::BOUNDS_VIOLATION);
    local_error(|_, near| send(Sge { address: u64::MAX - 3, ..near.sge(0, 8) }), code::ADDRESS_WRAP);
    local_error(
        |bed, _| {
            let pd = bed.domain();
            send(bed.region_of(64, FULL, pd).sge(0, 8))
        },
        code::BAD_PD,
    );
    local_error(
        |bed, near| {
            bed.engine.destroy_mr(0, near.key).expect("gone");
            send(near.sge(0, 8))
        },
        code::BAD_STAG_INDEX,
    );
    local_error(|_, _| Work::new(0x02, &[]), code::UNEXPECTED_OPCODE);
}

#[test]
fn a_read_needs_a_writable_sink_and_a_place() {
    let (mut bed, mut left, _right, _, far) = scene();
    let pd = bed.pd;
    let sink = bed.region_of(64, without(|access| access.local_write = false), pd);
    bed.send(&mut left, &Work::new(READ, &[sink.sge(0, 8)]).remote(far.address, far.key));
    bed.expect_events(&[(&left, code::RIGHTS_VIOLATION, Source::SendQueue)]);

    let (mut bed, mut left, _right, near, far) = scene();
    let change = QpChange { max_rd_atomic: Some(0), ..QpChange::default() };
    bed.engine.modify_qp(left.qp.id, &change).expect("no reads");
    bed.send(&mut left, &Work::new(READ, &[near.sge(0, 8)]).remote(far.address, far.key));
    bed.expect_events(&[(&left, code::READ_WHILE_ORD_ZERO, Source::SendQueue)]);
}

#[test]
fn a_sender_whose_memory_is_gone_fails_alone() {
    let (mut bed, mut left, mut right, near, far) = scene();
    bed.receive(&mut right, &[far.sge(0, 64)]);
    bed.memory().unmap(near.area);
    bed.send(&mut left, &Work::new(SEND, &[near.sge(0, 8)]));
    bed.expect_events(&[(&left, code::INVALID_STAG, Source::SendQueue)]);
    assert_eq!(bed.poll(&mut right), None);
}

/// A one-sided request that the peer refuses: both sides fail.
#[track_caller]
fn remote_error(
    opcode: u64,
    make: impl FnOnce(&mut Bed, Buffer) -> Sge,
    at_peer: (u16, Source),
    at_requester: u16,
) {
    let (mut bed, mut left, mut right, near, far) = scene();
    let target = make(&mut bed, far);
    let work = Work::new(opcode, &[near.sge(0, target.length)]).remote(target.address, target.key);
    bed.send(&mut left, &work);
    bed.expect_events(&[(&right, at_peer.0, at_peer.1), (&left, at_requester, Source::SendQueue)]);
    assert_eq!((bed.state(&left), bed.state(&right)), (QpState::Error, QpState::Error));
    assert_eq!((bed.poll(&mut left), bed.poll(&mut right)), (None, None));
}

#[test]
fn wrong_remote_keys_fail_both_sides() {
    let access = code::REMOTE_ACCESS_ERROR;
    for (opcode, source) in [(WRITE, Source::InboundRdma), (READ, Source::OutboundRead)] {
        remote_error(
            opcode,
            |_, far| Sge { key: far.key ^ 1, ..far.sge(0, 8) },
            (code::BAD_STAG_KEY, source),
            access,
        );
        remote_error(
            opcode,
            |_, far| Sge { key: 0, ..far.sge(0, 8) },
            (code::BAD_STAG_INDEX, source),
            access,
        );
        remote_error(opcode, |_, far| far.sge(4090, 8), (code::BOUNDS_VIOLATION, source), access);
        remote_error(
            opcode,
            |bed, _| {
                let pd = bed.domain();
                bed.region_of(64, FULL, pd).sge(0, 8)
            },
            (code::BAD_PD, source),
            access,
        );
        remote_error(
            opcode,
            |bed, _| {
                let pd = bed.pd;
                let none = without(|access| (access.remote_read, access.remote_write) = (false, false));
                bed.region_of(64, none, pd).sge(0, 8)
            },
            (code::RIGHTS_VIOLATION, source),
            access,
        );
        remote_error(
            opcode,
            |bed, far| {
                bed.memory().unmap(far.area);
                far.sge(0, 8)
            },
            (code::INVALID_STAG, source),
            access,
        );
    }
}

#[test]
fn a_peer_that_serves_no_such_request_says_so() {
    let request = code::INVALID_REQUEST;
    for (opcode, source) in [(WRITE, Source::InboundRdma), (READ, Source::OutboundRead)] {
        let (mut bed, mut left, right, near, far) = scene();
        let none = without(|access| (access.remote_read, access.remote_write) = (false, false));
        let change = QpChange { access: Some(none), ..QpChange::default() };
        bed.engine.modify_qp(right.qp.id, &change).expect("serves nothing");
        bed.send(&mut left, &Work::new(opcode, &[near.sge(0, 8)]).remote(far.address, far.key));
        bed.expect_events(&[(&right, request, source), (&left, request, Source::SendQueue)]);
    }
    let (mut bed, mut left, right, near, far) = scene();
    let change = QpChange { max_dest_rd_atomic: Some(0), ..QpChange::default() };
    bed.engine.modify_qp(right.qp.id, &change).expect("no reads");
    bed.send(&mut left, &Work::new(READ, &[near.sge(0, 8)]).remote(far.address, far.key));
    bed.expect_events(&[
        (&right, code::READ_QUEUE_FULL, Source::OutboundRead),
        (&left, request, Source::SendQueue),
    ]);
}

#[test]
fn a_message_longer_than_its_receive_fails_both_sides() {
    let (mut bed, mut left, mut right, near, far) = scene();
    let index = bed.receive(&mut right, &[far.sge(0, 10), far.sge(20, 5)]);
    bed.send(&mut left, &Work::new(SEND, &[near.sge(0, 16)]));
    assert_eq!(bed.engine.platform().events[0].wqe_index, Some(index));
    bed.expect_events(&[
        (&right, code::MESSAGE_TOO_LONG, Source::ReceiveQueue),
        (&left, code::INVALID_REQUEST, Source::SendQueue),
    ]);
}

#[test]
fn a_receive_into_wrong_memory_fails_both_sides() {
    type Make = fn(&mut Bed, Buffer) -> Sge;
    let cases: [(Make, u16); 3] = [
        (|_, far| Sge { key: far.key ^ 1, ..far.sge(0, 64) }, code::BAD_STAG_KEY),
        (
            |bed, _| {
                let pd = bed.pd;
                bed.region_of(64, Access::default(), pd).sge(0, 64)
            },
            code::RIGHTS_VIOLATION,
        ),
        (
            |bed, far| {
                bed.memory().unmap(far.area);
                far.sge(0, 64)
            },
            code::INVALID_STAG,
        ),
    ];
    for (make, expected) in cases {
        let (mut bed, mut left, mut right, near, far) = scene();
        let sge = make(&mut bed, far);
        bed.receive(&mut right, &[sge]);
        bed.send(&mut left, &Work::new(SEND, &[near.sge(0, 16)]));
        bed.expect_events(&[
            (&right, expected, Source::ReceiveQueue),
            (&left, code::REMOTE_OPERATION_ERROR, Source::SendQueue),
        ]);
    }
}

#[test]
fn only_what_the_message_reaches_of_a_receive_is_checked() {
    let (mut bed, mut left, mut right, near, far) = scene();
    bed.receive(&mut right, &[far.sge(0, 16), Sge { address: 0, length: 64, key: 0 }]);
    bed.send(&mut left, &Work::new(SEND, &[near.sge(0, 16)]));
    assert_eq!(bed.completion(&mut right).length, 16);
    assert!(bed.events().is_empty());
}

#[test]
fn invalidating_what_the_peer_has_no_right_to_fails_both_sides() {
    let (mut bed, mut left, mut right, near, far) = scene();
    let pd = bed.pd;
    let private = bed.region_of(64, Access { local_write: true, ..Access::default() }, pd);
    bed.receive(&mut right, &[far.sge(0, 64)]);
    bed.send(&mut left, &Work::new(SEND_INVALIDATE, &[near.sge(0, 4)]).invalidates(private.key));
    bed.expect_events(&[
        (&right, code::INVALIDATE_NO_REMOTE_ACCESS, Source::ReceiveQueue),
        (&left, code::REMOTE_ACCESS_ERROR, Source::SendQueue),
    ]);
    assert_eq!(bed.poll(&mut right), None);
}

#[test]
fn work_done_before_an_error_keeps_its_completion() {
    let (mut bed, mut left, _right, near, far) = scene();
    let good = Work::new(WRITE, &[near.sge(0, 8)]).remote(far.address, far.key);
    bed.post(&mut left, &good);
    bed.post(&mut left, &Work::new(0x3f, &[]));
    bed.post(&mut left, &good);
    bed.engine.ring_sq(left.qp.id);
    assert!(!bed.completion(&mut left).error);
    bed.expect_events(&[(&left, code::UNEXPECTED_OPCODE, Source::SendQueue)]);
    bed.engine.ring_sq(left.qp.id);
    assert_eq!(bed.poll(&mut left), None, "a queue in error executes nothing");
}

#[test]
fn malformed_wqes_fail_their_queue() {
    type Spoil = fn(&mut Vec<u64>);
    let cases: [(Spoil, u16); 6] = [
        (|words| words[3] |= 15 << 38, code::WQE_INVALID_FRAGMENTS),
        (|words| words[1] ^= 1 << 63, code::WQE_INVALID_FRAGMENTS),
        (|words| words[7] ^= 1 << 63, code::WQE_INVALID_FRAGMENTS),
        (|words| words[3] = (words[3] & !(0x3f << 32)) | 0x02 << 32, code::UNEXPECTED_OPCODE),
        (|words| words[3] |= 1 << 57 | 102 << 48, code::WQE_INVALID_PARAMETER),
        (|words| words[3] |= 1 << 57 | 255 << 48, code::WQE_INVALID_FRAGMENTS),
    ];
    for (number, (spoil, expected)) in cases.into_iter().enumerate() {
        let (mut bed, mut left, _right, near, _) = scene();
        let mut words = Work::new(SEND, &[near.sge(0, 8), near.sge(8, 8)]).encode(true, bed.generation);
        spoil(&mut words);
        words.resize(36, 1 << 63);
        left.qp.sq.put(bed.memory(), &words, 2);
        bed.engine.ring_sq(left.qp.id);
        let found = bed.events();
        assert_eq!(found.len(), 1, "case {number}");
        assert_eq!((found[0].code, found[0].source), (expected, Source::SendQueue), "case {number}");
    }
}

#[test]
fn messages_above_two_gigabytes_are_refused() {
    let (mut bed, mut left, mut right, _, _) = scene();
    let sge = |length| Sge { address: 0, length, key: 0 };
    bed.receive(&mut right, &[]);
    bed.send(&mut left, &Work::new(SEND, &[sge(0x7fff_ffff), sge(2)]));
    bed.expect_events(&[(&left, code::INVALID_MESSAGE_OFFSET, Source::SendQueue)]);
}

#[test]
fn rings_out_of_reach_fail_their_queue_pair() {
    let (mut bed, left, _right, _, _) = scene();
    bed.memory().unmap(left.qp.sq.area);
    bed.engine.ring_sq(left.qp.id);
    bed.expect_events(&[(&left, code::LOCAL_QP_CATASTROPHIC, Source::SendQueue)]);

    let (mut bed, mut left, right, near, _) = scene();
    bed.memory().unmap(right.qp.rq.area);
    bed.send(&mut left, &Work::new(SEND, &[near.sge(0, 8)]));
    bed.expect_events(&[
        (&right, code::LOCAL_QP_CATASTROPHIC, Source::ReceiveQueue),
        (&left, code::REMOTE_OPERATION_ERROR, Source::SendQueue),
    ]);

    let (mut bed, mut left, mut right, near, far) = scene();
    bed.receive(&mut right, &[far.sge(0, 8)]);
    bed.memory().unmap(left.cq.ring);
    bed.send(&mut left, &Work::new(SEND, &[near.sge(0, 8)]));
    let events = bed.events();
    assert_eq!(events[0].subject, Subject::Cq(left.cq.id));
    assert_eq!((events[0].code, events[0].source), (code::CQ_OPERATION_ERROR, Source::CompletionQueue));
    assert_eq!((events[1].subject, events[1].code), (Subject::Qp(left.qp.id), code::LOCAL_QP_CATASTROPHIC));
    assert!(!bed.completion(&mut right).error, "the receiver has its message");
}

#[test]
fn numbers_that_name_nothing_are_refused_or_ignored() {
    let mut bed = Bed::new(Generation::Gen2);
    for nothing in [bed.left(0), bed.left(5), bed.left(u32::MAX), Id { function: 7, number: 1 }] {
        bed.engine.ring_sq(nothing);
        bed.engine.arm_cq(nothing);
        assert_eq!(bed.engine.destroy_qp(nothing), Err(EngineError::NotFound));
        assert_eq!(bed.engine.destroy_mr(nothing.function, 5), Err(EngineError::NotFound));
        assert_eq!(bed.engine.flush_qp(nothing, Some(1), Some(1)), Err(EngineError::NotFound));
        assert_eq!(bed.engine.qp_state(nothing), None);
    }
    assert_eq!(bed.engine.create_pd(7, None), Err(EngineError::NotFound));
    let (left, _right) = bed.pair();
    assert_eq!(bed.engine.destroy_cq(left.cq.id), Err(EngineError::Busy));
    let pd = bed.left(bed.pd);
    assert_eq!(bed.engine.destroy_pd(pd), Err(EngineError::Busy));
}
