//! Posts that must be refused, and full queues: the error number, `bad_wr`, and nothing else changed.

use irdma_tests::device::{Device, feature};
use irdma_tests::fixtures::{Datagrams, Pair, Q_KEY};
use irdma_tests::qp::{Connection, QpOptions};
use irdma_tests::runner::{Test, skip};
use irdma_tests::sys::*;
use irdma_tests::test;
use irdma_tests::work::{ReceiveWork, Refused, SendWork, unmapped_list};

/// A list of good, bad, good: the first is posted and served, the second named, the third untouched.
#[track_caller]
fn check_refused(pair: &Pair, bad: SendWork, errno: i32) {
    let good = |wr_id| {
        let write = SendWork::write(wr_id, pair.right.mr.address(), pair.right.mr.rkey());
        write.sge(pair.left.mr.sge(0, 8))
    };
    let refused = pair.left.qp.try_post(&mut [good(1), bad, good(3)]);
    assert_eq!(refused, Err(Refused { errno, index: 1 }));
    pair.left.expect_sent(&[pair.left.sent(1, IBV_WC_RDMA_WRITE, 8)]);
    pair.left.expect_nothing();
    pair.right.expect_nothing();
    assert_eq!(pair.left.qp.state(), IBV_QPS_RTS);
}

/// The gathering requests, with nothing to gather yet.
fn gathering(pair: &Pair) -> Vec<SendWork> {
    let (address, rkey) = (pair.right.mr.address(), pair.right.mr.rkey());
    vec![
        SendWork::send(2),
        SendWork::send(2).immediate(1),
        SendWork::send(2).invalidating(1),
        SendWork::write(2, address, rkey),
        SendWork::write(2, address, rkey).immediate(1),
        SendWork::read(2, address, rkey),
    ]
}

fn more_elements_than_the_queue_pair_has_are_refused() {
    let pair = Pair::with(QpOptions { max_send_sge: 3, ..QpOptions::default() }, Connection::default());
    assert_eq!(pair.left.qp.caps.max_send_sge, 3);
    for count in [4, 14, 100] {
        for work in gathering(&pair) {
            check_refused(&pair, work.sges((0..count).map(|_| pair.left.mr.sge(0, 1))), libc::EINVAL);
        }
    }
}

fn inline_elements_are_counted_as_well() {
    let pair = Pair::with(QpOptions { max_send_sge: 3, ..QpOptions::default() }, Connection::default());
    let elements = || (0..4).map(|_| pair.left.mr.sge(0, 1));
    check_refused(&pair, SendWork::send(2).sges(elements()).inline(), libc::EINVAL);
    let write = SendWork::write(2, pair.right.mr.address(), pair.right.mr.rkey());
    check_refused(&pair, write.sges(elements()).inline(), libc::EINVAL);
}

fn a_negative_number_of_elements_is_refused() {
    let pair = Pair::new();
    for mut work in gathering(&pair) {
        // The wrapper counts for itself: post the raw request alone.
        work.raw.num_sge = -1;
        let mut bad = std::ptr::null_mut();
        // SAFETY: the request is valid but for its count, which must be found out before the list is read.
        let errno = unsafe { ibv_post_send(pair.left.qp.raw(), &mut work.raw, &mut bad) };
        assert_eq!((errno, bad), (libc::EINVAL, &raw mut work.raw));
    }
    let mut receive = ReceiveWork::new(1);
    receive.raw.num_sge = -1;
    let mut bad = std::ptr::null_mut();
    // SAFETY: as above.
    let errno = unsafe { ibv_post_recv(pair.left.qp.raw(), &mut receive.raw, &mut bad) };
    assert_eq!((errno, bad), (libc::EINVAL, &raw mut receive.raw));
    pair.check_alive();
}

