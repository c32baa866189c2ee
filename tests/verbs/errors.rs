//! Error completions of reliable connections, on both sides, with their asynchronous events.

use irdma_tests::channel::{expect_async_event, expect_no_async_event};
use irdma_tests::context::Pd;
use irdma_tests::fixtures::{Pair, REGION, Side};
use irdma_tests::memory::{ALL_ACCESS, Mr};
use irdma_tests::qp::{Connection, QpOptions};
use irdma_tests::runner::Test;
use irdma_tests::sys::*;
use irdma_tests::test;
use irdma_tests::work::{ReceiveWork, SendWork};

/// Fast failures: 4 ms time-outs, one retry, no RNR retry.
fn impatient() -> Connection {
    Connection { timeout: 10, retry_count: 1, rnr_retry: 0, ..Connection::default() }
}

/// The failed request (`wr_id` 1) and the one after it (2) complete with `status` and as flushed,
/// the posted receive (3) is flushed, the state is ERR and one event tells of it.
#[track_caller]
fn expect_failed_sender(side: &Side, opcode: u32, byte_len: usize, status: u32, code: u32, event: u32) {
    side.expect_sent(&[
        side.sent(1, opcode, byte_len).failed(status, code),
        side.sent(2, IBV_WC_SEND, 0).flushed(),
    ]);
    side.expect_received(&[side.flushed_receive(3)]);
    expect_async_event(side.context(), event, side.qp.raw());
    assert_eq!(side.qp.state(), IBV_QPS_ERR);
    side.expect_nothing();
    expect_no_async_event(side.context());
}

/// Posts `work` from left, which fails there before a packet is sent.
#[track_caller]
fn check_local_protection(pair: &Pair, work: SendWork, opcode: u32, byte_len: usize) {
    pair.left.qp.receive(ReceiveWork::new(3));
    pair.right.qp.receive(ReceiveWork::new(4).sge(pair.right.mr.whole()));
    let before = pair.right.mr.buffer().bytes();
    pair.left.qp.post_list(&mut [work, SendWork::send(2)]);
    expect_failed_sender(&pair.left, opcode, byte_len, IBV_WC_LOC_PROT_ERR, 2, IBV_EVENT_QP_ACCESS_ERR);
    pair.right.expect_nothing();
    assert_eq!(pair.right.mr.buffer().bytes(), before, "nothing may reach the other side");
}

/// The three requests that gather or scatter at `element`.
fn works_with(pair: &Pair, element: ibv_sge) -> [(SendWork, u32); 3] {
    let (address, rkey) = (pair.right.mr.address(), pair.right.mr.rkey());
    [
        (SendWork::send(1).sge(element), IBV_WC_SEND),
        (SendWork::write(1, address, rkey).sge(element), IBV_WC_RDMA_WRITE),
        (SendWork::read(1, address, rkey).sge(element), IBV_WC_RDMA_READ),
    ]
}

/// Each request with the element that `make` chooses is a local protection error.
#[track_caller]
fn check_local_protection_of(make: impl Fn(&Pair) -> ibv_sge) {
    for index in 0..3 {
        let pair = Pair::with(QpOptions::default(), impatient());
        let element = make(&pair);
        let (work, opcode) = works_with(&pair, element).into_iter().nth(index).expect("three requests");
        check_local_protection(&pair, work, opcode, element.length as usize);
    }
}

fn an_unknown_lkey_is_a_local_protection_error() {
    check_local_protection_of(|pair| ibv_sge { lkey: 0xdead_be00, ..pair.left.mr.sge(0, 100) });
    check_local_protection_of(|pair| ibv_sge { lkey: pair.left.mr.lkey() ^ 1, ..pair.left.mr.sge(0, 100) });
}

fn local_memory_ends_where_it_was_registered() {
    check_local_protection_of(|pair| pair.left.mr.sge(REGION - 99, 100));
    check_local_protection_of(|pair| ibv_sge {
        addr: pair.left.mr.address() - 1,
        ..pair.left.mr.sge(0, 100)
    });
    check_local_protection_of(|pair| ibv_sge { addr: u64::MAX - 10, ..pair.left.mr.sge(0, 100) });
}

fn local_memory_of_another_domain_is_refused() {
    for index in 0..3 {
        let pair = Pair::with(QpOptions::default(), impatient());
        let other = Pd::new(pair.left.context());
        let mr = Mr::fresh(&other, 4096);
        let (work, opcode) =
            works_with(&pair, mr.sge(0, 100)).into_iter().nth(index).expect("three requests");
        check_local_protection(&pair, work, opcode, 100);
    }
}

