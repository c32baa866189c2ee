//! Push pages: that they are used, what they bring, when they are not, and that they are unmapped.

use std::collections::BTreeMap;
use std::sync::Arc;

use irdma_tests::builder::{CONNECTED, Manner, QpEx};
use irdma_tests::context::{Context, Pd};
use irdma_tests::control::control;
use irdma_tests::cq::Cq;
use irdma_tests::device::Device;
use irdma_tests::domain::{ThreadDomain, parent};
use irdma_tests::fixtures::{Datagrams, Pair};
use irdma_tests::memory::Mr;
use irdma_tests::process::{device_mappings, in_child};
use irdma_tests::qp::{Connection, Qp, QpOptions};
use irdma_tests::runner::{Test, skip};
use irdma_tests::sys::*;
use irdma_tests::test;
use irdma_tests::wc::{Wc, assert_completions};
use irdma_tests::work::{ReceiveWork, SendWork};

/// What came of pushes while something was done.
#[derive(Debug, PartialEq, Eq)]
struct Pushes {
    taken: u64,
    dropped: u64,
}

fn counts() -> BTreeMap<String, u64> {
    let text = control("push");
    let words = text.lines().filter_map(|line| line.split_once(' '));
    words.map(|(name, number)| (name.to_owned(), number.parse().expect("a number"))).collect()
}

/// Runs `body`; none of its pushes may have held anything but what the ring held, or have come late.
#[track_caller]
fn pushes(body: impl FnOnce()) -> Pushes {
    let before = counts();
    body();
    let after = counts();
    let more = |name: &str| after[name] - before[name];
    assert_eq!((more("differing"), more("late")), (0, 0), "{before:?} {after:?}");
    Pushes { taken: more("taken"), dropped: more("dropped") }
}

fn taken(taken: u64) -> Pushes {
    Pushes { taken, dropped: 0 }
}

fn require_pages() {
    if Device::present().push_pages == 0 {
        skip("the device offers no push pages");
    }
}

/// A queue pair connected to itself, with memory.
struct Loop {
    qp: Qp,
    mr: Mr,
    sink: Mr,
}

impl Loop {
    fn in_domain(pd: &Arc<Pd>) -> Loop {
        let cq = || Cq::new(pd.context(), 512);
        let options = QpOptions { max_send_wr: 64, ..QpOptions::widest() };
        let qp = Qp::new(pd, &cq(), &cq(), options);
        qp.connect(Connection::default(), qp.number(), pd.context().gid(pd.context().gid_index().into()));
        Loop { qp, mr: Mr::patterned(pd, 65536, 7), sink: Mr::fresh(pd, 65536) }
    }

    fn new() -> Loop {
        Loop::in_domain(&Pd::new(&Context::open()))
    }

    /// A write of eight bytes, each to a place of its own.
    fn write(&self, wr_id: u64) -> SendWork {
        let place = wr_id as usize % 1024 * 8;
        SendWork::write(wr_id, self.sink.address() + place as u64, self.sink.rkey())
            .sge(self.mr.sge(place, 8))
    }

    fn written(&self, wr_id: u64) -> Wc {
        Wc::sent(self.qp.number(), wr_id, IBV_WC_RDMA_WRITE, 8)
    }

    #[track_caller]
    fn expect_written(&self, wr_ids: std::ops::Range<u64>) {
        let expected: Vec<_> = wr_ids.clone().map(|wr_id| self.written(wr_id)).collect();
        assert_completions(&self.qp.send_cq().wait(expected.len()), &expected);
        for wr_id in wr_ids {
            let place = wr_id as usize % 1024 * 8;
            assert_eq!(self.sink.buffer().read(place, 8), self.mr.buffer().read(place, 8), "wr_id {wr_id}");
        }
    }

    /// Posts and awaits writes one by one.
    #[track_caller]
    fn write_each(&self, wr_ids: std::ops::Range<u64>) {
        for wr_id in wr_ids {
            self.qp.post(self.write(wr_id));
            self.expect_written(wr_id..wr_id + 1);
        }
    }
}

