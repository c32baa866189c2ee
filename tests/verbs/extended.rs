//! The extended polling interface says the same as the plain one, in every field.

use std::sync::Arc;

use irdma_tests::context::Context;
use irdma_tests::cq::Cq;
use irdma_tests::cq_ex::CqEx;
use irdma_tests::device::Device;
use irdma_tests::fixtures::{Pair, Q_KEY};
use irdma_tests::memory::Mr;
use irdma_tests::qp::{Ah, Connection, Qp, QpOptions};
use irdma_tests::runner::{Test, skip};
use irdma_tests::sys::*;
use irdma_tests::test;
use irdma_tests::wc::{Wc, assert_completions};
use irdma_tests::work::{ReceiveWork, SendWork};

/// A queue pair connected to itself, both of whose queues complete on one extended queue.
struct Extended {
    cq: CqEx,
    qp: Qp,
    mr: Mr,
}

impl Extended {
    fn new(pair: &Pair) -> Extended {
        let cq = CqEx::new(pair.left.context(), 128);
        let qp = Qp::new(pair.left.pd(), cq.plain(), cq.plain(), QpOptions::default());
        qp.connect(Connection { rnr_retry: 0, ..Connection::default() }, qp.number(), pair.left.gid());
        Extended { cq, qp, mr: Mr::patterned(pair.left.pd(), 4096, 3) }
    }

    /// Completions of the next batch, those of the send queue first.
    #[track_caller]
    fn expect(&self, sent: &[Wc], received: &[Wc]) {
        let all = self.cq.wait_batch(sent.len() + received.len());
        let (receives, sends): (Vec<_>, Vec<_>) = all.into_iter().partition(Wc::is_receive);
        assert_completions(&sends, sent);
        assert_completions(&receives, received);
        assert!(self.cq.poll_batch(1).is_empty());
    }

    fn sent(&self, wr_id: u64, opcode: u32, byte_len: u32) -> Wc {
        Wc::sent(self.qp.number(), wr_id, opcode, byte_len)
    }

    fn received(&self, wr_id: u64, byte_len: u32) -> Wc {
        Wc::received(self.qp.number(), wr_id, byte_len)
    }
}

fn every_operation_reads_the_same() {
    let pair = Pair::unconnected(QpOptions::default());
    let this = Extended::new(&pair);
    let (address, rkey) = (this.mr.address(), this.mr.rkey());
    let receive = |wr_id| ReceiveWork::new(wr_id).sge(this.mr.sge(2048, 1000));
    this.qp.receive_list(&mut [receive(10), receive(11), receive(12)]);
    this.qp.post_list(&mut [
        SendWork::send(1).sge(this.mr.sge(0, 100)),
        SendWork::send(2).sge(this.mr.sge(0, 20)).immediate(0xa1b2_c3d4),
        SendWork::write(3, address + 1024, rkey).sge(this.mr.sge(0, 30)),
        SendWork::write(4, address + 1024, rkey).sge(this.mr.sge(0, 40)).immediate(0),
        SendWork::read(5, address, rkey).sge(this.mr.sge(1024, 50)),
    ]);
    this.expect(
        &[
            this.sent(1, IBV_WC_SEND, 100),
            this.sent(2, IBV_WC_SEND, 20),
            this.sent(3, IBV_WC_RDMA_WRITE, 30),
            this.sent(4, IBV_WC_RDMA_WRITE, 40),
            this.sent(5, IBV_WC_RDMA_READ, 50),
        ],
        &[
            this.received(10, 100),
            this.received(11, 20).with_immediate(0xa1b2_c3d4),
            this.received(12, 40).with_opcode(IBV_WC_RECV_RDMA_WITH_IMM).with_immediate(0),
        ],
    );
}

fn an_invalidated_key_can_be_read() {
    let pair = Pair::unconnected(QpOptions::default());
    let this = Extended::new(&pair);
    let mr = Mr::fresh(pair.left.pd(), 64);
    this.qp.receive(ReceiveWork::new(10).sge(this.mr.sge(2048, 1000)));
    this.qp.post(SendWork::send(1).sge(this.mr.sge(0, 5)).invalidating(mr.rkey()));
    this.expect(&[this.sent(1, IBV_WC_SEND, 5)], &[this.received(10, 5).with_invalidated(mr.rkey())]);
}