fn deregistered_local_memory_is_refused() {
    for index in 0..3 {
        let pair = Pair::with(QpOptions::default(), impatient());
        let mr = Mr::fresh(pair.left.pd(), 4096);
        let element = mr.sge(0, 100);
        assert!(mr.deregister().is_ok());
        let (work, opcode) = works_with(&pair, element).into_iter().nth(index).expect("three requests");
        check_local_protection(&pair, work, opcode, 100);
    }
}

fn a_read_needs_local_write_access() {
    let pair = Pair::with(QpOptions::default(), impatient());
    let mr = Mr::new(pair.left.pd(), pair.left.mr.buffer(), 0);
    let read = SendWork::read(1, pair.right.mr.address(), pair.right.mr.rkey()).sge(mr.sge(0, 100));
    check_local_protection(&pair, read, IBV_WC_RDMA_READ, 100);
}

fn a_receive_into_memory_it_must_not_write_fails_on_both_sides() {
    let unwritable = |pair: &Pair| Mr::new(pair.right.pd(), pair.right.mr.buffer(), 0);
    for case in 0..3 {
        let pair = Pair::with(QpOptions::default(), impatient());
        let mr = unwritable(&pair);
        let element = match case {
            0 => mr.sge(0, 100),
            1 => ibv_sge { lkey: 0xdead_be00, ..pair.right.mr.sge(0, 100) },
            _ => pair.right.mr.sge(REGION - 50, 100),
        };
        pair.left.qp.receive(ReceiveWork::new(3));
        pair.right.qp.receive_list(&mut [ReceiveWork::new(10).sge(element), ReceiveWork::new(11)]);
        pair.left.qp.post_list(&mut [SendWork::send(1).sge(pair.left.mr.sge(0, 100)), SendWork::send(2)]);
        pair.right.expect_received(&[
            pair.right.received(10, 0).failed(IBV_WC_LOC_PROT_ERR, 2),
            pair.right.flushed_receive(11),
        ]);
        expect_async_event(pair.right.context(), IBV_EVENT_QP_ACCESS_ERR, pair.right.qp.raw());
        expect_failed_sender(&pair.left, IBV_WC_SEND, 100, IBV_WC_REM_OP_ERR, 5, IBV_EVENT_QP_FATAL);
    }
}

/// Left's `work` is refused by right's checks: errors and events on both sides.
#[track_caller]
fn check_remote_access(pair: &Pair, work: SendWork, opcode: u32, byte_len: usize) {
    let before = pair.right.mr.buffer().bytes();
    pair.left.qp.receive(ReceiveWork::new(3));
    pair.right.qp.receive_list(&mut [ReceiveWork::new(10), ReceiveWork::new(11)]);
    pair.left.qp.post_list(&mut [work, SendWork::send(2)]);
    expect_failed_sender(&pair.left, opcode, byte_len, IBV_WC_REM_ACCESS_ERR, 3, IBV_EVENT_QP_ACCESS_ERR);
    pair.right.expect_received(&[pair.right.flushed_receive(10), pair.right.flushed_receive(11)]);
    expect_async_event(pair.right.context(), IBV_EVENT_QP_ACCESS_ERR, pair.right.qp.raw());
    assert_eq!(pair.right.qp.state(), IBV_QPS_ERR);
    assert_eq!(pair.right.mr.buffer().bytes(), before, "refused memory was written");
}

/// A write and a read at (address, rkey) chosen by `make` are refused by the other side.
#[track_caller]
fn check_remote_access_of(connection: Connection, make: impl Fn(&Pair) -> (u64, u32)) {
    let pair = Pair::with(QpOptions::default(), connection);
    let (address, rkey) = make(&pair);
    let write = SendWork::write(1, address, rkey).sge(pair.left.mr.sge(0, 100));
    check_remote_access(&pair, write, IBV_WC_RDMA_WRITE, 100);

    let pair = Pair::with(QpOptions::default(), connection);
    let (address, rkey) = make(&pair);
    let read = SendWork::read(1, address, rkey).sge(pair.left.mr.sge(0, 100));
    check_remote_access(&pair, read, IBV_WC_RDMA_READ, 100);
}

fn an_unknown_rkey_is_a_remote_access_error() {
    check_remote_access_of(impatient(), |pair| (pair.right.mr.address(), 0xdead_be00));
    check_remote_access_of(impatient(), |pair| (pair.right.mr.address(), pair.right.mr.rkey() ^ 1));
}

