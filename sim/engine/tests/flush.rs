//! Flushing, per generation.

mod bed;

use bed::completion::Wc;
use bed::work::{SEND, WRITE, Work};
use bed::{Bed, Buffer, Side};
use irdma_engine::spec::*;

const PROTECTION: u16 = 2;
const GENERAL: u16 = 1;

/// A connection with two sends and three receives outstanding on the left, the first send wrong.
fn scene(generation: Generation) -> (Bed, Side, Buffer) {
    let mut bed = Bed::new(generation);
    let (mut left, _right) = bed.pair();
    let region = bed.region(256);
    for _ in 0..3 {
        bed.receive(&mut left, &[region.sge(0, 8)]);
    }
    bed.send(&mut left, &Work::new(WRITE, &[region.sge(0, 8)]).remote(region.address, region.key));
    assert!(!bed.completion(&mut left).error);
    bed.post(&mut left, &Work::new(SEND, &[region.sge(0, 257)]));
    // Two quanta, and NOPs before it to stay within a chunk of eight.
    for _ in 0..5 {
        bed.post(&mut left, &Work::new(SEND, &[]));
    }
    bed.send(&mut left, &Work::inline(SEND, &[1; 39]).unsignaled());
    assert_eq!(bed.events().len(), 1);
    (bed, left, region)
}

fn all(bed: &mut Bed, side: &mut Side) -> Vec<Wc> {
    std::iter::from_fn(|| bed.poll(side)).collect()
}

fn codes(completions: &[Wc]) -> Vec<(bool, u16, u32)> {
    assert!(completions.iter().all(|wc| wc.error && wc.major == 1));
    completions.iter().map(|wc| (wc.send_queue, wc.minor, wc.index)).collect()
}

#[test]
fn until_gen2_each_queue_gets_one_entry() {
    for generation in [Generation::Gen1, Generation::Gen2] {
        let (mut bed, mut left, _) = scene(generation);
        assert!(all(&mut bed, &mut left).is_empty(), "the error itself writes none");
        bed.engine.flush_qp(left.qp.id, Some(PROTECTION), Some(GENERAL)).expect("flushes");
        let found = all(&mut bed, &mut left);
        assert_eq!(codes(&found), [(true, PROTECTION, 1), (false, GENERAL, 0)]);
        assert_eq!((found[0].qp, found[0].context), (left.qp.id.number, left.context()));
        assert!(found.iter().all(|wc| wc.slots == 1));
    }
}

#[test]
fn a_flush_may_name_one_queue_and_be_repeated() {
    let (mut bed, mut left, _) = scene(Generation::Gen2);
    bed.engine.flush_qp(left.qp.id, None, Some(GENERAL)).expect("flushes");
    assert_eq!(codes(&all(&mut bed, &mut left)), [(false, GENERAL, 0)]);
    for _ in 0..2 {
        bed.engine.flush_qp(left.qp.id, Some(GENERAL), None).expect("flushes");
        assert_eq!(codes(&all(&mut bed, &mut left)), [(true, GENERAL, 1)]);
    }
}

#[test]
fn an_empty_queue_has_its_entry_but_overruns_no_completion_queue() {
    let mut bed = Bed::new(Generation::Gen2);
    let cq = bed.cq(4);
    let shape = bed.shape();
    let qps: Vec<_> = (0..4).map(|_| bed.qp(shape, &cq, &cq)).collect();
    for qp in &qps {
        bed.engine.flush_qp(qp.id, Some(GENERAL), Some(GENERAL)).expect("flushes");
    }
    assert!(bed.events().is_empty());
    let mut side = Side { qp: qps[0].clone(), cq };
    assert_eq!(all(&mut bed, &mut side).len(), 3);
    assert_eq!(bed.state(&side), QpState::Error);
}

