//! Registering, changing and deregistering memory.

use std::sync::Arc;

use irdma_tests::context::{Context, Pd};
use irdma_tests::fixtures::Pair;
use irdma_tests::memory::{ALL_ACCESS, Buffer, Mr, PAGE, pattern};
use irdma_tests::qp::{Connection, QpOptions};
use irdma_tests::runner::{Test, on_c_provider};
use irdma_tests::sys::*;
use irdma_tests::test;
use irdma_tests::work::SendWork;

fn a_region_says_what_it_is() {
    let pd = Pd::new(&Context::open());
    let mr = Mr::fresh(&pd, 12_345);
    // SAFETY: the region is alive.
    let raw = unsafe { &*mr.raw() };
    assert_eq!((raw.addr, raw.length), (mr.buffer().pointer().cast(), 12_345));
    assert_eq!((raw.pd, raw.context), (pd.raw(), pd.context().raw()));
    assert_ne!(mr.lkey(), 0);
    let others: Vec<_> = (0..50).map(|_| Mr::fresh(&pd, 100)).collect();
    let mut keys: Vec<_> = others.iter().map(Mr::rkey).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 50, "every region has a key of its own");
}

fn rights_that_contradict_are_invalid() {
    let pd = Pd::new(&Context::open());
    let buffer = Arc::new(Buffer::new(PAGE));
    for access in [IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC] {
        assert_eq!(Mr::try_new(&pd, &buffer, access as i32).err(), Some(libc::EINVAL), "access {access:#x}");
    }
    for access in [0, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ, ALL_ACCESS as u32] {
        assert!(Mr::try_new(&pd, &buffer, access as i32).is_ok(), "access {access:#x}");
    }
}

fn memory_that_is_not_there_is_refused() {
    let pd = Pd::new(&Context::open());
    let buffer = Buffer::new(PAGE);
    let register = |address: *mut u8, length: usize| {
        irdma_tests::clear_errno();
        // SAFETY: the kernel must find out that the range is bad; nothing dereferences it here.
        let mr = unsafe { ibv_reg_mr(pd.raw(), address.cast(), length, ALL_ACCESS) };
        assert!(mr.is_null(), "{length} bytes at {address:?}");
        irdma_tests::last_errno()
    };
    assert_eq!(register(buffer.pointer(), 2 * PAGE), libc::EFAULT, "the second page cannot be read");
    assert_eq!(register(0x1000 as *mut u8, PAGE), libc::EFAULT, "nothing is mapped there");
    assert_eq!(register(buffer.pointer(), 0), libc::EINVAL, "no bytes");
    assert_eq!(register(buffer.pointer(), usize::MAX), libc::EINVAL, "the end wraps around");
}

fn a_region_with_an_address_of_its_own() {
    let pair = Pair::new();
    let iova = 0x7000_0000_0000 + pair.right.mr.address() % PAGE as u64;
    let buffer = pair.right.mr.buffer();
    // SAFETY: the memory outlives the registration.
    let raw = unsafe {
        ibv_reg_mr_iova(pair.right.pd().raw(), buffer.pointer().cast(), buffer.len(), iova, ALL_ACCESS)
    };
    assert!(!raw.is_null(), "reg_mr_iova: errno {}", irdma_tests::last_errno());
    // SAFETY: the region is alive.
    let rkey = unsafe { (*raw).rkey };
    pair.left.qp.post(SendWork::write(1, iova + 500, rkey).sge(pair.left.mr.sge(0, 100)));
    pair.left.expect_sent(&[pair.left.sent(1, IBV_WC_RDMA_WRITE, 100)]);
    assert_eq!(buffer.read(500, 100), pattern(100, 1));
    // SAFETY: deregistered once.
    assert_eq!(unsafe { ibv_dereg_mr(raw) }, 0);
}

/// Changes `mr` as rereg_mr does.
fn rereg(mr: &Mr, flags: u32, pd: *mut ibv_pd, buffer: Option<&Buffer>, access: i32) -> i32 {
    let (address, length) =
        buffer.map_or((std::ptr::null_mut(), 0), |buffer| (buffer.pointer(), buffer.len()));
    irdma_tests::clear_errno();
    // SAFETY: region, PD and memory are alive.
    unsafe { ibv_rereg_mr(mr.raw(), flags as i32, pd, address.cast(), length, access) }
}

fn write_status(pair: &Pair, address: u64, rkey: u32) -> u32 {
    pair.left.qp.post(SendWork::write(1, address, rkey).sge(pair.left.mr.sge(0, 8)));
    pair.left.qp.send_cq().wait_one().status
}

fn rights_can_be_changed() {
    let pair = Pair::with(QpOptions::default(), Connection::default());
    let mr = Mr::new(pair.right.pd(), pair.right.mr.buffer(), ALL_ACCESS);
    let none = std::ptr::null_mut();
    assert_eq!(write_status(&pair, mr.address(), mr.rkey()), IBV_WC_SUCCESS);
    let result = rereg(&mr, IBV_REREG_MR_CHANGE_ACCESS, none, None, IBV_ACCESS_LOCAL_WRITE as i32);
    assert_eq!(result, 0, "errno {}", irdma_tests::last_errno());
    assert_eq!(write_status(&pair, mr.address(), mr.rkey()), IBV_WC_REM_ACCESS_ERR);
}

