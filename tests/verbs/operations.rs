//! Every operation of a reliable connection, both ends.

use irdma_tests::device::Device;
use irdma_tests::fixtures::{Pair, REGION};
use irdma_tests::memory::{Mr, pattern};
use irdma_tests::qp::{Connection, QpOptions};
use irdma_tests::runner::Test;
use irdma_tests::sys::*;
use irdma_tests::test;
use irdma_tests::wc::Wc;
use irdma_tests::work::{ReceiveWork, SendWork, unmapped_list};

/// Lengths around packet and inline boundaries.
const LENGTHS: [usize; 9] = [1, 7, 8, 9, 1023, 1024, 1025, 4097, REGION];

fn send_arrives_whole_at_every_length() {
    let pair = Pair::new();
    for (index, &length) in LENGTHS.iter().enumerate() {
        let wr_id = index as u64;
        pair.right.mr.buffer().fill(0);
        pair.right.qp.receive(ReceiveWork::new(100 + wr_id).sge(pair.right.mr.whole()));
        pair.left.qp.post(SendWork::send(wr_id).sge(pair.left.mr.sge(0, length)));
        pair.left.expect_sent(&[pair.left.sent(wr_id, IBV_WC_SEND, length)]);
        pair.right.expect_received(&[pair.right.received(100 + wr_id, length)]);
        let mut expected = pattern(length, 1);
        expected.resize(REGION, 0);
        assert_eq!(pair.right.mr.buffer().bytes(), expected, "send of {length} bytes");
    }
    pair.left.expect_nothing();
    pair.right.expect_nothing();
}

fn send_with_immediate_reports_it_in_network_order() {
    let pair = Pair::new();
    for (wr_id, immediate) in [(1, 0), (2, 0x1234_5678), (3, u32::MAX)] {
        pair.right.qp.receive(ReceiveWork::new(wr_id + 10).sge(pair.right.mr.whole()));
        pair.left.qp.post(SendWork::send(wr_id).sge(pair.left.mr.sge(0, 300)).immediate(immediate));
        pair.left.expect_sent(&[pair.left.sent(wr_id, IBV_WC_SEND, 300)]);
        pair.right.expect_received(&[pair.right.received(wr_id + 10, 300).with_immediate(immediate)]);
    }
    assert_eq!(pair.right.mr.buffer().read(0, 300), pattern(300, 1));
}

fn write_reaches_memory_and_completes_on_one_side_only() {
    let pair = Pair::new();
    for (index, &length) in LENGTHS.iter().enumerate() {
        let wr_id = index as u64;
        pair.right.mr.buffer().fill(0);
        let offset = REGION - length;
        let target = pair.right.mr.address() + offset as u64;
        pair.left
            .qp
            .post(SendWork::write(wr_id, target, pair.right.mr.rkey()).sge(pair.left.mr.sge(0, length)));
        pair.left.expect_sent(&[pair.left.sent(wr_id, IBV_WC_RDMA_WRITE, length)]);
        let mut expected = vec![0; offset];
        expected.extend(pattern(length, 1));
        assert_eq!(pair.right.mr.buffer().bytes(), expected, "write of {length} bytes");
    }
    pair.right.expect_nothing();
}

fn write_with_immediate_consumes_a_receive() {
    let pair = Pair::new();
    for (wr_id, length) in [(1, 0), (2, 5), (3, 5000)] {
        pair.right.qp.receive(ReceiveWork::new(wr_id + 10));
        let write =
            SendWork::write(wr_id, pair.right.mr.address(), pair.right.mr.rkey()).immediate(0xfeed_0001);
        pair.left.qp.post(if length == 0 { write } else { write.sge(pair.left.mr.sge(0, length)) });
        pair.left.expect_sent(&[pair.left.sent(wr_id, IBV_WC_RDMA_WRITE, length)]);
        let received = pair.right.received(wr_id + 10, length).with_opcode(IBV_WC_RECV_RDMA_WITH_IMM);
        pair.right.expect_received(&[received.with_immediate(0xfeed_0001)]);
    }
    assert_eq!(pair.right.mr.buffer().read(0, 5000), pattern(5000, 1));
}