fn a_list_that_is_too_long_is_not_read() {
    let options = QpOptions { max_send_sge: 3, max_recv_sge: 3, ..QpOptions::default() };
    let pair = Pair::with(options, Connection::default());
    for count in [4, 15, 16, i32::MAX] {
        let works = gathering(&pair).into_iter().chain(gathering(&pair).into_iter().map(SendWork::inline));
        for mut work in works {
            (work.raw.sg_list, work.raw.num_sge) = (unmapped_list(), count);
            let mut bad = std::ptr::null_mut();
            // SAFETY: the request is valid but for its count, which must be found out without the list.
            let errno = unsafe { ibv_post_send(pair.left.qp.raw(), &mut work.raw, &mut bad) };
            assert_eq!((errno, bad), (libc::EINVAL, &raw mut work.raw), "{count} elements");
        }
        let mut receive = ReceiveWork::new(1);
        (receive.raw.sg_list, receive.raw.num_sge) = (unmapped_list(), count);
        let mut bad = std::ptr::null_mut();
        // SAFETY: as above.
        let errno = unsafe { ibv_post_recv(pair.left.qp.raw(), &mut receive.raw, &mut bad) };
        assert_eq!((errno, bad), (libc::EINVAL, &raw mut receive.raw), "{count} elements");
    }
    pair.check_alive();
}

fn more_inline_bytes_than_the_queue_pair_has_are_refused() {
    let device = Device::present();
    for limit in [0, 8, device.inline.min(64), device.inline.min(101)] {
        let pair =
            Pair::with(QpOptions { max_inline_data: limit, ..QpOptions::default() }, Connection::default());
        let allowed = pair.left.qp.caps.max_inline_data as usize;
        assert!(allowed >= limit as usize, "create_qp gave less inline space than asked for");
        for length in [allowed + 1, device.inline as usize + 1, 4096, 60000] {
            let element = pair.left.mr.sge(0, length);
            check_refused(&pair, SendWork::send(2).sge(element).inline(), libc::EINVAL);
            let write = SendWork::write(2, pair.right.mr.address(), pair.right.mr.rkey());
            check_refused(&pair, write.sge(element).inline(), libc::EINVAL);
        }
        let sum = (0..3).map(|_| pair.left.mr.sge(0, allowed / 3 + 1));
        check_refused(&pair, SendWork::send(2).sges(sum).inline(), libc::EINVAL);
    }
}

fn inline_lengths_that_wrap_around_are_refused() {
    let pair = Pair::new();
    let half = ibv_sge { length: 1 << 31, ..pair.left.mr.sge(0, 0) };
    check_refused(&pair, SendWork::send(2).sge(half).sge(half).inline(), libc::EINVAL);
    let most = ibv_sge { length: u32::MAX, ..pair.left.mr.sge(0, 0) };
    check_refused(&pair, SendWork::send(2).sge(most).sge(pair.left.mr.sge(0, 2)).inline(), libc::EINVAL);
}

fn an_element_of_two_gigabytes_is_refused() {
    if Device::present().generation == 1 {
        skip("the first generation has elements of any length");
    }
    let pair = Pair::new();
    for length in [1 << 31, u32::MAX] {
        for work in gathering(&pair) {
            let element = ibv_sge { length, ..pair.left.mr.sge(0, 0) };
            check_refused(&pair, work.sge(element), libc::EINVAL);
        }
    }
}

fn a_message_longer_than_a_length_can_say_is_no_success() {
    let pair = Pair::new();
    let element = ibv_sge { length: (1 << 31) - 1, ..pair.left.mr.sge(0, 0) };
    let write = SendWork::write(1, pair.right.mr.address(), pair.right.mr.rkey());
    // Four times nearly two gigabytes: the sum does not fit 32 bits.
    match pair.left.qp.try_post(&mut [write.sges([element; 4])]) {
        Err(refused) => assert_eq!(refused, Refused { errno: libc::EINVAL, index: 0 }),
        Ok(()) => {
            let completion = pair.left.qp.send_cq().wait_one();
            assert_ne!(completion.status, IBV_WC_SUCCESS, "{completion:?}");
        }
    }
}

