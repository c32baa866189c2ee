//! Several threads on the same objects, and forks.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use irdma_tests::cq::Cq;
use irdma_tests::fixtures::{Pair, REGION};
use irdma_tests::memory::{Mr, pattern};
use irdma_tests::process::{bytes_kept_from_children, in_child};
use irdma_tests::qp::{Connection, Qp, QpOptions};
use irdma_tests::runner::Test;
use irdma_tests::sys::*;
use irdma_tests::test;
use irdma_tests::work::{ReceiveWork, SendWork};

fn two_threads_post_to_one_queue_and_two_poll_it() {
    let pair = Pair::new();
    let per_thread = 500_u64;
    let seen = Mutex::new(Vec::new());
    let total = 2 * per_thread as usize;
    std::thread::scope(|scope| {
        for thread in 0..2_u64 {
            let (pair, seen) = (&pair, &seen);
            scope.spawn(move || {
                let mut next = 0;
                while next < per_thread {
                    let wr_id = thread * 10_000 + next;
                    let write = SendWork::write(wr_id, pair.right.mr.address(), pair.right.mr.rkey());
                    match pair.left.qp.try_post(&mut [write.sge(pair.left.mr.sge(0, 8))]) {
                        Ok(()) => next += 1,
                        Err(refused) => {
                            assert_eq!(refused.errno, libc::ENOMEM);
                            std::thread::yield_now();
                        }
                    }
                }
            });
            scope.spawn(move || {
                while seen.lock().expect("no poller panicked").len() < total {
                    // Polled under the lock, so that the order of the list is that of the queue.
                    let mut seen = seen.lock().expect("no poller panicked");
                    seen.extend(pair.left.qp.send_cq().poll(7));
                    drop(seen);
                    std::thread::yield_now();
                }
            });
        }
    });
    let seen = seen.into_inner().expect("no poller panicked");
    assert!(seen.iter().all(|completion| completion.status == IBV_WC_SUCCESS));
    for thread in 0..2_u64 {
        let of_thread: Vec<_> =
            seen.iter().map(|completion| completion.wr_id).filter(|wr_id| wr_id / 10_000 == thread).collect();
        let expected: Vec<_> = (0..per_thread).map(|next| thread * 10_000 + next).collect();
        assert_eq!(of_thread, expected, "each once, in the order posted");
    }
    pair.left.expect_nothing();
}

fn unsynchronised_pollers_share_a_queue() {
    let pair = Pair::new();
    let count = 1000_u64;
    let seen = Mutex::new(BTreeSet::new());
    let polled = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while polled.load(Ordering::Relaxed) < count as usize {
                    let some = pair.left.qp.send_cq().poll(5);
                    polled.fetch_add(some.len(), Ordering::Relaxed);
                    seen.lock()
                        .expect("no poller panicked")
                        .extend(some.iter().map(|completion| completion.wr_id));
                    std::thread::yield_now();
                }
            });
        }
        let mut next = 0;
        while next < count {
            match pair.left.qp.try_post(&mut [SendWork::write(
                next,
                pair.right.mr.address(),
                pair.right.mr.rkey(),
            )]) {
                Ok(()) => next += 1,
                Err(_) => std::thread::yield_now(),
            }
        }
    });
    assert_eq!(polled.into_inner(), count as usize);
    assert_eq!(seen.into_inner().expect("no poller panicked"), (0..count).collect());
}

fn messages_flow_both_ways_at_once() {
    let pair = Pair::with(QpOptions::default(), Connection { min_rnr_timer: 1, ..Connection::default() });
    std::thread::scope(|scope| {
        for (from, to) in [(&pair.left, &pair.right), (&pair.right, &pair.left)] {
            scope.spawn(move || {
                for wr_id in 0..300 {
                    to.qp.receive(ReceiveWork::new(wr_id).sge(to.mr.sge(REGION / 2, 100)));
                    from.qp.post(SendWork::send(wr_id).sge(from.mr.sge(0, 100)));
                    from.expect_sent(&[from.sent(wr_id, IBV_WC_SEND, 100)]);
                    to.expect_received(&[to.received(wr_id, 100)]);
                }
            });
        }
    });
}