fn read_fetches_remote_memory() {
    let pair = Pair::new();
    for (index, &length) in LENGTHS.iter().enumerate() {
        let wr_id = index as u64;
        pair.right.mr.buffer().fill(0);
        let source = pair.left.mr.address();
        pair.right
            .qp
            .post(SendWork::read(wr_id, source, pair.left.mr.rkey()).sge(pair.right.mr.sge(0, length)));
        pair.right.expect_sent(&[pair.right.sent(wr_id, IBV_WC_RDMA_READ, length)]);
        let mut expected = pattern(length, 1);
        expected.resize(REGION, 0);
        assert_eq!(pair.right.mr.buffer().bytes(), expected, "read of {length} bytes");
    }
    pair.left.expect_nothing();
}

fn empty_messages_carry_nothing_and_complete() {
    let pair = Pair::new();
    pair.right.qp.receive(ReceiveWork::new(10));
    pair.left.qp.post_list(&mut [
        SendWork::send(1),
        SendWork::write(2, pair.right.mr.address(), pair.right.mr.rkey()),
        SendWork::read(3, pair.right.mr.address(), pair.right.mr.rkey()),
    ]);
    pair.left.expect_sent(&[
        pair.left.sent(1, IBV_WC_SEND, 0),
        pair.left.sent(2, IBV_WC_RDMA_WRITE, 0),
        pair.left.sent(3, IBV_WC_RDMA_READ, 0),
    ]);
    pair.right.expect_received(&[pair.right.received(10, 0)]);
}

fn a_stale_scatter_list_is_not_followed_by_sends() {
    let pair = Pair::new();
    pair.right.qp.receive_list(&mut [ReceiveWork::new(10), ReceiveWork::new(11)]);
    for stale in [unmapped_list(), std::ptr::null_mut()] {
        pair.left.qp.post(SendWork::send(1).stale_list(stale));
    }
    pair.left.expect_sent(&[pair.left.sent(1, IBV_WC_SEND, 0), pair.left.sent(1, IBV_WC_SEND, 0)]);
    pair.right.expect_received(&[pair.right.received(10, 0), pair.right.received(11, 0)]);
}

/// A list of one element that would be a protection error if the device saw it.
fn poisonous_list() -> Vec<ibv_sge> {
    vec![ibv_sge { addr: 0xdead_0000_0000, length: 77, lkey: 0xdead_beef }]
}

fn a_stale_scatter_list_is_not_followed_by_writes() {
    let pair = Pair::new();
    let mut poison = poisonous_list();
    let target = pair.right.mr.address();
    for stale in [std::ptr::null_mut(), poison.as_mut_ptr(), unmapped_list()] {
        pair.left.qp.post(SendWork::write(1, target, pair.right.mr.rkey()).stale_list(stale));
        pair.left.expect_sent(&[pair.left.sent(1, IBV_WC_RDMA_WRITE, 0)]);
    }
}

fn a_stale_scatter_list_is_not_followed_by_reads() {
    let pair = Pair::new();
    let mut poison = poisonous_list();
    let source = pair.right.mr.address();
    for stale in [std::ptr::null_mut(), poison.as_mut_ptr(), unmapped_list()] {
        pair.left.qp.post(SendWork::read(1, source, pair.right.mr.rkey()).stale_list(stale));
        pair.left.expect_sent(&[pair.left.sent(1, IBV_WC_RDMA_READ, 0)]);
    }
}

fn a_stale_scatter_list_is_not_followed_by_receives() {
    let pair = Pair::new();
    let mut poison = poisonous_list();
    for stale in [std::ptr::null_mut(), poison.as_mut_ptr(), unmapped_list()] {
        pair.right.qp.receive(ReceiveWork::new(10).stale_list(stale));
        pair.left.qp.post(SendWork::send(1));
        pair.left.expect_sent(&[pair.left.sent(1, IBV_WC_SEND, 0)]);
        pair.right.expect_received(&[pair.right.received(10, 0)]);
    }
}

/// A QP with as many scatter elements as the device has.
fn widest(pair_inline: u32) -> QpOptions {
    QpOptions { max_inline_data: pair_inline, ..QpOptions::widest() }
}

