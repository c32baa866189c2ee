//! Completion queues of all sizes that are as full as they may be, lap after lap: whatever a provider holds back,
//! the device finds room.

use std::collections::VecDeque;
use std::sync::Arc;

use irdma_tests::channel::Channel;
use irdma_tests::cq::Cq;
use irdma_tests::cq_ex::CqEx;
use irdma_tests::device::{Device, feature};
use irdma_tests::fixtures::Pair;
use irdma_tests::memory::Mr;
use irdma_tests::qp::{Connection, Qp, QpOptions};
use irdma_tests::runner::Test;
use irdma_tests::srq::Srq;
use irdma_tests::sys::*;
use irdma_tests::test;
use irdma_tests::wc::Wc;
use irdma_tests::work::{ReceiveWork, SendWork};

/// Sizes about the ends of pages, which are of 64 or 128 slots.
const SIZES: &[u32] = &[1, 2, 3, 4, 5, 30, 31, 32, 33, 61, 62, 63, 64, 65, 66, 125, 126, 127, 128, 129, 190];

/// Numbers that look like any.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as u32) % end
    }

    /// How many to poll of a queue of `entries`.
    fn batch(&mut self, entries: u32) -> usize {
        (1 + if self.below(3) == 0 { 0 } else { self.below(entries) }) as usize
    }
}

/// A queue pair connected to itself, with one completion queue for both directions.
struct Source {
    qp: Qp,
    mr: Mr,
    /// Identifiers of sends, and of receives, that are outstanding.
    outstanding: [VecDeque<u64>; 2],
    posted: u64,
}

impl Source {
    fn new(pair: &Pair, cq: &Arc<Cq>) -> Source {
        let options = QpOptions { max_send_wr: 256, max_recv_wr: 256, ..QpOptions::default() };
        Source::of(pair, Qp::new(pair.left.pd(), cq, cq, options))
    }

    fn of(pair: &Pair, qp: Qp) -> Source {
        qp.connect(Connection::default(), qp.number(), pair.left.gid());
        // On iWARP the kernel's own requests have completed, and are passed over.
        qp.send_cq().expect_empty();
        Source { qp, mr: Mr::fresh(pair.left.pd(), 64), outstanding: Default::default(), posted: 0 }
    }

    fn outstanding(&self) -> u32 {
        self.outstanding.iter().map(VecDeque::len).sum::<usize>() as u32
    }

    fn next(&mut self, sides: std::ops::RangeInclusive<usize>) -> u64 {
        self.outstanding[sides].iter_mut().for_each(|side| side.push_back(self.posted));
        self.posted += 1;
        self.posted - 1
    }

    /// Completes as a send.
    fn write(&mut self) {
        let write = SendWork::write(self.next(0..=0), self.mr.address(), self.mr.rkey());
        self.qp.post(write.sge(self.mr.sge(0, 8)));
    }

    /// Completes when the queue pair fails.
    fn receive(&mut self) {
        let wr_id = self.next(1..=1);
        self.qp.receive(ReceiveWork::new(wr_id).sge(self.mr.sge(0, 8)));
    }

    /// Completes as a send and as a receive.
    fn message(&mut self, immediate: bool) {
        let wr_id = self.next(0..=1);
        self.qp.receive(ReceiveWork::new(wr_id).sge(self.mr.sge(0, 8)));
        let send = SendWork::send(wr_id).sge(self.mr.sge(8, 8));
        self.qp.post(if immediate { send.immediate(7) } else { send });
    }

    /// What is posted may complete now, in order on either side.
    #[track_caller]
    fn expect(&mut self, completions: &[Wc], status: u32) {
        for wc in completions {
            assert_eq!(wc.status, status, "{wc:?}");
            let expected = self.outstanding[usize::from(wc.is_receive())].pop_front();
            assert_eq!(expected, Some(wc.wr_id), "{wc:?}");
        }
    }
}

/// Keeps a queue of that many entries full, whatever is polled of it.
fn keep_full(pair: &Pair, entries: u32, cq: &Arc<Cq>, poll: impl Fn(usize) -> Vec<Wc>, random: &mut Random) {
    let mut source = Source::new(pair, cq);
    while source.posted < u64::from(entries) * 3 + 260 {
        while source.outstanding() < entries {
            if source.outstanding() + 1 < entries && random.below(2) == 0 {
                source.message(Device::present().roce && random.below(2) == 0);
            } else {
                source.write();
            }
        }
        let some = poll(random.batch(entries));
        assert!(!some.is_empty(), "nothing comes of {entries} entries");
        source.expect(&some, IBV_WC_SUCCESS);
    }
}

fn queues_stay_full() {
    let (pair, mut random) = (Pair::unconnected(QpOptions::default()), Random(1));
    for &entries in SIZES {
        let cq = Cq::new(pair.left.context(), entries as i32);
        keep_full(&pair, entries, &cq, |limit| cq.poll(limit), &mut random);
    }
}

