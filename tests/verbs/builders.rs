//! Work requests added by calls: the same WQEs and completions as posted ones, or no trace.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use irdma_tests::builder::{CONNECTED, DATAGRAMS, Manner, QpEx, attributes};
use irdma_tests::context::{Context, Pd};
use irdma_tests::cq::Cq;
use irdma_tests::domain::{Answer, Lender};
use irdma_tests::fixtures::Q_KEY;
use irdma_tests::memory::{ALL_ACCESS, Buffer, Mr};
use irdma_tests::qp::{Ah, Connection, Qp, QpOptions};
use irdma_tests::runner::Test;
use irdma_tests::sys::*;
use irdma_tests::test;
use irdma_tests::wc::{Wc, assert_completions};
use irdma_tests::window::Window;
use irdma_tests::work::{ReceiveWork, SendWork};
use irdma_tests::{clear_errno, last_errno};

const NO_BUILDERS: &str = "has no work request builders";

/// A queue pair connected to itself.
struct Loop {
    qp: QpEx,
    mr: Mr,
}

fn roomy() -> QpOptions {
    QpOptions { max_inline_data: 101, max_send_sge: 13, max_send_wr: 40, ..QpOptions::default() }
}

fn connect_to_itself(qp: &Qp) {
    let gid = qp.context().gid(qp.context().gid_index().into());
    if qp.query().1.qp_type == IBV_QPT_UD {
        qp.start_datagrams(Q_KEY);
    } else {
        qp.connect(Connection::default(), qp.number(), gid);
    }
}

impl Loop {
    fn new(options: QpOptions, operations: u32) -> Loop {
        let pd = Pd::new(&Context::open());
        let qp = QpEx::new(&pd, options, operations);
        connect_to_itself(&qp);
        Loop { qp, mr: Mr::patterned(&pd, 65536, 1) }
    }

    fn connected() -> Loop {
        Loop::new(roomy(), CONNECTED)
    }

    fn write(&self, wr_id: u64) -> SendWork {
        SendWork::write(wr_id, self.mr.address() + 4096, self.mr.rkey()).sge(self.mr.sge(0, 8))
    }

    fn written(&self, wr_id: u64) -> Wc {
        Wc::sent(self.qp.number(), wr_id, IBV_WC_RDMA_WRITE, 8)
    }

    /// The queue pair works, and nothing was left by what came before.
    #[track_caller]
    fn check_alive(&self) {
        self.qp.send_cq().expect_empty();
        self.qp.post(self.write(900));
        assert_eq!(self.qp.try_build(&[self.write(901)], Manner::default()), 0);
        assert_completions(&self.qp.send_cq().wait(2), &[self.written(900), self.written(901)]);
        self.qp.send_cq().expect_empty();
    }
}

/// Every operation in many shapes.
fn works(mr: &Mr, round: usize) -> Vec<SendWork> {
    let (address, rkey) = (mr.address() + 8192, mr.rkey());
    let pieces = |count: usize| (0..count).map(move |index| (index * 64 + round, 8 + index));
    let elements = |count| pieces(count).map(|(offset, length)| mr.sge(offset, length)).collect::<Vec<_>>();
    let mut works = Vec::new();
    for count in [0, 1, 2, 3, 6, 13] {
        works.push(SendWork::send(1).sges(elements(count)));
        works.push(SendWork::write(2, address, rkey).sges(elements(count)).flags(IBV_SEND_FENCE));
        works.push(SendWork::read(3, address, rkey).sges(elements(count)));
    }
    for count in [0, 1, 2, 12] {
        works.push(SendWork::send(4).sges(elements(count)).immediate(0x0102_0304));
        works.push(SendWork::write(5, address, rkey).sges(elements(count)).immediate(5));
    }
    for length in [0, 1, 8, 9, 39, 40, 70, 101] {
        works.push(SendWork::send(6).sge(mr.sge(round, length)).inline());
        works.push(SendWork::write(7, address, rkey).sge(mr.sge(round, length)).inline());
    }
    works.push(SendWork::send(8).sges([mr.sge(1, 30), mr.sge(100, 30)]).inline().immediate(9));
    works.push(SendWork::send(9).sge(mr.sge(0, 16)).flags(IBV_SEND_SOLICITED));
    works.push(SendWork::write(10, address, rkey).sge(mr.sge(0, 16)).flags(IBV_SEND_SOLICITED).unsignaled());
    works
}

