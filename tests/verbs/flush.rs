//! What happens to outstanding work when a queue pair goes to the error state, and to work posted after that.

use irdma_tests::control::control;
use irdma_tests::device::Device;
use irdma_tests::fixtures::{Datagrams, Pair, Side};
use irdma_tests::qp::{Connection, QpOptions};
use irdma_tests::runner::Test;
use irdma_tests::sys::*;
use irdma_tests::test;
use irdma_tests::wc::Wc;
use irdma_tests::work::{ReceiveWork, SendWork};

/// Never gives up: work stays outstanding as long as the receiver posts nothing.
fn patient() -> Connection {
    Connection { rnr_retry: 7, min_rnr_timer: 20, ..Connection::default() }
}

/// A queue pair whose send queue is stuck behind a send that nobody receives (`wr_id` 0).
fn stuck(options: QpOptions) -> Pair {
    let pair = Pair::with(options, patient());
    pair.left.qp.post(SendWork::send(0));
    pair
}

/// Completions of flushed sends: (wr_id, opcode, byte_len) of each.
fn flushed_sends(side: &Side, works: &[(u64, u32, usize)]) -> Vec<Wc> {
    works.iter().map(|&(wr_id, opcode, length)| side.sent(wr_id, opcode, length).flushed()).collect()
}

fn every_outstanding_request_is_flushed_once_in_order_with_its_opcode() {
    let pair = stuck(QpOptions::widest());
    let (target, rkey) = (pair.right.mr.address(), pair.right.mr.rkey());
    let element = |length| pair.left.mr.sge(0, length);
    let wide = || (0..13).map(|index| pair.left.mr.sge(index * 10, 5));
    pair.left.qp.post_list(&mut [
        SendWork::read(1, target, rkey).sge(element(100)),
        SendWork::write(2, target, rkey).sges(wide()),
        SendWork::send(3).sge(element(101)).inline().unsignaled(),
        SendWork::write(4, target, rkey).sge(element(7)).immediate(9),
        SendWork::read(5, target, rkey).sge(element(8)).unsignaled(),
        SendWork::send(6).sges(wide()).immediate(1),
        SendWork::invalidate(7, rkey),
        SendWork::send(8).sge(element(9)).flags(IBV_SEND_SOLICITED | IBV_SEND_FENCE),
    ]);
    pair.left.qp.receive_list(&mut [
        ReceiveWork::new(20).sge(pair.left.mr.sge(0, 100)),
        ReceiveWork::new(21),
        ReceiveWork::new(22).sge(pair.left.mr.sge(0, 100)),
    ]);
    pair.left.qp.fail();
    pair.left.expect_sent(&flushed_sends(
        &pair.left,
        &[
            (0, IBV_WC_SEND, 0),
            (1, IBV_WC_RDMA_READ, 100),
            (2, IBV_WC_RDMA_WRITE, 65),
            (3, IBV_WC_SEND, 101),
            (4, IBV_WC_RDMA_WRITE, 7),
            (5, IBV_WC_RDMA_READ, 8),
            (6, IBV_WC_SEND, 65),
            (7, IBV_WC_LOCAL_INV, 0),
            (8, IBV_WC_SEND, 9),
        ],
    ));
    let receives: Vec<_> = (20..23).map(|wr_id| pair.left.flushed_receive(wr_id)).collect();
    pair.left.expect_received(&receives);
    pair.left.expect_nothing();
}

fn flushes_are_polled_one_by_one_as_well() {
    let pair = stuck(QpOptions::default());
    let mut sends: Vec<_> = (1..20).map(SendWork::send).collect();
    pair.left.qp.post_list(&mut sends);
    pair.left.qp.fail();
    let completions = pair.left.qp.send_cq().wait_in_batches(20, 1);
    let works: Vec<_> = (0..20).map(|wr_id| (wr_id, IBV_WC_SEND, 0)).collect();
    irdma_tests::wc::assert_completions(&completions, &flushed_sends(&pair.left, &works));
    pair.left.expect_nothing();
}

