//! Queue pair states: what is allowed when, what a query says.

use irdma_tests::channel::{SILENCE, expect_async_event, expect_no_async_event};
use irdma_tests::device::Device;
use irdma_tests::fixtures::{Datagrams, Pair};
use irdma_tests::qp::{Connection, QpOptions};
use irdma_tests::runner::Test;
use irdma_tests::sys::*;
use irdma_tests::test;
use irdma_tests::work::{ReceiveWork, SendWork};

fn a_query_says_what_was_set() {
    Device::present().require_roce("such changes of state");
    let connection = Connection { path_mtu: IBV_MTU_512, reads: 4, timeout: 12, ..Connection::default() };
    let pair = Pair::unconnected(QpOptions { max_inline_data: 48, ..QpOptions::default() });
    assert_eq!(pair.left.qp.state(), IBV_QPS_RESET);
    pair.left.qp.initialize(connection);
    assert_eq!(pair.left.qp.state(), IBV_QPS_INIT);
    pair.left.qp.ready_to_receive(connection, pair.right.qp.number(), pair.right.gid());
    assert_eq!(pair.left.qp.state(), IBV_QPS_RTR);
    pair.left.qp.ready_to_send(connection);
    let (attributes, initial) = pair.left.qp.query();
    assert_eq!(attributes.qp_state, IBV_QPS_RTS);
    assert_eq!(attributes.dest_qp_num, pair.right.qp.number());
    assert_eq!(attributes.path_mtu, IBV_MTU_512);
    assert_eq!(attributes.cap.max_inline_data, 48);
    assert!(attributes.cap.max_send_wr >= 64 && attributes.cap.max_recv_wr >= 64);
    assert_eq!(
        (initial.send_cq, initial.recv_cq),
        (pair.left.qp.send_cq().raw(), pair.left.qp.recv_cq().raw())
    );
    assert_eq!(initial.qp_type, IBV_QPT_RC);
    pair.left.qp.fail();
    assert_eq!(pair.left.qp.state(), IBV_QPS_ERR);
    // SAFETY: the queue pair is alive.
    assert_eq!(unsafe { (*pair.left.qp.raw()).state }, IBV_QPS_ERR);
}

fn a_reset_of_a_fresh_queue_pair_is_harmless() {
    for options in [QpOptions::default(), QpOptions::datagram()] {
        let pair = Pair::unconnected(options);
        for side in [&pair.left, &pair.right] {
            for _ in 0..2 {
                assert_eq!(side.qp.move_to(IBV_QPS_RESET), 0, "RESET of a fresh queue pair");
            }
            // SAFETY: the queue pair is alive.
            assert_eq!(unsafe { (*side.qp.raw()).state }, IBV_QPS_RESET);
        }
        if options.qp_type == IBV_QPT_RC {
            pair.left.qp.connect(Connection::default(), pair.right.qp.number(), pair.right.gid());
            pair.right.qp.connect(Connection::default(), pair.left.qp.number(), pair.left.gid());
            pair.check_alive();
        } else {
            pair.left.qp.start_datagrams(1);
        }
    }
}

fn steps_cannot_be_left_out() {
    Device::present().require_roce("such changes of state");
    let pair = Pair::unconnected(QpOptions::default());
    for state in [IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD] {
        assert_eq!(pair.left.qp.move_to(state), libc::EINVAL, "RESET to {state}");
    }
    assert_eq!(pair.left.qp.move_to(IBV_QPS_INIT), libc::EINVAL, "attributes are missing");
    pair.left.qp.initialize(Connection::default());
    assert_eq!(pair.left.qp.move_to(IBV_QPS_RTS), libc::EINVAL, "INIT to RTS");
    assert_eq!(pair.left.qp.move_to(IBV_QPS_RTR), libc::EINVAL, "attributes are missing");
    assert_eq!(pair.left.qp.state(), IBV_QPS_INIT, "a refused change changes nothing");
    pair.left.qp.connect(Connection::default(), pair.right.qp.number(), pair.right.gid());
    pair.right.qp.connect(Connection::default(), pair.left.qp.number(), pair.left.gid());
    pair.check_alive();
}

fn attributes_that_do_not_exist_are_invalid() {
    let pair = Pair::unconnected(QpOptions::default());
    let mut attributes = ibv_qp_attr { qp_state: IBV_QPS_INIT, port_num: 9, ..ibv_qp_attr::default() };
    let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    assert_eq!(pair.left.qp.modify(&mut attributes, mask), libc::EINVAL, "port 9");
    let errno = pair.left.qp.move_to(77);
    assert_eq!(errno, libc::EINVAL, "state 77");
    assert_ne!(pair.left.qp.modify(&mut attributes, 1 << 30), 0, "an unknown attribute");
    assert_eq!(pair.left.qp.state(), IBV_QPS_RESET);
}