fn remote_memory_ends_where_it_was_registered() {
    check_remote_access_of(impatient(), |pair| {
        (pair.right.mr.address() + REGION as u64 - 99, pair.right.mr.rkey())
    });
    check_remote_access_of(impatient(), |pair| (pair.right.mr.address() - 1, pair.right.mr.rkey()));
    check_remote_access_of(impatient(), |pair| (u64::MAX - 10, pair.right.mr.rkey()));
}

fn a_region_without_rights_refuses() {
    let pair = Pair::with(QpOptions::default(), impatient());
    let mr = Mr::new(
        pair.right.pd(),
        pair.right.mr.buffer(),
        (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ) as i32,
    );
    let write = SendWork::write(1, mr.address(), mr.rkey()).sge(pair.left.mr.sge(0, 100));
    check_remote_access(&pair, write, IBV_WC_RDMA_WRITE, 100);

    let pair = Pair::with(QpOptions::default(), impatient());
    let mr = Mr::new(
        pair.right.pd(),
        pair.right.mr.buffer(),
        (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) as i32,
    );
    let read = SendWork::read(1, mr.address(), mr.rkey()).sge(pair.left.mr.sge(0, 100));
    check_remote_access(&pair, read, IBV_WC_RDMA_READ, 100);
}

fn remote_memory_of_another_domain_is_refused() {
    let pair = Pair::with(QpOptions::default(), impatient());
    let other = Pd::new(pair.right.context());
    let mr = Mr::new(&other, pair.right.mr.buffer(), ALL_ACCESS);
    let write = SendWork::write(1, mr.address(), mr.rkey()).sge(pair.left.mr.sge(0, 100));
    check_remote_access(&pair, write, IBV_WC_RDMA_WRITE, 100);
}

fn deregistered_remote_memory_is_refused() {
    let pair = Pair::with(QpOptions::default(), impatient());
    let mr = Mr::new(pair.right.pd(), pair.right.mr.buffer(), ALL_ACCESS);
    let rkey = mr.rkey();
    assert!(mr.deregister().is_ok());
    let write = SendWork::write(1, pair.right.mr.address(), rkey).sge(pair.left.mr.sge(0, 100));
    check_remote_access(&pair, write, IBV_WC_RDMA_WRITE, 100);
}

fn unmapped_local_memory_is_an_error_not_a_crash() {
    let pair = Pair::with(QpOptions::default(), impatient());
    // Registered, then taken away under the registration.
    let mr = Mr::fresh(pair.left.pd(), 4096);
    // SAFETY: nobody but the device uses the page; the owner unmaps the address again later, which is harmless
    // because nothing else is mapped there in this program's one thread.
    let result = unsafe { libc::mprotect(mr.buffer().pointer().cast(), 4096, libc::PROT_NONE) };
    assert_eq!(result, 0);
    pair.left.qp.receive(ReceiveWork::new(3));
    pair.right.qp.receive(ReceiveWork::new(4).sge(pair.right.mr.whole()));
    pair.left.qp.post_list(&mut [SendWork::send(1).sge(mr.sge(0, 100)), SendWork::send(2)]);
    // The pages of a real registration stay in the device's reach; the software device loses them.
    let failed = pair.left.sent(1, IBV_WC_SEND, 100).failed(IBV_WC_LOC_PROT_ERR, 2);
    pair.left.expect_sent(&[failed, pair.left.sent(2, IBV_WC_SEND, 0).flushed()]);
    pair.left.expect_received(&[pair.left.flushed_receive(3)]);
    assert_eq!(pair.left.qp.state(), IBV_QPS_ERR);
    pair.right.expect_nothing();
    assert_eq!(pair.right.mr.buffer().read(0, 100), [0; 100], "nothing may have arrived");
}

fn no_receive_in_time_is_rnr_retry_exceeded() {
    for immediate in [false, true] {
        let pair = Pair::with(QpOptions::default(), impatient());
        pair.left.qp.receive(ReceiveWork::new(3));
        let write = SendWork::write(1, pair.right.mr.address(), pair.right.mr.rkey()).immediate(1);
        let send = SendWork::send(1).sge(pair.left.mr.sge(0, 100));
        let (work, opcode, length) =
            if immediate { (write, IBV_WC_RDMA_WRITE, 0) } else { (send, IBV_WC_SEND, 100) };
        pair.left.qp.post_list(&mut [work, SendWork::send(2)]);
        expect_failed_sender(&pair.left, opcode, length, IBV_WC_RNR_RETRY_EXC_ERR, 11, IBV_EVENT_QP_FATAL);
        assert_eq!(pair.right.qp.state(), IBV_QPS_RTS, "the receiver is not at fault");
        expect_no_async_event(pair.right.context());
    }
}