/// `count` elements of sizes 1, 2, 3 ... at odd places of a region, and the bytes they hold.
fn scattered(mr: &Mr, count: usize) -> (Vec<ibv_sge>, Vec<u8>) {
    let elements: Vec<_> = (0..count).map(|index| mr.sge(index * 301 + 1, index + 1)).collect();
    let bytes = (0..count).flat_map(|index| mr.buffer().read(index * 301 + 1, index + 1)).collect();
    (elements, bytes)
}

fn every_number_of_elements_is_gathered_and_scattered() {
    let pair = Pair::with(widest(0), Connection::default());
    for count in 1..=pair.left.qp.caps.max_send_sge as usize {
        let (gather, bytes) = scattered(&pair.left.mr, count);
        let length = bytes.len();

        pair.right.mr.buffer().fill(0);
        let (scatter, _) = scattered(&pair.right.mr, count);
        pair.right.qp.receive(ReceiveWork::new(10).sges(scatter));
        pair.left.qp.post(SendWork::send(1).sges(gather.clone()));
        pair.left.expect_sent(&[pair.left.sent(1, IBV_WC_SEND, length)]);
        pair.right.expect_received(&[pair.right.received(10, length)]);
        assert_eq!(scattered(&pair.right.mr, count).1, bytes, "send of {count} elements");

        pair.right.mr.buffer().fill(0);
        let target = pair.right.mr.address() + 3;
        pair.left.qp.post(SendWork::write(2, target, pair.right.mr.rkey()).sges(gather));
        pair.left.expect_sent(&[pair.left.sent(2, IBV_WC_RDMA_WRITE, length)]);
        assert_eq!(pair.right.mr.buffer().read(3, length), bytes, "write of {count} elements");

        if count > Device::present().read_fragments as usize {
            continue;
        }
        let (scatter, _) = scattered(&pair.right.mr, count);
        pair.right.mr.buffer().fill(0);
        let source = pair.left.mr.address() + 5;
        pair.right.qp.post(SendWork::read(3, source, pair.left.mr.rkey()).sges(scatter));
        pair.right.expect_sent(&[pair.right.sent(3, IBV_WC_RDMA_READ, length)]);
        let fetched = scattered(&pair.right.mr, count).1;
        assert_eq!(fetched, pair.left.mr.buffer().read(5, length), "read of {count} elements");
    }
}

fn immediate_goes_with_every_number_of_elements() {
    let pair = Pair::with(widest(0), Connection::default());
    for count in 1..=pair.left.qp.caps.max_send_sge as usize {
        let (gather, bytes) = scattered(&pair.left.mr, count);
        pair.right
            .qp
            .receive_list(&mut [ReceiveWork::new(10).sge(pair.right.mr.whole()), ReceiveWork::new(11)]);
        let target = pair.right.mr.address() + 9000;
        pair.left.qp.post_list(&mut [
            SendWork::send(1).sges(gather.clone()).immediate(count as u32),
            SendWork::write(2, target, pair.right.mr.rkey()).sges(gather).immediate(!(count as u32)),
        ]);
        pair.left.expect_sent(&[
            pair.left.sent(1, IBV_WC_SEND, bytes.len()),
            pair.left.sent(2, IBV_WC_RDMA_WRITE, bytes.len()),
        ]);
        pair.right.expect_received(&[
            pair.right.received(10, bytes.len()).with_immediate(count as u32),
            pair.right
                .received(11, bytes.len())
                .with_opcode(IBV_WC_RECV_RDMA_WITH_IMM)
                .with_immediate(!(count as u32)),
        ]);
        assert_eq!(pair.right.mr.buffer().read(0, bytes.len()), bytes);
        assert_eq!(pair.right.mr.buffer().read(9000, bytes.len()), bytes);
    }
}

