//! Work requests added by calls: the same WQEs and completions as posted ones, or no trace.

use std::sync::Arc;

use irdma_tests::builder::{CONNECTED, DATAGRAMS, Manner, QpEx, attributes, connected};
use irdma_tests::context::{Context, Pd};
use irdma_tests::cq::Cq;
use irdma_tests::device::Device;
use irdma_tests::domain::{Answer, Lender};
use irdma_tests::fixtures::Q_KEY;
use irdma_tests::loopback::{Loop, connect_to_itself, roomy, works};
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
    compare(roomy(), connected(), |mr, _, round| works(mr, round));
}

fn every_send_is_signaled_if_the_queue_pair_says_so() {
    let options = QpOptions { all_signaled: true, ..roomy() };
    let pair = Loop::new(options, connected());
    assert_eq!(pair.qp.try_build(&[pair.write(1).unsignaled()], Manner::default()), 0);
    assert_completions(&pair.qp.send_cq().wait(1), &[pair.written(1)]);
}

fn datagram_builders_write_what_post_send_writes() {
    Device::present().require_roce("datagrams");
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
    if Device::present().roce {
        for flag in (0..9).map(|bit| 1 << bit).filter(|flag| DATAGRAMS & flag == 0) {
            assert_eq!(refused(QpOptions::datagram(), u64::from(flag)), libc::EOPNOTSUPP);
        }
    }
    for flag in (0..9).map(|bit| 1 << bit).filter(|flag| CONNECTED & !connected() & flag != 0) {
        assert_eq!(refused(roomy(), u64::from(flag)), libc::EOPNOTSUPP);
    }
    let create = |mut attributes: ibv_qp_init_attr_ex| {
        clear_errno();
        // SAFETY: the context is alive, the attributes valid for the call.
        let qp = unsafe { ibv_create_qp_ex(pd.context().raw(), &mut attributes) };
        assert!(qp.is_null());
        last_errno()
    };
    let good = attributes(&pd, &cq, &cq, roomy(), connected().into());
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

fn inline_pieces_may_be_more_than_a_list_has_elements() {
    let pair = Loop::new(QpOptions { max_send_sge: 1, ..roomy() }, connected());
    let work = pair.write(1);
    let count = pair.qp.caps.max_inline_data as usize;
    let pieces: Vec<_> = (0..count)
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
    assert_eq!(pair.qp.send_cq().wait_one().byte_len as usize, count);
    let expected: Vec<u8> = (0..count).map(|index| pair.mr.buffer().read(index * 3, 1)[0]).collect();
    assert_eq!(pair.mr.buffer().read(4096, count), expected);
}

fn lists_that_are_not_there_fail_the_batch() {
    let pair = Loop::new(roomy(), connected());
    for count in [1, 2, usize::MAX] {
        for inline in [false, true] {
            pair.qp.start();
            pair.qp.begin(&pair.write(1));
            // SAFETY: without a list there is nothing that must be valid.
            unsafe {
                if inline {
                    ibv_wr_set_inline_data_list(pair.qp.raw_ex(), count, std::ptr::null());
                } else {
                    ibv_wr_set_sge_list(pair.qp.raw_ex(), count, std::ptr::null());
                }
            }
            assert_eq!(pair.qp.complete(), libc::EINVAL, "{count} elements, inline: {inline}");
        }
    }
    pair.qp.send_cq().expect_empty();
    assert_eq!(pair.qp.try_build(&[pair.write(2)], Manner::default()), 0);
    assert_eq!(pair.qp.send_cq().wait_one().wr_id, 2);
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
    test!(inline_pieces_may_be_more_than_a_list_has_elements).fails_on_c(NO_BUILDERS),
    test!(lists_that_are_not_there_fail_the_batch).fails_on_c(NO_BUILDERS),
    test!(a_window_has_its_new_key_when_the_batch_is_complete).may_fail_on_c(NO_BUILDERS),
    test!(atomics_are_built_where_the_device_has_them).may_fail_on_c(NO_BUILDERS),
];
