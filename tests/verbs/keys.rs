//! Keys that requests invalidate, and windows that the device lacks.

use irdma_tests::device::Device;
use irdma_tests::fixtures::Pair;
use irdma_tests::memory::{ALL_ACCESS, Mr};
use irdma_tests::qp::{Connection, QpOptions};
use irdma_tests::runner::{Test, skip};
use irdma_tests::sys::*;
use irdma_tests::test;
use irdma_tests::window::Window;
use irdma_tests::work::{ReceiveWork, SendWork};

/// Left's status of a write of eight bytes.
fn write_status(pair: &Pair, address: u64, rkey: u32) -> u32 {
    pair.left.qp.post(SendWork::write(1, address, rkey).sge(pair.left.mr.sge(0, 8)));
    pair.left.qp.send_cq().wait_one().status
}

fn second_type_windows_do_not_exist() {
    if Device::present().generation == 3 {
        skip("the device has windows of type 2");
    }
    let pair = Pair::unconnected(QpOptions::default());
    let errno = Window::try_new(pair.left.pd(), IBV_MW_TYPE_2).err().expect("type 2 needs GEN3");
    assert!([libc::EOPNOTSUPP, libc::EINVAL].contains(&errno), "errno {errno}");
}

fn a_local_invalidate_kills_a_key() {
    let pair = Pair::with(QpOptions::default(), Connection { rnr_retry: 0, ..Connection::default() });
    let mr = Mr::new(pair.right.pd(), pair.right.mr.buffer(), ALL_ACCESS);
    assert_eq!(write_status(&pair, mr.address(), mr.rkey()), IBV_WC_SUCCESS);
    pair.right.qp.post(SendWork::invalidate(5, mr.rkey()));
    pair.right.expect_sent(&[pair.right.sent(5, IBV_WC_LOCAL_INV, 0)]);
    assert_eq!(write_status(&pair, mr.address(), mr.rkey()), IBV_WC_REM_ACCESS_ERR);
    assert!(mr.deregister().is_ok(), "an invalidated region can still be deregistered");
}

fn a_send_with_invalidate_kills_the_receivers_key() {
    let pair = Pair::with(QpOptions::default(), Connection { rnr_retry: 0, ..Connection::default() });
    for solicited in [false, true] {
        let mr = Mr::new(pair.right.pd(), pair.right.mr.buffer(), ALL_ACCESS);
        pair.right.qp.receive(ReceiveWork::new(10).sge(pair.right.mr.whole()));
        let send = SendWork::send(1).sge(pair.left.mr.sge(0, 50)).invalidating(mr.rkey());
        pair.left.qp.post(if solicited { send.flags(IBV_SEND_SOLICITED) } else { send });
        pair.left.expect_sent(&[pair.left.sent(1, IBV_WC_SEND, 50)]);
        pair.right.expect_received(&[pair.right.received(10, 50).with_invalidated(mr.rkey())]);
        if solicited {
            assert_eq!(write_status(&pair, mr.address(), mr.rkey()), IBV_WC_REM_ACCESS_ERR);
        }
        assert!(mr.deregister().is_ok());
    }
}

/// The programs of this file.
pub const TESTS: &[Test] = &[
    test!(a_local_invalidate_kills_a_key),
    test!(a_send_with_invalidate_kills_the_receivers_key),
    test!(second_type_windows_do_not_exist),
];