fn every_work_request_is_pushed() {
    require_pages();
    let pair = Loop::new();
    // Around the ring more than once.
    assert_eq!(pushes(|| pair.write_each(0..2500)), taken(2500));
}

fn pushes_follow_one_another_without_waiting() {
    require_pages();
    let pair = Loop::new();
    let all = || {
        for first in (0..1000).step_by(50) {
            (first..first + 50).for_each(|wr_id| pair.qp.post(pair.write(wr_id)));
            pair.expect_written(first..first + 50);
        }
    };
    assert_eq!(pushes(all), taken(1000));
}

/// Writes of every shape; a read of what they wrote; their lengths.
fn shapes(pair: &Loop) -> Vec<(SendWork, usize)> {
    let (address, rkey) = (pair.sink.address(), pair.sink.rkey());
    let device = Device::present();
    let mut works = Vec::new();
    for count in 0..=device.fragments.min(13) as usize {
        let sges = (0..count).map(|index| pair.mr.sge(index * 100, 60 + index));
        works.push((SendWork::write(1, address, rkey).sges(sges), (0..count).map(|index| 60 + index).sum()));
    }
    for length in (0..=device.inline.min(101) as usize).step_by(9) {
        works.push((SendWork::write(2, address, rkey).sge(pair.mr.sge(length, length)).inline(), length));
    }
    works
}

fn every_shape_arrives() {
    require_pages();
    let pair = Loop::new();
    let count = shapes(&pair).len();
    for round in 0..12 {
        let mut wrong = None;
        let pushes = pushes(|| {
            for index in 0..count {
                let (work, length) = shapes(&pair).swap_remove(index);
                pair.sink.buffer().fill(0);
                let expected: Vec<u8> = work_bytes(&pair, &work)
                    .into_iter()
                    .chain(std::iter::repeat(0))
                    .take(length + 64)
                    .collect();
                pair.qp.post(work);
                let completion = pair.qp.send_cq().wait_one();
                assert_eq!((completion.status, completion.byte_len as usize), (IBV_WC_SUCCESS, length));
                if pair.sink.buffer().read(0, length + 64) != expected {
                    wrong = Some(index);
                }
            }
            // So that the next round meets other places in the window.
            pair.write_each(0..1);
        });
        assert_eq!(wrong, None, "round {round}");
        // Padding is pushed by itself.
        assert!(pushes.taken > count as u64 && pushes.dropped == 0, "{pushes:?}");
    }
}

/// The bytes that the elements of a request name.
fn work_bytes(pair: &Loop, work: &SendWork) -> Vec<u8> {
    let offset = |address: u64| (address - pair.mr.address()) as usize;
    let elements = work.elements().iter();
    elements.flat_map(|sge| pair.mr.buffer().read(offset(sge.addr), sge.length as usize)).collect()
}

fn lists_are_pushed_in_order() {
    require_pages();
    let pair = Loop::new();
    for round in 0..40 {
        let first = round * 25;
        let mut list: Vec<_> = (first..first + 25).map(|wr_id| pair.write(wr_id)).collect();
        let pushes = pushes(|| {
            pair.qp.post_list(&mut list);
            pair.expect_written(first..first + 25);
        });
        assert_eq!(pushes, taken(25));
    }
}

fn messages_and_reads_are_pushed() {
    require_pages();
    let pair = Pair::new();
    let (left, right) = (&pair.left, &pair.right);
    let pushes = pushes(|| {
        for round in 0..100 {
            right.qp.receive(ReceiveWork::new(round).sge(right.mr.sge(0, 200)));
            left.qp.post(SendWork::send(round).sge(left.mr.sge(3, 100)));
            left.expect_sent(&[left.sent(round, IBV_WC_SEND, 100)]);
            right.expect_received(&[right.received(round, 100)]);
            left.qp
                .post(SendWork::read(round, right.mr.address(), right.mr.rkey()).sge(left.mr.sge(1000, 100)));
            left.expect_sent(&[left.sent(round, IBV_WC_RDMA_READ, 100)]);
            assert_eq!(left.mr.buffer().read(1000, 100), left.mr.buffer().read(3, 100));
        }
    });
    assert_eq!(pushes, taken(200));
}