fn operations_that_the_device_lacks_are_refused() {
    let pair = Pair::new();
    let mut opcodes = vec![IBV_WR_TSO, 77, u32::MAX];
    if !Device::present().has(feature::ATOMIC_OPS) {
        opcodes.extend([IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD]);
    }
    for opcode in opcodes {
        let work = SendWork::new(2, opcode).sge(pair.left.mr.sge(0, 8));
        check_refused(&pair, work, libc::EINVAL);
    }
}

fn datagram_queue_pairs_only_send() {
    let pair = Datagrams::new();
    let opcodes = [
        IBV_WR_RDMA_WRITE,
        IBV_WR_RDMA_WRITE_WITH_IMM,
        IBV_WR_RDMA_READ,
        IBV_WR_SEND_WITH_INV,
        IBV_WR_LOCAL_INV,
        IBV_WR_BIND_MW,
        IBV_WR_ATOMIC_FETCH_AND_ADD,
        IBV_WR_ATOMIC_CMP_AND_SWP,
    ];
    for opcode in opcodes {
        let work = SendWork::new(2, opcode).to(pair.ah.raw(), pair.right.qp.number(), Q_KEY);
        let refused = pair.left.qp.try_post(&mut [work.sge(pair.left.mr.sge(0, 8))]);
        assert_eq!(refused, Err(Refused { errno: libc::EINVAL, index: 0 }), "opcode {opcode}");
    }
    pair.left.expect_nothing();
    assert_eq!(pair.left.qp.state(), IBV_QPS_RTS);
}

fn a_datagram_needs_a_handle() {
    let pair = Datagrams::new();
    let refused = pair.left.qp.try_post(&mut [SendWork::send(1).to(std::ptr::null_mut(), 1, 1)]);
    assert_eq!(refused, Err(Refused { errno: libc::EINVAL, index: 0 }));
}

fn more_elements_than_a_receive_has_are_refused() {
    let pair = Pair::with(QpOptions { max_recv_sge: 2, ..QpOptions::default() }, Connection::default());
    let receive = |wr_id, count| ReceiveWork::new(wr_id).sges((0..count).map(|_| pair.left.mr.sge(0, 100)));
    let refused = pair.left.qp.try_receive(&mut [receive(1, 2), receive(2, 3), receive(3, 1)]);
    assert_eq!(refused, Err(Refused { errno: libc::EINVAL, index: 1 }));
    pair.right.qp.post_list(&mut [SendWork::send(9).sge(pair.right.mr.sge(0, 10))]);
    pair.left.expect_received(&[pair.left.received(1, 10)]);
    pair.left.qp.receive(receive(4, 2));
    pair.right.qp.post(SendWork::send(9).sge(pair.right.mr.sge(0, 11)));
    pair.left.expect_received(&[pair.left.received(4, 11)]);
}

/// Options, and a work request that takes the most room such a queue pair can be asked for.
fn sizes() -> Vec<QpOptions> {
    let sized = |max_send_wr, max_send_sge, max_inline_data| QpOptions {
        max_send_wr,
        max_send_sge,
        max_inline_data,
        ..QpOptions::default()
    };
    let widest = QpOptions::widest();
    vec![
        sized(1, 1, 0),
        sized(100, 1, 8),
        sized(200, 3, 0),
        sized(64, 2, 39),
        sized(33, widest.max_send_sge.min(6), widest.max_inline_data),
        sized(17, widest.max_send_sge, widest.max_inline_data),
        sized(500, widest.max_send_sge, 0),
    ]
}