/// Posts and builds the same in two queue pairs whose rings can be read.
fn compare(options: QpOptions, operations: u32, works: impl Fn(&Mr, &Qp, usize) -> Vec<SendWork>) {
    let pd = Pd::new(&Context::open());
    let mr = Mr::patterned(&pd, 65536, 1);
    let sink = Mr::fresh(&pd, 65536);
    let lenders = [Lender::new(Answer::Memory), Lender::new(Answer::Memory)];
    let [posted, built] = lenders.map(|lender| {
        let qp = QpEx::new(&lender.parent(&pd), options, operations);
        connect_to_itself(&qp);
        qp
    });
    let ring = |lender: &Lender| {
        let loan = lender.loans()[0];
        // The receive ring follows, the same on both sides.
        // SAFETY: lent memory; the device only reads it.
        unsafe { std::slice::from_raw_parts(loan.base, loan.length) }.to_vec()
    };
    for round in 0..24_usize {
        let manner = Manner { lists: round % 2 == 1, destination_first: round % 3 == 1 };
        let (mut plain, again) = (works(&mr, &built, round), works(&mr, &built, round));
        let count = plain.len();
        for (index, (work, again)) in plain.iter_mut().zip(&again).enumerate() {
            for qp in [&posted, &built] {
                if matches!(again.raw.opcode, IBV_WR_SEND | IBV_WR_SEND_WITH_IMM | IBV_WR_RDMA_WRITE_WITH_IMM)
                {
                    // A queue that is full already will do: datagrams to nobody take nothing.
                    let _ = qp.try_receive(&mut [ReceiveWork::new(index as u64).sge(sink.whole())]);
                }
            }
            let work = std::mem::replace(work, SendWork::send(0));
            posted.post(work);
            assert_eq!(
                built.try_build(std::slice::from_ref(again), manner),
                0,
                "work request {index} of {count}"
            );
            let taken = |qp: &Qp| {
                let mut all = Vec::new();
                if again.raw.send_flags & IBV_SEND_SIGNALED != 0 {
                    all.extend(qp.send_cq().wait(1));
                }
                std::thread::yield_now();
                all.extend(irdma_tests::control::drain(qp.recv_cq()));
                // What is of this queue pair alone.
                all.iter_mut().for_each(|wc| (wc.qp_num, wc.src_qp) = (0, 0));
                all
            };
            assert_eq!(taken(&posted), taken(&built), "completions of work request {index}");
        }
        assert_eq!(ring(lenders[0]), ring(lenders[1]), "rings after round {round}");
        // And as one batch.
        let fitting = 12;
        let mut plain = works(&mr, &built, round);
        let again = works(&mr, &built, round);
        let is_alone = |work: &SendWork| {
            matches!(work.raw.opcode, IBV_WR_RDMA_WRITE | IBV_WR_RDMA_READ)
                && work.raw.send_flags & IBV_SEND_SIGNALED != 0
        };
        plain.retain(is_alone);
        plain.truncate(fitting);
        let again: Vec<_> = again.into_iter().filter(is_alone).take(fitting).collect();
        let count = plain.len();
        posted.post_list(&mut plain);
        assert_eq!(built.try_build(&again, manner), 0);
        let ids = |qp: &Qp| {
            qp.send_cq().wait(count).iter().map(|wc| (wc.wr_id, wc.status, wc.byte_len)).collect::<Vec<_>>()
        };
        assert_eq!(ids(&posted), ids(&built));
        assert_eq!(ring(lenders[0]), ring(lenders[1]), "rings after the batch of round {round}");
    }
}

