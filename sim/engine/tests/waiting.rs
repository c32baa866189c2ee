//! Reliable connections: receivers not ready, peers that do not answer, queues that come to rest.

mod bed;

use std::time::Duration;

use bed::work::{SEND, WRITE, Work};
use bed::{Bed, Buffer, RETRIES, RNR_RETRIES, RNR_TIMER, Side, TIMEOUT};
use irdma_engine::event::{Source, code};
use irdma_engine::spec::*;

/// A fresh connection with a region on either side.
fn scene() -> (Bed, Side, Side, Buffer, Buffer) {
    let mut bed = Bed::new(Generation::Gen2);
    let (left, right) = bed.pair();
    let (near, far) = (bed.region(4096), bed.region(4096));
    (bed, left, right, near, far)
}

#[test]
fn a_receiver_not_ready_is_asked_again_until_it_is() {
    let (mut bed, mut left, mut right, near, far) = scene();
    bed.send(&mut left, &Work::new(SEND, &[near.sge(0, 8)]));
    bed.post(&mut left, &Work::new(WRITE, &[near.sge(0, 8)]).remote(far.address, far.key));
    bed.engine.ring_sq(left.qp.id);
    assert_eq!(bed.poll(&mut left), None, "what stands behind waits too");
    assert_eq!(bed.engine.next_deadline(), Some(RNR_TIMER));
    bed.pass(RNR_TIMER - Duration::from_nanos(1));
    bed.receive(&mut right, &[far.sge(0, 8)]);
    bed.engine.ring_sq(left.qp.id);
    assert_eq!(bed.poll(&mut left), None, "a doorbell shortens no wait");
    bed.pass(Duration::from_nanos(1));
    assert_eq!(bed.completion(&mut right).length, 8);
    let first = bed.poll(&mut left).expect("sent");
    let second = bed.completion(&mut left);
    assert_eq!((first.opcode, second.opcode), (3, 0));
    assert_eq!(bed.engine.next_deadline(), None);
    assert!(bed.events().is_empty());
}

#[test]
fn a_receiver_never_ready_exhausts_the_retries() {
    let (mut bed, mut left, right, near, _) = scene();
    bed.send(&mut left, &Work::new(SEND, &[near.sge(0, 8)]));
    for _ in 0..RNR_RETRIES - 1 {
        bed.pass(RNR_TIMER);
        assert!(bed.events().is_empty());
    }
    bed.pass(RNR_TIMER);
    bed.expect_events(&[(&left, code::TOO_MANY_RNRS, Source::SendQueue)]);
    assert_eq!(bed.state(&right), QpState::ReadyToSend);
    assert_eq!(bed.engine.next_deadline(), None);
}

#[test]
fn retries_are_counted_for_each_message_anew() {
    let (mut bed, mut left, mut right, near, far) = scene();
    for _ in 0..3 {
        bed.send(&mut left, &Work::new(SEND, &[near.sge(0, 8)]));
        for _ in 0..RNR_RETRIES - 1 {
            bed.pass(RNR_TIMER);
        }
        bed.receive(&mut right, &[far.sge(0, 8)]);
        bed.pass(RNR_TIMER);
        assert!(!bed.completion(&mut left).error);
        assert!(bed.poll(&mut right).is_some());
    }
}

#[test]
fn rnr_retry_zero_fails_at_once_and_seven_never() {
    let (mut bed, mut left, _right, near, _) = scene();
    let retry = |rnr_retry| QpChange { rnr_retry: Some(rnr_retry), ..QpChange::default() };
    bed.engine.modify_qp(left.qp.id, &retry(7)).expect("for ever");
    bed.send(&mut left, &Work::new(SEND, &[near.sge(0, 8)]));
    for _ in 0..100 {
        bed.pass(RNR_TIMER);
    }
    assert!(bed.events().is_empty());
    assert!(bed.engine.next_deadline().is_some());
    bed.engine.modify_qp(left.qp.id, &retry(0)).expect("never");
    bed.pass(RNR_TIMER);
    bed.expect_events(&[(&left, code::TOO_MANY_RNRS, Source::SendQueue)]);
}

/// What makes a peer silent.
type Silence = fn(&mut Bed, &Side);

const SILENCES: [Silence; 5] = [
    |bed, right| bed.engine.destroy_qp(right.qp.id).expect("destroyed"),
    |bed, right| {
        let change = QpChange { state: Some(QpState::Error), ..QpChange::default() };
        bed.engine.modify_qp(right.qp.id, &change).expect("error");
    },
    |bed, right| {
        let change = QpChange { state: Some(QpState::Init), ..QpChange::default() };
        bed.engine.modify_qp(right.qp.id, &change).expect("not ready");
    },
    |bed, _| {
        let function = bed.functions[1];
        bed.engine.set_gids(function, Vec::new());
    },
    |bed, right| {
        let change = QpChange { destination_qp: Some(right.qp.id.number), ..QpChange::default() };
        bed.engine.modify_qp(right.qp.id, &change).expect("somebody else's");
    },
];

