//! Ends: refused destroys, completions of the destroyed, failures half way, nothing left behind.

use std::sync::Arc;

use irdma_tests::channel::Channel;
use irdma_tests::context::{Context, Pd};
use irdma_tests::control::control;
use irdma_tests::cq::Cq;
use irdma_tests::cq_ex::CqEx;
use irdma_tests::device::Device;
use irdma_tests::fixtures::{Datagrams, Pair};
use irdma_tests::holdings::Holdings;
use irdma_tests::memory::{ALL_ACCESS, Buffer, Mr};
use irdma_tests::qp::{Ah, Connection, Qp, QpOptions};
use irdma_tests::runner::Test;
use irdma_tests::sys::*;
use irdma_tests::test;
use irdma_tests::wc::{Wc, assert_completions};
use irdma_tests::work::{ReceiveWork, SendWork, ah_attributes};

fn a_queue_in_use_is_not_destroyed_and_keeps_its_completions() {
    let pair = Pair::new();
    let cq = pair.left.qp.send_cq();
    let write = |wr_id| SendWork::write(wr_id, pair.right.mr.address(), pair.right.mr.rkey());
    pair.left.qp.post_list(&mut [write(1), write(2)]);
    assert_eq!(cq.refused_destroy(), libc::EBUSY);
    pair.left.qp.post(write(3));
    let expected: Vec<_> = (1..4).map(|wr_id| pair.left.sent(wr_id, IBV_WC_RDMA_WRITE, 0)).collect();
    assert_completions(&cq.wait(3), &expected);
    assert_eq!(cq.refused_destroy(), libc::EBUSY);
    pair.check_alive();
}

fn a_refused_destroy_keeps_completions_of_earlier_sizes() {
    let pair = Pair::new();
    let cq = pair.left.qp.send_cq();
    let write = |wr_id| SendWork::write(wr_id, pair.right.mr.address(), pair.right.mr.rkey());
    pair.left.qp.post_list(&mut [write(1), write(2)]);
    assert_eq!(cq.resize(40), Ok(()));
    pair.left.qp.post(write(3));
    assert_eq!(cq.refused_destroy(), libc::EBUSY);
    let expected: Vec<_> = (1..4).map(|wr_id| pair.left.sent(wr_id, IBV_WC_RDMA_WRITE, 0)).collect();
    assert_completions(&cq.wait(3), &expected);
    pair.check_alive();
}

fn a_refused_destroy_keeps_arming_possible() {
    let pair = Pair::unconnected(QpOptions::default());
    let context = pair.left.context();
    let channel = Channel::new(context);
    let cq = Cq::on_channel(&channel, context, 16);
    let qp = Qp::new(pair.left.pd(), &cq, &cq, QpOptions::default());
    qp.connect(Connection::default(), qp.number(), pair.left.gid());
    for _ in 0..3 {
        assert_eq!(cq.refused_destroy(), libc::EBUSY);
        cq.arm(false);
        qp.post(SendWork::write(1, pair.left.mr.address(), pair.left.mr.rkey()));
        channel.expect_event();
        assert_eq!(cq.wait_one().status, IBV_WC_SUCCESS);
    }
}

fn domains_in_use_are_not_freed() {
    let pair = Datagrams::new();
    for pd in [pair.left.pd(), pair.right.pd()] {
        // SAFETY: the domain is alive; the refusal leaves it so.
        assert_eq!(unsafe { ibv_dealloc_pd(pd.raw()) }, libc::EBUSY);
    }
    let only_memory = Pd::new(pair.left.context());
    let mr = Mr::fresh(&only_memory, 10);
    // SAFETY: as above.
    assert_eq!(unsafe { ibv_dealloc_pd(only_memory.raw()) }, libc::EBUSY);
    drop(mr);
    let only_handle = Pd::new(pair.left.context());
    let ah = Ah::new(&only_handle, pair.left.gid());
    // SAFETY: as above.
    assert_eq!(unsafe { ibv_dealloc_pd(only_handle.raw()) }, libc::EBUSY);
    drop(ah);
    pair.right.qp.receive(ReceiveWork::new(10).sge(pair.right.mr.sge(0, 100)));
    pair.left.qp.post(pair.send(1).sge(pair.left.mr.sge(0, 8)));
    pair.right.expect_received(&[pair.received(10, 8)]);
}