fn builders_write_what_post_send_writes() {
    compare(roomy(), CONNECTED, |mr, _, round| works(mr, round));
}

fn every_send_is_signaled_if_the_queue_pair_says_so() {
    let options = QpOptions { all_signaled: true, ..roomy() };
    let pair = Loop::new(options, CONNECTED);
    assert_eq!(pair.qp.try_build(&[pair.write(1).unsignaled()], Manner::default()), 0);
    assert_completions(&pair.qp.send_cq().wait(1), &[pair.written(1)]);
}

fn datagram_builders_write_what_post_send_writes() {
    let options = QpOptions { qp_type: IBV_QPT_UD, ..roomy() };
    let handle = std::cell::OnceCell::new();
    compare(options, DATAGRAMS, |mr, qp, round| {
        let ah = handle.get_or_init(|| Ah::new(qp.pd(), qp.context().gid(qp.context().gid_index().into())));
        let mut all = works(mr, round);
        all.retain(|work| matches!(work.raw.opcode, IBV_WR_SEND | IBV_WR_SEND_WITH_IMM));
        // To nobody, so that only the sends complete.
        all.into_iter().map(|work| work.to(ah.raw(), 0xfff_fff, Q_KEY + round as u32)).collect()
    });
}

fn what_a_queue_pair_lacks_is_refused_when_it_is_created() {
    let pd = Pd::new(&Context::open());
    let cq = Cq::new(pd.context(), 64);
    let refused = |options: QpOptions, operations: u64| {
        QpEx::try_new(&pd, &cq, &cq, options, operations).map(|_| ()).expect_err("created")
    };
    for flag in [IBV_QP_EX_WITH_TSO, 1 << 20] {
        assert_eq!(refused(roomy(), u64::from(IBV_QP_EX_WITH_SEND | flag)), libc::EOPNOTSUPP);
    }
    assert_eq!(refused(roomy(), 1 << 40), libc::EOPNOTSUPP);
    for flag in (0..9).map(|bit| 1 << bit).filter(|flag| DATAGRAMS & flag == 0) {
        assert_eq!(refused(QpOptions::datagram(), u64::from(flag)), libc::EOPNOTSUPP);
    }
    let create = |mut attributes: ibv_qp_init_attr_ex| {
        clear_errno();
        // SAFETY: the context is alive, the attributes valid for the call.
        let qp = unsafe { ibv_create_qp_ex(pd.context().raw(), &mut attributes) };
        assert!(qp.is_null());
        last_errno()
    };
    let good = attributes(&pd, &cq, &cq, roomy(), CONNECTED.into());
    let with = |comp_mask| ibv_qp_init_attr_ex { comp_mask, ..good };
    let flags = with(good.comp_mask | IBV_QP_INIT_ATTR_CREATE_FLAGS);
    for bit in 0..32 {
        assert_eq!(create(ibv_qp_init_attr_ex { create_flags: 1 << bit, ..flags }), libc::EOPNOTSUPP);
    }
    assert_eq!(create(with(good.comp_mask | 1 << 31)), libc::EOPNOTSUPP);
    assert_eq!(create(with(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)), libc::EINVAL);
    assert_eq!(create(ibv_qp_init_attr_ex { pd: std::ptr::null_mut(), ..good }), libc::EINVAL);
}