#[test]
fn a_silent_peer_exhausts_the_retries_in_time() {
    for silence in SILENCES {
        let (mut bed, mut left, right, near, far) = scene();
        silence(&mut bed, &right);
        bed.send(&mut left, &Work::new(WRITE, &[near.sge(0, 8)]).remote(far.address, far.key));
        let end = TIMEOUT * (u32::from(RETRIES) + 1);
        for _ in 0..RETRIES {
            bed.pass(TIMEOUT);
            assert!(bed.events().is_empty());
        }
        assert_eq!(bed.engine.next_deadline(), Some(end));
        bed.pass(TIMEOUT);
        bed.expect_events(&[(&left, code::TOO_MANY_RETRIES, Source::SendQueue)]);
        assert_eq!(bed.engine.next_deadline(), None);
    }
}

#[test]
fn a_peer_that_comes_late_is_found_by_a_retry() {
    let (mut bed, mut left, mut right, near, far) = scene();
    let state = |state| QpChange { state: Some(state), ..QpChange::default() };
    bed.engine.modify_qp(right.qp.id, &state(QpState::Init)).expect("not ready");
    bed.receive(&mut right, &[far.sge(0, 8)]);
    bed.send(&mut left, &Work::new(SEND, &[near.sge(0, 8)]));
    bed.pass(TIMEOUT);
    bed.engine.modify_qp(right.qp.id, &state(QpState::ReadyToReceive)).expect("ready");
    assert_eq!(bed.poll(&mut left), None);
    bed.pass(TIMEOUT);
    assert!(!bed.completion(&mut left).error);
    assert_eq!(bed.engine.next_deadline(), None);
}

#[test]
fn timeout_zero_waits_for_ever_and_for_free() {
    let (mut bed, mut left, right, near, far) = scene();
    let change = QpChange { timeout: Some(Duration::ZERO), ..QpChange::default() };
    bed.engine.modify_qp(left.qp.id, &change).expect("no time-out");
    let state = |state| QpChange { state: Some(state), ..QpChange::default() };
    bed.engine.modify_qp(right.qp.id, &state(QpState::Init)).expect("not ready");
    let work = Work::new(WRITE, &[near.sge(0, 8)]).remote(far.address, far.key);
    bed.send(&mut left, &work);
    assert_eq!(bed.engine.next_deadline(), None);
    bed.pass(Duration::from_secs(3600));
    assert!(bed.events().is_empty());
    // A later request makes the peer notice that it missed one.
    bed.engine.modify_qp(right.qp.id, &state(QpState::ReadyToReceive)).expect("ready");
    bed.send(&mut left, &work);
    assert!(bed.poll(&mut left).is_some() && bed.poll(&mut left).is_some());
}

#[test]
fn other_queue_pairs_go_on_while_one_waits() {
    let (mut bed, mut left, _right, near, far) = scene();
    let (mut other, _peer) = bed.pair();
    bed.send(&mut left, &Work::new(SEND, &[near.sge(0, 8)]));
    bed.send(&mut other, &Work::new(WRITE, &[near.sge(0, 8)]).remote(far.address, far.key));
    assert!(!bed.completion(&mut other).error);
    // The one that waits may be destroyed.
    bed.engine.destroy_qp(left.qp.id).expect("destroyed");
    assert_eq!(bed.engine.next_deadline(), None);
}

#[test]
fn what_has_begun_is_finished_in_drained_and_nothing_more() {
    let (mut bed, mut left, mut right, near, far) = scene();
    bed.post(&mut left, &Work::new(SEND, &[near.sge(0, 8)]));
    bed.send(&mut left, &Work::new(SEND, &[near.sge(0, 8)]));
    let change = QpChange { state: Some(QpState::SendQueueDrained), ..QpChange::default() };
    bed.engine.modify_qp(left.qp.id, &change).expect("drains");
    assert!(bed.events().is_empty(), "not yet at rest");
    bed.receive(&mut right, &[far.sge(0, 8)]);
    bed.receive(&mut right, &[far.sge(0, 8)]);
    bed.pass(RNR_TIMER);
    assert!(!bed.completion(&mut left).error);
    bed.expect_events(&[(&left, code::SUSPEND_COMPLETE, Source::Unspecified)]);
    assert!(bed.engine.next_deadline().is_none());
}