fn a_flush_on_any_lap_reports_what_was_posted_then() {
    // The ring position at the failure differs with every round: padding, the end of the ring, everything.
    for round in 0..16_u64 {
        let options = QpOptions { max_send_wr: 8, ..QpOptions::widest() };
        let pair = Pair::with(options, patient());
        let (target, rkey) = (pair.right.mr.address(), pair.right.mr.rkey());
        let write = |wr_id: u64, count: usize| {
            SendWork::write(wr_id, target, rkey).sges((0..count).map(|index| pair.left.mr.sge(index * 8, 8)))
        };
        let count = |wr_id: u64| (wr_id * 5) as usize % options.max_send_sge as usize + 1;
        let warm_up = 60 + round * 5;
        for first in (0..warm_up).step_by(5) {
            let ids = first..first + 5;
            let mut writes: Vec<_> = ids.clone().map(|wr_id| write(wr_id, count(wr_id))).collect();
            pair.left.qp.post_list(&mut writes);
            let sent: Vec<_> =
                ids.map(|wr_id| pair.left.sent(wr_id, IBV_WC_RDMA_WRITE, count(wr_id) * 8)).collect();
            pair.left.expect_sent(&sent);
        }
        pair.left.qp.post(SendWork::send(500));
        let kinds = [IBV_WC_RDMA_WRITE, IBV_WC_RDMA_READ, IBV_WC_SEND];
        let mut works = vec![(500, IBV_WC_SEND, 0)];
        for index in 0..6_u64 {
            let opcode = kinds[(index + round) as usize % 3];
            let most = if opcode == IBV_WC_RDMA_READ { Device::present().read_fragments } else { u32::MAX };
            let count = count(index + round).min(most as usize);
            let elements = (0..count).map(|element| pair.left.mr.sge(element * 8, 8));
            let work = match opcode {
                IBV_WC_RDMA_WRITE => SendWork::write(600 + index, target, rkey),
                IBV_WC_RDMA_READ => SendWork::read(600 + index, target, rkey),
                _ => SendWork::send(600 + index),
            };
            let work = work.sges(elements);
            pair.left.qp.post(if index % 2 == 0 { work } else { work.unsignaled() });
            works.push((600 + index, opcode, count * 8));
        }
        pair.left.qp.fail();
        pair.left.expect_sent(&flushed_sends(&pair.left, &works));
        pair.left.expect_nothing();
    }
}

fn work_posted_in_the_error_state_is_flushed() {
    let pair = Pair::new();
    pair.left.qp.fail();
    for wr_id in 0..5 {
        // Nothing outstanding: each is flushed by itself.
        pair.left.qp.post(SendWork::send(wr_id).sge(pair.left.mr.sge(0, 10)));
        pair.left.expect_sent(&[pair.left.sent(wr_id, IBV_WC_SEND, 10).flushed()]);
        pair.left.qp.receive(ReceiveWork::new(wr_id + 10));
        pair.left.expect_received(&[pair.left.flushed_receive(wr_id + 10)]);
    }
    pair.left.expect_nothing();
}

fn work_posted_behind_unpolled_flushes_is_flushed() {
    let pair = stuck(QpOptions::default());
    pair.left.qp.receive(ReceiveWork::new(20));
    pair.left.qp.fail();
    pair.left.qp.post_list(&mut [SendWork::send(1), SendWork::send(2)]);
    pair.left.qp.receive_list(&mut [ReceiveWork::new(21), ReceiveWork::new(22)]);
    let works = [(0, IBV_WC_SEND, 0), (1, IBV_WC_SEND, 0), (2, IBV_WC_SEND, 0)];
    pair.left.expect_sent(&flushed_sends(&pair.left, &works));
    let receives: Vec<_> = (20..23).map(|wr_id| pair.left.flushed_receive(wr_id)).collect();
    pair.left.expect_received(&receives);
    pair.left.expect_nothing();
}