#[test]
fn from_gen3_on_each_work_request_gets_its_own_once() {
    let (mut bed, mut left, region) = scene(Generation::Gen3);
    bed.engine.flush_qp(left.qp.id, Some(PROTECTION), Some(GENERAL)).expect("flushes");
    let sends = [(true, PROTECTION, 1), (true, 1, 2), (true, 1, 3), (true, 1, 4), (true, 1, 5), (true, 1, 6)];
    // The NOP at index 7 is padding, the last send stands at 8, signaled or not.
    let late = [(true, GENERAL, 8)];
    let receives = [(false, GENERAL, 0), (false, GENERAL, 2), (false, GENERAL, 4)];
    let expected: Vec<_> = sends.into_iter().chain(late).chain(receives).collect();
    assert_eq!(codes(&all(&mut bed, &mut left)), expected);
    bed.engine.flush_qp(left.qp.id, Some(GENERAL), Some(GENERAL)).expect("flushes");
    assert!(all(&mut bed, &mut left).is_empty(), "nothing twice");
    // What is posted later is flushed at its doorbell, receives with the next flush.
    bed.send(&mut left, &Work::new(SEND, &[region.sge(0, 8)]));
    bed.receive(&mut left, &[]);
    assert_eq!(codes(&all(&mut bed, &mut left)), [(true, GENERAL, 10)]);
    bed.engine.flush_qp(left.qp.id, None, Some(GENERAL)).expect("flushes");
    assert_eq!(codes(&all(&mut bed, &mut left)), [(false, GENERAL, 6)]);
}

#[test]
fn a_flush_ends_a_wait() {
    let mut bed = Bed::new(Generation::Gen2);
    let (mut left, _right) = bed.pair();
    bed.send(&mut left, &Work::new(SEND, &[]));
    assert!(bed.engine.next_deadline().is_some());
    bed.engine.flush_qp(left.qp.id, Some(GENERAL), None).expect("flushes");
    assert_eq!(bed.engine.next_deadline(), None);
    assert_eq!(codes(&all(&mut bed, &mut left)), [(true, GENERAL, 0)]);
}

#[test]
fn after_reset_both_queues_start_afresh() {
    let mut bed = Bed::new(Generation::Gen2);
    let (mut left, mut right) = bed.pair();
    let region = bed.region(64);
    bed.receive(&mut right, &[region.sge(0, 8)]);
    bed.send(&mut left, &Work::new(SEND, &[region.sge(0, 8)]));
    assert!(bed.poll(&mut left).is_some());
    for side in [&mut left, &mut right] {
        let change = QpChange { state: Some(QpState::Reset), ..QpChange::default() };
        bed.engine.modify_qp(side.qp.id, &change).expect("resets");
        for queue in [&mut side.qp.sq, &mut side.qp.rq] {
            bed.engine.platform().bytes(queue.area).fill(0);
            (queue.position, queue.polarity) = (0, true);
        }
    }
    let change = bed.connection(right.qp.id, 0, 1);
    bed.engine.modify_qp(left.qp.id, &change).expect("connects");
    let change = bed.connection(left.qp.id, 1, 0);
    bed.engine.modify_qp(right.qp.id, &change).expect("connects");
    bed.receive(&mut right, &[region.sge(0, 8)]);
    assert_eq!(bed.send(&mut left, &Work::new(SEND, &[region.sge(0, 8)])), 0);
    assert!(!bed.completion(&mut left).error);
}

#[test]
fn a_ring_that_is_gone_is_flushed_like_an_empty_one() {
    for generation in [Generation::Gen2, Generation::Gen3] {
        let (mut bed, mut left, _) = scene(generation);
        bed.memory().unmap(left.qp.sq.area);
        bed.memory().unmap(left.qp.rq.area);
        bed.engine.flush_qp(left.qp.id, Some(GENERAL), Some(GENERAL)).expect("flushes");
        all(&mut bed, &mut left);
        assert!(bed.events().is_empty());
    }
}