fn receives_posted_before_the_connection_are_used() {
    let pair = Pair::unconnected(QpOptions::default());
    pair.right.qp.initialize(Connection::default());
    pair.right.qp.receive_list(&mut [ReceiveWork::new(10).sge(pair.right.mr.whole()), ReceiveWork::new(11)]);
    pair.right.qp.ready_to_receive(Connection::default(), pair.left.qp.number(), pair.left.gid());
    pair.left.qp.connect(Connection::default(), pair.right.qp.number(), pair.right.gid());
    pair.left.qp.post_list(&mut [SendWork::send(1).sge(pair.left.mr.sge(0, 20)), SendWork::send(2)]);
    pair.left.expect_sent(&[pair.left.sent(1, IBV_WC_SEND, 20), pair.left.sent(2, IBV_WC_SEND, 0)]);
    // RTR is enough to receive.
    pair.right.expect_received(&[pair.right.received(10, 20), pair.right.received(11, 0)]);
}

fn the_first_message_establishes_the_connection() {
    let pair = Pair::unconnected(QpOptions::default());
    pair.right.qp.initialize(Connection::default());
    pair.right.qp.ready_to_receive(Connection::default(), pair.left.qp.number(), pair.left.gid());
    pair.right.qp.receive_list(&mut [ReceiveWork::new(10), ReceiveWork::new(11)]);
    pair.left.qp.connect(Connection::default(), pair.right.qp.number(), pair.right.gid());
    expect_no_async_event(pair.right.context());
    pair.left.qp.post_list(&mut [SendWork::send(1), SendWork::send(2)]);
    expect_async_event(pair.right.context(), IBV_EVENT_COMM_EST, pair.right.qp.raw());
    pair.right.qp.ready_to_send(Connection::default());
    pair.left.expect_sent(&[pair.left.sent(1, IBV_WC_SEND, 0), pair.left.sent(2, IBV_WC_SEND, 0)]);
    pair.right.expect_received(&[pair.right.received(10, 0), pair.right.received(11, 0)]);
    expect_no_async_event(pair.right.context());
    pair.check_alive();
}

fn a_drained_queue_holds_sends_back_until_it_runs_again() {
    Device::present().require_roce("such changes of state");
    let pair = Pair::new();
    let mut attributes =
        ibv_qp_attr { qp_state: IBV_QPS_SQD, en_sqd_async_notify: 1, ..ibv_qp_attr::default() };
    let mask = IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY;
    assert_eq!(pair.left.qp.modify(&mut attributes, mask), 0, "modify to SQD");
    expect_async_event(pair.left.context(), IBV_EVENT_SQ_DRAINED, pair.left.qp.raw());
    assert_eq!(pair.left.qp.state(), IBV_QPS_SQD);
    pair.right.qp.receive(ReceiveWork::new(10).sge(pair.right.mr.sge(0, 100)));
    pair.left.qp.post(SendWork::send(1).sge(pair.left.mr.sge(0, 100)));
    pair.left.qp.send_cq().expect_silence();
    // Receives are served all the time.
    pair.left.qp.receive(ReceiveWork::new(11));
    pair.right.qp.post(SendWork::send(2));
    pair.left.expect_received(&[pair.left.received(11, 0)]);
    assert_eq!(pair.left.qp.move_to(IBV_QPS_RTS), 0, "modify back to RTS");
    pair.left.expect_sent(&[pair.left.sent(1, IBV_WC_SEND, 100)]);
    pair.right.expect_received(&[pair.right.received(10, 100)]);
}

fn a_reset_of_a_used_queue_pair_is_refused_and_changes_nothing() {
    // The kernel would take it for a failure, after which the queue pair could never be used again.
    let pair = Pair::new();
    pair.right.qp.receive(ReceiveWork::new(10));
    for _ in 0..2 {
        assert_eq!(pair.left.qp.move_to(IBV_QPS_RESET), libc::EOPNOTSUPP);
    }
    assert_eq!(pair.left.qp.state(), IBV_QPS_RTS);
    pair.left.qp.post(SendWork::send(1));
    pair.left.expect_sent(&[pair.left.sent(1, IBV_WC_SEND, 0)]);
    pair.right.expect_received(&[pair.right.received(10, 0)]);
    // From any other state as well.
    let other = Pair::unconnected(QpOptions::default());
    other.left.qp.initialize(Connection::default());
    assert_eq!(other.left.qp.move_to(IBV_QPS_RESET), libc::EOPNOTSUPP);
    other.left.qp.connect(Connection::default(), other.right.qp.number(), other.right.gid());
    other.right.qp.connect(Connection::default(), other.left.qp.number(), other.left.gid());
    other.check_alive();
    other.left.qp.fail();
    assert_eq!(other.left.qp.move_to(IBV_QPS_RESET), libc::EOPNOTSUPP);
    assert_eq!(other.left.qp.state(), IBV_QPS_ERR);
}