fn a_finite_number_of_rnr_retries_is_counted() {
    let connection = Connection { rnr_retry: 3, min_rnr_timer: 12, ..impatient() };
    let pair = Pair::with(QpOptions::default(), connection);
    pair.left.qp.receive(ReceiveWork::new(3));
    pair.left.qp.post_list(&mut [SendWork::send(1), SendWork::send(2)]);
    expect_failed_sender(&pair.left, IBV_WC_SEND, 0, IBV_WC_RNR_RETRY_EXC_ERR, 11, IBV_EVENT_QP_FATAL);
}

fn a_late_receive_is_waited_for() {
    for rnr_retry in [7, 6] {
        // Timer value 14 is 1 ms, 18 is 4 ms: six retries last longer than the pause below.
        let connection = Connection { rnr_retry, min_rnr_timer: 20, ..impatient() };
        let pair = Pair::with(QpOptions::default(), connection);
        pair.left.qp.post_list(&mut [
            SendWork::send(1).sge(pair.left.mr.sge(0, 100)),
            SendWork::write(2, pair.right.mr.address(), pair.right.mr.rkey()).immediate(5),
        ]);
        std::thread::sleep(std::time::Duration::from_millis(12));
        pair.left.qp.send_cq().expect_empty();
        pair.right.qp.receive(ReceiveWork::new(10).sge(pair.right.mr.whole()));
        pair.left.expect_sent(&[pair.left.sent(1, IBV_WC_SEND, 100)]);
        pair.right.expect_received(&[pair.right.received(10, 100)]);
        pair.right.qp.receive(ReceiveWork::new(11));
        pair.left.expect_sent(&[pair.left.sent(2, IBV_WC_RDMA_WRITE, 0)]);
        let received = pair.right.received(11, 0).with_opcode(IBV_WC_RECV_RDMA_WITH_IMM);
        pair.right.expect_received(&[received.with_immediate(5)]);
    }
}

/// A send to a peer that does not answer any more.
#[track_caller]
fn check_retry_exceeded(left: &Side) {
    left.qp.receive(ReceiveWork::new(3));
    left.qp.post_list(&mut [SendWork::send(1).sge(left.mr.sge(0, 100)), SendWork::send(2)]);
    expect_failed_sender(left, IBV_WC_SEND, 100, IBV_WC_RETRY_EXC_ERR, 8, IBV_EVENT_QP_FATAL);
}

fn a_peer_in_the_error_state_is_retry_exceeded() {
    let pair = Pair::with(QpOptions::default(), impatient());
    pair.right.qp.fail();
    check_retry_exceeded(&pair.left);
}

fn a_peer_that_was_never_ready_is_retry_exceeded() {
    let pair = Pair::unconnected(QpOptions::default());
    pair.left.qp.connect(impatient(), pair.right.qp.number(), pair.right.gid());
    check_retry_exceeded(&pair.left);
}

fn a_peer_that_is_gone_is_retry_exceeded() {
    let pair = Pair::with(QpOptions::default(), impatient());
    let Pair { left, right } = pair;
    drop(right);
    check_retry_exceeded(&left);
}

fn a_peer_connected_to_somebody_else_is_retry_exceeded() {
    let pair = Pair::unconnected(QpOptions::default());
    let third = Pair::unconnected(QpOptions::default());
    pair.left.qp.connect(impatient(), pair.right.qp.number(), pair.right.gid());
    pair.right.qp.connect(impatient(), third.left.qp.number(), third.left.gid());
    pair.right.qp.receive(ReceiveWork::new(10).sge(pair.right.mr.whole()));
    check_retry_exceeded(&pair.left);
    pair.right.expect_nothing();
}

fn a_receive_that_is_too_short_fails_on_both_sides() {
    let pair = Pair::with(QpOptions::default(), impatient());
    pair.left.qp.receive(ReceiveWork::new(3));
    pair.right
        .qp
        .receive_list(&mut [ReceiveWork::new(10).sge(pair.right.mr.sge(0, 99)), ReceiveWork::new(11)]);
    pair.left.qp.post_list(&mut [SendWork::send(1).sge(pair.left.mr.sge(0, 100)), SendWork::send(2)]);
    pair.right.expect_received(&[
        pair.right.received(10, 0).failed(IBV_WC_LOC_LEN_ERR, 6),
        pair.right.flushed_receive(11),
    ]);
    expect_async_event(pair.right.context(), IBV_EVENT_QP_FATAL, pair.right.qp.raw());
    expect_failed_sender(&pair.left, IBV_WC_SEND, 100, IBV_WC_REM_INV_REQ_ERR, 10, IBV_EVENT_QP_REQ_ERR);
    assert_eq!(pair.right.mr.buffer().read(99, 100), vec![0; 100], "written beyond the receive's end");
}

