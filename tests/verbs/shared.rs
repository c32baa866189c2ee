//! Shared receive queues: what they take, who is served, what is left of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use irdma_tests::channel::{expect_async_event, expect_no_async_event};
use irdma_tests::context::{Context, Pd};
use irdma_tests::control::names_of;
use irdma_tests::cq::Cq;
use irdma_tests::cq_ex::CqEx;
use irdma_tests::device::{Device, feature};
use irdma_tests::fixtures::{Pair, Q_KEY, Side};
use irdma_tests::qp::{Ah, Connection, Qp, QpOptions};
use irdma_tests::runner::Test;
use irdma_tests::srq::Srq;
use irdma_tests::sys::*;
use irdma_tests::test;
use irdma_tests::wc::{Wc, assert_completions};
use irdma_tests::work::{ReceiveWork, Refused, SendWork, unmapped_list};

/// A domain on a device that has such queues.
fn domain() -> Arc<Pd> {
    Device::present().require(feature::SRQ, "shared receive queues");
    Pd::new(&Context::open())
}

/// A queue pair on `srq`, connected to itself.
fn looped(pair: &Pair, cq: &Arc<Cq>, srq: &Arc<Srq>) -> Qp {
    let qp = Qp::on_srq(pair.left.pd(), cq, cq, srq, QpOptions::default());
    qp.connect(Connection { rnr_retry: 0, ..Connection::default() }, qp.number(), pair.left.gid());
    qp
}

/// What the programs start with: memory, a queue, a CQ.
fn start(max_wr: u32) -> (Pair, Arc<Srq>, Arc<Cq>) {
    Device::present().require(feature::SRQ, "shared receive queues");
    let pair = Pair::unconnected(QpOptions::default());
    let srq = Srq::new(pair.left.pd(), max_wr, 2);
    let cq = Cq::new(pair.left.context(), 1024);
    (pair, srq, cq)
}

fn element(side: &Side, index: u64) -> ibv_sge {
    side.mr.sge(index as usize * 64, 64)
}

fn a_queue_reports_what_it_holds() {
    let pd = domain();
    let device = Device::present();
    for (asked, elements) in [(1u32, 1), (16, 1), (100, 3), (1000, 4), (17, device.fragments)] {
        let shift = device.shift(elements, 0);
        let ring = ((asked << shift) + 1).next_power_of_two().max(device.smallest_queue << shift);
        let srq = Srq::new(&pd, asked, elements);
        assert_eq!(srq.attributes.max_wr, (ring - 1) >> shift, "{asked} of {elements}");
        assert!(srq.attributes.max_sge >= elements);
        assert_eq!(srq.query().max_wr, srq.attributes.max_wr);
        assert_eq!(srq.query().max_sge, srq.attributes.max_sge);
        assert_eq!(srq.fill(), srq.attributes.max_wr as usize, "room as promised");
    }
}

fn queues_have_limits() {
    let pd = domain();
    let context = pd.context();
    let attributes = context.query_device();
    let (most, elements) = (attributes.max_srq_wr as u32, attributes.max_srq_sge as u32);
    assert_eq!(elements, Device::present().fragments);
    assert!(attributes.max_srq > 0);
    assert!(Srq::new(&pd, most, elements).attributes.max_wr >= most, "the reported largest can be created");
    for (max_wr, max_sge) in
        [(most + 1, elements), (1, elements + 1), (u32::MAX, 1), (1, u32::MAX), (1 << 31, 1)]
    {
        assert_eq!(Srq::try_new(&pd, max_wr, max_sge).err(), Some(libc::EINVAL), "{max_wr} of {max_sge}");
    }
}

fn a_queue_pair_on_a_shared_queue_has_none_of_its_own() {
    let (pair, srq, cq) = start(16);
    // What it asks of its own receive queue does not matter.
    let options = QpOptions { max_recv_wr: u32::MAX, max_recv_sge: u32::MAX, ..QpOptions::default() };
    let qp = Qp::on_srq(pair.left.pd(), &cq, &cq, &srq, options);
    assert_eq!((qp.caps.max_recv_wr, qp.caps.max_recv_sge), (0, 0));
    let refused = qp.try_receive(&mut [ReceiveWork::new(1), ReceiveWork::new(2)]);
    assert_eq!(refused, Err(Refused { errno: libc::EINVAL, index: 0 }));
    // SAFETY: the queue pair is alive.
    assert_eq!(unsafe { (*qp.raw()).srq }, srq.raw());
    assert_eq!(srq.refused_destroy(), libc::EBUSY);
    drop(qp);
    srq.receive(ReceiveWork::new(1));
}