fn a_failed_queue_pair_stays_failed() {
    let pair = Pair::new();
    pair.left.qp.fail();
    assert_eq!(pair.left.qp.move_to(IBV_QPS_ERR), 0, "again");
    assert_eq!(pair.left.qp.move_to(IBV_QPS_RTS), libc::EINVAL);
    assert_eq!(pair.left.qp.move_to(IBV_QPS_RTR), libc::EINVAL);
    assert_eq!(pair.left.qp.state(), IBV_QPS_ERR);
}

fn a_queue_pair_fails_from_every_state() {
    for step in 1..4 {
        let pair = Pair::unconnected(QpOptions::default());
        let connection = Connection::default();
        pair.left.qp.initialize(connection);
        pair.left.qp.receive(ReceiveWork::new(10));
        if step > 1 {
            pair.left.qp.ready_to_receive(connection, pair.right.qp.number(), pair.right.gid());
        }
        if step > 2 {
            pair.left.qp.ready_to_send(connection);
        }
        pair.left.qp.fail();
        pair.left.expect_received(&[pair.left.flushed_receive(10)]);
        assert_eq!(pair.left.qp.state(), IBV_QPS_ERR);
        pair.left.expect_nothing();
    }
}

fn rights_can_be_added_while_running() {
    let reading = Connection { access: IBV_ACCESS_REMOTE_READ, ..Connection::default() };
    let pair = Pair::with(QpOptions::default(), reading);
    let mut attributes = ibv_qp_attr {
        min_rnr_timer: 5,
        qp_access_flags: IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
        ..ibv_qp_attr::default()
    };
    let mask = IBV_QP_MIN_RNR_TIMER | IBV_QP_ACCESS_FLAGS;
    assert_eq!(pair.right.qp.modify(&mut attributes, mask), 0);
    let (address, rkey) = (pair.right.mr.address(), pair.right.mr.rkey());
    pair.left.qp.post(SendWork::write(1, address, rkey).sge(pair.left.mr.sge(0, 8)));
    pair.left.expect_sent(&[pair.left.sent(1, IBV_WC_RDMA_WRITE, 8)]);
}

fn a_changed_q_key_counts_at_once() {
    let pair = Datagrams::new();
    pair.right.qp.receive(ReceiveWork::new(10).sge(pair.right.mr.sge(0, 200)));
    let mut attributes = ibv_qp_attr { qkey: 5, ..ibv_qp_attr::default() };
    assert_eq!(pair.right.qp.modify(&mut attributes, IBV_QP_QKEY), 0);
    pair.left.qp.post(pair.send(1).sge(pair.left.mr.sge(0, 8)));
    std::thread::sleep(SILENCE);
    pair.right.qp.recv_cq().expect_empty();
    let to_new_key = SendWork::send(2).to(pair.ah.raw(), pair.right.qp.number(), 5);
    pair.left.qp.post(to_new_key.sge(pair.left.mr.sge(0, 9)));
    pair.right.expect_received(&[pair.received(10, 9)]);
}

/// The programs of this file.
pub const TESTS: &[Test] = &[
    test!(a_query_says_what_was_set),
    test!(a_reset_of_a_fresh_queue_pair_is_harmless)
        .fails_on_c("the reset goes to the kernel, which puts the queue pair into the error state"),
    test!(steps_cannot_be_left_out),
    test!(attributes_that_do_not_exist_are_invalid),
    test!(receives_posted_before_the_connection_are_used),
    test!(the_first_message_establishes_the_connection),
    test!(a_drained_queue_holds_sends_back_until_it_runs_again),
    test!(a_reset_of_a_used_queue_pair_is_refused_and_changes_nothing).fails_on_c(
        "the kernel puts the queue pair into the error state, and the program is told of success",
    ),
    test!(a_failed_queue_pair_stays_failed),
    test!(a_queue_pair_fails_from_every_state),
    test!(rights_can_be_added_while_running),
    test!(a_changed_q_key_counts_at_once),
];