fn extended_queues_stay_full() {
    let (pair, mut random) = (Pair::unconnected(QpOptions::default()), Random(2));
    for &entries in SIZES {
        let cq = CqEx::new(pair.left.context(), entries);
        keep_full(&pair, entries, cq.plain(), |limit| cq.poll_batch(limit), &mut random);
    }
}

fn queues_stay_full_in_other_sizes() {
    Device::present().require(feature::CQ_RESIZE, "resizing of completion queues");
    let (pair, mut random) = (Pair::unconnected(QpOptions::default()), Random(3));
    for _ in 0..12 {
        let mut entries = 1 + random.below(180);
        let cq = Cq::new(pair.left.context(), entries as i32);
        let mut source = Source::new(&pair, &cq);
        for _ in 0..30 {
            while source.outstanding() < entries {
                source.write();
            }
            if random.below(3) == 0 {
                entries = (entries + random.below(70)).min(250);
                assert_eq!(cq.resize(entries as i32), Ok(()));
                assert_eq!(cq.entries(), entries as i32);
            } else {
                source.expect(&cq.poll(random.batch(entries)), IBV_WC_SUCCESS);
                entries = entries.min(source.outstanding().max(1) + random.below(40));
                assert_eq!(cq.resize(entries as i32), Ok(()));
                assert_eq!(cq.entries(), entries as i32);
            }
        }
        while source.outstanding() > 0 {
            source.expect(&cq.wait_in_batches(1, 1), IBV_WC_SUCCESS);
        }
        cq.expect_empty();
    }
}

fn queues_are_filled_by_shared_receives() {
    Device::present().require(feature::SRQ, "shared receive queues");
    let (pair, mut random) = (Pair::unconnected(QpOptions::default()), Random(4));
    let sends = Cq::new(pair.left.context(), 1024);
    for &entries in SIZES {
        let cq = Cq::new(pair.left.context(), entries as i32);
        let srq = Srq::new(pair.left.pd(), 256, 1);
        let options = QpOptions { max_send_wr: 256, ..QpOptions::default() };
        let mut source = Source::of(&pair, Qp::on_srq(pair.left.pd(), &sends, &cq, &srq, options));
        while source.posted < u64::from(entries) * 3 + 130 {
            while source.outstanding() < entries {
                let wr_id = source.next(1..=1);
                srq.receive(ReceiveWork::new(wr_id).sge(source.mr.sge(0, 8)));
                let send = SendWork::send(wr_id).sge(source.mr.sge(8, 8));
                source.qp.post(if random.below(2) == 0 { send.immediate(5) } else { send });
            }
            let some = cq.poll(random.batch(entries));
            assert!(!some.is_empty(), "nothing comes of {entries} entries");
            source.expect(&some, IBV_WC_SUCCESS);
            sends.poll(256);
        }
    }
}

fn queues_are_filled_by_flushes() {
    let (pair, mut random) = (Pair::unconnected(QpOptions::default()), Random(5));
    for &entries in SIZES {
        let cq = Cq::new(pair.left.context(), entries as i32);
        // Before the third generation an empty queue has an entry of its own, for which rings have room there
        // where every completion may take two.
        let full = if Device::present().generation == 1 { entries.max(2) - 1 } else { entries };
        // The ring goes on from one queue pair to the next.
        for _ in 0..4 {
            let mut source = Source::new(&pair, &cq);
            let good = random.below(full + 1);
            (0..good).for_each(|_| source.write());
            (good..full).for_each(|_| source.receive());
            source.qp.fail();
            let all = cq.wait_in_batches(full as usize, random.batch(entries));
            let (completed, flushed) = all.split_at(good as usize);
            source.expect(completed, IBV_WC_SUCCESS);
            source.expect(flushed, IBV_WC_WR_FLUSH_ERR);
            cq.expect_empty();
        }
    }
}

fn an_event_comes_wherever_a_queue_was_drained_to() {
    let pair = Pair::unconnected(QpOptions::default());
    let channel = Channel::new(pair.left.context());
    let mut random = Random(6);
    for &entries in SIZES {
        let cq = Cq::on_channel(&channel, pair.left.context(), entries as i32);
        let mut source = Source::new(&pair, &cq);
        for _ in 0..70 {
            (0..random.below(entries + 1).min(3)).for_each(|_| source.write());
            source.expect(&cq.wait(source.outstanding() as usize), IBV_WC_SUCCESS);
            cq.arm(false);
            source.write();
            channel.expect_event();
            source.expect(&cq.wait(1), IBV_WC_SUCCESS);
        }
    }
}

/// The programs of this file.
pub const TESTS: &[Test] = &[
    test!(queues_stay_full),
    test!(extended_queues_stay_full),
    test!(queues_stay_full_in_other_sizes),
    test!(queues_are_filled_by_shared_receives),
    test!(queues_are_filled_by_flushes),
    test!(an_event_comes_wherever_a_queue_was_drained_to),
];
