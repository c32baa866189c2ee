//! Completions that no sane device writes, and rare ones it may: written by hand.

use std::sync::Arc;

use irdma_tests::control::{Cqe, HardwareNames, drain, names_of};
use irdma_tests::cq::Cq;
use irdma_tests::cq_ex::CqEx;
use irdma_tests::fixtures::Pair;
use irdma_tests::memory::Buffer;
use irdma_tests::qp::{Connection, Qp, QpOptions};
use irdma_tests::runner::Test;
use irdma_tests::sys::*;
use irdma_tests::test;
use irdma_tests::wc::{Wc, assert_completions};
use irdma_tests::work::{ReceiveWork, SendWork};

/// Opcode of an RDMA write in a CQE.
const WRITE: u32 = 0;
/// Opcode of a send in a CQE.
const SEND: u32 = 3;

/// Queue pairs on one queue, each connected to itself.
struct Bench {
    pair: Pair,
    cq: Arc<Cq>,
    victim: Qp,
    names: HardwareNames,
    neighbour: Qp,
}

/// Never gives up, so that a send without a receive stays outstanding.
fn patient() -> Connection {
    Connection { rnr_retry: 7, min_rnr_timer: 20, ..Connection::default() }
}

impl Bench {
    fn new() -> Bench {
        let pair = Pair::unconnected(QpOptions::default());
        let cq = Cq::new(pair.left.context(), 64);
        Bench::on(pair, cq)
    }

    fn on(pair: Pair, cq: Arc<Cq>) -> Bench {
        let victim = Bench::queue_pair(&pair, &cq);
        let neighbour = Bench::queue_pair(&pair, &cq);
        let names = names_of(&victim);
        Bench { pair, cq, victim, names, neighbour }
    }

    /// One scatter element, so that a request is one quantum of its queue.
    fn queue_pair(pair: &Pair, cq: &Arc<Cq>) -> Qp {
        let options =
            QpOptions { max_send_sge: 0, max_recv_sge: 1, max_inline_data: 8, ..QpOptions::default() };
        let qp = Qp::new(pair.left.pd(), cq, cq, options);
        qp.connect(patient(), qp.number(), pair.left.gid());
        qp
    }

    fn inject(&self, cqe: Cqe) {
        cqe.write(self.names.send_cq);
    }

    /// Posts a send on the victim that stays outstanding.
    fn outstanding(&self, wr_id: u64) {
        self.victim.post(SendWork::send(wr_id));
    }

    /// The neighbour still works: its completion comes, in one call, and nothing else.
    #[track_caller]
    fn check_neighbour(&self) {
        let mr = &self.pair.left.mr;
        self.neighbour.post(SendWork::write(77, mr.address(), mr.rkey()));
        let expected = Wc::sent(self.neighbour.number(), 77, IBV_WC_RDMA_WRITE, 0);
        assert_completions(&self.cq.poll(4), &[expected]);
        self.cq.expect_empty();
    }
}

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

fn every_flush_code_has_its_status() {
    let table = [
        (1, IBV_WC_WR_FLUSH_ERR),
        (2, IBV_WC_LOC_PROT_ERR),
        (3, IBV_WC_REM_ACCESS_ERR),
        (4, IBV_WC_LOC_QP_OP_ERR),
        (5, IBV_WC_REM_OP_ERR),
        (6, IBV_WC_LOC_LEN_ERR),
        (7, IBV_WC_FATAL_ERR),
        (8, IBV_WC_RETRY_EXC_ERR),
        (9, IBV_WC_MW_BIND_ERR),
        (10, IBV_WC_REM_INV_REQ_ERR),
        (12, IBV_WC_FATAL_ERR),
        (0, IBV_WC_FATAL_ERR),
        (0xffff, IBV_WC_FATAL_ERR),
    ];
    check_flush_codes(&table);
}

fn rnr_retry_exceeded_has_its_own_status() {
    check_flush_codes(&[(11, IBV_WC_RNR_RETRY_EXC_ERR)]);
}

fn check_flush_codes(table: &[(u16, u32)]) {
    for &(code, status) in table {
        let bench = Bench::new();
        let number = bench.victim.number();
        bench.outstanding(1);
        bench.victim.post(SendWork::read(2, 0, 0).unsignaled());
        bench.inject(Cqe::sent(&bench.victim, bench.names.context, 0, SEND).failed(1, code));
        let first = Wc::sent(number, 1, IBV_WC_SEND, 0).failed(status, u32::from(code));
        let second = Wc::sent(number, 2, IBV_WC_RDMA_READ, 0).flushed();
        assert_completions(&bench.cq.poll(4), &[first, second]);
        bench.check_neighbour();
    }
}

