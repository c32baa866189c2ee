//! Atomic operations, and windows of the second type, where the device has them.

use irdma_tests::device::{Device, feature};
use irdma_tests::fixtures::Pair;
use irdma_tests::memory::{ALL_ACCESS, Mr};
use irdma_tests::qp::{Connection, QpOptions};
use irdma_tests::runner::{Test, skip};
use irdma_tests::sys::*;
use irdma_tests::test;
use irdma_tests::window::Window;
use irdma_tests::work::{Refused, SendWork};

/// A connection that lets the peer do everything.
fn pair() -> Pair {
    Device::present().require(feature::ATOMIC_OPS, "atomic operations");
    Pair::with(QpOptions::default(), open())
}

fn open() -> Connection {
    let access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    Connection { access, rnr_retry: 0, ..Connection::default() }
}

/// A region that everybody may use atomics on.
fn words(pair: &Pair) -> Mr {
    let access = ALL_ACCESS | IBV_ACCESS_REMOTE_ATOMIC as i32;
    Mr::new(pair.right.pd(), pair.right.mr.buffer(), access)
}

fn word(mr: &Mr, offset: usize) -> u64 {
    u64::from_le_bytes(mr.buffer().read(offset, 8).try_into().expect("eight bytes"))
}

fn atomics_change_the_word_and_bring_the_old_one() {
    let pair = pair();
    let mr = words(&pair);
    let expect = |opcode, old, new| {
        pair.left.expect_sent(&[pair.left.sent(1, opcode, 8)]);
        assert_eq!((word(&pair.left.mr, 8), word(&mr, 16)), (old, new));
    };
    let (address, rkey, sink) = (mr.address() + 16, mr.rkey(), pair.left.mr.sge(8, 8));
    mr.buffer().write(16, &100u64.to_le_bytes());
    pair.left.qp.post(SendWork::fetch_add(1, address, rkey, 0x1_0000_0001).sge(sink));
    expect(IBV_WC_FETCH_ADD, 100, 0x1_0000_0065);
    pair.left.qp.post(SendWork::compare_swap(1, address, rkey, 100, 7).sge(sink));
    expect(IBV_WC_COMP_SWAP, 0x1_0000_0065, 0x1_0000_0065);
    pair.left.qp.post(SendWork::compare_swap(1, address, rkey, 0x1_0000_0065, u64::MAX).sge(sink));
    expect(IBV_WC_COMP_SWAP, 0x1_0000_0065, u64::MAX);
    pair.left.qp.post(SendWork::fetch_add(1, address, rkey, 2).sge(sink));
    expect(IBV_WC_FETCH_ADD, u64::MAX, 1);
}

fn atomics_go_round_the_ring() {
    let pair = pair();
    let mr = words(&pair);
    // Mixed with shorter and longer requests, so that one falls on every place.
    for round in 0..700u64 {
        let write = SendWork::write(0, mr.address() + 64, mr.rkey()).unsignaled();
        let sges = (0..round % 4).map(|index| pair.left.mr.sge(64 + index as usize * 8, 8));
        pair.left.qp.post(write.sges(sges));
        let add = SendWork::fetch_add(round, mr.address(), mr.rkey(), 3);
        pair.left.qp.post(add.sge(pair.left.mr.sge(0, 8)));
        pair.left.expect_sent(&[pair.left.sent(round, IBV_WC_FETCH_ADD, 8)]);
        assert_eq!(word(&pair.left.mr, 0), round * 3, "the word before round {round}");
    }
}

fn an_atomic_takes_one_element_of_eight_bytes_at_a_word() {
    let pair = pair();
    let mr = words(&pair);
    let sink = |length| pair.left.mr.sge(0, length);
    let (address, rkey) = (mr.address(), mr.rkey());
    let wrong = || {
        [
            SendWork::fetch_add(1, address, rkey, 1),
            SendWork::fetch_add(1, address, rkey, 1).stale_list(irdma_tests::work::unmapped_list()),
            SendWork::fetch_add(1, address, rkey, 1).sge(sink(8)).sge(sink(8)),
            SendWork::compare_swap(1, address, rkey, 1, 2).sge(sink(4)),
            SendWork::compare_swap(1, address, rkey, 1, 2).sge(sink(16)),
            SendWork::fetch_add(1, address + 4, rkey, 1).sge(sink(8)),
            SendWork::compare_swap(1, address + 1, rkey, 1, 2).sge(sink(8)),
        ]
    };
    for index in 0..wrong().len() {
        let bad = wrong().into_iter().nth(index).expect("one of them");
        let good = SendWork::fetch_add(5, address, rkey, 1).sge(sink(8));
        let refused = pair.left.qp.try_post(&mut [good, bad]);
        assert_eq!(refused, Err(Refused { errno: libc::EINVAL, index: 1 }), "case {index}");
        pair.left.expect_sent(&[pair.left.sent(5, IBV_WC_FETCH_ADD, 8)]);
        assert_eq!(word(&mr, 0), index as u64 + 1);
    }
}

