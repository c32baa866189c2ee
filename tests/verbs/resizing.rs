//! Completion queues that change their size.

use std::sync::Arc;

use irdma_tests::channel::Channel;
use irdma_tests::control::control;
use irdma_tests::cq::Cq;
use irdma_tests::cq_ex::CqEx;
use irdma_tests::device::{Device, feature};
use irdma_tests::fixtures::Pair;
use irdma_tests::memory::Mr;
use irdma_tests::qp::{Connection, Qp, QpOptions};
use irdma_tests::runner::Test;
use irdma_tests::sys::*;
use irdma_tests::test;
use irdma_tests::wc::{Wc, assert_completions};
use irdma_tests::work::SendWork;

/// A queue pair connected to itself whose sends complete on `cq`.
struct Source {
    qp: Qp,
    mr: Mr,
}

impl Source {
    fn new(pair: &Pair, cq: &Arc<Cq>) -> Source {
        let options = QpOptions { max_send_wr: 500, ..QpOptions::default() };
        let qp = Qp::new(pair.left.pd(), cq, &Cq::new(pair.left.context(), 16), options);
        qp.connect(Connection::default(), qp.number(), pair.left.gid());
        Source { qp, mr: Mr::fresh(pair.left.pd(), 64) }
    }

    /// Completions `range` appear.
    fn complete(&self, range: std::ops::Range<u64>) {
        for wr_id in range {
            self.qp.post(SendWork::write(wr_id, self.mr.address(), self.mr.rkey()).sge(self.mr.sge(0, 8)));
        }
    }

    fn expected(&self, range: std::ops::Range<u64>) -> Vec<Wc> {
        range.map(|wr_id| Wc::sent(self.qp.number(), wr_id, IBV_WC_RDMA_WRITE, 8)).collect()
    }
}

/// A queue of `entries` and a source for it.
fn queue(entries: i32) -> (Pair, Arc<Cq>, Source) {
    let pair = Pair::unconnected(QpOptions::default());
    let cq = Cq::new(pair.left.context(), entries);
    let source = Source::new(&pair, &cq);
    (pair, cq, source)
}

fn unpolled_completions_survive_shrinking() {
    let (_pair, cq, source) = queue(64);
    source.complete(0..20);
    assert_eq!(cq.resize(10), Ok(()));
    assert_eq!(cq.entries(), 10);
    source.complete(20..25);
    assert_completions(&cq.wait(25), &source.expected(0..25));
    cq.expect_empty();
}

fn completions_of_several_sizes_come_in_order() {
    let (_pair, cq, source) = queue(16);
    let mut posted = 0;
    for entries in [32, 16, 100, 300, 20, 64] {
        source.complete(posted..posted + 7);
        posted += 7;
        assert_eq!(cq.resize(entries), Ok(()));
        assert_eq!(cq.entries(), entries);
    }
    source.complete(posted..posted + 7);
    posted += 7;
    assert_completions(&cq.wait_in_batches(posted as usize, 3), &source.expected(0..posted));
    cq.expect_empty();
}

fn resizing_between_polls_never_loses_one() {
    let (_pair, cq, source) = queue(16);
    let mut seen = Vec::new();
    for round in 0..60_u64 {
        source.complete(round * 5..round * 5 + 5);
        seen.extend(cq.poll((round % 7) as usize + 1));
        let entries = 300 + (round * 37 % 200) as i32;
        assert_eq!(cq.resize(entries), Ok(()), "to {entries}");
    }
    seen.extend(cq.wait(300 - seen.len()));
    assert_completions(&seen, &source.expected(0..300));
    cq.expect_empty();
}

fn resizing_under_traffic_never_loses_one() {
    let (_pair, cq, source) = queue(256);
    let count = 1500_u64;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut wr_id = 0;
            while wr_id < count {
                let write =
                    SendWork::write(wr_id, source.mr.address(), source.mr.rkey()).sge(source.mr.sge(0, 8));
                match source.qp.try_post(&mut [write]) {
                    Ok(()) => wr_id += 1,
                    Err(refused) => {
                        assert_eq!(refused.errno, libc::ENOMEM);
                        std::thread::yield_now();
                    }
                }
            }
        });
        scope.spawn(|| {
            for round in 0..40 {
                // Never smaller than what the send queue can have outstanding.
                assert_eq!(cq.resize(1100 + round % 2 * 900), Ok(()));
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        let completions = cq.wait_in_batches(count as usize, 16);
        assert_completions(&completions, &source.expected(0..count));
    });
    cq.expect_empty();
}

