//! What GEN3 adds: wide completions, shared receive queues, atomics.

mod bed;

use bed::memory::Area;
use bed::work::{COMPARE_SWAP, FETCH_ADD, HostQueue, SEND, WRITE, Work};
use bed::{Bed, FULL, Shape, Side};
use irdma_engine::event::{Source, Subject, code};
use irdma_engine::spec::*;

/// A shared receive queue of 16 receives of two quanta, as its driver sees it.
struct HostSrq {
    id: SrqId,
    queue: HostQueue,
    shadow: Area,
}

fn srq(bed: &mut Bed) -> HostSrq {
    let (ring, shadow) = (bed.area(32 * 32), bed.area(64));
    let pd = bed.right(bed.pd);
    let spec = SrqSpec {
        pd,
        ring: Span { backing: ring, offset: 0 },
        quanta: 32,
        wqe_quanta: 2,
        shadow: Span { backing: shadow, offset: 0 },
    };
    let id = bed.engine.create_srq(spec, None).expect("a shared receive queue");
    HostSrq { id, queue: HostQueue::new(ring, 32).with_wqe_quanta(2), shadow }
}

fn post(bed: &mut Bed, srq: &mut HostSrq, sges: &[bed::work::Sge], wr_id: u64) {
    srq.queue.post_receive(bed.memory(), sges, wr_id, Generation::Gen3);
    let next = srq.queue.position / 2;
    bed.memory().set_word(srq.shadow, 0, next.into());
}

fn shared_pair(bed: &mut Bed, srq: &HostSrq) -> (Side, Side) {
    let shape = Shape { srq: Some(srq.id), ..bed.shape() };
    bed.pair_of(shape)
}

#[test]
fn receives_of_a_shared_queue_serve_all_its_queue_pairs() {
    let mut bed = Bed::new(Generation::Gen3);
    let mut srq = srq(&mut bed);
    let (mut first, mut first_peer) = shared_pair(&mut bed, &srq);
    let (mut second, mut second_peer) = shared_pair(&mut bed, &srq);
    let region = bed.region(4096);
    for round in 0..40 {
        post(&mut bed, &mut srq, &[region.sge(0, 64)], 1000 + round);
        let (from, to) =
            if round % 3 == 0 { (&mut first, &mut first_peer) } else { (&mut second, &mut second_peer) };
        bed.send(from, &Work::new(SEND, &[region.sge(128, 9)]).immediate(round as u32));
        let got = bed.completion(to);
        assert!(got.srq);
        assert_eq!((got.context, got.qp_context, got.qp), (1000 + round, to.context(), to.qp.id.number));
        assert_eq!((got.length, got.immediate, got.opcode), (9, Some(round as u32), 0x03));
        assert!(!bed.completion(from).srq);
    }
    assert_eq!(bed.engine.destroy_srq(srq.id), Err(EngineError::Busy));
}

#[test]
fn a_shared_queue_below_its_limit_is_reported_once() {
    let mut bed = Bed::new(Generation::Gen3);
    let mut srq = srq(&mut bed);
    let (mut left, mut right) = shared_pair(&mut bed, &srq);
    let region = bed.region(4096);
    for wr_id in 0..5 {
        post(&mut bed, &mut srq, &[region.sge(0, 64)], wr_id);
    }
    bed.engine.modify_srq_limit(srq.id, 4).expect("a limit");
    assert_eq!(bed.engine.query_srq_limit(srq.id), Ok(4));
    bed.send(&mut left, &Work::new(SEND, &[]));
    assert!(bed.events().is_empty(), "four are left");
    for _ in 0..3 {
        bed.send(&mut left, &Work::new(SEND, &[]));
    }
    let events = bed.events();
    assert_eq!((events.len(), events[0].subject, events[0].code), (1, Subject::Srq(srq.id), code::SRQ_LIMIT));
    assert_eq!(bed.engine.query_srq_limit(srq.id), Ok(0));
    while bed.poll(&mut right).is_some() {}
    assert_eq!(bed.engine.modify_srq_limit(srq.id, 17), Err(EngineError::Invalid));
    // A limit that the queue is below already is reported at once.
    bed.engine.modify_srq_limit(srq.id, 2).expect("a limit");
    assert_eq!(bed.events().len(), 1);
}

