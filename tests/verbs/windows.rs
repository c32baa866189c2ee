//! Memory windows of type 1.

use irdma_tests::channel::expect_async_event;
use irdma_tests::context::Pd;
use irdma_tests::control::{Cqe, control, names_of};
use irdma_tests::fixtures::Pair;
use irdma_tests::memory::{ALL_ACCESS, Mr, pattern};
use irdma_tests::qp::QpOptions;
use irdma_tests::runner::Test;
use irdma_tests::sys::*;
use irdma_tests::test;
use irdma_tests::window::Window;
use irdma_tests::work::SendWork;

const BINDABLE: i32 = ALL_ACCESS | IBV_ACCESS_MW_BIND as i32;
const READ_WRITE: u32 = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

/// Right side's region that windows may be bound to.
fn bindable(pair: &Pair) -> Mr {
    Mr::new(pair.right.pd(), pair.right.mr.buffer(), BINDABLE)
}

/// Right binds and the bind completes.
#[track_caller]
fn bind(pair: &Pair, window: &Window, mr: &Mr, offset: usize, length: usize, access: u32) {
    assert_eq!(window.bind(&pair.right.qp, 7, mr, offset, length, access), 0, "bind_mw");
    pair.right.expect_sent(&[pair.right.sent(7, IBV_WC_BIND_MW, 0)]);
}

/// Left's status of a write of eight bytes.
fn write_status(pair: &Pair, address: u64, rkey: u32) -> u32 {
    pair.left.qp.post(SendWork::write(1, address, rkey).sge(pair.left.mr.sge(0, 8)));
    pair.left.qp.send_cq().wait_one().status
}

fn a_bound_window_opens_its_bytes() {
    let pair = Pair::new();
    let mr = bindable(&pair);
    let window = Window::new_or_skip(pair.right.pd());
    let first = window.rkey();
    bind(&pair, &window, &mr, 1000, 100, READ_WRITE);
    assert_eq!(window.rkey(), (first & !0xff) | (first.wrapping_add(1) & 0xff), "the next key");
    assert_eq!(write_status(&pair, mr.address() + 1092, window.rkey()), IBV_WC_SUCCESS);
    assert_eq!(pair.right.mr.buffer().read(1092, 8), pattern(8, 1));
    pair.left.qp.post(SendWork::read(2, mr.address() + 1092, window.rkey()).sge(pair.left.mr.sge(500, 8)));
    pair.left.expect_sent(&[pair.left.sent(2, IBV_WC_RDMA_READ, 8)]);
    assert_eq!(pair.left.mr.buffer().read(500, 8), pattern(8, 1));
}