fn a_destroy_that_the_kernel_refuses_changes_nothing() {
    for command in ["destroy_qp", "dereg_mr"] {
        let pair = Pair::new();
        pair.right.qp.receive(ReceiveWork::new(10).sge(pair.right.mr.sge(0, 64)));
        control(&format!("fail {command} 1 EBUSY 1"));
        let errno = if command == "destroy_qp" {
            // SAFETY: the refusal leaves the queue pair alive.
            unsafe { ibv_destroy_qp(pair.left.qp.raw()) }
        } else {
            // SAFETY: the refusal leaves the region alive.
            unsafe { ibv_dereg_mr(pair.left.mr.raw()) }
        };
        assert_eq!(errno, libc::EBUSY, "{command}");
        pair.left.qp.post(SendWork::send(1).sge(pair.left.mr.sge(0, 64)));
        pair.left.expect_sent(&[pair.left.sent(1, IBV_WC_SEND, 64)]);
        pair.right.expect_received(&[pair.right.received(10, 64)]);
    }
}

/// Posts work on `doomed` and `survivor` by turns, so that their completions alternate.
fn interleave(doomed: &Qp, survivor: &Qp, mr: &Mr) {
    for wr_id in 0..4 {
        for qp in [doomed, survivor] {
            qp.post(SendWork::write(wr_id, mr.address(), mr.rkey()));
        }
    }
}

fn completions_of_a_destroyed_queue_pair_are_skipped() {
    let pair = Pair::unconnected(QpOptions::default());
    let cq = Cq::new(pair.left.context(), 64);
    let make = || {
        let qp = Qp::new(pair.left.pd(), &cq, &cq, QpOptions::default());
        qp.connect(Connection::default(), qp.number(), pair.left.gid());
        qp
    };
    let survivor = make();
    let expected: Vec<_> =
        (0..4).map(|wr_id| Wc::sent(survivor.number(), wr_id, IBV_WC_RDMA_WRITE, 0)).collect();
    for round in 0..20 {
        let doomed = make();
        interleave(&doomed, &survivor, &pair.left.mr);
        if round % 2 == 0 {
            doomed.receive(ReceiveWork::new(77));
            doomed.fail();
        }
        drop(doomed);
        // In one call: an early end of the batch would be taken for an empty queue.
        assert_completions(&cq.poll(4), &expected);
        cq.expect_empty();
    }
}

fn errors_and_flushes_of_a_destroyed_queue_pair_are_skipped() {
    let pair = Pair::unconnected(QpOptions::default());
    let cq = Cq::new(pair.left.context(), 64);
    for _ in 0..5 {
        let qp = Qp::new(pair.left.pd(), &cq, &cq, QpOptions::default());
        qp.connect(Connection { rnr_retry: 0, ..Connection::default() }, qp.number(), pair.left.gid());
        qp.receive_list(&mut [ReceiveWork::new(1), ReceiveWork::new(2)]);
        qp.post(SendWork::write(3, pair.left.mr.address(), 0xdead_be00).sge(pair.left.mr.sge(0, 8)));
        drop(qp);
        cq.expect_silence();
    }
    assert_eq!(cq.entries(), 64);
}

fn a_new_queue_pair_gets_no_completions_of_the_old() {
    let pair = Pair::unconnected(QpOptions::default());
    let cq = Cq::new(pair.left.context(), 64);
    for round in 0..10_u64 {
        let qp = Qp::new(pair.left.pd(), &cq, &cq, QpOptions::default());
        qp.connect(Connection::default(), qp.number(), pair.left.gid());
        cq.expect_empty();
        qp.post(SendWork::write(round, pair.left.mr.address(), pair.left.mr.rkey()));
        assert_completions(&cq.wait(1), &[Wc::sent(qp.number(), round, IBV_WC_RDMA_WRITE, 0)]);
        qp.receive_list(&mut [ReceiveWork::new(1), ReceiveWork::new(2)]);
        qp.post(SendWork::write(99, pair.left.mr.address(), pair.left.mr.rkey()));
    }
    cq.expect_empty();
}

fn a_clean_life_leaves_nothing() {
    let before = Holdings::now();
    for _ in 0..3 {
        let pair = Pair::new();
        pair.check_alive();
        let datagrams = Datagrams::new();
        let channel = Channel::new(pair.left.context());
        let cq = Cq::on_channel(&channel, pair.left.context(), 100);
        assert_eq!(cq.resize(300), Ok(()));
        let extended = CqEx::new(pair.left.context(), 30);
        drop((pair, datagrams, channel, cq, extended));
    }
    before.check("afterwards");
}

fn closing_without_destroying_leaves_nothing() {
    let before = Holdings::now();
    let context = Context::open();
    let pd = Pd::new(&context);
    let qp = Qp::with_own_cqs(&pd, QpOptions::default());
    let mr = Mr::new(&pd, &Arc::new(Buffer::new(4096)), ALL_ACCESS);
    // SAFETY: nothing of the context is used after this; its owners are forgotten.
    assert_eq!(unsafe { ibv_close_device(context.raw()) }, 0);
    std::mem::forget((context, pd, qp, mr));
    before.check("after closing");
}