fn datagrams_are_pushed() {
    require_pages();
    let pair = Datagrams::new();
    let pushes = pushes(|| {
        for round in 0..100 {
            pair.right.qp.receive(ReceiveWork::new(round).sge(pair.right.mr.sge(0, 200)));
            pair.left.qp.post(pair.send(round).sge(pair.left.mr.sge(0, 80)));
            pair.left.expect_sent(&[pair.left.sent(round, IBV_WC_SEND, 80)]);
            pair.right.expect_received(&[pair.received(round, 80)]);
        }
    });
    assert_eq!(pushes, taken(100));
}

fn built_work_requests_are_pushed() {
    require_pages();
    Device::present().require_roce("builders of all operations");
    let pd = Pd::new(&Context::open());
    let qp = QpEx::new(&pd, QpOptions::default(), CONNECTED);
    qp.connect(Connection::default(), qp.number(), pd.context().gid(pd.context().gid_index().into()));
    let (mr, sink) = (Mr::patterned(&pd, 65536, 7), Mr::fresh(&pd, 65536));
    let write = |wr_id: u64| {
        let place = wr_id as usize * 64;
        SendWork::write(wr_id, sink.address() + place as u64, sink.rkey()).sge(mr.sge(place, 64))
    };
    let pushes = pushes(|| {
        for first in (0..1000).step_by(10) {
            let manner = Manner { lists: first % 20 == 0, ..Manner::default() };
            let works: Vec<_> = (first..first + 10).map(write).collect();
            assert_eq!(qp.try_build(&works, manner), 0);
            let expected: Vec<_> = (first..first + 10)
                .map(|wr_id| Wc::sent(qp.number(), wr_id, IBV_WC_RDMA_WRITE, 64))
                .collect();
            assert_completions(&qp.send_cq().wait(10), &expected);
        }
    });
    assert_eq!(pushes, taken(1000));
    assert_eq!(sink.buffer().read(0, 64000), mr.buffer().read(0, 64000));
    // What is dropped is neither pushed nor posted.
    let nothing = self::pushes(|| {
        qp.start();
        qp.begin(&write(1));
        qp.abort();
        qp.send_cq().expect_empty();
    });
    assert_eq!(nothing, taken(0));
}

fn queue_pairs_without_locks_push_as_well() {
    require_pages();
    let pd = Pd::new(&Context::open());
    let threads = ThreadDomain::new(pd.context());
    let pair = Loop::in_domain(&parent(&pd, Some(&threads)));
    assert_eq!(pushes(|| pair.write_each(0..600)), taken(600));
}

fn after_a_drop_there_are_doorbells_until_the_queue_is_idle() {
    require_pages();
    let pair = Loop::new();
    pair.write_each(0..3);
    control("push drop 1");
    // The second finds the device with something else to do.
    let both = pushes(|| pair.qp.post_list(&mut [pair.write(3), pair.write(4)]));
    assert_eq!(both, Pushes { taken: 0, dropped: 2 });
    pair.expect_written(3..4);
    let not_idle = pushes(|| pair.qp.post(pair.write(5)));
    assert_eq!(not_idle, taken(0));
    pair.expect_written(4..6);
    assert_eq!(pushes(|| pair.write_each(6..20)), taken(14));
}

fn every_push_may_be_dropped() {
    require_pages();
    let pair = Loop::new();
    control("push drop 100000");
    let pushes = pushes(|| pair.write_each(0..1000));
    control("push drop 0");
    assert_eq!(pushes, Pushes { taken: 0, dropped: 1000 });
    assert_eq!(self::pushes(|| pair.write_each(0..10)), taken(10));
}