fn queue_pairs_are_destroyed_while_their_queue_is_polled() {
    let pair = Pair::unconnected(QpOptions::default());
    let cq = Cq::new(pair.left.context(), 4096);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let poller = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for completion in cq.poll(8) {
                    assert!(
                        [IBV_WC_SUCCESS, IBV_WC_WR_FLUSH_ERR].contains(&completion.status),
                        "{completion:?}"
                    );
                    assert!(completion.wr_id < 1000, "{completion:?}");
                }
            }
        });
        for _ in 0..30 {
            let qp = Qp::new(pair.left.pd(), &cq, &cq, QpOptions::default());
            qp.connect(Connection::default(), qp.number(), pair.left.gid());
            for wr_id in 0..20 {
                qp.receive(ReceiveWork::new(wr_id));
                qp.post(SendWork::write(wr_id, pair.left.mr.address(), pair.left.mr.rkey()));
            }
            qp.fail();
        }
        done.store(true, Ordering::Relaxed);
        poller.join().expect("the poller");
    });
    cq.poll(4096);
    cq.expect_empty();
}

fn objects_come_and_go_in_two_threads() {
    let pair = Pair::unconnected(QpOptions::default());
    let context = pair.left.context();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let cq = Cq::new(context, 32);
                    let qp = Qp::new(pair.left.pd(), &cq, &cq, QpOptions::default());
                    qp.connect(Connection::default(), qp.number(), pair.left.gid());
                    let mr = Mr::patterned(pair.left.pd(), 128, 2);
                    qp.post(SendWork::write(1, mr.address() + 64, mr.rkey()).sge(mr.sge(0, 64)));
                    assert_eq!(cq.wait_one().status, IBV_WC_SUCCESS);
                    assert_eq!(mr.buffer().read(64, 64), pattern(64, 2));
                }
            });
        }
    });
}

fn a_forked_child_keeps_its_heap_and_the_parent_its_queues() {
    // SAFETY: no verbs call was made yet in this process.
    assert_eq!(unsafe { ibv_fork_init() }, 0);
    let pair = Pair::new();
    // Small allocations between and after the provider's own: what shares a page with a ring is lost in the child.
    let heap: Vec<Box<[u64; 8]>> = (0..4000).map(|index| Box::new([index; 8])).collect();
    pair.check_alive();
    let status =
        in_child(|| i32::from(heap.iter().enumerate().any(|(index, words)| words[..] != [index as u64; 8])));
    assert_eq!(status, 0, "the child lost memory of its own");
    pair.check_alive();
    let region = Arc::clone(pair.left.mr.buffer());
    assert_eq!(region.read(0, 64), pattern(64, 1));
}

fn fork_protection_ends_with_the_object() {
    // SAFETY: no verbs call was made yet in this process.
    assert_eq!(unsafe { ibv_fork_init() }, 0);
    let pair = Pair::unconnected(QpOptions::default());
    let before = bytes_kept_from_children();
    for round in 0..3 {
        let qp = Qp::with_own_cqs(pair.left.pd(), QpOptions::default());
        let cq = Cq::new(pair.left.context(), 16);
        assert_eq!(cq.resize(1000 + round), Ok(()));
        let mr = Mr::fresh(pair.left.pd(), 5000);
        assert!(bytes_kept_from_children() > before, "rings and regions are protected while they live");
        drop((qp, cq, mr));
        assert_eq!(bytes_kept_from_children(), before);
    }
}

fn a_fork_without_protection_does_not_disturb_the_parent() {
    let pair = Pair::new();
    let status = in_child(|| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        0
    });
    assert_eq!(status, 0);
    for _ in 0..20 {
        pair.check_alive();
    }
}

/// The programs of this file.
pub const TESTS: &[Test] = &[
    test!(two_threads_post_to_one_queue_and_two_poll_it),
    test!(unsynchronised_pollers_share_a_queue),
    test!(messages_flow_both_ways_at_once),
    test!(queue_pairs_are_destroyed_while_their_queue_is_polled),
    test!(objects_come_and_go_in_two_threads),
    test!(a_forked_child_keeps_its_heap_and_the_parent_its_queues)
        .fails_on_c("the last page of a ring is shared with the heap, and kept from the child"),
    test!(fork_protection_ends_with_the_object)
        .fails_on_c("after a resize it is undone with the length of the first ring"),
    test!(a_fork_without_protection_does_not_disturb_the_parent),
];