fn a_list_posted_in_the_error_state_is_flushed_whole() {
    let pair = Pair::new();
    pair.left.qp.fail();
    let mut sends: Vec<_> = (0..30).map(SendWork::send).collect();
    let mut receives: Vec<_> = (0..30).map(ReceiveWork::new).collect();
    pair.left.qp.post_list(&mut sends);
    pair.left.qp.receive_list(&mut receives);
    let works: Vec<_> = (0..30).map(|wr_id| (wr_id, IBV_WC_SEND, 0)).collect();
    pair.left.expect_sent(&flushed_sends(&pair.left, &works));
    let flushed: Vec<_> = (0..30).map(|wr_id| pair.left.flushed_receive(wr_id)).collect();
    pair.left.expect_received(&flushed);
    pair.left.expect_nothing();
}

fn a_refused_request_for_a_flush_does_not_fail_the_post() {
    let pair = Pair::new();
    pair.left.qp.fail();
    control("fail modify_qp 1 EIO 2");
    pair.left.qp.post(SendWork::send(1));
    pair.left.qp.receive(ReceiveWork::new(10));
    control("fail clear");
}

/// Left fails by itself: the device moves it to the error state, no program called modify.
fn failed_by_the_device() -> Pair {
    let pair = Pair::with(
        QpOptions::default(),
        Connection { retry_count: 1, rnr_retry: 0, ..Connection::default() },
    );
    pair.left.qp.post(SendWork::write(0, pair.right.mr.address(), 0xdead_be00).sge(pair.left.mr.sge(0, 8)));
    let error = pair.left.sent(0, IBV_WC_RDMA_WRITE, 8).failed(IBV_WC_REM_ACCESS_ERR, 3);
    pair.left.expect_sent(&[error]);
    pair
}

fn work_posted_after_an_error_of_the_device_is_flushed() {
    let pair = failed_by_the_device();
    // No call has told the library of the state: the completion must have been enough.
    for wr_id in 1..4 {
        pair.left.qp.post(SendWork::send(wr_id));
        pair.left.expect_sent(&[pair.left.sent(wr_id, IBV_WC_SEND, 0).flushed()]);
    }
    pair.left.expect_nothing();
}

fn receives_posted_after_an_error_of_the_device_are_flushed() {
    let pair = failed_by_the_device();
    for wr_id in 1..4 {
        pair.left.qp.receive(ReceiveWork::new(wr_id));
        pair.left.expect_received(&[pair.left.flushed_receive(wr_id)]);
    }
}

fn a_responder_that_failed_flushes_what_is_posted_later() {
    let pair = failed_by_the_device();
    // Nothing was outstanding on the right: no completion told it, only the asynchronous event does.
    irdma_tests::channel::expect_async_event(
        pair.right.context(),
        IBV_EVENT_QP_ACCESS_ERR,
        pair.right.qp.raw(),
    );
    pair.right.expect_nothing();
    pair.right.qp.post(SendWork::send(1));
    pair.right.expect_sent(&[pair.right.sent(1, IBV_WC_SEND, 0).flushed()]);
    pair.right.qp.receive(ReceiveWork::new(2));
    pair.right.expect_received(&[pair.right.flushed_receive(2)]);
}

fn datagram_queue_pairs_flush_as_well() {
    let pair = Datagrams::new();
    let receives = || [ReceiveWork::new(1).sge(pair.right.mr.sge(0, 100)), ReceiveWork::new(2)];
    pair.right.qp.receive_list(&mut receives());
    pair.right.qp.fail();
    let flushed = |wr_id| {
        let mut completion = pair.right.flushed_receive(wr_id);
        (completion.flags, completion.src_qp) = (IBV_WC_GRH, 0);
        completion
    };
    let actual = pair.right.qp.recv_cq().wait(2);
    for (completion, expected) in actual.iter().zip([flushed(1), flushed(2)]) {
        // There is no sender and no header: what these two fields say of a flushed receive is nobody's business.
        let stripped = Wc { flags: expected.flags, src_qp: 0, ..completion.clone() };
        irdma_tests::wc::assert_completions(&[stripped], &[expected]);
    }
    let back = irdma_tests::qp::Ah::new(pair.right.pd(), pair.left.gid());
    pair.right.qp.post(SendWork::send(3).to(back.raw(), 1, 1).sge(pair.right.mr.sge(0, 5)));
    pair.right.expect_sent(&[pair.right.sent(3, IBV_WC_SEND, 5).flushed()]);
    pair.right.expect_nothing();
}