fn the_same_size_is_no_change() {
    let (_pair, cq, source) = queue(64);
    source.complete(0..5);
    assert_eq!(cq.resize(64), Ok(()));
    assert_eq!(cq.entries(), 64);
    assert_completions(&cq.wait(5), &source.expected(0..5));
}

fn a_queue_has_the_entries_that_were_asked_for_last() {
    let (_pair, cq, _source) = queue(64);
    // Some share a ring's size.
    for entries in [1, 2, 3, 4, 5, 61, 62, 63, 64, 65, 64, 62, 4, 3] {
        assert_eq!(cq.resize(entries), Ok(()));
        assert_eq!(cq.entries(), entries);
    }
}

fn impossible_sizes_change_nothing() {
    let (_pair, cq, source) = queue(64);
    source.complete(0..5);
    for entries in [0, -1, i32::MIN, i32::MAX, 1 << 20] {
        assert_eq!(cq.resize(entries), Err(libc::EINVAL), "{entries} entries");
        assert_eq!(cq.entries(), 64);
    }
    source.complete(5..9);
    assert_completions(&cq.wait(9), &source.expected(0..9));
}

fn a_resize_that_the_kernel_refuses_changes_nothing() {
    Device::present().require(feature::CQ_RESIZE, "resizing of completion queues");
    for command in ["reg_mr", "resize_cq"] {
        let (_pair, cq, source) = queue(64);
        source.complete(0..5);
        control(&format!("fail {command} 1 ENOMEM 1"));
        assert_eq!(cq.resize(100), Err(libc::ENOMEM), "{command} fails");
        assert_eq!(cq.entries(), 64);
        source.complete(5..9);
        assert_completions(&cq.wait(9), &source.expected(0..9));
        assert_eq!(cq.resize(100), Ok(()));
    }
}

fn completions_of_a_destroyed_queue_pair_go_from_every_ring() {
    let (pair, cq, source) = queue(64);
    let survivor = Source::new(&pair, &cq);
    source.complete(0..4);
    survivor.complete(100..103);
    assert_eq!(cq.resize(32), Ok(()));
    source.complete(4..8);
    assert_eq!(cq.resize(128), Ok(()));
    source.complete(8..12);
    survivor.complete(103..106);
    drop(source);
    assert_completions(&cq.wait(6), &survivor.expected(100..106));
    cq.expect_empty();
}

fn arming_works_on_every_size() {
    let pair = Pair::unconnected(QpOptions::default());
    let channel = Channel::new(pair.left.context());
    let cq = Cq::on_channel(&channel, pair.left.context(), 16);
    let source = Source::new(&pair, &cq);
    for round in 0..20_u64 {
        assert_eq!(cq.resize(16 + round as i32 * 3 % 40), Ok(()));
        cq.arm(false);
        source.complete(round..round + 1);
        channel.expect_event();
        assert_completions(&cq.wait(1), &source.expected(round..round + 1));
    }
    channel.expect_silence();
}

fn a_request_for_an_event_survives_a_resize() {
    let pair = Pair::unconnected(QpOptions::default());
    let channel = Channel::new(pair.left.context());
    let cq = Cq::on_channel(&channel, pair.left.context(), 16);
    let source = Source::new(&pair, &cq);
    cq.arm(false);
    assert_eq!(cq.resize(40), Ok(()));
    source.complete(0..2);
    channel.expect_event();
    channel.expect_silence();
    assert_completions(&cq.wait(2), &source.expected(0..2));
}

fn extended_queues_resize_as_well() {
    let pair = Pair::unconnected(QpOptions::default());
    let cq = CqEx::new(pair.left.context(), 64);
    let source = Source::new(&pair, cq.plain());
    source.complete(0..20);
    assert_eq!(cq.resize(10), Ok(()));
    source.complete(20..25);
    assert_completions(&cq.wait_batch(25), &source.expected(0..25));
    assert!(cq.poll_batch(1).is_empty());
}

/// The programs of this file.
pub const TESTS: &[Test] = &[
    test!(unpolled_completions_survive_shrinking),
    test!(completions_of_several_sizes_come_in_order),
    test!(resizing_between_polls_never_loses_one),
    test!(resizing_under_traffic_never_loses_one),
    test!(the_same_size_is_no_change),
    test!(a_queue_has_the_entries_that_were_asked_for_last),
    test!(impossible_sizes_change_nothing).fails_on_c("no lower limit is checked"),
    test!(a_resize_that_the_kernel_refuses_changes_nothing).alone(),
    test!(completions_of_a_destroyed_queue_pair_go_from_every_ring)
        .fails_on_c("only the newest ring is cleaned"),
    test!(arming_works_on_every_size),
    test!(a_request_for_an_event_survives_a_resize),
    test!(extended_queues_resize_as_well),
];