fn memory_behind_a_region_can_be_changed() {
    let pair = Pair::new();
    let mr = Mr::new(pair.right.pd(), pair.right.mr.buffer(), ALL_ACCESS);
    let buffer = Buffer::new(3 * PAGE);
    let result = rereg(&mr, IBV_REREG_MR_CHANGE_TRANSLATION, std::ptr::null_mut(), Some(&buffer), 0);
    assert_eq!(result, 0, "errno {}", irdma_tests::last_errno());
    assert_eq!(write_status(&pair, buffer.address() + 100, mr.rkey()), IBV_WC_SUCCESS);
    assert_eq!(buffer.read(100, 8), pattern(8, 1));
    assert_eq!(
        write_status(&pair, pair.right.mr.address(), mr.rkey()),
        IBV_WC_REM_ACCESS_ERR,
        "the old memory"
    );
}

fn a_region_can_move_to_another_domain() {
    let pair = Pair::new();
    let other = Pd::new(pair.right.context());
    let mr = Mr::new(&other, pair.right.mr.buffer(), ALL_ACCESS);
    assert_eq!(rereg(&mr, IBV_REREG_MR_CHANGE_PD, pair.right.pd().raw(), None, 0), 0);
    assert_eq!(write_status(&pair, mr.address(), mr.rkey()), IBV_WC_SUCCESS);
    // SAFETY: the region is alive.
    assert_eq!(unsafe { (*mr.raw()).pd }, pair.right.pd().raw());
}

fn changes_that_make_no_sense_are_refused() {
    let pair = Pair::new();
    let mr = Mr::new(pair.right.pd(), pair.right.mr.buffer(), ALL_ACCESS);
    let none = std::ptr::null_mut();
    assert_eq!(rereg(&mr, 1 << 9, none, None, 0), IBV_REREG_MR_ERR_INPUT);
    assert_eq!(rereg(&mr, 0, none, None, ALL_ACCESS), IBV_REREG_MR_ERR_INPUT);
    assert_eq!(rereg(&mr, IBV_REREG_MR_CHANGE_TRANSLATION, none, None, 0), IBV_REREG_MR_ERR_INPUT);
    let refused = rereg(&mr, IBV_REREG_MR_CHANGE_ACCESS, none, None, IBV_ACCESS_REMOTE_WRITE as i32);
    assert_eq!(refused, IBV_REREG_MR_ERR_CMD, "remote write without local write");
    if !on_c_provider() {
        // It crashes there.
        let refused = rereg(&mr, IBV_REREG_MR_CHANGE_PD, none, None, 0);
        assert_eq!(refused, IBV_REREG_MR_ERR_CMD, "no domain to change to");
    }
    assert_eq!(
        write_status(&pair, mr.address(), mr.rkey()),
        IBV_WC_SUCCESS,
        "a refused change changes nothing"
    );
}

fn a_dmabuf_that_is_none_is_refused() {
    let pd = Pd::new(&Context::open());
    let file = std::fs::File::open("/dev/null").expect("/dev/null");
    for descriptor in [-1, std::os::fd::AsRawFd::as_raw_fd(&file)] {
        irdma_tests::clear_errno();
        // SAFETY: the PD is alive.
        let mr = unsafe { ibv_reg_dmabuf_mr(pd.raw(), 0, 4096, 0, descriptor, ALL_ACCESS) };
        assert!(mr.is_null());
        let errno = irdma_tests::last_errno();
        assert!((1..4096).contains(&errno), "errno {errno}");
    }
}

fn many_regions_come_and_go() {
    let pair = Pair::new();
    for round in 0..200_u64 {
        let mr = Mr::fresh(pair.right.pd(), 100);
        pair.left.qp.post(SendWork::write(round, mr.address(), mr.rkey()).sge(pair.left.mr.sge(0, 100)));
        pair.left.expect_sent(&[pair.left.sent(round, IBV_WC_RDMA_WRITE, 100)]);
        assert_eq!(mr.buffer().bytes(), pattern(100, 1));
    }
}

/// The programs of this file.
pub const TESTS: &[Test] = &[
    test!(a_region_says_what_it_is),
    test!(rights_that_contradict_are_invalid),
    test!(memory_that_is_not_there_is_refused),
    test!(a_region_with_an_address_of_its_own),
    test!(rights_can_be_changed).may_fail_on_c("no rereg_mr for this device"),
    test!(memory_behind_a_region_can_be_changed).may_fail_on_c("no rereg_mr for this device"),
    test!(a_region_can_move_to_another_domain).may_fail_on_c("no rereg_mr for this device"),
    test!(changes_that_make_no_sense_are_refused),
    test!(a_dmabuf_that_is_none_is_refused),
    test!(many_regions_come_and_go),
];
