//! Data taken into the work request itself: every length, several elements, when it is taken.

use irdma_tests::fixtures::{Pair, REGION};
use irdma_tests::memory::pattern;
use irdma_tests::qp::{Connection, QpOptions};
use irdma_tests::runner::Test;
use irdma_tests::sys::*;
use irdma_tests::test;
use irdma_tests::work::{ReceiveWork, SendWork};

/// As much inline space as the device has.
fn roomy() -> QpOptions {
    QpOptions::widest()
}

/// Bytes that fit.
fn most_bytes() -> usize {
    roomy().max_inline_data as usize
}

fn inline_data_of_every_length_arrives() {
    let pair = Pair::with(roomy(), Connection::default());
    for length in 0..=most_bytes() {
        let (source, target) = (pair.left.mr.buffer(), pair.right.mr.buffer());
        target.fill(0xee);
        // Right before an unreadable page: a copy of whole words would crash. No lkey: none is needed.
        let element = ibv_sge {
            addr: pair.left.mr.address() + (REGION - length) as u64,
            length: length as u32,
            lkey: 0xbad,
        };
        pair.right.qp.receive(ReceiveWork::new(10).sge(pair.right.mr.sge(0, 200)));
        let write = SendWork::write(2, pair.right.mr.address() + 300, pair.right.mr.rkey());
        let mut both = [SendWork::send(1).sge(element).inline(), write.sge(element).inline()];
        pair.left.qp.post_list(&mut both);
        pair.left.expect_sent(&[
            pair.left.sent(1, IBV_WC_SEND, length),
            pair.left.sent(2, IBV_WC_RDMA_WRITE, length),
        ]);
        pair.right.expect_received(&[pair.right.received(10, length)]);
        let bytes = source.read(REGION - length, length);
        for start in [0, 300] {
            assert_eq!(target.read(start, length), bytes, "{length} bytes inline");
            assert_eq!(
                target.read(start + length, 32),
                vec![0xee; 32],
                "{length} bytes inline: more were written"
            );
        }
    }
}

fn inline_data_with_immediate_arrives() {
    let pair = Pair::with(roomy(), Connection::default());
    for length in [0, 1, 8, 9, 39, 40, 70, 71, most_bytes()] {
        pair.right
            .qp
            .receive_list(&mut [ReceiveWork::new(10).sge(pair.right.mr.sge(0, 200)), ReceiveWork::new(11)]);
        let element = pair.left.mr.sge(0, length);
        let write = SendWork::write(2, pair.right.mr.address() + 300, pair.right.mr.rkey());
        pair.left.qp.post_list(&mut [
            SendWork::send(1).sge(element).inline().immediate(0x0102_0304),
            write.sge(element).inline().immediate(0x0506_0708),
        ]);
        pair.left.expect_sent(&[
            pair.left.sent(1, IBV_WC_SEND, length),
            pair.left.sent(2, IBV_WC_RDMA_WRITE, length),
        ]);
        pair.right.expect_received(&[
            pair.right.received(10, length).with_immediate(0x0102_0304),
            pair.right
                .received(11, length)
                .with_opcode(IBV_WC_RECV_RDMA_WITH_IMM)
                .with_immediate(0x0506_0708),
        ]);
        assert_eq!(pair.right.mr.buffer().read(0, length), pattern(length, 1));
        assert_eq!(pair.right.mr.buffer().read(300, length), pattern(length, 1));
    }
}

fn inline_data_of_several_elements_is_concatenated() {
    let pair = Pair::with(roomy(), Connection::default());
    for pieces in 1..=pair.left.qp.caps.max_send_sge as usize {
        let lengths = [0, 1, 7, 8, 9, 15, 16, 17, 38, 39, 40, 47, 48, 69, 70, 71, 100, 101];
        for total in lengths.into_iter().filter(|&length| length <= most_bytes()) {
            let cut = |piece: usize| total * piece / pieces;
            let elements: Vec<_> = (0..pieces)
                .map(|piece| pair.left.mr.sge(piece * 201 + 7, cut(piece + 1) - cut(piece)))
                .collect();
            let bytes: Vec<u8> = (0..pieces)
                .flat_map(|piece| pair.left.mr.buffer().read(piece * 201 + 7, cut(piece + 1) - cut(piece)))
                .collect();
            let write = SendWork::write(1, pair.right.mr.address(), pair.right.mr.rkey());
            pair.left.qp.post(write.sges(elements).inline());
            pair.left.expect_sent(&[pair.left.sent(1, IBV_WC_RDMA_WRITE, total)]);
            assert_eq!(pair.right.mr.buffer().read(0, total), bytes, "{total} bytes in {pieces} pieces");
        }
    }
}

fn inline_data_is_taken_before_post_returns() {
    let pair = Pair::with(roomy(), Connection::default());
    // No receive yet: the message waits in the queue while the source changes.
    pair.left.qp.post(SendWork::send(1).sge(pair.left.mr.sge(0, 40)).inline());
    pair.left.mr.buffer().fill(0xff);
    pair.right.qp.receive(ReceiveWork::new(10).sge(pair.right.mr.whole()));
    pair.left.expect_sent(&[pair.left.sent(1, IBV_WC_SEND, 40)]);
    assert_eq!(pair.right.mr.buffer().read(0, 40), pattern(40, 1));
}

/// The programs of this file.
pub const TESTS: &[Test] = &[
    test!(inline_data_of_every_length_arrives),
    test!(inline_data_with_immediate_arrives),
    test!(inline_data_of_several_elements_is_concatenated),
    test!(inline_data_is_taken_before_post_returns),
];