fn errors_and_flushes_read_the_same() {
    let pair = Pair::unconnected(QpOptions::default());
    let this = Extended::new(&pair);
    this.qp.receive_list(&mut [ReceiveWork::new(10), ReceiveWork::new(11)]);
    let bad = ibv_sge { lkey: 0xdead_be00, ..this.mr.sge(0, 8) };
    this.qp.post_list(&mut [
        SendWork::read(1, this.mr.address(), this.mr.rkey()).sge(bad),
        SendWork::write(2, this.mr.address(), this.mr.rkey()).sge(this.mr.sge(0, 9)),
        SendWork::send(3).immediate(1),
    ]);
    this.expect(
        &[
            this.sent(1, IBV_WC_RDMA_READ, 8).failed(IBV_WC_LOC_PROT_ERR, 2),
            this.sent(2, IBV_WC_RDMA_WRITE, 9).flushed(),
            this.sent(3, IBV_WC_SEND, 0).flushed(),
        ],
        &[this.received(10, 0).flushed(), this.received(11, 0).flushed()],
    );
}

fn datagrams_read_the_same() {
    let pair = Pair::unconnected(QpOptions::default());
    let cq = CqEx::new(pair.left.context(), 64);
    let qp = Qp::new(pair.left.pd(), cq.plain(), cq.plain(), QpOptions::datagram());
    qp.start_datagrams(Q_KEY);
    let ah = Ah::new(pair.left.pd(), pair.left.gid());
    let mr = Mr::fresh(pair.left.pd(), 4096);
    for round in 0..100_u32 {
        qp.receive(ReceiveWork::new(10).sge(mr.sge(0, 500)));
        let send = SendWork::send(1).to(ah.raw(), qp.number(), Q_KEY).sge(mr.sge(1000, 33));
        let immediate = round % 2 == 1;
        qp.post(if immediate { send.immediate(round) } else { send });
        let received = Wc::datagram(qp.number(), 10, 33, qp.number());
        let received = if immediate { received.with_immediate(round) } else { received };
        let (receives, sends): (Vec<_>, Vec<_>) = cq.wait_batch(2).into_iter().partition(Wc::is_receive);
        assert_completions(&sends, &[Wc::sent(qp.number(), 1, IBV_WC_SEND, 33)]);
        assert_completions(&receives, &[received]);
    }
}

fn both_interfaces_work_on_one_queue() {
    let pair = Pair::unconnected(QpOptions::default());
    let this = Extended::new(&pair);
    let write = |wr_id| SendWork::write(wr_id, this.mr.address(), this.mr.rkey()).sge(this.mr.sge(2000, 8));
    for round in 0..40_u64 {
        this.qp.post_list(&mut [write(round * 2), write(round * 2 + 1)]);
        let first = this.cq.wait_batch(1);
        let second = this.cq.plain().wait(1);
        let expected =
            [this.sent(round * 2, IBV_WC_RDMA_WRITE, 8), this.sent(round * 2 + 1, IBV_WC_RDMA_WRITE, 8)];
        assert_completions(&first, &expected[..1]);
        assert_completions(&second, &expected[1..]);
    }
}

fn an_empty_queue_says_so() {
    let context = Context::open();
    let cq = CqEx::new(&context, 16);
    let mut attributes = ibv_poll_cq_attr { comp_mask: 0 };
    for _ in 0..3 {
        // SAFETY: the queue is alive, the attributes valid for the call.
        assert_eq!(unsafe { ibv_start_poll(cq.raw_ex(), &mut attributes) }, libc::ENOENT);
    }
    cq.plain().expect_empty();
}

fn polling_attributes_that_do_not_exist_are_invalid() {
    let pair = Pair::unconnected(QpOptions::default());
    let this = Extended::new(&pair);
    this.qp.post(SendWork::write(1, this.mr.address(), this.mr.rkey()));
    let mut attributes = ibv_poll_cq_attr { comp_mask: 1 };
    // SAFETY: the queue is alive, the attributes valid for the call.
    let result = unsafe { ibv_start_poll(this.cq.raw_ex(), &mut attributes) };
    if result == 0 {
        // SAFETY: ends the batch that should not have begun.
        unsafe { ibv_end_poll(this.cq.raw_ex()) };
    }
    assert_eq!(result, libc::EINVAL);
    this.expect(&[this.sent(1, IBV_WC_RDMA_WRITE, 0)], &[]);
}

fn a_batch_can_end_early() {
    let pair = Pair::unconnected(QpOptions::default());
    let this = Extended::new(&pair);
    let mut writes: Vec<_> =
        (0..10).map(|wr_id| SendWork::write(wr_id, this.mr.address(), this.mr.rkey())).collect();
    this.qp.post_list(&mut writes);
    let mut seen = Vec::new();
    for limit in [1, 3, 2, 4] {
        seen.extend(this.cq.poll_batch(limit));
    }
    let expected: Vec<_> = (0..10).map(|wr_id| this.sent(wr_id, IBV_WC_RDMA_WRITE, 0)).collect();
    assert_completions(&seen, &expected);
}

