//! Batches of work requests: whole or not at all, whatever is wrong with them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use irdma_tests::builder::{DATAGRAMS, Manner, connected};
use irdma_tests::device::Device;
use irdma_tests::fixtures::Q_KEY;
use irdma_tests::loopback::{Loop, roomy, works};
use irdma_tests::qp::{Ah, QpOptions};
use irdma_tests::runner::Test;
use irdma_tests::sys::*;
use irdma_tests::test;
use irdma_tests::wc::{Wc, assert_completions};
use irdma_tests::work::{ReceiveWork, SendWork};

const NO_BUILDERS: &str = "has no work request builders";

fn misuse_fails_the_batch_and_changes_nothing() {
    let pair = Loop::connected();
    let (qp, write) = (&pair.qp, pair.write(2));
    let (most, most_inline) = (qp.caps.max_send_sge as usize, qp.caps.max_inline_data as usize);
    let list = |count: usize| pair.write(2).sges((1..count).map(|index| pair.mr.sge(index, 1)));
    let raw = qp.raw_ex();
    type Misuse<'a> = (&'a str, Box<dyn Fn() + 'a>);
    let mut cases: Vec<Misuse<'_>> = vec![
        ("no data", Box::new(|| qp.begin(&write))),
        (
            "no data before the next",
            Box::new(|| {
                qp.begin(&write);
                qp.add(&write, Manner::default());
            }),
        ),
        ("data without a work request", Box::new(|| qp.set_data(&write, false))),
        ("a list without a work request", Box::new(|| qp.set_data(&write, true))),
        ("inline data without a work request", Box::new(|| qp.set_data(&pair.write(2).inline(), false))),
        (
            "data twice",
            Box::new(|| {
                qp.add(&write, Manner::default());
                qp.set_data(&write, false);
            }),
        ),
        (
            "a destination",
            Box::new(|| {
                qp.add(&write, Manner::default());
                qp.set_destination(&SendWork::send(1));
            }),
        ),
        (
            "an operation that the queue pair was not created for",
            Box::new(|| {
                // SAFETY: the queue pair is alive.
                unsafe { ibv_wr_atomic_fetch_add(raw, 1, 0, 1) }
            }),
        ),
        (
            "segmentation",
            Box::new(|| {
                // SAFETY: the queue pair is alive, the function always there.
                unsafe { (*raw).wr_send_tso.expect("filled")(raw, std::ptr::null_mut(), 0, 0) }
            }),
        ),
        ("too many pieces", Box::new(|| qp.add(&list(most + 1), Manner::default()))),
        (
            "absurdly many pieces",
            Box::new(|| {
                qp.begin(&write);
                // SAFETY: the count must be found out before the list is read.
                unsafe { ibv_wr_set_sge_list(raw, usize::MAX, 16 as *const _) }
            }),
        ),
        (
            "too much inline",
            Box::new(|| {
                let much = SendWork::send(2).sge(pair.mr.sge(0, most_inline + 1)).inline();
                qp.add(&much, Manner::default());
            }),
        ),
        (
            "too much inline in a list",
            Box::new(|| {
                let much = SendWork::send(2).sges((0..20).map(|_| pair.mr.sge(0, 10))).inline();
                qp.add(&much, Manner { lists: true, ..Manner::default() });
            }),
        ),
        (
            "absurdly much inline",
            Box::new(|| {
                qp.begin(&SendWork::send(2));
                // SAFETY: the length must be found out before the data is read.
                unsafe { ibv_wr_set_inline_data(raw, 16 as *mut _, usize::MAX) }
            }),
        ),
        (
            "a read inline",
            Box::new(|| {
                let read =
                    SendWork::read(2, pair.mr.address(), pair.mr.rkey()).sge(pair.mr.sge(0, 8)).inline();
                qp.add(&read, Manner::default());
            }),
        ),
    ];
    if Device::present().generation > 1 {
        cases.push((
            "two gigabytes",
            Box::new(|| {
                let much = SendWork::send(2).sge(ibv_sge { length: 1 << 31, ..pair.mr.sge(0, 0) });
                qp.add(&much, Manner::default());
            }),
        ));
    }
    for (name, misuse) in &cases {
        for before in 0..3 {
            qp.start();
            for _ in 0..before {
                qp.add(&pair.write(1), Manner::default());
            }
            misuse();
            // What comes after does not heal it.
            qp.add(&pair.write(3), Manner::default());
            assert_eq!(qp.complete(), libc::EINVAL, "{name}");
            pair.check_alive();
            qp.start();
            misuse();
            qp.abort();
            pair.check_alive();
        }
    }
}