fn a_plain_queue_pair_has_no_builders() {
    let pd = Pd::new(&Context::open());
    let plain = Qp::with_own_cqs(&pd, QpOptions::default());
    // SAFETY: the queue pair is alive.
    assert!(unsafe { ibv_qp_to_qp_ex(plain.raw()) }.is_null());
    let cq = Cq::new(pd.context(), 64);
    let mut asked = attributes(&pd, &cq, &cq, roomy(), 0);
    // To ask for no flag is to ask for nothing.
    asked.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
    // SAFETY: the context is alive, the attributes valid for the call; destroyed once.
    unsafe {
        let qp = ibv_create_qp_ex(pd.context().raw(), &mut asked);
        assert!(!qp.is_null());
        assert!(ibv_qp_to_qp_ex(qp).is_null());
        assert_eq!(ibv_destroy_qp(qp), 0);
    }
}

fn misuse_fails_the_batch_and_changes_nothing() {
    let pair = Loop::connected();
    let (qp, write) = (&pair.qp, pair.write(2));
    let list = |count: usize| pair.write(2).sges((1..count).map(|index| pair.mr.sge(index, 1)));
    let raw = qp.raw_ex();
    type Misuse<'a> = (&'a str, Box<dyn Fn() + 'a>);
    let cases: Vec<Misuse<'_>> = vec![
        ("no data", Box::new(|| qp.begin(&write))),
        (
            "no data before the next",
            Box::new(|| {
                qp.begin(&write);
                qp.add(&write, Manner::default());
            }),
        ),
        ("data without a work request", Box::new(|| qp.set_data(&write, false))),
        ("a list without a work request", Box::new(|| qp.set_data(&write, true))),
        ("inline data without a work request", Box::new(|| qp.set_data(&pair.write(2).inline(), false))),
        (
            "data twice",
            Box::new(|| {
                qp.add(&write, Manner::default());
                qp.set_data(&write, false);
            }),
        ),
        (
            "a destination",
            Box::new(|| {
                qp.add(&write, Manner::default());
                qp.set_destination(&SendWork::send(1));
            }),
        ),
        (
            "an operation that the queue pair was not created for",
            Box::new(|| {
                // SAFETY: the queue pair is alive.
                unsafe { ibv_wr_atomic_fetch_add(raw, 1, 0, 1) }
            }),
        ),
        (
            "segmentation",
            Box::new(|| {
                // SAFETY: the queue pair is alive, the function always there.
                unsafe { (*raw).wr_send_tso.expect("filled")(raw, std::ptr::null_mut(), 0, 0) }
            }),
        ),
        ("too many pieces", Box::new(|| qp.add(&list(14), Manner::default()))),
        (
            "absurdly many pieces",
            Box::new(|| {
                qp.begin(&write);
                // SAFETY: the count must be found out before the list is read.
                unsafe { ibv_wr_set_sge_list(raw, usize::MAX, 16 as *const _) }
            }),
        ),
        (
            "too much inline",
            Box::new(|| {
                let much = SendWork::send(2).sge(pair.mr.sge(0, 102)).inline();
                qp.add(&much, Manner::default());
            }),
        ),
        (
            "too much inline in a list",
            Box::new(|| {
                let much = SendWork::send(2).sges((0..20).map(|_| pair.mr.sge(0, 10))).inline();
                qp.add(&much, Manner { lists: true, ..Manner::default() });
            }),
        ),
        (
            "absurdly much inline",
            Box::new(|| {
                qp.begin(&SendWork::send(2));
                // SAFETY: the length must be found out before the data is read.
                unsafe { ibv_wr_set_inline_data(raw, 16 as *mut _, usize::MAX) }
            }),
        ),
        (
            "a read inline",
            Box::new(|| {
                let read =
                    SendWork::read(2, pair.mr.address(), pair.mr.rkey()).sge(pair.mr.sge(0, 8)).inline();
                qp.add(&read, Manner::default());
            }),
        ),
        (
            "two gigabytes",
            Box::new(|| {
                let much = SendWork::send(2).sge(ibv_sge { length: 1 << 31, ..pair.mr.sge(0, 0) });
                qp.add(&much, Manner::default());
            }),
        ),
    ];
    for (name, misuse) in &cases {
        for before in 0..3 {
            qp.start();
            for _ in 0..before {
                qp.add(&pair.write(1), Manner::default());
            }
            misuse();
            // What comes after does not heal it.
            qp.add(&pair.write(3), Manner::default());
            assert_eq!(qp.complete(), libc::EINVAL, "{name}");
            pair.check_alive();
            qp.start();
            misuse();
            qp.abort();
            pair.check_alive();
        }
    }
}

