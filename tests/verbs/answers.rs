//! Answers of the kernel that cannot be: refused, and all of it undone.
//!
//! The device is made to answer them, see `answer` of its control commands.

use irdma_tests::context::{Context, Pd};
use irdma_tests::control::control;
use irdma_tests::cq::Cq;
use irdma_tests::cq_ex::CqEx;
use irdma_tests::device::{Device, feature};
use irdma_tests::fixtures::Pair;
use irdma_tests::holdings::Holdings;
use irdma_tests::qp::{Ah, Qp, QpOptions};
use irdma_tests::runner::{Test, skip};
use irdma_tests::srq::Srq;
use irdma_tests::test;
use irdma_tests::work::ah_attributes;

/// Offsets in the driver's parts of answers.
mod offset {
    pub const SEND_QUEUE: usize = 4;
    pub const RECEIVE_QUEUE: usize = 8;
    pub const COMPLETION_QUEUE: usize = 4;
    pub const SHARED_QUEUE: usize = 4;
    pub const ADDRESS_HANDLE: usize = 0;
    pub const DOORBELL_KEY: usize = 24;
    pub const FRAGMENTS: usize = 32;
    pub const INLINE: usize = 40;
    pub const SEND_QUANTA: usize = 48;
    pub const CHUNK: usize = 60;
    pub const REVISION: usize = 62;
}

/// Lets the next answer to a command have these bytes.
fn answer(command: &str, offset: usize, bytes: &[u8]) {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    control(&format!("answer {command} {offset} {hex} 1"));
}

/// Sizes that no queue has: none, one that is too small for anything, more than there is memory for, and all bits.
fn impossible_sizes() -> [u32; 6] {
    [0, 1, 1 << 16, 1 << 31, u32::MAX - 1, u32::MAX]
}

/// Creates something with each of those sizes in the answer: EINVAL, and nothing is left.
fn refuse_sizes<T>(command: &str, offset: usize, attempt: impl Fn() -> Result<T, i32>) {
    drop(attempt().expect("possible as such"));
    for size in impossible_sizes() {
        let before = Holdings::now();
        answer(command, offset, &size.to_le_bytes());
        assert_eq!(attempt().err(), Some(libc::EINVAL), "{command}: a size of {size}");
        before.check(&format!("after {command} with a size of {size}"));
    }
    drop(attempt().expect("possible as before"));
}

fn impossible_work_queues_are_refused() {
    let context = Context::open();
    let (pd, cq) = (Pd::new(&context), Cq::new(&context, 16));
    let attempt = || Qp::try_new(&pd, &cq, &cq, QpOptions::default());
    refuse_sizes("create_qp", offset::SEND_QUEUE, attempt);
    refuse_sizes("create_qp", offset::RECEIVE_QUEUE, attempt);
}

fn impossible_completion_queues_are_refused() {
    let context = Context::open();
    refuse_sizes("create_cq", offset::COMPLETION_QUEUE, || Cq::try_new(&context, 100, None));
    if Device::present().generation > 1 {
        let attempt = || CqEx::try_new(&context, None, &mut CqEx::attributes(100, 0));
        refuse_sizes("create_cq", offset::COMPLETION_QUEUE, attempt);
    }
}

fn impossible_shared_queues_are_refused() {
    Device::present().require(feature::SRQ, "shared receive queues");
    let pd = Pd::new(&Context::open());
    refuse_sizes("create_srq", offset::SHARED_QUEUE, || Srq::try_new(&pd, 100, 2));
}

fn a_handle_that_no_request_can_name_is_refused() {
    Device::present().require_roce("address handles");
    let context = Context::open();
    let pd = Pd::new(&context);
    let gid = context.gid(i32::from(context.gid_index()));
    for number in [1 << 25, u32::MAX] {
        let before = Holdings::now();
        answer("create_ah", offset::ADDRESS_HANDLE, &u32::to_le_bytes(number));
        assert_eq!(Ah::try_new(&pd, ah_attributes(&context, gid)).err(), Some(libc::EPROTO));
        before.check("after a handle with an impossible number");
    }
    drop(Ah::new(&pd, gid));
}

/// Ends the program on the legacy kernel, whose answer to the open call ends before what is changed here.
fn require_full_answer() {
    if Device::present().legacy != 0 {
        skip("the legacy kernel does not tell it");
    }
}

fn impossible_limits_are_refused() {
    require_full_answer();
    drop(Context::open());
    let limits: [(&str, usize, &[u8]); 6] = [
        ("fragments", offset::FRAGMENTS, &1000u32.to_le_bytes()),
        ("all fragments", offset::FRAGMENTS, &u32::MAX.to_le_bytes()),
        ("inline bytes", offset::INLINE, &5000u32.to_le_bytes()),
        ("quanta", offset::SEND_QUANTA, &u32::MAX.to_le_bytes()),
        ("no chunk", offset::CHUNK, &0u16.to_le_bytes()),
        ("an odd chunk", offset::CHUNK, &7u16.to_le_bytes()),
    ];
    for (name, offset, bytes) in limits {
        let before = Holdings::now();
        answer("get_context", offset, bytes);
        assert_eq!(Context::try_open().err(), Some(libc::EPROTO), "{name}");
        before.check(&format!("after an open with impossible {name}"));
    }
    Pair::new().check_alive();
}

fn a_doorbell_page_that_cannot_be_mapped_fails_the_open() {
    require_full_answer();
    drop(Context::open());
    // Of no page, and of none that there can be. What is behind the end can be mapped here.
    for key in [1, u64::MAX] {
        let before = Holdings::now();
        answer("get_context", offset::DOORBELL_KEY, &u64::to_le_bytes(key));
        let errno = Context::try_open().err();
        assert!(matches!(errno, Some(libc::EINVAL | libc::EPROTO)), "{errno:?}");
        before.check(&format!("after an open with doorbell key {key:#x}"));
    }
    Pair::new().check_alive();
}

fn a_revision_that_nobody_knows_is_not_opened() {
    require_full_answer();
    drop(Context::open());
    for revision in [5, 6, 255] {
        let before = Holdings::now();
        answer("get_context", offset::REVISION, &[revision]);
        assert_eq!(Context::try_open().err(), Some(libc::EOPNOTSUPP), "revision {revision}");
        before.check(&format!("after an open of revision {revision}"));
    }
}

fn revision_four_speaks_as_three_does() {
    if Device::present().generation != 3 {
        skip("the device is of another generation");
    }
    for _ in 0..2 {
        answer("get_context", offset::REVISION, &[4]);
    }
    // One context for each side.
    Pair::new().check_alive();
    let pd = Pd::new(&Context::open());
    drop(Srq::try_new(&pd, 100, 2).expect("shared queues as well"));
}

/// The programs of this file.
pub const TESTS: &[Test] = &[
    test!(impossible_work_queues_are_refused).alone().fails_on_c("the kernel's answer is believed"),
    test!(impossible_completion_queues_are_refused).alone().fails_on_c("the kernel's answer is believed"),
    test!(impossible_shared_queues_are_refused).alone(),
    test!(a_handle_that_no_request_can_name_is_refused)
        .alone()
        .fails_on_c("the number is cut to the bits of the request"),
    test!(impossible_limits_are_refused).alone().fails_on_c("the kernel's answer is believed"),
    test!(a_doorbell_page_that_cannot_be_mapped_fails_the_open).alone().fails_on_c("descriptors stay open"),
    test!(a_revision_that_nobody_knows_is_not_opened).alone().fails_on_c("every revision is taken"),
    test!(revision_four_speaks_as_three_does).alone(),
];