#[test]
fn a_shared_queue_out_of_reach_is_reported() {
    let mut bed = Bed::new(Generation::Gen3);
    let srq = srq(&mut bed);
    let (mut left, right) = shared_pair(&mut bed, &srq);
    bed.memory().unmap(srq.queue.area);
    bed.send(&mut left, &Work::new(SEND, &[]));
    let events: Vec<_> = bed.events().iter().map(|event| (event.subject, event.code)).collect();
    assert_eq!(
        events,
        [
            (Subject::Srq(srq.id), code::SRQ_CATASTROPHIC),
            (Subject::Qp(right.qp.id), code::LOCAL_QP_CATASTROPHIC),
            (Subject::Qp(left.qp.id), code::REMOTE_OPERATION_ERROR),
        ]
    );
}

#[test]
fn atomics_change_the_peer_and_bring_the_old_value_home() {
    let mut bed = Bed::new(Generation::Gen3);
    let (mut left, mut right) = bed.pair();
    let (near, far) = (bed.region(64), bed.region(64));
    let value =
        |bed: &mut Bed, buffer| u64::from_le_bytes(bed.bytes(buffer, 8, 8).try_into().expect("eight"));
    bed.fill(far, 8, &u64::MAX.to_le_bytes());
    let remote = |work: Work| work.remote(far.address + 8, far.key);
    bed.send(&mut left, &remote(Work::atomic(FETCH_ADD, near.sge(8, 8), [3, 0])));
    let got = bed.completion(&mut left);
    assert_eq!((got.opcode, got.length, got.error), (0x0f, 8, false));
    assert_eq!((value(&mut bed, near), value(&mut bed, far)), (u64::MAX, 2));
    bed.send(&mut left, &remote(Work::atomic(COMPARE_SWAP, near.sge(8, 8), [50, 7])));
    assert_eq!((value(&mut bed, near), value(&mut bed, far)), (2, 2), "not equal: not swapped");
    bed.send(&mut left, &remote(Work::atomic(COMPARE_SWAP, near.sge(8, 8), [50, 2])));
    assert_eq!((value(&mut bed, near), value(&mut bed, far)), (2, 50));
    assert_eq!(bed.poll(&mut right), None);
    assert!(bed.events().is_empty());
}

#[test]
fn atomics_are_refused_where_writes_would_not_be() {
    type Make = fn(&mut Bed) -> (u64, Key);
    let cases: [(Make, u16, u16); 2] = [
        (
            |bed| {
                let far = bed.region(64);
                (far.address + 4, far.key)
            },
            code::ATOMIC_ALIGNMENT,
            code::INVALID_REQUEST,
        ),
        (
            |bed| {
                let pd = bed.pd;
                let far = bed.region_of(64, Access { remote_atomic: false, ..FULL }, pd);
                (far.address, far.key)
            },
            code::RIGHTS_VIOLATION,
            code::REMOTE_ACCESS_ERROR,
        ),
    ];
    for (make, at_peer, at_requester) in cases {
        let mut bed = Bed::new(Generation::Gen3);
        let (mut left, right) = bed.pair();
        let near = bed.region(64);
        let (address, key) = make(&mut bed);
        bed.send(&mut left, &Work::atomic(FETCH_ADD, near.sge(0, 8), [1, 0]).remote(address, key));
        bed.expect_events(&[
            (&right, at_peer, Source::InboundRdma),
            (&left, at_requester, Source::SendQueue),
        ]);
    }
    let mut bed = Bed::new(Generation::Gen2);
    let (mut left, _right) = bed.pair();
    let near = bed.region(64);
    let work = Work::atomic(FETCH_ADD, near.sge(0, 8), [1, 0]);
    bed.send(&mut left, &work.remote(near.address, near.key));
    bed.expect_events(&[(&left, code::UNEXPECTED_OPCODE, Source::SendQueue)]);
}

#[test]
fn wide_entries_are_stamped_and_name_the_operation() {
    let mut bed = Bed::new(Generation::Gen3);
    let (mut left, mut right) = bed.pair();
    let region = bed.region(64);
    bed.memory().now = std::time::Duration::from_nanos(0x1_2345_6789);
    bed.receive(&mut right, &[]);
    bed.send(
        &mut left,
        &Work::new(WRITE, &[region.sge(0, 8)]).immediate(1).remote(region.address, region.key),
    );
    let ring = right.cq.ring;
    assert_eq!(bed.memory().word(ring, 0) >> 32, 0x2345_6789);
    let got = bed.completion(&mut right);
    assert_eq!((got.opcode, got.immediate, got.length), (0x00, Some(1), 8));
}
