//! Completion queues: wrap, extension, overflow, notification, resize, hand-made entries.

mod bed;

use bed::completion::HostCq;
use bed::work::{SEND, SEND_SOLICITED, WRITE, Work};
use bed::{Bed, Buffer, Side};
use irdma_engine::event::{Source, Subject, code};
use irdma_engine::spec::*;

/// A connection whose left side completes into a queue of `entries` slots.
fn scene(generation: Generation, entries: u32) -> (Bed, Side, Side, Buffer) {
    let mut bed = Bed::new(generation);
    let shape = bed.shape();
    let (left_cq, right_cq) = (bed.cq_on(0, entries), bed.cq_on(1, entries));
    let left = bed.qp(shape, &left_cq, &left_cq);
    let right = bed.qp(bed::Shape { function: 1, ..shape }, &right_cq, &right_cq);
    let change = bed.connection(right.id, 0, 1);
    bed.engine.modify_qp(left.id, &change).expect("left connects");
    let change = bed.connection(left.id, 1, 0);
    bed.engine.modify_qp(right.id, &change).expect("right connects");
    let region = bed.region(4096);
    (bed, Side { qp: left, cq: left_cq }, Side { qp: right, cq: right_cq }, region)
}

fn write(region: Buffer) -> Work {
    Work::new(WRITE, &[region.sge(0, 8)]).remote(region.address + 64, region.key)
}

fn arm(bed: &mut Bed, cq: &mut HostCq, solicited_only: bool) {
    cq.arm(bed.memory(), solicited_only);
    bed.engine.arm_cq(cq.id);
}

fn notified(bed: &mut Bed) -> Vec<CqId> {
    std::mem::take(&mut bed.memory().completion_events)
}

#[test]
fn rings_of_any_size_wrap() {
    for entries in [4, 5, 6, 7] {
        let (mut bed, mut left, _right, region) = scene(Generation::Gen2, entries);
        for _ in 0..40 {
            let index = bed.send(&mut left, &write(region));
            assert_eq!(bed.completion(&mut left).index, index);
        }
    }
}

#[test]
fn extensions_stand_in_the_next_slot_also_around_the_end() {
    for generation in [Generation::Gen2, Generation::Gen3] {
        for entries in [5, 6, 7] {
            let (mut bed, mut left, mut right, region) = scene(generation, entries);
            for round in 0..50_u32 {
                bed.receive(&mut right, &[region.sge(0, 64)]);
                let plain = Work::new(SEND, &[region.sge(0, 8)]);
                let extended = round % 3 != 0;
                bed.send(&mut left, &if extended { plain.immediate(round) } else { plain });
                assert!(bed.poll(&mut left).is_some());
                let got = bed.completion(&mut right);
                assert_eq!(got.immediate, extended.then_some(round), "{generation:?} {entries} {round}");
            }
        }
    }
}

#[test]
fn the_consumer_index_frees_slots_and_a_full_queue_fails() {
    let (mut bed, mut left, _right, region) = scene(Generation::Gen2, 8);
    for _ in 0..7 {
        bed.send(&mut left, &write(region));
    }
    assert!(bed.poll(&mut left).is_some());
    bed.send(&mut left, &write(region));
    assert!(bed.events().is_empty(), "seven fit, and one was taken");
    bed.send(&mut left, &write(region));
    let events = bed.events();
    assert_eq!(events[0].subject, Subject::Cq(left.cq.id));
    assert_eq!((events[0].code, events[0].source), (code::CQ_OPERATION_ERROR, Source::CompletionQueue));
    assert_eq!(events[1].subject, Subject::Qp(left.qp.id));
    assert_eq!((events.len(), events[1].code), (2, code::LOCAL_QP_CATASTROPHIC));
    // What was completed before is still there; nothing is added any more, and no event more.
    for _ in 0..7 {
        assert!(bed.poll(&mut left).is_some());
    }
    assert_eq!(bed.poll(&mut left), None);
    assert_eq!(bed.engine.write_cqe(left.cq.id, &[0; 32]), Err(EngineError::Exhausted));
    bed.engine.flush_qp(left.qp.id, Some(7), Some(1)).expect("flushes into nothing");
    assert!(bed.events().is_empty());
}