fn a_region_without_the_right_refuses_atomics() {
    let pair = pair();
    let mr = &pair.right.mr;
    let sink = pair.left.mr.sge(0, 8);
    pair.left.qp.post(SendWork::fetch_add(1, mr.address(), mr.rkey(), 1).sge(sink));
    let expected = pair.left.sent(1, IBV_WC_FETCH_ADD, 8).failed(IBV_WC_REM_ACCESS_ERR, 3);
    pair.left.expect_sent(&[expected]);
}

/// A pair on a device with windows of the second type.
fn windows() -> Pair {
    if Device::present().generation != 3 {
        skip("the device has no windows of the second type");
    }
    Pair::with(QpOptions::default(), open())
}

fn range(mr: &Mr, offset: usize, length: usize) -> ibv_mw_bind_info {
    ibv_mw_bind_info {
        mr: mr.raw(),
        addr: mr.address() + offset as u64,
        length: length as u64,
        mw_access_flags: IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
    }
}

fn bindable(pair: &Pair) -> Mr {
    let access = ALL_ACCESS | IBV_ACCESS_MW_BIND as i32;
    Mr::new(pair.right.pd(), pair.right.mr.buffer(), access)
}

/// Status of a write of eight bytes from left.
fn write_status(pair: &Pair, address: u64, rkey: u32) -> u32 {
    pair.left.qp.post(SendWork::write(1, address, rkey).sge(pair.left.mr.sge(0, 8)));
    pair.left.qp.send_cq().wait_one().status
}

fn a_window_of_the_second_type_has_the_key_of_the_request() {
    let pair = windows();
    let mr = bindable(&pair);
    let window = Window::try_new(pair.right.pd(), IBV_MW_TYPE_2).expect("a window of type 2");
    let before = window.rkey();
    let key = before & !0xff | 0x5a;
    // What stands above the low byte is the window's own.
    let bind = SendWork::bind(7, window.raw(), key ^ 0x1234_5600, range(&mr, 64, 64));
    pair.right.qp.post(bind);
    assert_eq!(window.rkey(), key);
    pair.right.expect_sent(&[pair.right.sent(7, IBV_WC_BIND_MW, 0)]);
    assert_eq!(write_status(&pair, mr.address() + 64, key), IBV_WC_SUCCESS);
    pair.right.qp.post(SendWork::invalidate(8, key));
    pair.right.expect_sent(&[pair.right.sent(8, IBV_WC_LOCAL_INV, 0)]);
    assert_eq!(write_status(&pair, mr.address() + 64, key), IBV_WC_REM_ACCESS_ERR);
}

fn a_refused_bind_leaves_the_key() {
    let pair = windows();
    let mr = bindable(&pair);
    let window = Window::try_new(pair.right.pd(), IBV_MW_TYPE_2).expect("a window of type 2");
    let before = window.rkey();
    // The queue is stopped and filled up.
    assert_eq!(pair.right.qp.move_to(IBV_QPS_SQD), 0);
    while pair.right.qp.try_post(&mut [SendWork::send(1)]).is_ok() {}
    let refused =
        pair.right.qp.try_post(&mut [SendWork::bind(7, window.raw(), before ^ 1, range(&mr, 0, 64))]);
    assert_eq!(refused, Err(Refused { errno: libc::ENOMEM, index: 0 }));
    assert_eq!(window.rkey(), before);
    let mut nowhere = range(&mr, 0, 64);
    nowhere.mr = std::ptr::null_mut();
    let refused = pair.right.qp.try_post(&mut [SendWork::bind(7, window.raw(), before ^ 1, nowhere)]);
    assert_eq!(refused, Err(Refused { errno: libc::EINVAL, index: 0 }));
    assert_eq!(window.rkey(), before);
}

/// The programs of this file.
pub const TESTS: &[Test] = &[
    test!(atomics_change_the_word_and_bring_the_old_one),
    test!(atomics_go_round_the_ring),
    test!(an_atomic_takes_one_element_of_eight_bytes_at_a_word),
    test!(a_region_without_the_right_refuses_atomics),
    test!(a_window_of_the_second_type_has_the_key_of_the_request),
    test!(a_refused_bind_leaves_the_key),
];