fn a_receiver_that_is_not_ready_delays_pushes() {
    require_pages();
    let pair = Pair::new();
    let (left, right) = (&pair.left, &pair.right);
    for round in 0..20 {
        for wr_id in 0..3 {
            left.qp.post(SendWork::send(wr_id).sge(left.mr.sge(round, 64)));
        }
        for wr_id in 0..3 {
            right.qp.receive(ReceiveWork::new(wr_id).sge(right.mr.sge(64 * wr_id as usize, 64)));
        }
        left.expect_sent(&[0, 1, 2].map(|wr_id| left.sent(wr_id, IBV_WC_SEND, 64)));
        right.expect_received(&[0, 1, 2].map(|wr_id| right.received(wr_id, 64)));
        for wr_id in 0..3 {
            assert_eq!(right.mr.buffer().read(64 * wr_id, 64), left.mr.buffer().read(round, 64));
        }
    }
}

fn when_pages_run_out_queue_pairs_work_without() {
    require_pages();
    let pages = Device::present().push_pages;
    if pages > 64 {
        skip("the device has more push pages than queue pairs are to be made");
    }
    let pd = Pd::new(&Context::open());
    let mut pairs: Vec<_> = (0..pages + 3).map(|_| Loop::in_domain(&pd)).collect();
    assert_eq!(counts()["free"], 0);
    for (index, pair) in pairs.iter().enumerate() {
        let expected = if index < pages as usize { 20 } else { 0 };
        assert_eq!(pushes(|| pair.write_each(0..20)), taken(expected), "queue pair {index}");
    }
    pairs.swap_remove(0);
    assert_eq!(counts()["free"], 1);
    let again = Loop::in_domain(&pd);
    assert_eq!(pushes(|| again.write_each(0..20)), taken(20));
}

fn a_child_does_not_disturb_the_parents_pushes() {
    require_pages();
    let pair = Loop::new();
    assert_eq!(pushes(|| pair.write_each(0..10)), taken(10));
    assert_eq!(in_child(|| 0), 0);
    assert_eq!(pushes(|| pair.write_each(10..20)), taken(10));
}

fn pages_are_unmapped_with_their_queue_pair() {
    require_pages();
    let pd = Pd::new(&Context::open());
    let before = device_mappings();
    assert_eq!(before, 1, "the doorbell page");
    for _ in 0..3 {
        let pairs = [Loop::in_domain(&pd), Loop::in_domain(&pd)];
        assert_eq!(device_mappings(), before + 4);
        pairs[0].write_each(0..3);
        drop(pairs);
        assert_eq!(device_mappings(), before);
    }
}

fn pages_are_unmapped_when_the_device_is_closed() {
    require_pages();
    let pair = Loop::new();
    let context = Arc::clone(pair.qp.context());
    pair.write_each(0..3);
    // SAFETY: nothing of the context is used after this; its owners are forgotten.
    assert_eq!(unsafe { ibv_close_device(context.raw()) }, 0);
    std::mem::forget((context, pair));
    assert_eq!(device_mappings(), 0);
}

fn a_page_elsewhere_in_its_mapping_is_found_and_unmapped() {
    require_pages();
    if Device::present().push_offset == 0 {
        skip("queue pairs have their push pages from the start");
    }
    let pd = Pd::new(&Context::open());
    let before = device_mappings();
    let pair = Loop::in_domain(&pd);
    assert_eq!(pushes(|| pair.write_each(0..1000)), taken(1000));
    drop(pair);
    assert_eq!(device_mappings(), before);
}

fn a_page_that_cannot_be_mapped_is_done_without() {
    require_pages();
    let pair = Pair::unconnected(QpOptions::default());
    let before = device_mappings();
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limits are valid for the calls; lowered only while one queue pair is modified.
    unsafe { assert_eq!(libc::getrlimit(libc::RLIMIT_AS, &mut limit), 0) };
    let gid = pair.right.gid();
    let (connection, qp) = (Connection::default(), &pair.left.qp);
    if Device::present().roce {
        qp.initialize(connection);
        qp.ready_to_receive(connection, pair.right.qp.number(), gid);
    }
    let none = libc::rlimit { rlim_cur: 4096, ..limit };
    // SAFETY: as above.
    unsafe { assert_eq!(libc::setrlimit(libc::RLIMIT_AS, &none), 0) };
    if Device::present().roce {
        qp.ready_to_send(connection);
    } else {
        qp.connect(connection, pair.right.qp.number(), gid);
    }
    // SAFETY: as above.
    unsafe { assert_eq!(libc::setrlimit(libc::RLIMIT_AS, &limit), 0) };
    assert_eq!(device_mappings(), before);
    pair.right.qp.connect(connection, qp.number(), pair.left.gid());
    pair.check_alive();
}