/// Runs `attempt` with the next call of each of `commands`, first, second and so on, failing with each of two error
/// numbers: it must fail with that number and leave nothing behind; it must succeed once no call is left to fail.
fn check_failures<T>(commands: &[&str], attempt: impl Fn() -> Result<T, i32>) {
    for command in commands {
        for (name, errno) in [("ENOMEM", libc::ENOMEM), ("EIO", libc::EIO)] {
            let mut nth = 1;
            loop {
                assert!(nth < 20, "{command} never runs out of calls");
                let before = Holdings::now();
                control(&format!("fail {command} {nth} {name} 1"));
                let outcome = attempt();
                control("fail clear");
                match outcome {
                    Ok(made) => {
                        drop(made);
                        before.check(&format!("after success, call {nth} of {command} never came"));
                        break;
                    }
                    Err(seen) => assert_eq!(seen, errno, "call {nth} of {command} failed with {name}"),
                }
                before.check(&format!("after call {nth} of {command} failed with {name}"));
                nth += 1;
            }
            assert!(nth > 1, "{command} is never called");
        }
    }
}

fn a_failed_open_leaves_nothing() {
    drop(Context::open());
    check_failures(&["get_context"], Context::try_open);
    // What objects need may be made with the first one, and stays until the close.
    check_failures(&["alloc_pd"], || Pd::try_new(&Context::try_open()?));
}

fn a_failed_open_keeps_the_error_number_and_is_not_repeated() {
    // Only a refused version (EINVAL) is worth a second attempt: with another errno the second call would succeed.
    control("fail get_context 1 ENOMEM 1");
    assert_eq!(Context::try_open().err(), Some(libc::ENOMEM));
    control("fail clear");
}

fn a_failed_creation_of_a_queue_pair_leaves_nothing() {
    let context = Context::open();
    let pd = Pd::new(&context);
    let cq = Cq::new(&context, 16);
    check_failures(&["reg_mr", "create_qp"], || Qp::try_new(&pd, &cq, &cq, QpOptions::default()));
    if Device::present().roce {
        check_failures(&["reg_mr", "create_qp"], || Qp::try_new(&pd, &cq, &cq, QpOptions::datagram()));
    }
}

fn a_failed_creation_of_a_completion_queue_leaves_nothing() {
    let context = Context::open();
    let _with_objects = Pd::new(&context);
    check_failures(&["reg_mr", "create_cq"], || Cq::try_new(&context, 100, None));
}

fn a_failed_creation_of_an_extended_queue_leaves_nothing() {
    Device::present().require_extended_queues();
    let context = Context::open();
    let _with_objects = Pd::new(&context);
    check_failures(&["reg_mr", "create_cq"], || CqEx::try_new(&context, None, &mut CqEx::attributes(100, 0)));
}

fn failed_small_objects_leave_nothing() {
    Device::present().require_roce("address handles");
    let context = Context::open();
    let pd = Pd::new(&context);
    let buffer = Arc::new(Buffer::new(100));
    check_failures(&["alloc_pd"], || Pd::try_new(&context));
    check_failures(&["reg_mr"], || Mr::try_new(&pd, &buffer, ALL_ACCESS));
    let gid = context.gid(i32::from(context.gid_index()));
    check_failures(&["create_ah"], || Ah::try_new(&pd, ah_attributes(&context, gid)));
    check_failures(&["create_comp_channel"], || Channel::try_new(&context));
}

/// The programs of this file.
pub const TESTS: &[Test] = &[
    test!(a_queue_in_use_is_not_destroyed_and_keeps_its_completions),
    test!(a_refused_destroy_keeps_completions_of_earlier_sizes)
        .fails_on_c("rings of earlier sizes are freed before the kernel is asked"),
    test!(a_refused_destroy_keeps_arming_possible),
    test!(domains_in_use_are_not_freed),
    test!(a_destroy_that_the_kernel_refuses_changes_nothing).alone(),
    test!(completions_of_a_destroyed_queue_pair_are_skipped),
    test!(errors_and_flushes_of_a_destroyed_queue_pair_are_skipped),
    test!(a_new_queue_pair_gets_no_completions_of_the_old),
    test!(a_clean_life_leaves_nothing).alone(),
    test!(closing_without_destroying_leaves_nothing).alone(),
    test!(a_failed_open_leaves_nothing).alone().fails_on_c("descriptors stay open"),
    test!(a_failed_open_keeps_the_error_number_and_is_not_repeated)
        .alone()
        .fails_on_c("any error number is taken for a refused version"),
    test!(a_failed_creation_of_a_queue_pair_leaves_nothing).alone(),
    test!(a_failed_creation_of_a_completion_queue_leaves_nothing).alone(),
    test!(a_failed_creation_of_an_extended_queue_leaves_nothing).alone(),
    test!(failed_small_objects_leave_nothing).alone(),
];