fn as_many_requests_fit_as_create_promised() {
    for options in sizes() {
        let connection = Connection::default();
        let pair = Pair::with(options, connection);
        let promised = pair.left.qp.caps.max_send_wr as usize;
        assert!(promised >= options.max_send_wr as usize, "{promised} of {options:?}");
        let write = |wr_id: u64, elements: usize, inline: usize| {
            let write = SendWork::write(wr_id, pair.right.mr.address(), pair.right.mr.rkey());
            if inline > 0 {
                write.sge(pair.left.mr.sge(0, inline)).inline().unsignaled()
            } else {
                write.sges((0..elements).map(|index| pair.left.mr.sge(index * 8, 8))).unsignaled()
            }
        };
        // Starts at every place of a chunk, with every mix of sizes.
        for round in 0..16_usize {
            let work = |index: usize| {
                let size = match round % 4 {
                    0 => options.max_send_sge as usize,
                    1 => 1,
                    _ => (index * 7 + round) % options.max_send_sge as usize + 1,
                };
                let inline =
                    if (index + round).is_multiple_of(3) { options.max_inline_data as usize } else { 0 };
                write(index as u64, size, inline)
            };
            let mut works: Vec<_> = (0..promised).map(work).collect();
            let last = works.pop().expect("at least one").flags(IBV_SEND_SIGNALED);
            let length = if last.raw.send_flags & IBV_SEND_INLINE != 0 {
                options.max_inline_data as usize
            } else {
                8 * match round % 4 {
                    0 => options.max_send_sge as usize,
                    1 => 1,
                    _ => ((promised - 1) * 7 + round) % options.max_send_sge as usize + 1,
                }
            };
            works.push(last);
            pair.left.qp.post_list(&mut works);
            pair.left.expect_sent(&[pair.left.sent(promised as u64 - 1, IBV_WC_RDMA_WRITE, length)]);
        }
        pair.left.expect_nothing();
    }
}

fn a_full_send_queue_refuses_and_recovers() {
    for options in sizes() {
        let pair = Pair::with(options, Connection::default());
        let widest = |wr_id: u64| {
            let elements = (0..options.max_send_sge as usize).map(|index| pair.left.mr.sge(index * 8, 8));
            SendWork::write(wr_id, pair.right.mr.address(), pair.right.mr.rkey()).sges(elements)
        };
        let length = options.max_send_sge as usize * 8;
        // More than any ring of these sizes has quanta.
        let ring = 10_000;
        for _ in 0..3 {
            let mut works: Vec<_> = (0..ring).map(widest).collect();
            let refused = pair.left.qp.try_post(&mut works).expect_err("the queue never fills");
            assert_eq!(refused.errno, libc::ENOMEM);
            let accepted = refused.index as u64;
            assert!(accepted >= u64::from(pair.left.qp.caps.max_send_wr));
            // Still refused, whatever it is, with the first request named.
            let small = || SendWork::write(7777, pair.right.mr.address(), pair.right.mr.rkey());
            for _ in 0..3 {
                let refused = pair.left.qp.try_post(&mut [widest(8888), small()]);
                assert_eq!(refused, Err(Refused { errno: libc::ENOMEM, index: 0 }));
            }
            let expected: Vec<_> =
                (0..accepted).map(|wr_id| pair.left.sent(wr_id, IBV_WC_RDMA_WRITE, length)).collect();
            irdma_tests::wc::assert_completions(
                &pair.left.qp.send_cq().wait_in_batches(accepted as usize, 16),
                &expected,
            );
        }
        pair.left.expect_nothing();
    }
}

fn a_list_longer_than_the_room_stops_at_the_limit() {
    let pair = Pair::new();
    let write = |wr_id| SendWork::write(wr_id, pair.right.mr.address(), pair.right.mr.rkey()).unsignaled();
    let mut works: Vec<_> = (0..5000).map(write).collect();
    let refused = pair.left.qp.try_post(&mut works).expect_err("5000 requests do not fit");
    assert_eq!(refused.errno, libc::ENOMEM);
    assert!(refused.index >= pair.left.qp.caps.max_send_wr as usize);
    // What was accepted is served in order; nothing reports it: a failing request behind it does.
    pair.left.qp.fail();
    let expected: Vec<_> = (0..refused.index as u64)
        .map(|wr_id| pair.left.sent(wr_id, IBV_WC_RDMA_WRITE, 0).flushed())
        .collect();
    irdma_tests::wc::assert_completions(
        &pair.left.qp.send_cq().wait_in_batches(refused.index, 64),
        &expected,
    );
    pair.left.expect_nothing();
}