/// Sets a switch before the device is opened.
fn set_variable(name: &str, value: &str) {
    // SAFETY: the program has one thread yet, and nothing has looked at its environment.
    unsafe { std::env::set_var(name, value) };
}

fn nothing_is_pushed_for_who_does_not_want_it() {
    require_pages();
    set_variable("IRDMA_PUSH", "off");
    let pair = Loop::new();
    assert_eq!(pushes(|| pair.write_each(0..100)), taken(0));
    assert_eq!(device_mappings(), 1);
}

/// What libibverbs' log holds after `body`.
fn logged(body: impl FnOnce()) -> String {
    let path = std::env::temp_dir().join(format!("irdma-push-{}", std::process::id()));
    set_variable("VERBS_LOG_LEVEL", "2");
    set_variable("VERBS_LOG_FILE", path.to_str().expect("a path in ASCII"));
    body();
    // The library keeps the end of its log to itself.
    // SAFETY: writes out the C library's own streams.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    // It may never have been made.
    let _ = std::fs::remove_file(&path);
    text
}

fn who_wants_pages_is_told_that_there_are_none() {
    if Device::present().push_pages != 0 || Device::present().generation == 1 {
        skip("the device offers push pages, or its generation knows none");
    }
    set_variable("IRDMA_PUSH", "on");
    let text = logged(|| Pair::new().check_alive());
    assert_eq!(text.matches("no push page is offered").count(), 2, "{text}");
}

fn an_unknown_wish_is_named_and_passed_over() {
    set_variable("IRDMA_PUSH", "perhaps");
    let text = logged(|| Pair::new().check_alive());
    assert_eq!(text.matches("IRDMA_PUSH=perhaps: neither auto, on nor off").count(), 2, "{text}");
}

const NO_BUILDERS: &str = "has no work request builders";
const NO_DOMAINS: &str = "has no thread domains and no parent domains";
const NO_SWITCH: &str = "has no switch for push pages";

/// The programs of this file.
pub const TESTS: &[Test] = &[
    test!(every_work_request_is_pushed).alone(),
    test!(pushes_follow_one_another_without_waiting).alone(),
    test!(every_shape_arrives).alone(),
    test!(lists_are_pushed_in_order).alone(),
    test!(messages_and_reads_are_pushed).alone(),
    test!(datagrams_are_pushed).alone(),
    test!(built_work_requests_are_pushed).alone().may_fail_on_c(NO_BUILDERS),
    test!(queue_pairs_without_locks_push_as_well).alone().may_fail_on_c(NO_DOMAINS),
    test!(after_a_drop_there_are_doorbells_until_the_queue_is_idle).alone(),
    test!(every_push_may_be_dropped).alone(),
    test!(a_receiver_that_is_not_ready_delays_pushes).alone(),
    test!(when_pages_run_out_queue_pairs_work_without).alone(),
    test!(a_child_does_not_disturb_the_parents_pushes).alone(),
    test!(pages_are_unmapped_with_their_queue_pair),
    test!(pages_are_unmapped_when_the_device_is_closed)
        .fails_on_c("push pages of queue pairs that were not destroyed stay mapped"),
    test!(a_page_elsewhere_in_its_mapping_is_found_and_unmapped)
        .alone()
        .fails_on_c("the offset of the WQE page is taken for one in words, and unmapping begins there"),
    test!(a_page_that_cannot_be_mapped_is_done_without),
    test!(nothing_is_pushed_for_who_does_not_want_it).alone().fails_on_c(NO_SWITCH),
    test!(who_wants_pages_is_told_that_there_are_none).fails_on_c(NO_SWITCH),
    test!(an_unknown_wish_is_named_and_passed_over).fails_on_c(NO_SWITCH),
];
