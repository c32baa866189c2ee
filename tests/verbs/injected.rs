//! Completions that no sane device writes: wild contexts, wrong indices, late ones, any bytes.

use std::sync::Arc;

use irdma_tests::bench::Bench;
use irdma_tests::control::{Cqe, drain, names_of};
use irdma_tests::cq::Cq;
use irdma_tests::cq_ex::CqEx;
use irdma_tests::fixtures::Pair;
use irdma_tests::memory::Buffer;
use irdma_tests::qp::QpOptions;
use irdma_tests::runner::Test;
use irdma_tests::sys::*;
use irdma_tests::test;
use irdma_tests::wc::{Wc, assert_completions};
use irdma_tests::work::{ReceiveWork, SendWork};

/// Opcode of an RDMA write in a CQE.
const WRITE: u32 = 0;
/// Opcode of a send in a CQE.
const SEND: u32 = 3;

/// Contexts that are not the victim's.
fn wild_contexts(bench: &Bench, memory: &Buffer) -> Vec<u64> {
    let own = bench.names.context;
    vec![
        0,
        1,
        8,
        0xfff,
        0x1000,
        u64::from(u32::MAX),
        u64::MAX,
        1 << 63,
        own ^ 1 << 63,
        own ^ 1 << 32,
        own ^ 1 << 16,
        own.wrapping_add(1),
        own.wrapping_sub(64),
        bench.victim.raw() as u64,
        bench.cq.raw() as u64,
        memory.address(),
        memory.address() + memory.len() as u64,
    ]
}

fn a_foreign_context_is_skipped() {
    let bench = Bench::new();
    let memory = Buffer::new(4096);
    for index in 0..wild_contexts(&bench, &memory).len() {
        let context = wild_contexts(&bench, &memory)[index];
        for cqe in [
            Cqe::sent(&bench.victim, context, 0, WRITE),
            Cqe::received(&bench.victim, context, 0, 4, 10),
            Cqe::sent(&bench.victim, context, 0, WRITE).failed(1, 1),
            Cqe::received(&bench.victim, context, 0, 4, 0).failed(1, 1),
            Cqe::sent(&bench.victim, context, 0, SEND).failed(7, 7),
            Cqe::received(&bench.victim, context, 3, 4, 0).immediate(1),
        ] {
            bench.inject(cqe);
            bench.check_neighbour();
        }
    }
}

fn a_context_of_another_queues_queue_pair_is_skipped() {
    let bench = Bench::new();
    let elsewhere = Cq::new(bench.pair.left.context(), 64);
    let stranger = Bench::queue_pair(&bench.pair, &elsewhere);
    let context = names_of(&stranger).context;
    stranger.post(SendWork::send(5));
    stranger.receive(ReceiveWork::new(6));
    // The stranger's send found its own receive: both are complete, on its own queue.
    assert_eq!(elsewhere.wait(2).len(), 2);
    stranger.post(SendWork::send(7));
    bench.inject(Cqe::sent(&stranger, context, 1, SEND));
    bench.inject(Cqe::sent(&stranger, context, 1, SEND).failed(1, 1));
    bench.check_neighbour();
    elsewhere.expect_empty();
}

/// What comes of a CQE must not be a success.
#[track_caller]
fn check_no_success(bench: &Bench, cqe: Cqe) {
    bench.inject(cqe);
    let invented: Vec<_> =
        drain(&bench.cq).into_iter().filter(|completion| completion.status == IBV_WC_SUCCESS).collect();
    assert!(invented.is_empty(), "{invented:#?}");
    bench.check_neighbour();
}

fn an_index_outside_the_ring_is_no_success() {
    let bench = Bench::new();
    let context = bench.names.context;
    bench.outstanding(1);
    bench.victim.send_cq().expect_empty();
    for index in [1024, 0x3fff, 0x7fff] {
        check_no_success(&bench, Cqe::sent(&bench.victim, context, index, SEND));
        check_no_success(&bench, Cqe::received(&bench.victim, context, index, 4, 10));
    }
}

fn an_index_that_is_not_outstanding_is_no_success() {
    let bench = Bench::new();
    let context = bench.names.context;
    let mr = &bench.pair.left.mr;
    bench.victim.post(SendWork::write(1, mr.address(), mr.rkey()));
    assert_eq!(bench.cq.wait_one().wr_id, 1);
    // Complete already; never posted; never posted on the receive side.
    check_no_success(&bench, Cqe::sent(&bench.victim, context, 0, WRITE));
    check_no_success(&bench, Cqe::sent(&bench.victim, context, 5, WRITE));
    check_no_success(&bench, Cqe::received(&bench.victim, context, 0, 4, 10));
    bench.victim.post(SendWork::write(2, mr.address(), mr.rkey()));
    assert_completions(&bench.cq.wait(1), &[Wc::sent(bench.victim.number(), 2, IBV_WC_RDMA_WRITE, 0)]);
}

fn a_flush_of_an_empty_queue_does_not_end_the_poll() {
    let bench = Bench::new();
    let context = bench.names.context;
    for cqe in [
        Cqe::sent(&bench.victim, context, 0, SEND).failed(1, 1),
        Cqe::received(&bench.victim, context, 0, 4, 0).failed(1, 1),
        Cqe::received(&bench.victim, context, 0, 4, 0).failed(9, 9),
    ] {
        bench.inject(cqe);
        bench.check_neighbour();
    }
}