#[test]
fn a_receiver_whose_queue_overflows_takes_the_message_down() {
    let (mut bed, mut left, mut right, region) = scene(Generation::Gen2, 4);
    for _ in 0..4 {
        bed.receive(&mut right, &[region.sge(0, 8)]);
        bed.send(&mut left, &Work::new(SEND, &[region.sge(0, 8)]));
        bed.poll(&mut left);
    }
    let events: Vec<_> = bed.events().iter().map(|event| (event.subject, event.code)).collect();
    assert_eq!(
        events,
        [
            (Subject::Cq(right.cq.id), code::CQ_OPERATION_ERROR),
            (Subject::Qp(right.qp.id), code::LOCAL_QP_CATASTROPHIC),
            (Subject::Qp(left.qp.id), code::REMOTE_OPERATION_ERROR),
        ]
    );
}

#[test]
fn each_request_gets_one_event() {
    let (mut bed, mut left, _right, region) = scene(Generation::Gen2, 64);
    bed.send(&mut left, &write(region));
    assert!(notified(&mut bed).is_empty(), "nobody asked");
    bed.poll(&mut left);
    arm(&mut bed, &mut left.cq, false);
    assert!(notified(&mut bed).is_empty(), "nothing there");
    bed.send(&mut left, &write(region));
    bed.send(&mut left, &write(region));
    assert_eq!(notified(&mut bed), [left.cq.id]);
    // What is not taken yet answers the next request at once.
    arm(&mut bed, &mut left.cq, false);
    assert_eq!(notified(&mut bed), [left.cq.id]);
    // The doorbell again without a new request: nothing.
    bed.engine.arm_cq(left.cq.id);
    bed.engine.scan();
    assert!(notified(&mut bed).is_empty());
    while bed.poll(&mut left).is_some() {}
    for _ in 0..9 {
        arm(&mut bed, &mut left.cq, false);
        assert!(notified(&mut bed).is_empty());
        bed.send(&mut left, &write(region));
        assert_eq!(notified(&mut bed), [left.cq.id]);
        bed.poll(&mut left);
    }
}

#[test]
fn solicited_requests_wait_for_solicited_messages_and_errors() {
    let (mut bed, mut left, mut right, region) = scene(Generation::Gen2, 64);
    for _ in 0..4 {
        bed.receive(&mut right, &[region.sge(0, 8)]);
    }
    let plain = Work::new(SEND, &[region.sge(0, 8)]);
    let solicited = Work::new(SEND_SOLICITED, &[region.sge(0, 8)]);
    arm(&mut bed, &mut right.cq, true);
    bed.send(&mut left, &plain);
    assert!(notified(&mut bed).is_empty());
    bed.send(&mut left, &solicited);
    assert_eq!(notified(&mut bed), [right.cq.id]);
    // A solicited completion that is not taken answers at once; a plain one does not.
    arm(&mut bed, &mut right.cq, true);
    assert_eq!(notified(&mut bed), [right.cq.id]);
    while bed.poll(&mut right).is_some() {}
    bed.send(&mut left, &plain);
    arm(&mut bed, &mut right.cq, true);
    assert!(notified(&mut bed).is_empty());
    // Asking for any widens the request.
    arm(&mut bed, &mut right.cq, false);
    assert_eq!(notified(&mut bed), [right.cq.id]);
    while bed.poll(&mut right).is_some() {}
    arm(&mut bed, &mut right.cq, true);
    bed.engine.flush_qp(right.qp.id, None, Some(1)).expect("flushes");
    assert_eq!(notified(&mut bed), [right.cq.id]);
}

#[test]
fn a_request_without_its_doorbell_is_found_by_a_scan() {
    let (mut bed, mut left, _right, region) = scene(Generation::Gen2, 64);
    left.cq.arm(bed.memory(), false);
    bed.post(&mut left, &write(region));
    assert!(bed.engine.scan());
    assert!(!bed.engine.scan());
    assert_eq!(notified(&mut bed), [left.cq.id]);
    assert!(!bed.completion(&mut left).error);
}

