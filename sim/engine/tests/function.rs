//! Functions: numbers of their own, addresses, reset; what kernel queue pairs may do.

mod bed;

use bed::work::{READ, SEND, WRITE, Work};
use bed::{Bed, FULL, Shape, gid};
use irdma_engine::event::{Source, code};
use irdma_engine::spec::*;

#[test]
fn the_same_numbers_on_two_functions_are_different_objects() {
    let mut bed = Bed::new(Generation::Gen3);
    let (mut left, mut right) = bed.pair();
    let (near, far) = (bed.region(64), bed.region(64));
    // Nothing of one function is known on the other.
    assert_eq!(bed.engine.qp_state(bed.right(left.qp.id.number)), None);
    bed.engine.destroy_mr(0, far.key).expect("on the left only");
    bed.fill(near, 0, &[5; 8]);
    bed.send(&mut left, &Work::new(WRITE, &[near.sge(0, 8)]).remote(far.address, far.key));
    assert!(!bed.completion(&mut left).error, "the key is looked up on the right");
    assert_eq!(bed.bytes(far, 0, 8), [5; 8]);
    bed.send(&mut right, &Work::new(WRITE, &[near.sge(0, 8)]).remote(far.address, far.key));
    bed.expect_events(&[
        (&left, code::BAD_STAG_INDEX, Source::InboundRdma),
        (&right, code::REMOTE_ACCESS_ERROR, Source::SendQueue),
    ]);
}

#[test]
fn objects_of_different_functions_do_not_mix() {
    let mut bed = Bed::new(Generation::Gen2);
    let [left, right] = bed.functions;
    let (own, foreign) = (bed.cq_on(left, 8), bed.cq_on(right, 8));
    let area = bed.area(4096);
    let span = || Span { backing: area, offset: 0 };
    let spec = QpSpec {
        pd: bed.left(bed.pd),
        service: Service::ReliableConnection,
        send_cq: own.id,
        recv_cq: foreign.id,
        srq: None,
        sq: span(),
        sq_quanta: 32,
        rq: span(),
        rq_quanta: 32,
        rq_wqe_quanta: 1,
        shadow: span(),
        completion_context: 0,
        privileged: None,
    };
    assert_eq!(bed.engine.create_qp(spec.clone(), None), Err(EngineError::NotFound));
    let spec = QpSpec { recv_cq: own.id, ..spec };
    let made = bed.engine.create_qp(spec.clone(), Some(0xff_ffff)).expect("any number");
    assert_eq!(made, bed.left(0xff_ffff));
    assert_eq!(bed.engine.create_qp(spec, Some(0xff_ffff)), Err(EngineError::Taken));
}

#[test]
fn a_queue_pair_may_get_its_domain_late() {
    let mut bed = Bed::new(Generation::Gen3);
    let (mut left, _right) = bed.pair();
    let domain = bed.domain();
    let change = QpChange { pd: Some(bed.left(domain)), ..QpChange::default() };
    bed.engine.modify_qp(left.qp.id, &change).expect("known");
    let (own, old) = (bed.region_of(64, FULL, domain), bed.region(64));
    bed.send(&mut left, &Work::new(WRITE, &[own.sge(0, 8)]).remote(old.address, old.key));
    assert!(!bed.completion(&mut left).error, "the peer has the old domain still");
    bed.send(&mut left, &Work::new(SEND, &[old.sge(0, 8)]));
    bed.expect_events(&[(&left, code::BAD_PD, Source::SendQueue)]);
    for stranger in [bed.right(domain), bed.left(77)] {
        let change = QpChange { pd: Some(stranger), ..QpChange::default() };
        assert_eq!(bed.engine.modify_qp(left.qp.id, &change), Err(EngineError::NotFound));
    }
}

