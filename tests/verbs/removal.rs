//! A card that is taken out while programs use it. Needs a device of its own, which is gone afterwards.

use irdma_tests::channel::{PATIENCE, async_event_within};
use irdma_tests::context::{Context, Pd};
use irdma_tests::control::control;
use irdma_tests::cq::Cq;
use irdma_tests::fixtures::Pair;
use irdma_tests::memory::{ALL_ACCESS, Buffer, Mr};
use irdma_tests::runner::Test;
use irdma_tests::sys::*;
use irdma_tests::test;
use irdma_tests::work::{ReceiveWork, SendWork};

fn commands_fail_and_everything_can_be_let_go() {
    // SAFETY: the program has one thread yet, and libibverbs has not looked at its environment.
    unsafe { std::env::set_var("RDMAV_ALLOW_DISASSOC_DESTROY", "1") };
    let pair = Pair::new();
    pair.check_alive();
    pair.left.qp.receive(ReceiveWork::new(10));
    control("remove");

    for side in [&pair.left, &pair.right] {
        let event = async_event_within(side.context(), PATIENCE).expect("a fatal event of the device");
        assert_eq!(event.kind, IBV_EVENT_DEVICE_FATAL);
    }
    assert_eq!(Pd::try_new(pair.left.context()).err(), Some(libc::EIO));
    assert_eq!(Cq::try_new(pair.left.context(), 16, None).err(), Some(libc::EIO));
    let buffer = std::sync::Arc::new(Buffer::new(100));
    assert_eq!(Mr::try_new(pair.left.pd(), &buffer, ALL_ACCESS).err(), Some(libc::EIO));
    assert_eq!(pair.left.qp.move_to(IBV_QPS_ERR), libc::EIO);
    // Posts go nowhere, polls find nothing new; neither crashes nor hangs.
    for wr_id in 0..10 {
        pair.left.qp.post(SendWork::send(wr_id));
    }
    pair.left.qp.send_cq().poll(16);
    pair.left.qp.recv_cq().poll(16);
    pair.left.qp.send_cq().arm(false);
    // The library calls a destroy of what the kernel has dropped already a success; the owners check that it does.
    drop(pair);
    assert!(Context::try_open().is_err(), "a removed card cannot be opened");
}

/// The programs of this file.
pub const TESTS: &[Test] = &[test!(commands_fail_and_everything_can_be_let_go)];