fn calls_without_a_batch_are_refused() {
    let pair = Loop::connected();
    assert_eq!(pair.qp.complete(), libc::EINVAL);
    pair.qp.abort();
    pair.check_alive();
    pair.qp.add(&pair.write(1), Manner::default());
    assert_eq!(pair.qp.complete(), libc::EINVAL);
    assert_eq!(pair.qp.complete(), libc::EINVAL);
    pair.check_alive();
    // A batch that follows is a fresh one.
    pair.qp.set_data(&pair.write(1), true);
    assert_eq!(pair.qp.try_build(&[pair.write(1)], Manner::default()), 0);
    assert_completions(&pair.qp.send_cq().wait(1), &[pair.written(1)]);
    pair.check_alive();
}

fn a_batch_started_twice_is_refused() {
    let pair = Loop::connected();
    pair.qp.start();
    pair.qp.add(&pair.write(1), Manner::default());
    pair.qp.start();
    assert_eq!(pair.qp.complete(), libc::EINVAL);
    pair.check_alive();
}

fn a_datagram_needs_a_destination() {
    let pair = Loop::new(QpOptions { qp_type: IBV_QPT_UD, ..roomy() }, DATAGRAMS);
    let gid = pair.qp.context().gid(pair.qp.context().gid_index().into());
    let ah = Ah::new(pair.qp.pd(), gid);
    let send = || SendWork::send(1).sge(pair.mr.sge(0, 8));
    let good = || send().to(ah.raw(), pair.qp.number(), Q_KEY);
    let cases: [&dyn Fn(); 4] = [
        &|| {
            pair.qp.begin(&send());
            pair.qp.set_data(&send(), false);
        },
        &|| {
            pair.qp.begin(&send());
            pair.qp.set_destination(&good());
        },
        &|| {
            pair.qp.begin(&send());
            pair.qp.set_destination(&send().to(std::ptr::null_mut(), 1, 1));
            pair.qp.set_data(&send(), false);
        },
        &|| {
            pair.qp.add(&good(), Manner::default());
            pair.qp.set_destination(&good());
        },
    ];
    for misuse in cases {
        pair.qp.start();
        misuse();
        assert_eq!(pair.qp.complete(), libc::EINVAL);
        pair.qp.receive(ReceiveWork::new(2).sge(pair.mr.sge(4096, 1024)));
        assert_eq!(pair.qp.try_build(&[good()], Manner::default()), 0);
        let number = pair.qp.number();
        assert_completions(&pair.qp.send_cq().wait(1), &[Wc::sent(number, 1, IBV_WC_SEND, 8)]);
        assert_completions(&pair.qp.recv_cq().wait(1), &[Wc::datagram(number, 2, 8, number)]);
    }
}

fn a_full_queue_takes_the_whole_batch_or_none_of_it() {
    for options in [QpOptions { max_send_wr: 1, ..QpOptions::default() }, roomy()] {
        let pair = Loop::new(options, CONNECTED);
        let (mr, sges) = (&pair.mr, options.max_send_sge as usize);
        let wide = |wr_id: u64| {
            SendWork::write(wr_id, mr.address() + 4096, mr.rkey())
                .sges((0..sges).map(|index| mr.sge(index, 1)))
        };
        let promised = pair.qp.caps.max_send_wr as usize;
        for round in 0..6 {
            let batch = |count: usize| (0..count as u64).map(wide).collect::<Vec<_>>();
            assert_eq!(pair.qp.try_build(&batch(10_000), Manner::default()), libc::ENOMEM, "round {round}");
            pair.check_alive();
            assert_eq!(pair.qp.try_build(&batch(promised), Manner::default()), 0, "round {round}");
            let all = pair.qp.send_cq().wait(promised);
            assert!(all.iter().map(|wc| wc.wr_id).eq(0..promised as u64));
            pair.check_alive();
        }
    }
}