#[test]
fn a_next_hop_decides_where_a_message_goes() {
    let mut bed = Bed::new(Generation::Gen3);
    let (mut left, mut right) = bed.pair();
    let macs = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
    bed.engine.set_mac(0, macs[0]);
    bed.engine.set_mac(1, macs[1]);
    // Both believe to have the same address.
    for (side, mac) in [(&left, macs[1]), (&right, macs[0])] {
        let change =
            QpChange { destination_gid: Some(gid(0)), destination_mac: Some(mac), ..QpChange::default() };
        bed.engine.modify_qp(side.qp.id, &change).expect("known");
    }
    let (from, to) = (bed.region(64), bed.region(64));
    bed.receive(&mut right, &[to.sge(0, 64)]);
    bed.send(&mut left, &Work::new(SEND, &[from.sge(0, 8)]));
    assert!(!bed.completion(&mut left).error);
    assert_eq!(bed.completion(&mut right).length, 8);
    let change = QpChange { destination_mac: Some([2; 6]), ..QpChange::default() };
    bed.engine.modify_qp(left.qp.id, &change).expect("known");
    bed.send(&mut left, &Work::new(SEND, &[from.sge(0, 8)]));
    assert_eq!(bed.poll(&mut left), None, "nobody has that address");
}

#[test]
fn each_function_counts_its_messages() {
    let mut bed = Bed::new(Generation::Gen3);
    let (mut left, mut right) = bed.pair();
    let (from, to) = (bed.region(64), bed.region(64));
    bed.send(&mut left, &Work::new(SEND, &[from.sge(0, 8)]));
    bed.receive(&mut right, &[to.sge(0, 64)]);
    bed.pass(bed::RNR_TIMER);
    bed.send(&mut left, &Work::new(WRITE, &[from.sge(0, 8)]).remote(to.address, to.key));
    bed.send(&mut left, &Work::new(READ, &[from.sge(0, 8)]).remote(to.address, to.key));
    let near = bed.engine.counters(0);
    assert_eq!((near.sends_out, near.writes_out, near.reads_out, near.not_ready_in), (1, 1, 1, 1));
    assert_eq!((near.sends_in, near.writes_in, near.reads_in, near.timeouts), (0, 0, 0, 0));
    let far = bed.engine.counters(1);
    assert_eq!((far.sends_in, far.writes_in, far.reads_in, far.not_ready_out), (1, 1, 1, 1));
    bed.engine.destroy_qp(right.qp.id).expect("gone");
    bed.send(&mut left, &Work::new(SEND, &[from.sge(0, 8)]));
    bed.pass(bed::TIMEOUT);
    assert_eq!(bed.engine.counters(0).timeouts, 1);
    bed.engine.reset_function(0);
    assert_eq!(bed.engine.counters(0), bed.engine.counters(77), "nothing");
}

#[test]
fn a_function_that_is_reset_has_nothing_left() {
    let mut bed = Bed::new(Generation::Gen3);
    let (left, mut right) = bed.pair();
    let region = bed.region(64);
    bed.engine.reset_function(0);
    assert_eq!(bed.engine.qp_state(left.qp.id), None);
    assert_eq!(bed.engine.destroy_cq(left.cq.id), Err(EngineError::NotFound));
    assert_eq!(bed.engine.destroy_mr(0, region.key), Err(EngineError::NotFound));
    // The other function only misses its peer.
    bed.send(&mut right, &Work::new(SEND, &[region.sge(0, 8)]));
    assert_eq!(bed.poll(&mut right), None);
    assert_eq!(bed.engine.create_pd(0, Some(bed.pd)), Ok(bed.left(bed.pd)));
}

#[test]
fn key_zero_is_for_local_work_of_kernel_queue_pairs() {
    let mut bed = Bed::new(Generation::Gen2);
    let everything = bed.area(4096);
    bed.memory().bytes(everything)[100..108].copy_from_slice(&[9; 8]);
    let shape = Shape { privileged: Some(everything), ..bed.shape() };
    let (mut left, mut right) = bed.pair_of(shape);
    let physical = |address, length| bed::work::Sge { address, length, key: 0 };
    bed.receive(&mut right, &[physical(200, 8)]);
    bed.send(&mut left, &Work::new(SEND, &[physical(100, 8)]));
    assert!(!bed.completion(&mut left).error);
    assert!(!bed.completion(&mut right).error);
    assert_eq!(bed.memory().bytes(everything)[200..208], [9; 8]);
    // It opens nothing to the peer.
    bed.send(&mut left, &Work::new(WRITE, &[physical(100, 8)]).remote(300, 0));
    bed.expect_events(&[
        (&right, code::BAD_STAG_INDEX, Source::InboundRdma),
        (&left, code::REMOTE_ACCESS_ERROR, Source::SendQueue),
    ]);
    // And to others nothing at all.
    let (mut left, _) = bed.pair();
    bed.send(&mut left, &Work::new(SEND, &[physical(100, 8)]));
    bed.expect_events(&[(&left, code::BAD_STAG_INDEX, Source::SendQueue)]);
}