fn a_queue_without_readers_still_tells_the_essentials() {
    let pair = Pair::unconnected(QpOptions::default());
    let mut attributes = CqEx::attributes(16, 0);
    let cq = CqEx::try_new(pair.left.context(), None, &mut attributes).expect("no readers asked for");
    let qp = Qp::new(pair.left.pd(), cq.plain(), &Cq::new(pair.left.context(), 16), QpOptions::default());
    qp.connect(Connection::default(), qp.number(), pair.left.gid());
    let mr = Mr::fresh(pair.left.pd(), 64);
    qp.post(SendWork::write(0x1234_5678_9abc_def0, mr.address(), mr.rkey()).sge(mr.sge(0, 8)));
    let mut attributes = ibv_poll_cq_attr { comp_mask: 0 };
    // SAFETY: the queue is alive; the readers that always exist are used within a batch.
    unsafe {
        assert_eq!(ibv_start_poll(cq.raw_ex(), &mut attributes), 0);
        assert_eq!((*cq.raw_ex()).wr_id, 0x1234_5678_9abc_def0);
        assert_eq!((*cq.raw_ex()).status, IBV_WC_SUCCESS);
        assert_eq!(ibv_wc_read_opcode(cq.raw_ex()), IBV_WC_RDMA_WRITE);
        assert_eq!(ibv_wc_read_wc_flags(cq.raw_ex()), 0);
        assert_eq!(ibv_next_poll(cq.raw_ex()), libc::ENOENT);
        ibv_end_poll(cq.raw_ex());
    }
}

fn path_bits_can_be_read() {
    let pair = Pair::unconnected(QpOptions::default());
    let this = Extended::new(&pair);
    this.qp.post(SendWork::write(1, this.mr.address(), this.mr.rkey()));
    let mut attributes = ibv_poll_cq_attr { comp_mask: 0 };
    // SAFETY: the queue is alive; the reader was asked for and is used within a batch.
    unsafe {
        assert_eq!(ibv_start_poll(this.cq.raw_ex(), &mut attributes), 0);
        let reader = (*this.cq.raw_ex()).read_dlid_path_bits;
        let bits = reader.map(|reader| reader(this.cq.raw_ex()));
        ibv_end_poll(this.cq.raw_ex());
        assert_eq!(bits, Some(0), "a reader that was granted must be there");
    }
}

fn a_destroyed_queue_pair_is_skipped_within_a_batch() {
    let pair = Pair::unconnected(QpOptions::default());
    let cq = CqEx::new(pair.left.context(), 128);
    let plain: &Arc<Cq> = cq.plain();
    let qps: Vec<_> = (0..3)
        .map(|_| {
            let qp = Qp::new(pair.left.pd(), plain, plain, QpOptions::default());
            qp.connect(Connection::default(), qp.number(), pair.left.gid());
            qp
        })
        .collect();
    let mr = &pair.left.mr;
    for round in 0..4 {
        for qp in &qps {
            qp.post(SendWork::write(round, mr.address(), mr.rkey()));
        }
    }
    let [first, doomed, last] = <[Qp; 3]>::try_from(qps).unwrap_or_else(|_| unreachable!("three of them"));
    drop(doomed);
    let expected: Vec<_> = (0..4)
        .flat_map(|wr_id| [&first, &last].map(|qp| Wc::sent(qp.number(), wr_id, IBV_WC_RDMA_WRITE, 0)))
        .collect();
    assert_completions(&cq.wait_batch(8), &expected);
    assert!(cq.poll_batch(4).is_empty());
}

fn the_first_generation_has_no_such_queues() {
    if Device::present().generation > 1 {
        skip("the device has extended completion queues");
    }
    let context = Context::open();
    let mut attributes = ibv_cq_init_attr_ex { cqe: 16, ..ibv_cq_init_attr_ex::default() };
    assert_eq!(CqEx::try_new(&context, None, &mut attributes).err(), Some(libc::EOPNOTSUPP));
}

/// The programs of this file.
pub const TESTS: &[Test] = &[
    test!(the_first_generation_has_no_such_queues),
    test!(every_operation_reads_the_same),
    test!(an_invalidated_key_can_be_read).fails_on_c("the key reads as 0"),
    test!(errors_and_flushes_read_the_same),
    test!(datagrams_read_the_same),
    test!(both_interfaces_work_on_one_queue),
    test!(an_empty_queue_says_so),
    test!(polling_attributes_that_do_not_exist_are_invalid).may_fail_on_c("they are ignored"),
    test!(a_batch_can_end_early),
    test!(a_queue_without_readers_still_tells_the_essentials),
    test!(path_bits_can_be_read),
    test!(a_destroyed_queue_pair_is_skipped_within_a_batch),
];