fn calls_without_a_batch_are_refused() {
    let pair = Loop::connected();
    assert_eq!(pair.qp.complete(), libc::EINVAL);
    pair.qp.abort();
    pair.check_alive();
    pair.qp.add(&pair.write(1), Manner::default());
    assert_eq!(pair.qp.complete(), libc::EINVAL);
    assert_eq!(pair.qp.complete(), libc::EINVAL);
    pair.check_alive();
    // A batch that follows is a fresh one.
    pair.qp.set_data(&pair.write(1), true);
    assert_eq!(pair.qp.try_build(&[pair.write(1)], Manner::default()), 0);
    assert_completions(&pair.qp.send_cq().wait(1), &[pair.written(1)]);
    pair.check_alive();
}

fn a_batch_started_twice_is_refused() {
    let pair = Loop::connected();
    pair.qp.start();
    pair.qp.add(&pair.write(1), Manner::default());
    pair.qp.start();
    assert_eq!(pair.qp.complete(), libc::EINVAL);
    pair.check_alive();
}

fn a_datagram_needs_a_destination() {
    Device::present().require_roce("datagrams");
    let pair = Loop::new(QpOptions { qp_type: IBV_QPT_UD, ..roomy() }, DATAGRAMS);
    let gid = pair.qp.context().gid(pair.qp.context().gid_index().into());
    let ah = Ah::new(pair.qp.pd(), gid);
    let send = || SendWork::send(1).sge(pair.mr.sge(0, 8));
    let good = || send().to(ah.raw(), pair.qp.number(), Q_KEY);
    let cases: [&dyn Fn(); 4] = [
        &|| {
            pair.qp.begin(&send());
            pair.qp.set_data(&send(), false);
        },
        &|| {
            pair.qp.begin(&send());
            pair.qp.set_destination(&good());
        },
        &|| {
            pair.qp.begin(&send());
            pair.qp.set_destination(&send().to(std::ptr::null_mut(), 1, 1));
            pair.qp.set_data(&send(), false);
        },
        &|| {
            pair.qp.add(&good(), Manner::default());
            pair.qp.set_destination(&good());
        },
    ];
    for misuse in cases {
        pair.qp.start();
        misuse();
        assert_eq!(pair.qp.complete(), libc::EINVAL);
        pair.qp.receive(ReceiveWork::new(2).sge(pair.mr.sge(4096, 1024)));
        assert_eq!(pair.qp.try_build(&[good()], Manner::default()), 0);
        let number = pair.qp.number();
        assert_completions(&pair.qp.send_cq().wait(1), &[Wc::sent(number, 1, IBV_WC_SEND, 8)]);
        assert_completions(&pair.qp.recv_cq().wait(1), &[Wc::datagram(number, 2, 8, number)]);
    }
}

fn a_full_queue_takes_the_whole_batch_or_none_of_it() {
    for options in [QpOptions { max_send_wr: 1, ..QpOptions::default() }, roomy()] {
        let pair = Loop::new(options, connected());
        let (mr, sges) = (&pair.mr, options.max_send_sge as usize);
        let wide = |wr_id: u64| {
            SendWork::write(wr_id, mr.address() + 4096, mr.rkey())
                .sges((0..sges).map(|index| mr.sge(index, 1)))
        };
        let promised = pair.qp.caps.max_send_wr as usize;
        for round in 0..6 {
            let batch = |count: usize| (0..count as u64).map(wide).collect::<Vec<_>>();
            assert_eq!(pair.qp.try_build(&batch(10_000), Manner::default()), libc::ENOMEM, "round {round}");
            pair.check_alive();
            assert_eq!(pair.qp.try_build(&batch(promised), Manner::default()), 0, "round {round}");
            let all = pair.qp.send_cq().wait(promised);
            assert!(all.iter().map(|wc| wc.wr_id).eq(0..promised as u64));
            pair.check_alive();
        }
    }
}