#[test]
fn kernel_queue_pairs_register_memory_by_work() {
    let mut bed = Bed::new(Generation::Gen3);
    let everything = bed.area(1 << 16);
    let shape = Shape { privileged: Some(everything), ..bed.shape() };
    let (mut left, mut right) = bed.pair_of(shape);
    let pd = bed.left(bed.pd);
    let room = MemoryRegion { pd, address: 0, length: 8192, access: FULL, backing: everything };
    let key = bed.engine.reserve_mr(room, Some(0x12_3400)).expect("a key");
    assert_eq!(key, 0x12_3400);
    let sge = |address, key| bed::work::Sge { address, length: 8, key };
    let pages = bed.area(4096);
    let physical = (pages as u64) << 12;
    bed.memory().bytes(pages)[..8].copy_from_slice(&[7; 8]);
    bed.send(&mut left, &Work::register(0x12_3455, 0x5000_0010, 4096, physical));
    assert!(!bed.completion(&mut left).error);
    bed.receive(&mut right, &[bed::work::Sge { address: 0, length: 8, key: 0 }]);
    bed.send(&mut left, &Work::new(SEND, &[sge(0x5000_0010, 0x12_3455)]));
    assert!(!bed.completion(&mut left).error);
    assert_eq!(bed.memory().bytes(everything)[..8], [7; 8]);
    // Used once more without an invalidation in between.
    bed.send(&mut left, &Work::register(0x12_3456, 0x5000_0010, 4096, physical));
    bed.expect_events(&[(&left, code::FAST_REGISTER_VALID_STAG, Source::SendQueue)]);
}

#[test]
fn registrations_that_are_not_allowed_fail_their_queue() {
    type Make = fn(&mut Bed) -> Work;
    let cases: [(Make, bool, u16); 5] = [
        (|_| Work::register(0x12_3455, 0, 9000, 0), true, code::FAST_REGISTER_INVALID_LENGTH),
        (|_| Work::register(0x12_3455, 0, 0, 0), true, code::FAST_REGISTER_INVALID_LENGTH),
        (|_| Work::register(0x99_9955, 0, 64, 0), true, code::BAD_STAG_INDEX),
        (
            |bed| {
                let pd = bed.left(bed.pd);
                let key = bed.engine.create_mw(pd, WindowKind::Type2, None).expect("a window");
                Work::register(key, 0, 64, 0)
            },
            true,
            code::FAST_REGISTER_OF_WINDOW,
        ),
        (|_| Work::register(0x12_3455, 0, 64, 0), false, code::PRIVILEGED_OPERATION),
    ];
    for (number, (make, privileged, expected)) in cases.into_iter().enumerate() {
        let mut bed = Bed::new(Generation::Gen3);
        let everything = bed.area(1 << 16);
        let shape = Shape { privileged: privileged.then_some(everything), ..bed.shape() };
        let (mut left, _right) = bed.pair_of(shape);
        let pd = bed.left(bed.pd);
        let room = MemoryRegion { pd, address: 0, length: 8192, access: FULL, backing: everything };
        bed.engine.reserve_mr(room, Some(0x12_3400)).expect("a key");
        let work = make(&mut bed);
        bed.send(&mut left, &work);
        let found: Vec<u16> = bed.events().iter().map(|event| event.code).collect();
        assert_eq!(found, [expected], "case {number}");
    }
}