fn a_list_is_served_in_order() {
    let pair = Pair::with(
        QpOptions { max_send_wr: 200, max_recv_wr: 200, ..QpOptions::default() },
        Connection::default(),
    );
    let mut receives: Vec<_> = (0..100)
        .map(|index| ReceiveWork::new(1000 + index as u64).sge(pair.right.mr.sge(index * 64, 64)))
        .collect();
    pair.right.qp.receive_list(&mut receives);
    let mut sends: Vec<_> = (0..100)
        .map(|index| SendWork::send(index as u64).sge(pair.left.mr.sge(index * 64, index % 64 + 1)))
        .collect();
    pair.left.qp.post_list(&mut sends);
    let sent: Vec<_> =
        (0..100).map(|index| pair.left.sent(index as u64, IBV_WC_SEND, index % 64 + 1)).collect();
    let received: Vec<_> =
        (0..100).map(|index| pair.right.received(1000 + index as u64, index % 64 + 1)).collect();
    pair.left.expect_sent(&sent);
    pair.right.expect_received(&received);
    for index in 0..100 {
        let length = index % 64 + 1;
        assert_eq!(
            pair.right.mr.buffer().read(index * 64, length),
            pair.left.mr.buffer().read(index * 64, length)
        );
    }
}

fn unsignaled_requests_complete_silently() {
    let pair = Pair::new();
    let target = pair.right.mr.address();
    for round in 0..20 {
        let mut sends: Vec<_> = (0..32)
            .map(|index| {
                let write = SendWork::write(round * 100 + index, target + index * 8, pair.right.mr.rkey());
                let write = write.sge(pair.left.mr.sge(index as usize * 8, 8));
                if index == 31 { write } else { write.unsignaled() }
            })
            .collect();
        pair.left.qp.post_list(&mut sends);
        pair.left.expect_sent(&[pair.left.sent(round * 100 + 31, IBV_WC_RDMA_WRITE, 8)]);
    }
    pair.left.expect_nothing();
    assert_eq!(pair.right.mr.buffer().read(0, 256), pattern(256, 1));
}

fn all_signaled_queue_pairs_complete_every_request() {
    let pair = Pair::with(QpOptions { all_signaled: true, ..QpOptions::default() }, Connection::default());
    let target = pair.right.mr.address();
    let write = |wr_id| SendWork::write(wr_id, target, pair.right.mr.rkey()).unsignaled();
    pair.left.qp.post_list(&mut [write(1), write(2), write(3)]);
    let expected: Vec<_> = (1..=3).map(|wr_id| pair.left.sent(wr_id, IBV_WC_RDMA_WRITE, 0)).collect();
    pair.left.expect_sent(&expected);
}

fn a_million_bytes_in_every_direction() {
    let pair = Pair::new();
    let length = 1 << 20;
    let source = Mr::patterned(pair.left.pd(), length, 7);
    let target = Mr::fresh(pair.right.pd(), length);
    pair.right.qp.receive(ReceiveWork::new(10).sge(target.whole()));
    pair.left.qp.post(SendWork::send(1).sge(source.whole()));
    pair.left.expect_sent(&[pair.left.sent(1, IBV_WC_SEND, length)]);
    pair.right.expect_received(&[pair.right.received(10, length)]);
    assert_eq!(target.buffer().bytes(), pattern(length, 7));
    source.buffer().fill(0);
    pair.left.qp.post(SendWork::read(2, target.address(), target.rkey()).sge(source.whole()));
    pair.left.expect_sent(&[pair.left.sent(2, IBV_WC_RDMA_READ, length)]);
    assert_eq!(source.buffer().bytes(), pattern(length, 7));
}

fn both_directions_and_several_laps_of_mixed_sizes() {
    let pair = Pair::with(QpOptions::widest(), Connection::default());
    let caps = pair.left.qp.caps;
    // Several laps of a 1024-quanta ring, every WQE size, padding at every place.
    for round in 0..900_u64 {
        let (from, to) = if round % 2 == 0 { (&pair.left, &pair.right) } else { (&pair.right, &pair.left) };
        let count = (round * 7) as usize % caps.max_send_sge as usize + 1;
        let send = SendWork::send(round);
        let (send, length) = if round % 3 == 0 {
            let length = (round * 11) as usize % (caps.max_inline_data as usize + 1);
            (send.sge(from.mr.sge(0, length)).inline(), length)
        } else {
            let (elements, bytes) = scattered(&from.mr, count);
            (send.sges(elements), bytes.len())
        };
        to.qp.receive(ReceiveWork::new(!round).sge(to.mr.sge(REGION - 4096, 4096)));
        from.qp.post(send);
        from.expect_sent(&[from.sent(round, IBV_WC_SEND, length)]);
        to.expect_received(&[to.received(!round, length)]);
    }
}