fn an_abandoned_batch_leaves_no_trace() {
    let pair = Loop::connected();
    // As many more than one, up to three times.
    let each = (pair.qp.caps.max_send_sge as usize - 1) / 3;
    for round in 0..200_usize {
        let batch: Vec<_> = works(&pair.mr, round).into_iter().skip(round % 20).take(round % 13).collect();
        pair.qp.start();
        batch
            .iter()
            .for_each(|work| pair.qp.add(work, Manner { lists: round % 2 == 0, ..Manner::default() }));
        pair.qp.abort();
        // Of other sizes than what was dropped.
        pair.check_alive();
        for count in 1..=1 + round % 3 {
            let wide = pair.write(5).sges((0..count * each).map(|index| pair.mr.sge(index, 1)));
            pair.qp.post(wide);
            assert_eq!(pair.qp.send_cq().wait_one().byte_len, 8 + (count * each) as u32);
        }
    }
}

fn nothing_happens_before_the_batch_is_complete() {
    let pair = Loop::connected();
    for round in 0..5 {
        pair.qp.start();
        (0..round + 1).for_each(|wr_id| pair.qp.add(&pair.write(wr_id), Manner::default()));
        pair.qp.send_cq().expect_silence();
        assert_eq!(pair.qp.complete(), 0);
        let expected: Vec<_> = (0..round + 1).map(|wr_id| pair.written(wr_id)).collect();
        assert_completions(&pair.qp.send_cq().wait(expected.len()), &expected);
    }
    // An empty batch is nothing.
    pair.qp.start();
    assert_eq!(pair.qp.complete(), 0);
    pair.check_alive();
}

fn other_threads_wait_for_the_batch() {
    let pair = Arc::new(Loop::connected());
    let posted = AtomicBool::new(false);
    pair.qp.start();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pair.qp.post(pair.write(2));
            posted.store(true, Ordering::SeqCst);
        });
        std::thread::sleep(Duration::from_millis(30));
        assert!(!posted.load(Ordering::SeqCst), "another thread posted within a batch");
        pair.qp.add(&pair.write(1), Manner::default());
        assert_eq!(pair.qp.complete(), 0);
    });
    assert_completions(&pair.qp.send_cq().wait(2), &[pair.written(1), pair.written(2)]);
}

fn a_batch_posted_in_the_error_state_is_flushed() {
    let pair = Loop::connected();
    pair.qp.fail();
    for _ in 0..3 {
        assert_eq!(pair.qp.try_build(&[pair.write(1), pair.write(2)], Manner::default()), 0);
        let flushed = |wr_id| Wc { byte_len: 0, ..pair.written(wr_id) }.flushed();
        let all = pair.qp.send_cq().wait(2);
        assert!(
            all.iter().zip(1..).all(|(wc, wr_id)| (wc.wr_id, wc.status) == (wr_id, flushed(wr_id).status))
        );
    }
}

/// The programs of this file.
pub const TESTS: &[Test] = &[
    test!(misuse_fails_the_batch_and_changes_nothing).fails_on_c(NO_BUILDERS),
    test!(calls_without_a_batch_are_refused).fails_on_c(NO_BUILDERS),
    test!(a_batch_started_twice_is_refused).fails_on_c(NO_BUILDERS),
    test!(a_datagram_needs_a_destination).fails_on_c(NO_BUILDERS),
    test!(a_full_queue_takes_the_whole_batch_or_none_of_it).fails_on_c(NO_BUILDERS),
    test!(an_abandoned_batch_leaves_no_trace).fails_on_c(NO_BUILDERS),
    test!(nothing_happens_before_the_batch_is_complete).fails_on_c(NO_BUILDERS),
    test!(other_threads_wait_for_the_batch).fails_on_c(NO_BUILDERS),
    test!(a_batch_posted_in_the_error_state_is_flushed).fails_on_c(NO_BUILDERS),
];