fn both_queues_on_one_completion_queue_are_flushed() {
    let pair = Pair::unconnected(QpOptions::default());
    let context = pair.left.context();
    let cq = irdma_tests::cq::Cq::new(context, 64);
    let qp = irdma_tests::qp::Qp::new(pair.left.pd(), &cq, &cq, QpOptions::default());
    qp.connect(patient(), pair.right.qp.number(), pair.right.gid());
    qp.receive_list(&mut [ReceiveWork::new(10), ReceiveWork::new(11)]);
    qp.fail();
    qp.post_list(&mut [SendWork::send(1), SendWork::send(2)]);
    let completions = cq.wait(4);
    let ids = |receive: bool| -> Vec<u64> {
        let of_queue = completions.iter().filter(|completion| completion.is_receive() == receive);
        of_queue.map(|completion| completion.wr_id).collect()
    };
    assert_eq!((ids(false), ids(true)), (vec![1, 2], vec![10, 11]));
    assert!(completions.iter().all(|completion| completion.status == IBV_WC_WR_FLUSH_ERR));
    cq.expect_empty();
}

fn a_neighbour_on_the_same_completion_queue_is_not_disturbed() {
    let pair = Pair::new();
    let cq = irdma_tests::cq::Cq::new(pair.left.context(), 256);
    let options = QpOptions::default();
    let [failing, working] = [(); 2].map(|()| irdma_tests::qp::Qp::new(pair.left.pd(), &cq, &cq, options));
    for qp in [&failing, &working] {
        qp.connect(patient(), qp.number(), pair.left.gid());
    }
    failing.receive_list(&mut [ReceiveWork::new(10), ReceiveWork::new(11), ReceiveWork::new(12)]);
    failing.fail();
    for wr_id in 0..20 {
        working.post(SendWork::write(100 + wr_id, pair.left.mr.address(), pair.left.mr.rkey()));
    }
    let completions = cq.wait(23);
    let of = |qp_num: u32| -> Vec<(u64, u32)> {
        let own = completions.iter().filter(|completion| completion.qp_num == qp_num);
        own.map(|completion| (completion.wr_id, completion.status)).collect()
    };
    let good: Vec<_> = (100..120).map(|wr_id| (wr_id, IBV_WC_SUCCESS)).collect();
    let flushed: Vec<_> = (10..13).map(|wr_id| (wr_id, IBV_WC_WR_FLUSH_ERR)).collect();
    assert_eq!((of(working.number()), of(failing.number())), (good, flushed));
}

/// The programs of this file.
pub const TESTS: &[Test] = &[
    test!(every_outstanding_request_is_flushed_once_in_order_with_its_opcode),
    test!(flushes_are_polled_one_by_one_as_well),
    test!(a_flush_on_any_lap_reports_what_was_posted_then),
    test!(work_posted_in_the_error_state_is_flushed),
    test!(work_posted_behind_unpolled_flushes_is_flushed),
    test!(a_refused_request_for_a_flush_does_not_fail_the_post).alone(),
    test!(a_list_posted_in_the_error_state_is_flushed_whole),
    test!(work_posted_after_an_error_of_the_device_is_flushed)
        .fails_on_c("the library's idea of the state stays RTS, so no flush is asked for"),
    test!(receives_posted_after_an_error_of_the_device_are_flushed)
        .fails_on_c("the library's idea of the state stays RTS, so no flush is asked for"),
    test!(a_responder_that_failed_flushes_what_is_posted_later)
        .fails_on_c("the library's idea of the state stays RTS, so no flush is asked for"),
    test!(datagram_queue_pairs_flush_as_well),
    test!(both_queues_on_one_completion_queue_are_flushed),
    test!(a_neighbour_on_the_same_completion_queue_is_not_disturbed),
];