fn a_flush_of_an_empty_queue_does_not_end_an_extended_poll() {
    let pair = Pair::unconnected(QpOptions::default());
    let cq = CqEx::new(pair.left.context(), 64);
    let bench = Bench::on(pair, Arc::clone(cq.plain()));
    let mr = &bench.pair.left.mr;
    for receive in [false, true] {
        let context = bench.names.context;
        let cqe = match receive {
            false => Cqe::sent(&bench.victim, context, 0, SEND),
            true => Cqe::received(&bench.victim, context, 0, 4, 0),
        };
        bench.inject(cqe.failed(1, 1));
        bench.neighbour.post(SendWork::write(77, mr.address(), mr.rkey()));
        let expected = Wc::sent(bench.neighbour.number(), 77, IBV_WC_RDMA_WRITE, 0);
        assert_completions(&cq.poll_batch(4), &[expected]);
    }
}

fn late_completions_of_a_destroyed_queue_pair_are_skipped() {
    let bench = Bench::new();
    let Bench { pair, cq, victim, names, neighbour } = bench;
    victim.receive(ReceiveWork::new(1));
    let late = [
        Cqe::sent(&victim, names.context, 0, SEND),
        Cqe::sent(&victim, names.context, 0, SEND).failed(5, 5),
        Cqe::sent(&victim, names.context, 0, SEND).failed(1, 1),
        Cqe::received(&victim, names.context, 0, 4, 10),
        Cqe::received(&victim, names.context, 0, 4, 0).failed(1, 1),
        Cqe::received(&victim, names.context, 0, 4, 10).immediate(3),
    ];
    drop(victim);
    // Memory of the destroyed one may be anything by now.
    let rubbish: Vec<Box<[u8; 700]>> = (0..200).map(|_| Box::new([0xa5; 700])).collect();
    let mr = &pair.left.mr;
    let check = || {
        for cqe in late {
            cqe.write(names.send_cq);
            neighbour.post(SendWork::write(77, mr.address(), mr.rkey()));
            let expected = Wc::sent(neighbour.number(), 77, IBV_WC_RDMA_WRITE, 0);
            assert_completions(&cq.poll(4), &[expected]);
        }
    };
    check();
    // A successor in its place must not get them either.
    let successor = Bench::queue_pair(&pair, &cq);
    successor.receive(ReceiveWork::new(2));
    check();
    assert_eq!(rubbish.len(), 200);
    cq.expect_empty();
}

fn pending_errors_of_a_destroyed_queue_pair_are_skipped() {
    let bench = Bench::new();
    let Bench { pair, cq, victim, names, neighbour } = bench;
    for cqe in [
        Cqe::sent(&victim, names.context, 0, SEND).failed(5, 5),
        Cqe::sent(&victim, names.context, 0, SEND).failed(1, 2),
        Cqe::received(&victim, names.context, 0, 4, 0).failed(5, 5),
    ] {
        cqe.write(names.send_cq);
    }
    drop(victim);
    neighbour.post(SendWork::write(77, pair.left.mr.address(), pair.left.mr.rkey()));
    assert_completions(&cq.poll(4), &[Wc::sent(neighbour.number(), 77, IBV_WC_RDMA_WRITE, 0)]);
    cq.expect_empty();
}

fn any_bytes_do_no_harm() {
    let bench = Bench::new();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..1500 {
        // The announcement of an extension is only made when there is one: without it the queue rightly waits.
        let extended = random() % 4 == 0;
        let mut cqe = Cqe { words: [random(), random(), random(), random() & !(1 << 50)], extension: None };
        if round % 2 == 0 {
            // With the victim's own context it gets past the first check.
            cqe.words[1] = bench.names.context;
        }
        if extended {
            cqe.words[3] |= 1 << 50;
            cqe.extension = Some([random(), random(), random(), random()]);
        }
        bench.inject(cqe);
        let success = drain(&bench.cq).into_iter().find(|completion| completion.status == IBV_WC_SUCCESS);
        assert!(success.is_none(), "round {round}: {cqe:x?} became {success:?}");
        if round % 50 == 0 {
            bench.check_neighbour();
        }
    }
    bench.check_neighbour();
}

fn a_hand_made_completion_is_like_a_real_one() {
    // Shows that the programs above write what they think: the device's own completion would look the same.
    let bench = Bench::new();
    bench.outstanding(1);
    bench.inject(Cqe::sent(&bench.victim, bench.names.context, 0, SEND));
    assert_completions(&bench.cq.wait(1), &[Wc::sent(bench.victim.number(), 1, IBV_WC_SEND, 0)]);
    bench.victim.receive(ReceiveWork::new(2));
    let received = drain(&bench.cq);
    assert!(received.len() <= 1, "{received:#?}");
    bench.check_neighbour();
}

/// The programs of this file.
pub const TESTS: &[Test] = &[
    test!(a_hand_made_completion_is_like_a_real_one),
    test!(a_foreign_context_is_skipped).fails_on_c("the context is followed as a pointer"),
    test!(a_context_of_another_queues_queue_pair_is_skipped)
        .fails_on_c("the context is followed as a pointer"),
    test!(an_index_outside_the_ring_is_no_success).fails_on_c("the index is used unseen"),
    test!(an_index_that_is_not_outstanding_is_no_success).fails_on_c("the index is used unseen"),
    test!(a_flush_of_an_empty_queue_does_not_end_the_poll)
        .fails_on_c("it is taken for an empty completion queue"),
    test!(a_flush_of_an_empty_queue_does_not_end_an_extended_poll)
        .fails_on_c("it is taken for an empty completion queue"),
    test!(late_completions_of_a_destroyed_queue_pair_are_skipped)
        .fails_on_c("the context is followed as a pointer into freed memory"),
    test!(pending_errors_of_a_destroyed_queue_pair_are_skipped),
    test!(any_bytes_do_no_harm).fails_on_c("the context is followed as a pointer, the index used unseen"),
];