fn receives_serve_whoever_comes() {
    let (pair, srq, cq) = start(64);
    let qps = [looped(&pair, &cq, &srq), looped(&pair, &cq, &srq), looped(&pair, &cq, &srq)];
    for round in 0..200u64 {
        let qp = &qps[(round * round % 3) as usize];
        srq.receive(ReceiveWork::new(1000 + round).sge(element(&pair.left, 900)));
        let payload = (round % 64) as usize + 1;
        // Into memory of the queue's own domain.
        let work = SendWork::send(round).sge(pair.left.mr.sge(0, payload));
        qp.post(if round % 5 == 0 { work.immediate(round as u32) } else { work });
        let expected = Wc::received(qp.number(), 1000 + round, payload as u32);
        let expected = if round % 5 == 0 { expected.with_immediate(round as u32) } else { expected };
        let all = cq.wait(2);
        let (receives, sends): (Vec<_>, Vec<_>) = all.into_iter().partition(Wc::is_receive);
        assert_completions(&receives, &[expected]);
        assert_completions(&sends, &[Wc::sent(qp.number(), round, IBV_WC_SEND, payload as u32)]);
    }
}

fn zero_elements_are_none_and_too_many_are_refused() {
    let (pair, srq, cq) = start(64);
    let qp = looped(&pair, &cq, &srq);
    let elements = |count| ReceiveWork::new(9).sges((0..count).map(|index| element(&pair.left, index)));
    let most = u64::from(Device::present().fragments);
    let refused = srq.try_receive(&mut [ReceiveWork::new(1).stale_list(unmapped_list()), elements(most + 1)]);
    assert_eq!(refused, Err(Refused { errno: libc::EINVAL, index: 1 }));
    qp.post(SendWork::send(5));
    let mut all = cq.wait(2);
    all.sort_by_key(|wc| wc.wr_id);
    assert_completions(&all, &[Wc::received(qp.number(), 1, 0), Wc::sent(qp.number(), 5, IBV_WC_SEND, 0)]);
}

fn a_list_longer_than_the_room_stops_at_the_limit() {
    let (_pair, srq, _cq) = start(16);
    let most = srq.attributes.max_wr as usize;
    let mut receives: Vec<_> = (0..most as u64 + 3).map(ReceiveWork::new).collect();
    assert_eq!(srq.try_receive(&mut receives), Err(Refused { errno: libc::ENOMEM, index: most }));
    assert_eq!(srq.fill(), 0);
}

fn completions_come_in_any_order() {
    let (pair, srq, cq) = start(64);
    let other = Cq::new(pair.left.context(), 64);
    let (first, second) = (looped(&pair, &cq, &srq), looped(&pair, &other, &srq));
    for wr_id in 0..10 {
        srq.receive(ReceiveWork::new(wr_id).sge(element(&pair.left, 10 + wr_id)));
    }
    for turn in 0..10u64 {
        (if turn % 2 == 0 { &first } else { &second }).post(SendWork::send(100 + turn).unsignaled());
    }
    // The later ones are taken first; the earlier ones are still all there.
    let ids = |cq: &Cq| cq.wait(5).iter().map(|wc| wc.wr_id).collect::<Vec<_>>();
    assert_eq!(ids(&other), [1, 3, 5, 7, 9]);
    assert_eq!(srq.fill(), srq.attributes.max_wr as usize - 5);
    assert_eq!(ids(&cq), [0, 2, 4, 6, 8]);
    assert_eq!(srq.fill(), 5);
}