fn reads_that_the_peer_does_not_serve_are_invalid_requests() {
    let pair = Pair::unconnected(QpOptions::default());
    let without = Connection { reads: 0, ..impatient() };
    pair.left.qp.connect(impatient(), pair.right.qp.number(), pair.right.gid());
    pair.right.qp.connect(without, pair.left.qp.number(), pair.left.gid());
    pair.left.qp.receive(ReceiveWork::new(3));
    let read = SendWork::read(1, pair.right.mr.address(), pair.right.mr.rkey()).sge(pair.left.mr.sge(0, 8));
    pair.left.qp.post_list(&mut [read, SendWork::send(2)]);
    expect_failed_sender(&pair.left, IBV_WC_RDMA_READ, 8, IBV_WC_REM_INV_REQ_ERR, 10, IBV_EVENT_QP_REQ_ERR);
}

fn more_reads_than_may_be_outstanding_are_queued() {
    let pair = Pair::with(QpOptions::default(), Connection { reads: 1, ..Connection::default() });
    let source = pair.left.mr.address();
    let mut reads: Vec<_> = (0..40)
        .map(|index| {
            let read = SendWork::read(index, source + index * 100, pair.left.mr.rkey());
            read.sge(pair.right.mr.sge(index as usize * 100, 100))
        })
        .collect();
    pair.right.qp.post_list(&mut reads);
    let expected: Vec<_> = (0..40).map(|index| pair.right.sent(index, IBV_WC_RDMA_READ, 100)).collect();
    pair.right.expect_sent(&expected);
    assert_eq!(pair.right.mr.buffer().read(0, 4000), pair.left.mr.buffer().read(0, 4000));
}

fn an_unsignaled_request_that_fails_completes_all_the_same() {
    let pair = Pair::with(QpOptions::default(), impatient());
    let bad =
        SendWork::write(2, pair.right.mr.address(), 0xdead_be00).sge(pair.left.mr.sge(0, 10)).unsignaled();
    let good = SendWork::write(1, pair.right.mr.address(), pair.right.mr.rkey()).sge(pair.left.mr.sge(0, 10));
    pair.left.qp.post_list(&mut [good.unsignaled(), bad, SendWork::send(3).unsignaled()]);
    // The device reports one error per queue; nothing tells the provider that the first request was well, so it
    // and all after it are reported, in order, each once.
    let completions = pair.left.qp.send_cq().wait(3);
    let ids: Vec<_> = completions.iter().map(|completion| completion.wr_id).collect();
    assert_eq!(ids, [1, 2, 3], "{completions:#?}");
    assert_eq!(completions[0].status, IBV_WC_REM_ACCESS_ERR);
    assert!(completions[1..].iter().all(|completion| completion.status == IBV_WC_WR_FLUSH_ERR));
    pair.left.qp.send_cq().expect_empty();
}

/// The programs of this file.
pub const TESTS: &[Test] = &[
    test!(an_unknown_lkey_is_a_local_protection_error),
    test!(local_memory_ends_where_it_was_registered),
    test!(local_memory_of_another_domain_is_refused),
    test!(deregistered_local_memory_is_refused),
    test!(a_read_needs_local_write_access),
    test!(a_receive_into_memory_it_must_not_write_fails_on_both_sides),
    test!(an_unknown_rkey_is_a_remote_access_error),
    test!(remote_memory_ends_where_it_was_registered),
    test!(a_region_without_rights_refuses),
    test!(remote_memory_of_another_domain_is_refused),
    test!(deregistered_remote_memory_is_refused),
    test!(unmapped_local_memory_is_an_error_not_a_crash),
    test!(no_receive_in_time_is_rnr_retry_exceeded),
    test!(a_finite_number_of_rnr_retries_is_counted),
    test!(a_late_receive_is_waited_for),
    test!(a_peer_in_the_error_state_is_retry_exceeded),
    test!(a_peer_that_was_never_ready_is_retry_exceeded),
    test!(a_peer_that_is_gone_is_retry_exceeded),
    test!(a_peer_connected_to_somebody_else_is_retry_exceeded),
    test!(a_receive_that_is_too_short_fails_on_both_sides),
    test!(reads_that_the_peer_does_not_serve_are_invalid_requests),
    test!(more_reads_than_may_be_outstanding_are_queued),
    test!(an_unsignaled_request_that_fails_completes_all_the_same),
];
