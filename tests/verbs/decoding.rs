//! What completions mean that a device writes rarely: every flush code, every opcode, halves.

use std::sync::Arc;

use irdma_tests::bench::Bench;
use irdma_tests::control::{Cqe, names_of};
use irdma_tests::cq_ex::CqEx;
use irdma_tests::device::Device;
use irdma_tests::fixtures::{Datagrams, Pair};
use irdma_tests::qp::QpOptions;
use irdma_tests::runner::{Test, skip};
use irdma_tests::sys::*;
use irdma_tests::test;
use irdma_tests::wc::{Wc, assert_completions};
use irdma_tests::work::{ReceiveWork, SendWork};

/// Opcode of a send in a CQE.
const SEND: u32 = 3;

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

fn a_note_on_a_datagram_is_no_error() {
    for signaled in [true, false] {
        let pair = Datagrams::new();
        let names = names_of(&pair.left.qp);
        // To nobody, so that the device's own completion is the only other one.
        let send = |wr_id| pair.send(wr_id).sge(pair.left.mr.sge(0, 8));
        pair.left.qp.post(if signaled { send(1) } else { send(1).unsignaled() });
        if signaled {
            pair.left.expect_sent(&[pair.left.sent(1, IBV_WC_SEND, 8)]);
        }
        assert_eq!(pair.left.qp.move_to(IBV_QPS_SQD), 0);
        // Now one stays outstanding: its completion is made by hand.
        pair.left.qp.post(if signaled { send(2) } else { send(2).unsignaled() });
        // Each of the two is one quantum.
        let index = 1;
        Cqe::sent(&pair.left.qp, names.context, index, SEND).failed(0xe123, 5).write(names.send_cq);
        if signaled {
            pair.left.expect_sent(&[pair.left.sent(2, IBV_WC_SEND, 8)]);
        } else {
            pair.left.qp.send_cq().expect_empty();
        }
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
    let (third, roce) = (Device::present().generation == 3, Device::present().roce);
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
            // The third generation tells its own opcodes there.
            let writes: &[u32] = if third { &[0x00, 0x0d] } else { &[0x09, 0x0b] };
            let with_immediate = writes.contains(&opcode);
            // On iWARP, every receive with an immediate is of a write.
            let with_immediate = if roce { with_immediate } else { opcode % 2 == 1 };
            let kind = if with_immediate { IBV_WC_RECV_RDMA_WITH_IMM } else { IBV_WC_RECV };
            assert_completions(&completions, &[expected.with_opcode(kind)]);
        }
    }
}

fn a_completion_waits_for_its_second_half() {
    if Device::present().cqe_size == 64 {
        skip("the device writes both halves at once");
    }
    let bench = Bench::new();
    let generation = Device::present().generation;
    // Since the second generation each completion may take two.
    let slots = if generation == 1 { 66 } else { (64 + 1) * 2_u32 };
    // At every place of the ring, its last slot included, on two laps.
    for round in 0..slots * 2 {
        let wr_id = u64::from(round);
        bench.victim.receive(ReceiveWork::new(wr_id));
        // Receive WQEs are one quantum each, on the first generation four; the ring has a power of two of them.
        let quanta = 1 << Device::present().receive_shift(1);
        let index = round % bench.victim.caps.max_recv_wr.next_power_of_two() * quanta;
        bench.inject(Cqe::received(&bench.victim, bench.names.context, index, 4, 9).incomplete());
        bench.cq.expect_empty();
        bench.cq.expect_empty();
        Cqe { words: [u64::from(round), 0, 0, 1 << 62], extension: None }.write(bench.names.send_cq);
        // On iWARP only a write has an immediate.
        let kind = if Device::present().roce { IBV_WC_RECV } else { IBV_WC_RECV_RDMA_WITH_IMM };
        let expected = Wc::received(bench.victim.number(), wr_id, 9).with_immediate(round).with_opcode(kind);
        assert_completions(&bench.cq.poll(4), &[expected]);
        if round % 3 == 0 {
            bench.check_neighbour();
        }
    }
}

/// The programs of this file.
pub const TESTS: &[Test] = &[
    test!(every_flush_code_has_its_status),
    test!(rnr_retry_exceeded_has_its_own_status).may_fail_on_c("no such flush code"),
    test!(an_unknown_error_is_a_general_one),
    test!(a_note_on_a_datagram_is_no_error).fails_on_c("it is taken for an error"),
    test!(an_unknown_operation_of_the_send_queue_is_an_error_in_both_interfaces)
        .fails_on_c("the extended interface reports success"),
    test!(wire_opcodes_of_receives_are_told_apart_in_both_interfaces)
        .may_fail_on_c("the wire opcode is overwritten, so no RDMA write with immediate is seen"),
    test!(a_completion_waits_for_its_second_half),
];