fn an_abandoned_batch_leaves_no_trace() {
    let pair = Loop::connected();
    for round in 0..200_usize {
        let batch: Vec<_> = works(&pair.mr, round).into_iter().skip(round % 20).take(round % 13).collect();
        pair.qp.start();
        batch
            .iter()
            .for_each(|work| pair.qp.add(work, Manner { lists: round % 2 == 0, ..Manner::default() }));
        pair.qp.abort();
        // Of other sizes than what was dropped.
        pair.check_alive();
        for count in 1..=1 + round % 3 {
            let wide = pair.write(5).sges((0..count * 3).map(|index| pair.mr.sge(index, 1)));
            pair.qp.post(wide);
            assert_eq!(pair.qp.send_cq().wait_one().byte_len, 8 + count as u32 * 3);
        }
    }
}

fn nothing_happens_before_the_batch_is_complete() {
    let pair = Loop::connected();
    for round in 0..5 {
        pair.qp.start();
        (0..round + 1).for_each(|wr_id| pair.qp.add(&pair.write(wr_id), Manner::default()));
        pair.qp.send_cq().expect_silence();
        assert_eq!(pair.qp.complete(), 0);
        let expected: Vec<_> = (0..round + 1).map(|wr_id| pair.written(wr_id)).collect();
        assert_completions(&pair.qp.send_cq().wait(expected.len()), &expected);
    }
    // An empty batch is nothing.
    pair.qp.start();
    assert_eq!(pair.qp.complete(), 0);
    pair.check_alive();
}

fn other_threads_wait_for_the_batch() {
    let pair = Arc::new(Loop::connected());
    let posted = AtomicBool::new(false);
    pair.qp.start();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pair.qp.post(pair.write(2));
            posted.store(true, Ordering::SeqCst);
        });
        std::thread::sleep(Duration::from_millis(30));
        assert!(!posted.load(Ordering::SeqCst), "another thread posted within a batch");
        pair.qp.add(&pair.write(1), Manner::default());
        assert_eq!(pair.qp.complete(), 0);
    });
    assert_completions(&pair.qp.send_cq().wait(2), &[pair.written(1), pair.written(2)]);
}

fn a_batch_posted_in_the_error_state_is_flushed() {
    let pair = Loop::connected();
    pair.qp.fail();
    for _ in 0..3 {
        assert_eq!(pair.qp.try_build(&[pair.write(1), pair.write(2)], Manner::default()), 0);
        let flushed = |wr_id| Wc { byte_len: 0, ..pair.written(wr_id) }.flushed();
        let all = pair.qp.send_cq().wait(2);
        assert!(
            all.iter().zip(1..).all(|(wc, wr_id)| (wc.wr_id, wc.status) == (wr_id, flushed(wr_id).status))
        );
    }
}

fn inline_pieces_may_be_more_than_a_list_has_elements() {
    let pair = Loop::new(QpOptions { max_send_sge: 1, ..roomy() }, CONNECTED);
    let work = pair.write(1);
    let pieces: Vec<_> = (0..100)
        .map(|index| ibv_data_buf {
            addr: pair.mr.buffer().pointer().wrapping_add(index * 3).cast(),
            length: 1,
        })
        .collect();
    pair.qp.start();
    pair.qp.begin(&work);
    // SAFETY: the list is valid for the call, the pieces are memory of the region.
    unsafe { ibv_wr_set_inline_data_list(pair.qp.raw_ex(), pieces.len(), pieces.as_ptr()) };
    assert_eq!(pair.qp.complete(), 0);
    assert_eq!(pair.qp.send_cq().wait_one().byte_len, 100);
    let expected: Vec<u8> = (0..100).map(|index| pair.mr.buffer().read(index * 3, 1)[0]).collect();
    assert_eq!(pair.mr.buffer().read(4096, 100), expected);
}