fn two_pollers_give_all_room_back() {
    let (pair, srq, _) = start(32);
    let cqs = [(); 2].map(|()| Cq::new(pair.left.context(), 256));
    let qps = [looped(&pair, &cqs[0], &srq), looped(&pair, &cqs[1], &srq)];
    const MESSAGES: usize = 2000;
    let received = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for (qp, cq) in qps.iter().zip(&cqs) {
            scope.spawn(|| {
                for message in 0..MESSAGES as u64 {
                    while srq.try_receive(&mut [ReceiveWork::new(message)]).is_err() {
                        std::thread::yield_now();
                    }
                    qp.post(SendWork::send(message));
                    // Its own send, and a receive that may be the other's.
                    for wc in cq.wait(2) {
                        assert_eq!((wc.status, wc.qp_num), (IBV_WC_SUCCESS, qp.number()));
                        received.fetch_add(usize::from(wc.is_receive()), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(received.into_inner(), 2 * MESSAGES);
    assert_eq!(srq.fill(), srq.attributes.max_wr as usize, "no room was lost");
}

fn unread_receives_of_a_destroyed_queue_pair_give_their_room_back() {
    let (pair, srq, cq) = start(16);
    let (gone, stays) = (looped(&pair, &cq, &srq), looped(&pair, &cq, &srq));
    for wr_id in 0..6 {
        srq.receive(ReceiveWork::new(wr_id));
    }
    for turn in 0..6 {
        (if turn % 2 == 0 { &gone } else { &stays }).post(SendWork::send(turn).unsignaled());
    }
    drop(gone);
    assert_eq!(cq.wait(3).iter().map(|wc| wc.wr_id).collect::<Vec<_>>(), [1, 3, 5]);
    cq.expect_empty();
    assert_eq!(srq.fill(), srq.attributes.max_wr as usize);
}

fn an_id_that_looks_like_a_queue_pair_is_only_an_id() {
    let (pair, srq, cq) = start(16);
    let (gone, stays) = (looped(&pair, &cq, &srq), looped(&pair, &cq, &srq));
    // What a provider may know the queue pairs by: what the device hands back, and where they are.
    let ids = [&gone, &stays].map(|qp| [names_of(qp).context, qp.raw() as u64]).concat();
    for &id in &ids {
        srq.receive(ReceiveWork::new(id));
    }
    for wr_id in 0..4 {
        stays.post(SendWork::send(wr_id).unsignaled());
    }
    drop(gone);
    assert_eq!(cq.wait(4).iter().map(|wc| wc.wr_id).collect::<Vec<_>>(), ids);
    cq.expect_empty();
}

fn a_limit_is_told_once() {
    let (pair, srq, cq) = start(16);
    let context = pair.left.context();
    let qp = looped(&pair, &cq, &srq);
    for wr_id in 0..4 {
        srq.receive(ReceiveWork::new(wr_id));
    }
    assert_eq!(srq.set_limit(3), 0);
    assert_eq!(srq.query().srq_limit, 3);
    expect_no_async_event(context);
    let take_one = || {
        qp.post(SendWork::send(9).unsignaled());
        cq.wait(1);
    };
    take_one();
    expect_no_async_event(context);
    take_one();
    expect_async_event(context, IBV_EVENT_SRQ_LIMIT_REACHED, srq.raw());
    assert_eq!(srq.query().srq_limit, 0);
    take_one();
    expect_no_async_event(context);
    // Below it from the start.
    assert_eq!(srq.set_limit(3), 0);
    expect_async_event(context, IBV_EVENT_SRQ_LIMIT_REACHED, srq.raw());
}

fn only_the_limit_can_be_changed() {
    let (_pair, srq, _cq) = start(16);
    let attributes = ibv_srq_attr { max_wr: 100, max_sge: 1, srq_limit: 1 };
    assert_eq!(srq.modify(attributes, IBV_SRQ_MAX_WR), libc::EINVAL);
    assert_eq!(srq.modify(attributes, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), libc::EINVAL);
    assert_eq!(srq.set_limit(srq.attributes.max_wr * 2), libc::EINVAL);
    assert_eq!(srq.query().srq_limit, 0);
}

fn receives_outlive_the_queue_pair_that_fails() {
    let (pair, srq, cq) = start(16);
    let (fails, stays) = (looped(&pair, &cq, &srq), looped(&pair, &cq, &srq));
    for wr_id in 0..3 {
        srq.receive(ReceiveWork::new(wr_id));
    }
    fails.fail();
    cq.expect_empty();
    for turn in 0..3 {
        stays.post(SendWork::send(turn).unsignaled());
    }
    assert_eq!(
        cq.wait(3).iter().map(|wc| (wc.wr_id, wc.status)).collect::<Vec<_>>(),
        [(0, 0), (1, 0), (2, 0)]
    );
}

fn datagrams_name_their_sender() {
    let (pair, srq, _) = start(16);
    let cq = CqEx::new(pair.left.context(), 64);
    let qp = Qp::on_srq(pair.left.pd(), cq.plain(), cq.plain(), &srq, QpOptions::datagram());
    qp.start_datagrams(Q_KEY);
    let ah = Ah::new(pair.left.pd(), pair.left.gid());
    for extended in [false, true] {
        srq.receive(ReceiveWork::new(7).sge(pair.left.mr.sge(0, 200)));
        let send = SendWork::send(1).to(ah.raw(), qp.number(), Q_KEY).sge(pair.left.mr.sge(512, 20));
        qp.post(send.immediate(0x1234_5678).unsignaled());
        let received = if extended { cq.wait_batch(1) } else { cq.plain().wait(1) };
        let expected = Wc::datagram(qp.number(), 7, 20, qp.number()).with_immediate(0x1234_5678);
        assert_completions(&received, &[expected]);
    }
}

/// The programs of this file.
pub const TESTS: &[Test] = &[
    test!(a_queue_reports_what_it_holds),
    test!(queues_have_limits),
    test!(a_queue_pair_on_a_shared_queue_has_none_of_its_own),
    test!(receives_serve_whoever_comes),
    test!(zero_elements_are_none_and_too_many_are_refused),
    test!(a_list_longer_than_the_room_stops_at_the_limit),
    test!(completions_come_in_any_order),
    test!(two_pollers_give_all_room_back),
    test!(unread_receives_of_a_destroyed_queue_pair_give_their_room_back),
    test!(an_id_that_looks_like_a_queue_pair_is_only_an_id),
    test!(a_limit_is_told_once),
    test!(only_the_limit_can_be_changed),
    test!(receives_outlive_the_queue_pair_that_fails),
    test!(datagrams_name_their_sender),
];