#[test]
fn after_a_resize_completions_go_to_the_new_ring() {
    let (mut bed, mut left, _right, region) = scene(Generation::Gen2, 8);
    for _ in 0..3 {
        bed.send(&mut left, &write(region));
    }
    let ring = bed.area(16 * 32);
    let new = CqRing { ring: Span { backing: ring, offset: 0 }, entries: 16 };
    bed.engine.resize_cq(left.cq.id, new).expect("resizes");
    // What is left in the old ring answers a request.
    arm(&mut bed, &mut left.cq, false);
    assert_eq!(notified(&mut bed), [left.cq.id]);
    bed.send(&mut left, &write(region));
    for _ in 0..3 {
        assert!(bed.poll(&mut left).is_some());
    }
    assert_eq!(bed.poll(&mut left), None);
    left.cq.resized(bed.memory(), ring, 16);
    assert!(bed.poll(&mut left).is_some());
    // Drained: a request waits for the next.
    arm(&mut bed, &mut left.cq, false);
    assert!(notified(&mut bed).is_empty());
    // The new ring's size counts, whatever the old one's index was.
    for _ in 0..40 {
        bed.send(&mut left, &write(region));
        assert!(!bed.completion(&mut left).error);
    }
    assert!(bed.events().is_empty());
}

#[test]
fn an_old_index_does_not_free_slots_of_the_new_ring() {
    let (mut bed, mut left, _right, region) = scene(Generation::Gen2, 16);
    for _ in 0..10 {
        bed.send(&mut left, &write(region));
    }
    let ring = bed.area(8 * 32);
    let new = CqRing { ring: Span { backing: ring, offset: 0 }, entries: 8 };
    bed.engine.resize_cq(left.cq.id, new).expect("resizes");
    for _ in 0..5 {
        bed.poll(&mut left);
    }
    for _ in 0..7 {
        bed.send(&mut left, &write(region));
    }
    assert!(bed.events().is_empty());
    bed.send(&mut left, &write(region));
    assert_eq!(bed.events()[0].subject, Subject::Cq(left.cq.id));
}

#[test]
fn hand_made_entries_get_their_valid_bits() {
    let (mut bed, mut left, _right, _) = scene(Generation::Gen2, 4);
    let mut bytes = [0; 64];
    bytes[0] = 17;
    bytes[24 + 6] = 1 << 2; // an extension follows
    bytes[32] = 99;
    bytes[56 + 7] = 1 << 6; // with an immediate
    bed.engine.write_cqe(left.cq.id, &bytes).expect("written");
    let got = bed.completion(&mut left);
    assert_eq!((got.length, got.immediate, got.slots), (17, Some(99), 2));
    assert_eq!(bed.engine.write_cqe(left.cq.id, &bytes[..31]), Err(EngineError::Invalid));
    assert_eq!(bed.engine.write_cqe(bed.left(0), &bytes), Err(EngineError::NotFound));
    arm(&mut bed, &mut left.cq, false);
    bed.engine.write_cqe(left.cq.id, &[0; 32]).expect("written");
    assert_eq!(notified(&mut bed), [left.cq.id]);
}

#[test]
fn impossible_rings_are_refused() {
    let mut bed = Bed::new(Generation::Gen2);
    let area = bed.area(64);
    let span = Span { backing: area, offset: 0 };
    for entries in [0, 1, u32::MAX] {
        let spec =
            CqSpec { ring: CqRing { ring: span.clone(), entries }, shadow: span.clone(), slot_bytes: 32 };
        assert_eq!(bed.engine.create_cq(0, spec, None), Err(EngineError::Invalid));
    }
    let far = Span { backing: area, offset: u64::MAX - 10 };
    let spec = CqSpec { ring: CqRing { ring: far, entries: 4 }, shadow: span.clone(), slot_bytes: 32 };
    assert_eq!(bed.engine.create_cq(0, spec, None), Err(EngineError::Invalid));
    let spec = CqSpec { ring: CqRing { ring: span.clone(), entries: 4 }, shadow: span, slot_bytes: 16 };
    assert_eq!(bed.engine.create_cq(0, spec, None), Err(EngineError::Invalid));
}