fn atomics_are_built_where_the_device_has_them() {
    let pd = Pd::new(&Context::open());
    let cq = Cq::new(pd.context(), 64);
    let operations = u64::from(IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD);
    let created = QpEx::try_new(&pd, &cq, &cq, QpOptions::default(), operations);
    if pd.context().query_device().atomic_cap == IBV_ATOMIC_NONE {
        assert_eq!(created.err(), Some(libc::EOPNOTSUPP));
        return;
    }
    let qp = created.unwrap_or_else(|errno| panic!("create_qp_ex: errno {errno}"));
    let access = IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    let gid = pd.context().gid(pd.context().gid_index().into());
    qp.connect(Connection { access, ..Connection::default() }, qp.number(), gid);
    let mr = Mr::new(&pd, &Arc::new(Buffer::new(4096)), ALL_ACCESS | IBV_ACCESS_REMOTE_ATOMIC as i32);
    mr.buffer().write(0, &40_u64.to_le_bytes());
    let atomic = |opcode, compare_add, swap| {
        let mut work = SendWork::new(1, opcode).sge(mr.sge(64, 8));
        work.raw.wr.atomic.remote_addr = mr.address();
        work.raw.wr.atomic.rkey = mr.rkey();
        work.raw.wr.atomic.compare_add = compare_add;
        work.raw.wr.atomic.swap = swap;
        work
    };
    let add = atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 2, 0);
    let swap = atomic(IBV_WR_ATOMIC_CMP_AND_SWP, 42, 7);
    assert_eq!(qp.try_build(&[add, swap], Manner::default()), 0);
    let opcodes: Vec<_> = cq.wait(2).iter().map(|wc| (wc.status, wc.opcode)).collect();
    assert_eq!(opcodes, [(IBV_WC_SUCCESS, IBV_WC_FETCH_ADD), (IBV_WC_SUCCESS, IBV_WC_COMP_SWAP)]);
    assert_eq!(mr.buffer().read(0, 8), 7_u64.to_le_bytes());
    assert_eq!(mr.buffer().read(64, 8), 42_u64.to_le_bytes());
    // One piece of eight bytes, not inline.
    for bad in [atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0).sge(mr.sge(0, 8)), {
        let mut odd = atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0);
        odd.raw.wr.atomic.remote_addr = mr.address() + 4;
        odd
    }] {
        assert_eq!(qp.try_build(&[bad], Manner::default()), libc::EINVAL);
    }
    let inline = atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0).inline();
    assert_eq!(qp.try_build(&[inline], Manner::default()), libc::EINVAL);
    cq.expect_empty();
}