fn a_message_to_itself() {
    let pair = Pair::unconnected(QpOptions::default());
    let side = &pair.left;
    side.qp.connect(Connection::default(), side.qp.number(), side.gid());
    side.qp.receive(ReceiveWork::new(10).sge(side.mr.sge(1000, 100)));
    side.qp.post(SendWork::send(1).sge(side.mr.sge(0, 100)));
    side.expect_sent(&[side.sent(1, IBV_WC_SEND, 100)]);
    side.expect_received(&[side.received(10, 100)]);
    assert_eq!(side.mr.buffer().read(1000, 100), side.mr.buffer().read(0, 100));
}

fn every_field_of_a_completion_is_written() {
    let pair = Pair::new();
    pair.right.qp.receive(ReceiveWork::new(10).sge(pair.right.mr.whole()));
    pair.left.qp.post(SendWork::send(1).sge(pair.left.mr.sge(0, 5)));
    // Compared as they are: nothing may be left of what was in the caller's memory.
    let sent = pair.left.qp.send_cq().wait_one();
    assert_eq!(Wc { src_qp: 0, ..sent }, Wc { src_qp: 0, ..pair.left.sent(1, IBV_WC_SEND, 5) });
    assert_eq!(pair.right.qp.recv_cq().wait_one(), pair.right.received(10, 5));
}

fn the_two_kinds_of_receive_are_told_apart() {
    let pair = Pair::new();
    pair.right.qp.receive_list(&mut [ReceiveWork::new(10), ReceiveWork::new(11), ReceiveWork::new(12)]);
    pair.left.qp.post_list(&mut [
        SendWork::send(1),
        SendWork::send(2).immediate(1),
        SendWork::write(3, pair.right.mr.address(), pair.right.mr.rkey()).immediate(2),
    ]);
    let opcodes: Vec<_> =
        pair.right.qp.recv_cq().wait(3).iter().map(|completion| completion.opcode).collect();
    assert_eq!(opcodes, [IBV_WC_RECV, IBV_WC_RECV, IBV_WC_RECV_RDMA_WITH_IMM]);
}

/// The programs of this file.
pub const TESTS: &[Test] = &[
    test!(every_field_of_a_completion_is_written)
        .fails_on_c("vendor_err of a success, pkey_index, slid, sl and dlid_path_bits are left as they were"),
    test!(the_two_kinds_of_receive_are_told_apart)
        .may_fail_on_c("the wire opcode of receives is overwritten"),
    test!(send_arrives_whole_at_every_length),
    test!(send_with_immediate_reports_it_in_network_order),
    test!(write_reaches_memory_and_completes_on_one_side_only),
    test!(write_with_immediate_consumes_a_receive),
    test!(read_fetches_remote_memory),
    test!(empty_messages_carry_nothing_and_complete),
    test!(a_stale_scatter_list_is_not_followed_by_sends),
    test!(a_stale_scatter_list_is_not_followed_by_writes)
        .fails_on_c("a write without elements copies the first element of a stale list"),
    test!(a_stale_scatter_list_is_not_followed_by_reads)
        .fails_on_c("a read without elements copies the first element of a stale list"),
    test!(a_stale_scatter_list_is_not_followed_by_receives)
        .may_fail_on_c("a receive without elements copies the first element of a stale list"),
    test!(every_number_of_elements_is_gathered_and_scattered),
    test!(immediate_goes_with_every_number_of_elements),
    test!(a_list_is_served_in_order),
    test!(unsignaled_requests_complete_silently),
    test!(all_signaled_queue_pairs_complete_every_request),
    test!(a_million_bytes_in_every_direction),
    test!(both_directions_and_several_laps_of_mixed_sizes),
    test!(a_message_to_itself),
];