fn an_unknown_error_is_a_general_one() {
    for (major, minor) in [(2, 0), (0x1234, 0x5678), (0xffff, 0xffff), (0xe123, 5)] {
        let bench = Bench::new();
        bench.outstanding(1);
        bench.inject(Cqe::sent(&bench.victim, bench.names.context, 0, SEND).failed(major, minor));
        let completion = bench.cq.wait_one();
        let vendor_err = u32::from(major) << 16 | u32::from(minor);
        assert_eq!((completion.wr_id, completion.status), (1, IBV_WC_GENERAL_ERR));
        assert_eq!((completion.vendor_err, completion.opcode), (vendor_err, IBV_WC_SEND));
        bench.check_neighbour();
    }
}

fn an_unknown_operation_of_the_send_queue_is_an_error_in_both_interfaces() {
    for opcode in [0x02, 0x07, 0x09, 0x0b, 0x0c, 0x12, 0x30, 0x3f] {
        for extended in [false, true] {
            let pair = Pair::unconnected(QpOptions::default());
            let cq = CqEx::new(pair.left.context(), 64);
            let bench = Bench::on(pair, Arc::clone(cq.plain()));
            bench.outstanding(1);
            bench.inject(Cqe::sent(&bench.victim, bench.names.context, 0, opcode));
            let completions = if extended { cq.wait_batch(1) } else { bench.cq.wait(1) };
            assert_eq!(
                (completions[0].wr_id, completions[0].status),
                (1, IBV_WC_GENERAL_ERR),
                "opcode {opcode:#x}"
            );
        }
    }
}

fn wire_opcodes_of_receives_are_told_apart_in_both_interfaces() {
    for extended in [false, true] {
        let pair = Pair::unconnected(QpOptions::default());
        let cq = CqEx::new(pair.left.context(), 128);
        let bench = Bench::on(pair, Arc::clone(cq.plain()));
        for opcode in 0..64 {
            bench.victim.receive(ReceiveWork::new(u64::from(opcode)));
            let cqe = Cqe::received(&bench.victim, bench.names.context, opcode, opcode, 5);
            bench.inject(if opcode % 2 == 1 { cqe.immediate(opcode) } else { cqe });
            let completions = if extended { cq.wait_batch(1) } else { bench.cq.wait(1) };
            let expected = Wc::received(bench.victim.number(), u64::from(opcode), 5);
            let expected = if opcode % 2 == 1 { expected.with_immediate(opcode) } else { expected };
            let with_immediate = matches!(opcode, 0x09 | 0x0b);
            let kind = if with_immediate { IBV_WC_RECV_RDMA_WITH_IMM } else { IBV_WC_RECV };
            assert_completions(&completions, &[expected.with_opcode(kind)]);
        }
    }
}

fn a_completion_waits_for_its_second_half() {
    let bench = Bench::new();
    let slots = (64 + 1) * 2_u32;
    // At every place of the ring, its last slot included, on two laps.
    for round in 0..slots * 2 {
        let wr_id = u64::from(round);
        bench.victim.receive(ReceiveWork::new(wr_id));
        // Receive WQEs are one quantum each; the ring has a power of two of them.
        let index = round % bench.victim.caps.max_recv_wr.next_power_of_two();
        bench.inject(Cqe::received(&bench.victim, bench.names.context, index, 4, 9).incomplete());
        bench.cq.expect_empty();
        bench.cq.expect_empty();
        Cqe { words: [u64::from(round), 0, 0, 1 << 62], extension: None }.write(bench.names.send_cq);
        let expected = Wc::received(bench.victim.number(), wr_id, 9).with_immediate(round);
        assert_completions(&bench.cq.poll(4), &[expected]);
        if round % 3 == 0 {
            bench.check_neighbour();
        }
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
    test!(every_flush_code_has_its_status),
    test!(rnr_retry_exceeded_has_its_own_status).fails_on_c("rdma-core 44 has no such flush code"),
    test!(an_unknown_error_is_a_general_one),
    test!(an_unknown_operation_of_the_send_queue_is_an_error_in_both_interfaces)
        .fails_on_c("the extended interface reports success"),
    test!(wire_opcodes_of_receives_are_told_apart_in_both_interfaces)
        .fails_on_c("the wire opcode is overwritten, so no RDMA write with immediate is seen"),
    test!(a_completion_waits_for_its_second_half),
    test!(late_completions_of_a_destroyed_queue_pair_are_skipped)
        .fails_on_c("the context is followed as a pointer into freed memory"),
    test!(pending_errors_of_a_destroyed_queue_pair_are_skipped),
    test!(any_bytes_do_no_harm).fails_on_c("the context is followed as a pointer, the index used unseen"),
];
