//! Creating things without memory: an error number each time, and nothing left behind.

use irdma_tests::builder::{QpEx, connected};
use irdma_tests::context::{Context, Pd};
use irdma_tests::cq::Cq;
use irdma_tests::device::{Device, feature};
use irdma_tests::holdings::Holdings;
use irdma_tests::qp::{Qp, QpOptions};
use irdma_tests::runner::{Test, on_c_provider, skip};
use irdma_tests::srq::Srq;
use irdma_tests::test;

/// Requests of a long queue.
fn many() -> u32 {
    ((Device::present().send_quanta - 258) >> 3).min(1500)
}

/// Bytes of address space that this process has.
fn address_space() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
    let pages: u64 = text.split(' ').next().and_then(|word| word.parse().ok()).expect("a number of pages");
    pages * 4096
}

/// Runs `attempt` with no more than `more` bytes of address space beyond what there is.
fn with_at_most<T>(more: u64, attempt: impl FnOnce() -> T) -> T {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a valid struct for the call.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) }, 0);
    let low = libc::rlimit { rlim_cur: address_space() + more, ..limit };
    // SAFETY: as above; only this process is limited.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &low) }, 0);
    let result = attempt();
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
    result
}

/// Lets the heap have room for small things, so that only what is mapped for itself runs out.
fn prepare_heap() {
    // SAFETY: the program has one thread; both are plain settings.
    unsafe {
        assert_eq!(libc::mallopt(libc::M_TRIM_THRESHOLD, 1 << 30), 1);
        assert_eq!(libc::mallopt(libc::M_MMAP_THRESHOLD, 64 << 10), 1);
    }
    let pieces: Vec<_> = (0..64).map(|_| vec![1u8; 60 << 10]).collect();
    assert!(pieces.iter().all(|piece| piece[0] == 1));
}

/// Runs `attempt` with ever more memory until it succeeds: before that it must fail with ENOMEM and leave nothing,
/// also no address space.
fn check_scarcity<T>(what: &str, attempt: impl Fn() -> Result<T, i32>) {
    prepare_heap();
    // What a first time leaves for good is none of this program's business.
    drop(attempt().unwrap_or_else(|errno| panic!("{what} is possible as such: {errno}")));
    let (mut more, mut failures) = (0, 0);
    loop {
        let (before, space) = (Holdings::now(), address_space());
        let outcome = with_at_most(more, &attempt);
        match outcome {
            Ok(made) => {
                drop(made);
                break;
            }
            Err(errno) => assert_eq!(errno, libc::ENOMEM, "{what} with {more} bytes"),
        }
        before.check(&format!("after {what} with {more} bytes"));
        assert_eq!(address_space(), space, "{what} with {more} bytes leaves memory mapped");
        failures += 1;
        more = (more + 4096).max(more / 4096 * 4096 / 16 * 19 / 4096 * 4096);
        assert!(more < 8 << 30, "{what} never succeeds");
    }
    if failures == 0 && on_c_provider() {
        skip("the C provider takes its memory from the heap, which has room");
    }
    assert!(failures > 0, "{what} takes no memory");
}

fn a_device_that_cannot_be_mapped_is_not_opened() {
    check_scarcity("open", Context::try_open);
}

fn completion_queues_without_memory_leave_nothing() {
    let context = Context::open();
    for entries in [1, 5000] {
        check_scarcity(&format!("create_cq of {entries}"), || Cq::try_new(&context, entries, None));
    }
}

fn queue_pairs_without_memory_leave_nothing() {
    let context = Context::open();
    let (pd, cq) = (Pd::new(&context), Cq::new(&context, 16));
    check_scarcity("create_qp", || Qp::try_new(&pd, &cq, &cq, QpOptions::default()));
    let long = QpOptions { max_send_wr: many(), max_recv_wr: many(), ..QpOptions::default() };
    check_scarcity("create_qp of many requests", || Qp::try_new(&pd, &cq, &cq, long));
}

fn queue_pairs_with_builders_without_memory_leave_nothing() {
    let context = Context::open();
    let (pd, cq) = (Pd::new(&context), Cq::new(&context, 16));
    let device = Device::present();
    let options = QpOptions { max_send_wr: many(), ..QpOptions::default() };
    let mut operations = u64::from(connected());
    if device.generation == 3 {
        operations |= u64::from(irdma_tests::sys::IBV_QP_EX_WITH_BIND_MW);
    }
    check_scarcity("create_qp_ex", || QpEx::try_new(&pd, &cq, &cq, options, operations));
}

fn shared_queues_without_memory_leave_nothing() {
    Device::present().require(feature::SRQ, "shared receive queues");
    let pd = Pd::new(&Context::open());
    check_scarcity("create_srq", || Srq::try_new(&pd, 2000, 3));
}

fn a_resize_without_memory_changes_nothing() {
    Device::present().require(feature::CQ_RESIZE, "resizing");
    if on_c_provider() {
        skip("the C provider takes its memory from the heap, which has room");
    }
    prepare_heap();
    let context = Context::open();
    let cq = Cq::new(&context, 100);
    let (before, space) = (Holdings::now(), address_space());
    assert_eq!(with_at_most(0, || cq.resize(5000)), Err(libc::ENOMEM));
    before.check("after a resize without memory");
    assert_eq!((address_space(), cq.entries()), (space, 100));
    assert_eq!(cq.resize(5000), Ok(()));
    assert_eq!(cq.entries(), 5000);
}

/// The programs of this file.
pub const TESTS: &[Test] = &[
    test!(a_device_that_cannot_be_mapped_is_not_opened).alone().fails_on_c("descriptors stay open"),
    test!(completion_queues_without_memory_leave_nothing).alone(),
    test!(queue_pairs_without_memory_leave_nothing).alone(),
    test!(queue_pairs_with_builders_without_memory_leave_nothing)
        .alone()
        .fails_on_c("has no work request builders"),
    test!(shared_queues_without_memory_leave_nothing).alone(),
    test!(a_resize_without_memory_changes_nothing).alone(),
];