fn a_full_receive_queue_refuses_and_recovers() {
    for (max_recv_wr, max_recv_sge) in [(1, 1), (64, 1), (100, 3), (33, QpOptions::widest().max_recv_sge)] {
        let options = QpOptions { max_recv_wr, max_recv_sge, max_send_wr: 600, ..QpOptions::default() };
        let pair = Pair::with(options, Connection::default());
        let promised = u64::from(pair.right.qp.caps.max_recv_wr);
        assert!(promised >= u64::from(max_recv_wr));
        let receive = |wr_id: u64| ReceiveWork::new(wr_id).sge(pair.right.mr.sge(wr_id as usize * 8, 8));
        for lap in 0..3 {
            let mut receives: Vec<_> = (0..promised + 2).map(receive).collect();
            let refused = pair.right.qp.try_receive(&mut receives);
            assert_eq!(refused, Err(Refused { errno: libc::ENOMEM, index: promised as usize }), "lap {lap}");
            let refused = pair.right.qp.try_receive(&mut [receive(0)]);
            assert_eq!(refused, Err(Refused { errno: libc::ENOMEM, index: 0 }));
            for wr_id in 0..promised {
                pair.left.qp.post(SendWork::send(wr_id).sge(pair.left.mr.sge(0, 8)));
                pair.left.expect_sent(&[pair.left.sent(wr_id, IBV_WC_SEND, 8)]);
                pair.right.expect_received(&[pair.right.received(wr_id, 8)]);
            }
        }
        pair.right.expect_nothing();
    }
}

fn a_receive_makes_room_for_exactly_one_more() {
    let pair = Pair::with(QpOptions { max_recv_wr: 4, ..QpOptions::default() }, Connection::default());
    let promised = u64::from(pair.right.qp.caps.max_recv_wr);
    let mut receives: Vec<_> = (0..promised).map(ReceiveWork::new).collect();
    pair.right.qp.receive_list(&mut receives);
    for round in 0..50 {
        assert_eq!(
            pair.right.qp.try_receive(&mut [ReceiveWork::new(0)]),
            Err(Refused { errno: libc::ENOMEM, index: 0 })
        );
        pair.left.qp.post(SendWork::send(1));
        pair.left.expect_sent(&[pair.left.sent(1, IBV_WC_SEND, 0)]);
        pair.right.expect_received(&[pair.right.received(round, 0)]);
        pair.right.qp.receive(ReceiveWork::new(round + promised));
    }
}

fn an_empty_list_is_nothing() {
    let pair = Pair::new();
    pair.left.qp.post_list(&mut []);
    pair.left.qp.receive_list(&mut []);
    pair.check_alive();
}

/// The programs of this file.
pub const TESTS: &[Test] = &[
    test!(more_elements_than_the_queue_pair_has_are_refused),
    test!(inline_elements_are_counted_as_well),
    test!(a_negative_number_of_elements_is_refused),
    test!(a_list_that_is_too_long_is_not_read),
    test!(more_inline_bytes_than_the_queue_pair_has_are_refused),
    test!(inline_lengths_that_wrap_around_are_refused).fails_on_c("the sum is taken in 32 bits"),
    test!(an_element_of_two_gigabytes_is_refused).fails_on_c("the length is cut to 31 bits"),
    test!(a_message_longer_than_a_length_can_say_is_no_success),
    test!(operations_that_the_device_lacks_are_refused),
    test!(datagram_queue_pairs_only_send).fails_on_c("every operation is passed on for UD"),
    test!(a_datagram_needs_a_handle).fails_on_c("the handle is followed unseen"),
    test!(more_elements_than_a_receive_has_are_refused),
    test!(as_many_requests_fit_as_create_promised),
    test!(a_full_send_queue_refuses_and_recovers),
    test!(a_list_longer_than_the_room_stops_at_the_limit),
    test!(a_full_receive_queue_refuses_and_recovers),
    test!(a_receive_makes_room_for_exactly_one_more),
    test!(an_empty_list_is_nothing),
];