fn a_window_has_its_new_key_when_the_batch_is_complete() {
    let pd = Pd::new(&Context::open());
    let cq = Cq::new(pd.context(), 64);
    let operations = u64::from(IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_RDMA_WRITE);
    let created = QpEx::try_new(&pd, &cq, &cq, QpOptions::default(), operations);
    let window = match Window::try_new(&pd, IBV_MW_TYPE_2) {
        Ok(window) => window,
        Err(_) => return assert_eq!(created.err(), Some(libc::EOPNOTSUPP)),
    };
    let qp = created.unwrap_or_else(|errno| panic!("create_qp_ex: errno {errno}"));
    connect_to_itself(&qp);
    let access = ALL_ACCESS | IBV_ACCESS_MW_BIND as i32;
    let mr = Mr::new(&pd, &Arc::new(Buffer::patterned(4096, 1)), access);
    let bind = |mw: *mut ibv_mw, key: u32| {
        let info = ibv_mw_bind_info {
            mr: mr.raw(),
            addr: mr.address(),
            length: 4096,
            mw_access_flags: IBV_ACCESS_REMOTE_WRITE,
        };
        // SAFETY: the objects are alive, the request valid for the call.
        unsafe {
            (*qp.raw_ex()).wr_id = 5;
            (*qp.raw_ex()).wr_flags = IBV_SEND_SIGNALED;
            ibv_wr_bind_mw(qp.raw_ex(), mw, key, &info);
        }
    };
    let old = window.rkey();
    let new = ibv_inc_rkey(old);
    qp.start();
    bind(window.raw(), new);
    assert_eq!(window.rkey(), old);
    qp.abort();
    qp.start();
    bind(window.raw(), new);
    bind(std::ptr::null_mut(), new);
    assert_eq!(qp.complete(), libc::EINVAL);
    assert_eq!(window.rkey(), old);
    cq.expect_silence();

    qp.start();
    bind(window.raw(), new);
    assert_eq!(window.rkey(), old);
    assert_eq!(qp.complete(), 0);
    assert_eq!(window.rkey(), new);
    let bound = cq.wait_one();
    assert_eq!((bound.wr_id, bound.status, bound.opcode), (5, IBV_WC_SUCCESS, IBV_WC_BIND_MW));
    let write = SendWork::write(6, mr.address() + 64, new).sge(mr.sge(0, 64));
    assert_eq!(qp.try_build(&[write], Manner::default()), 0);
    assert_completions(&cq.wait(1), &[Wc::sent(qp.number(), 6, IBV_WC_RDMA_WRITE, 64)]);
    // One of type 1 is bound by ibv_bind_mw.
    if let Ok(other) = Window::try_new(&pd, IBV_MW_TYPE_1) {
        qp.start();
        bind(other.raw(), ibv_inc_rkey(other.rkey()));
        assert_eq!(qp.complete(), libc::EINVAL);
    }
    // Before the region below it.
    drop(window);
}

/// The programs of this file.
pub const TESTS: &[Test] = &[
    test!(builders_write_what_post_send_writes).fails_on_c(NO_BUILDERS),
    test!(datagram_builders_write_what_post_send_writes).fails_on_c(NO_BUILDERS),
    test!(every_send_is_signaled_if_the_queue_pair_says_so).fails_on_c(NO_BUILDERS),
    test!(what_a_queue_pair_lacks_is_refused_when_it_is_created).fails_on_c(NO_BUILDERS),
    test!(a_plain_queue_pair_has_no_builders).may_fail_on_c("has no ibv_create_qp_ex"),
    test!(misuse_fails_the_batch_and_changes_nothing).fails_on_c(NO_BUILDERS),
    test!(calls_without_a_batch_are_refused).fails_on_c(NO_BUILDERS),
    test!(a_batch_started_twice_is_refused).fails_on_c(NO_BUILDERS),
    test!(a_datagram_needs_a_destination).fails_on_c(NO_BUILDERS),
    test!(a_full_queue_takes_the_whole_batch_or_none_of_it).fails_on_c(NO_BUILDERS),
    test!(an_abandoned_batch_leaves_no_trace).fails_on_c(NO_BUILDERS),
    test!(nothing_happens_before_the_batch_is_complete).fails_on_c(NO_BUILDERS),
    test!(other_threads_wait_for_the_batch).fails_on_c(NO_BUILDERS),
    test!(a_batch_posted_in_the_error_state_is_flushed).fails_on_c(NO_BUILDERS),
    test!(inline_pieces_may_be_more_than_a_list_has_elements).fails_on_c(NO_BUILDERS),
    test!(a_window_has_its_new_key_when_the_batch_is_complete).may_fail_on_c(NO_BUILDERS),
    test!(atomics_are_built_where_the_device_has_them).may_fail_on_c(NO_BUILDERS),
];