fn a_local_right_says_nothing_of_a_window() {
    let pair = Pair::new();
    let mr = bindable(&pair);
    let window = Window::new_or_skip(pair.right.pd());
    bind(&pair, &window, &mr, 1000, 100, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
    let read = SendWork::read(1, mr.address() + 1000, window.rkey()).sge(pair.left.mr.sge(500, 8));
    pair.left.qp.post(read);
    pair.left.expect_sent(&[pair.left.sent(1, IBV_WC_RDMA_READ, 8)]);
    assert_ne!(write_status(&pair, mr.address() + 1000, window.rkey()), IBV_WC_SUCCESS);
}

fn a_window_ends_where_it_was_bound() {
    for offset in [93, 992, 1093] {
        let pair = Pair::new();
        let mr = bindable(&pair);
        let window = Window::new_or_skip(pair.right.pd());
        bind(&pair, &window, &mr, 1000, 100, READ_WRITE);
        let status = write_status(&pair, mr.address() + offset, window.rkey());
        assert_eq!(status, IBV_WC_REM_ACCESS_ERR, "at {offset}");
        expect_async_event(pair.right.context(), IBV_EVENT_QP_ACCESS_ERR, pair.right.qp.raw());
    }
}

fn a_window_has_rights_of_its_own() {
    let pair = Pair::new();
    let mr = bindable(&pair);
    let window = Window::new_or_skip(pair.right.pd());
    bind(&pair, &window, &mr, 0, 100, IBV_ACCESS_REMOTE_READ);
    assert_eq!(write_status(&pair, mr.address(), window.rkey()), IBV_WC_REM_ACCESS_ERR);
}

fn keys_of_earlier_binds_are_dead() {
    let pair = Pair::new();
    let mr = bindable(&pair);
    let window = Window::new_or_skip(pair.right.pd());
    bind(&pair, &window, &mr, 0, 100, READ_WRITE);
    let old = window.rkey();
    bind(&pair, &window, &mr, 0, 100, READ_WRITE);
    assert_ne!(window.rkey(), old);
    assert_eq!(write_status(&pair, mr.address(), window.rkey()), IBV_WC_SUCCESS);
    assert_eq!(write_status(&pair, mr.address(), old), IBV_WC_REM_ACCESS_ERR);
}

fn binding_nothing_closes_a_window() {
    let pair = Pair::new();
    let mr = bindable(&pair);
    let window = Window::new_or_skip(pair.right.pd());
    bind(&pair, &window, &mr, 0, 100, READ_WRITE);
    let (errno, mr) = mr.deregister().expect_err("a window is bound to the region");
    assert_eq!(errno, libc::EBUSY);
    bind(&pair, &window, &mr, 0, 0, READ_WRITE);
    assert!(mr.deregister().is_ok());
}

fn a_freed_window_is_closed() {
    let pair = Pair::new();
    let mr = bindable(&pair);
    let window = Window::new_or_skip(pair.right.pd());
    bind(&pair, &window, &mr, 0, 100, READ_WRITE);
    let rkey = window.rkey();
    drop(window);
    assert_eq!(write_status(&pair, mr.address(), rkey), IBV_WC_REM_ACCESS_ERR);
}

fn a_region_that_does_not_allow_windows_is_a_bind_error() {
    let pair = Pair::new();
    let window = Window::new_or_skip(pair.right.pd());
    let errno = window.bind(&pair.right.qp, 7, &pair.right.mr, 0, 100, READ_WRITE);
    if errno != 0 {
        assert_eq!(errno, libc::EINVAL, "refused at once");
        return;
    }
    pair.right.expect_sent(&[pair.right.sent(7, IBV_WC_BIND_MW, 0).failed(IBV_WC_MW_BIND_ERR, 9)]);
}

fn a_refused_bind_leaves_the_key() {
    let pair = Pair::new();
    let window = Window::new_or_skip(pair.right.pd());
    let mr = bindable(&pair);
    let before = window.rkey();
    let other = Pd::new(pair.right.context());
    let foreign = Mr::new(&other, pair.right.mr.buffer(), BINDABLE);
    let errno = window.bind(&pair.right.qp, 7, &foreign, 0, 100, READ_WRITE);
    assert_eq!((errno, window.rkey()), (libc::EPERM, before), "a region of another domain, says the library");
    let errno = window.bind(&pair.right.qp, 7, &mr, 0, 100, READ_WRITE | 1 << 20);
    assert_eq!((errno, window.rkey()), (libc::EINVAL, before), "a right that does not exist");
    let errno = window.bind(&pair.right.qp, 7, &mr, 0, usize::MAX, READ_WRITE);
    assert_eq!((errno, window.rkey()), (libc::EINVAL, before), "beyond the region");
    pair.check_alive();
}

fn a_bind_without_a_region_is_invalid() {
    let pair = Pair::new();
    let window = Window::new_or_skip(pair.right.pd());
    let before = window.rkey();
    // A range of no region is refused by the library.
    let mut request = ibv_mw_bind {
        bind_info: ibv_mw_bind_info { mw_access_flags: READ_WRITE, ..ibv_mw_bind_info::default() },
        ..ibv_mw_bind::default()
    };
    // SAFETY: the objects are alive, the request valid for the call.
    let errno = unsafe { ibv_bind_mw(pair.right.qp.raw(), window.raw(), &mut request) };
    assert_eq!((errno, window.rkey()), (libc::EINVAL, before));
}

fn a_full_queue_leaves_the_key() {
    let pair = Pair::new();
    let window = Window::new_or_skip(pair.right.pd());
    let mr = bindable(&pair);
    let write = || SendWork::write(1, pair.left.mr.address(), pair.left.mr.rkey()).unsignaled();
    while pair.right.qp.try_post(&mut [write()]).is_ok() {}
    let before = window.rkey();
    let errno = window.bind(&pair.right.qp, 7, &mr, 0, 100, READ_WRITE);
    assert_eq!((errno, window.rkey()), (libc::ENOMEM, before));
}

fn a_flushed_bind_that_was_not_allowed_is_a_bind_error() {
    let pair = Pair::new();
    let window = Window::new_or_skip(pair.right.pd());
    let mr = bindable(&pair);
    let names = names_of(&pair.right.qp);
    assert_eq!(pair.right.qp.move_to(IBV_QPS_SQD), 0);
    assert_eq!(window.bind(&pair.right.qp, 7, &mr, 0, 100, READ_WRITE), 0);
    // Local protection, in the device's words.
    Cqe::sent(&pair.right.qp, names.context, 0, 8).failed(1, 2).write(names.send_cq);
    pair.right.expect_sent(&[pair.right.sent(7, IBV_WC_BIND_MW, 0).failed(IBV_WC_MW_BIND_ERR, 2)]);
}

fn a_bind_sees_changed_rights() {
    let pair = Pair::new();
    let window = Window::new_or_skip(pair.right.pd());
    let mr = bindable(&pair);
    let access = (ALL_ACCESS as u32 | IBV_ACCESS_ZERO_BASED) as i32;
    irdma_tests::clear_errno();
    // SAFETY: the region is alive.
    let result = unsafe {
        let nothing = std::ptr::null_mut();
        ibv_rereg_mr(mr.raw(), IBV_REREG_MR_CHANGE_ACCESS as i32, std::ptr::null_mut(), nothing, 0, access)
    };
    assert_eq!(result, 0, "the kernel that these programs run on has rereg_mr");
    let before = window.rkey();
    let errno = window.bind(&pair.right.qp, 7, &mr, 0, 100, READ_WRITE);
    assert_eq!((errno, window.rkey()), (libc::EINVAL, before));
}

fn a_failed_allocation_has_an_error_number() {
    let pair = Pair::unconnected(QpOptions::default());
    drop(Window::new_or_skip(pair.left.pd()));
    control("fail alloc_mw 1 ENOMEM 1");
    assert_eq!(Window::try_new(pair.left.pd(), IBV_MW_TYPE_1).err(), Some(libc::ENOMEM));
    control("fail clear");
}

fn a_region_of_a_dmabuf_cannot_be_bound() {
    let pair = Pair::new();
    let mr = bindable(&pair);
    let window = Window::new_or_skip(pair.right.pd());
    let (key, raw) = (window.rkey(), mr.raw().cast::<verbs_mr>());
    // There is no dma-buf here to register; its region is told apart by this alone.
    // SAFETY: every region is inside a verbs_mr, as its first field; put back before the end.
    unsafe { (*raw).mr_type = IBV_MR_TYPE_DMABUF_MR };
    let errno = window.bind(&pair.right.qp, 1, &mr, 0, 64, IBV_ACCESS_REMOTE_WRITE);
    // SAFETY: as above.
    unsafe { (*raw).mr_type = IBV_MR_TYPE_MR };
    assert_eq!((errno, window.rkey()), (libc::EOPNOTSUPP, key));
    pair.right.qp.send_cq().expect_silence();
}

/// The programs of this file.
pub const TESTS: &[Test] = &[
    test!(a_bound_window_opens_its_bytes),
    test!(a_local_right_says_nothing_of_a_window),
    test!(a_window_ends_where_it_was_bound),
    test!(a_window_has_rights_of_its_own),
    test!(keys_of_earlier_binds_are_dead),
    test!(binding_nothing_closes_a_window),
    test!(a_freed_window_is_closed),
    test!(a_region_that_does_not_allow_windows_is_a_bind_error),
    test!(a_refused_bind_leaves_the_key).fails_on_c("nothing is checked before the request is written"),
    test!(a_bind_without_a_region_is_invalid).fails_on_c("the region is followed unseen"),
    test!(a_full_queue_leaves_the_key),
    test!(a_flushed_bind_that_was_not_allowed_is_a_bind_error)
        .fails_on_c("it is reported as a local protection error"),
    test!(a_bind_sees_changed_rights).may_fail_on_c("no rereg_mr for this device"),
    test!(a_region_of_a_dmabuf_cannot_be_bound),
    test!(a_failed_allocation_has_an_error_number).alone(),
];
