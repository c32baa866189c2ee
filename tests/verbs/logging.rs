//! Every refusal says why, in one line: what was refused, what was asked for, what the limit is.

use irdma_tests::builder::{Manner, QpEx, attributes, connected};
use irdma_tests::context::{Context, Pd};
use irdma_tests::cq::Cq;
use irdma_tests::cq_ex::{CqEx, READERS};
use irdma_tests::device::{Device, feature};
use irdma_tests::domain::{self, Answer, Lender, ThreadDomain, parent, try_parent};
use irdma_tests::fixtures::{Datagrams, Pair};
use irdma_tests::log::Log;
use irdma_tests::qp::{Qp, QpOptions};
use irdma_tests::runner::Test;
use irdma_tests::srq::Srq;
use irdma_tests::sys::*;
use irdma_tests::test;
use irdma_tests::work::{ReceiveWork, SendWork};

/// Libibverbs' level of errors.
const ERRORS: u32 = 1;
/// Libibverbs' level of everything.
const EVERYTHING: u32 = 4;

const SILENT: &str = "nothing is logged";

fn refused_creations_say_why() {
    let log = Log::of_libibverbs(ERRORS);
    let context = Context::open();
    let (pd, cq) = (Pd::new(&context), Cq::new(&context, 16));
    let device = Device::present();
    let limit = |value: u32| value.to_string();
    let base = QpOptions { max_send_wr: 4, max_recv_wr: 4, ..QpOptions::default() };
    let create = |options: QpOptions| Qp::try_new(&pd, &cq, &cq, options).err().expect("refused");
    for (words, options) in [
        (["QP", "220", &limit(device.inline)], QpOptions { max_inline_data: 220, ..base }),
        (["QP", "4321", &limit(device.fragments)], QpOptions { max_send_sge: 4321, ..base }),
        (["QP", "4321", &limit(device.fragments)], QpOptions { max_recv_sge: 4321, ..base }),
        (["QP", "999999", "exceeds the limit"], QpOptions { max_send_wr: 999_999, ..base }),
        (["QP", "999999", "exceeds the limit"], QpOptions { max_recv_wr: 999_999, ..base }),
        (["QP", "type 3", "neither"], QpOptions { qp_type: IBV_QPT_UC, ..base }),
    ] {
        let errno = log.expect(&words, || create(options));
        assert!([libc::EINVAL, libc::EOPNOTSUPP].contains(&errno));
    }
    log.expect(&["CQ", "cqe 0", "least, 1"], || Cq::try_new(&context, 0, None).err());
    log.expect(&["CQ", "cqe -5", "least, 1"], || Cq::try_new(&context, -5, None).err());
    log.expect(&["CQ", "9999999", "exceeds the limit"], || Cq::try_new(&context, 9_999_999, None).err());
    if device.has(feature::CQ_RESIZE) {
        log.expect(&["CQ", "cqe 0", "least, 1"], || assert!(cq.resize(0).is_err()));
    } else {
        log.expect(&["CQ", "resize to 32"], || {
            // SAFETY: the queue is alive.
            assert_eq!(unsafe { ibv_resize_cq(cq.raw(), 32) }, libc::EOPNOTSUPP);
        });
    }
    if device.has(feature::SRQ) {
        log.expect(&["SRQ", "4321", &limit(device.fragments)], || Srq::try_new(&pd, 4, 4321).err());
    }
    let mut asked = attributes(&pd, &cq, &cq, base, 1 << 40);
    log.expect(&["QP", "send_ops_flags 0x10000000000", "are possible"], || {
        // SAFETY: the context is alive, the attributes valid for the call.
        assert!(unsafe { ibv_create_qp_ex(context.raw(), &mut asked) }.is_null());
    });
    (asked.comp_mask, asked.create_flags) = (asked.comp_mask | IBV_QP_INIT_ATTR_CREATE_FLAGS, 4);
    log.expect(&["QP", "create_flags 0x4", "none are known"], || {
        // SAFETY: as above.
        assert!(unsafe { ibv_create_qp_ex(context.raw(), &mut asked) }.is_null());
    });
    asked.comp_mask |= 1 << 31;
    log.expect(&["QP", "comp_mask", "are known"], || {
        // SAFETY: as above.
        assert!(unsafe { ibv_create_qp_ex(context.raw(), &mut asked) }.is_null());
    });
    device.require_extended_queues();
    log.expect(&["CQ", "wc_flags"], || {
        let flags = u64::from(READERS | IBV_WC_EX_WITH_CVLAN);
        CqEx::try_new(&context, None, &mut CqEx::attributes(16, flags)).err()
    });
}

fn refused_domains_say_why() {
    let log = Log::of_libibverbs(ERRORS);
    let pd = Pd::new(&Context::open());
    let threads = ThreadDomain::new(pd.context());
    let joined = parent(&pd, Some(&threads));
    let nested = parent(&joined, None);
    log.expect(&["PD", "1 that were made with it"], || assert_eq!(pd.refused_dealloc(), libc::EBUSY));
    log.expect(&["parent domain", "not destroyed"], || assert_eq!(joined.refused_dealloc(), libc::EBUSY));
    log.expect(&["thread domain", "not destroyed"], || assert_eq!(threads.refused_dealloc(), libc::EBUSY));
    drop(nested);

    let good = domain::attributes(&pd, None);
    let refused = |mut attributes| try_parent(&pd, None, &mut attributes).err();
    log.expect(&["parent domain", "no PD"], || {
        let none = ibv_parent_domain_init_attr { pd: std::ptr::null_mut(), ..good };
        assert_eq!(refused(none), Some(libc::EINVAL));
    });
    log.expect(&["parent domain", "both functions"], || {
        let lacking =
            ibv_parent_domain_init_attr { comp_mask: IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS, ..good };
        assert_eq!(refused(lacking), Some(libc::EINVAL));
    });
    let cq = Cq::new(pd.context(), 16);
    for (answer, words) in [(Answer::Nothing, "no memory of"), (Answer::Misaligned, "not aligned to")] {
        let lent = Lender::new(answer).parent(&pd);
        log.expect(&["parent domain", "its allocator gives", words], || {
            assert!(Qp::try_new(&lent, &cq, &cq, QpOptions::default()).is_err());
        });
    }
}

fn refused_sends_say_why() {
    let log = Log::of_libibverbs(ERRORS);
    let options = QpOptions { max_send_sge: 2, max_inline_data: 16, ..QpOptions::default() };
    let pair = Pair::with(options, irdma_tests::qp::Connection::default());
    let (qp, mr) = (&pair.left.qp, &pair.left.mr);
    let number = format!("QP {}", qp.number());
    let post = |words: [&str; 3], work: SendWork| {
        log.expect(&[&number, "post_send", words[0], words[1], words[2]], || {
            assert_eq!(qp.try_post(&mut [work]).err().map(|refused| refused.errno), Some(libc::EINVAL));
        });
    };
    post(["0x123", "num_sge 3", "limit 2"], SendWork::send(0x123).sges((0..3).map(|_| mr.sge(0, 4))));
    post(["0x7", "17 inline bytes", "limit 16"], SendWork::send(7).sge(mr.sge(0, 17)).inline());
    let mut unknown = SendWork::send(8);
    unknown.raw.opcode = 99;
    post(["0x8", "opcode 99", "none of this queue pair's"], unknown);
    if Device::present().generation > 1 {
        let long = ibv_sge { length: 1 << 31, ..mr.sge(0, 0) };
        post(["0x9", "2147483648 bytes", "2147483647"], SendWork::send(9).sge(long));
    }
    if Device::present().generation > 1 && Device::present().roce {
        // An immediate is not to blame for what is wrong without it.
        let immediate = |wr_id| SendWork::send(wr_id).immediate(1);
        let long = ibv_sge { length: 1 << 31, ..mr.sge(0, 0) };
        post(["0xb", "2147483648 bytes", "2147483647"], immediate(11).sges([mr.sge(0, 0), long]));
        post(["0xc", "num_sge 3", "limit 2"], immediate(12).sges((0..3).map(|_| mr.sge(0, 4))));
        post(["0xd", "sg_list is NULL", "num_sge 2"], immediate(13).missing_list(2));
    }
    if Device::present().has(feature::ATOMIC_OPS) {
        let atomic = |wr_id, address| SendWork::fetch_add(wr_id, address, mr.rkey(), 1);
        let address = mr.address();
        post(["0xe", "num_sge 2", "limit 1"], atomic(14, address).sges([mr.sge(0, 8), mr.sge(0, 8)]));
        post(["0xf", "sg_list is NULL", "num_sge 1"], atomic(15, address).missing_list(1));
        post(["0x10", "4 bytes", "not 8"], atomic(16, address).sge(mr.sge(0, 4)));
        post(["0x11", "multiple of 8", "remote address"], atomic(17, address + 4).sge(mr.sge(0, 8)));
    }
    pair.check_alive();
    let full: Vec<_> = (0..qp.caps.max_recv_sge as usize + 1).map(|_| mr.sge(0, 4)).collect();
    log.expect(&[&number, "post_recv", "0xa", "num_sge"], || {
        assert!(qp.try_receive(&mut [ReceiveWork::new(10).sges(full)]).is_err());
    });
}

fn refused_datagrams_say_why() {
    let log = Log::of_libibverbs(ERRORS);
    Device::present().require_roce("datagrams");
    let pair = Datagrams::new();
    let qp = &pair.left.qp;
    let number = format!("QP {}", qp.number());
    log.expect(&[&number, "post_send", "handle is NULL"], || {
        let work = SendWork::send(1).to(std::ptr::null_mut(), 1, 1);
        assert!(qp.try_post(&mut [work]).is_err());
    });
    log.expect(&[&number, "post_send", "opcode 0"], || {
        assert!(qp.try_post(&mut [SendWork::write(1, 0, 0)]).is_err());
    });
}

fn a_full_queue_is_told_on_request_only() {
    let log = Log::of_libibverbs(EVERYTHING);
    let pair = Pair::unconnected(QpOptions::default());
    let qp = &pair.left.qp;
    qp.initialize(irdma_tests::qp::Connection::default());
    let most = qp.caps.max_recv_wr;
    for wr_id in 0..u64::from(most) {
        qp.receive(ReceiveWork::new(wr_id));
    }
    let limit = format!("limit {most}");
    log.expect(&["post_recv", "queue is full", &limit], || {
        assert!(qp.try_receive(&mut [ReceiveWork::new(0)]).is_err());
    });
}

fn refused_batches_say_why() {
    let log = Log::of_libibverbs(ERRORS);
    let pd = Pd::new(&Context::open());
    let qp = QpEx::new(&pd, QpOptions::default(), connected());
    let number = format!("QP {}", qp.number());
    let work = SendWork::send(0x77);
    log.expect(&[&number, "ibv_wr_complete", "ibv_wr_start"], || assert_ne!(qp.complete(), 0));
    log.expect(&[&number, "0x77", "lacks data"], || {
        qp.start();
        qp.begin(&work);
        assert_ne!(qp.complete(), 0);
    });
    log.expect(&[&number, "0x77", "out of turn"], || {
        qp.start();
        qp.begin(&work);
        qp.add(&work, Manner::default());
        assert_ne!(qp.complete(), 0);
    });
    let before = log.lines().len();
    qp.start();
    qp.abort();
    assert_eq!(log.lines().len(), before, "an abort is no refusal");
}

fn refused_changes_say_what_to_do() {
    let log = Log::of_libibverbs(ERRORS);
    let pair = Pair::new();
    let number = format!("QP {}", pair.left.qp.number());
    log.expect(&[&number, "RESET", "destroy it and create another"], || {
        assert_eq!(pair.left.qp.move_to(IBV_QPS_RESET), libc::EOPNOTSUPP);
    });
}

fn what_the_kernel_refuses_is_told_with_its_reason() {
    let log = Log::of_libibverbs(EVERYTHING);
    let pair = Pair::unconnected(QpOptions::default());
    log.expect(&["modify_qp", "Invalid argument", "22"], || {
        assert_eq!(pair.left.qp.move_to(IBV_QPS_RTS), libc::EINVAL);
    });
}

fn the_switch_shows_lines_without_a_log_file() {
    let log = Log::of_standard_error("1");
    let pair = Pair::unconnected(QpOptions::default());
    let (pd, cq) = (pair.left.pd(), pair.left.qp.send_cq());
    log.expect(&["irdma: QP", "220"], || {
        assert!(Qp::try_new(pd, cq, cq, QpOptions { max_inline_data: 220, ..QpOptions::default() }).is_err());
    });
    log.expect(&["post_send", "opcode 99"], || {
        let mut unknown = SendWork::send(8);
        unknown.raw.opcode = 99;
        assert!(pair.left.qp.try_post(&mut [unknown]).is_err());
    });
    // Not an error: a higher level has it.
    let before = log.lines().len();
    assert_eq!(pair.left.qp.move_to(IBV_QPS_RTS), libc::EINVAL);
    assert_eq!(log.lines().len(), before);
}

fn the_switch_off_shows_nothing() {
    let log = Log::of_standard_error("0");
    let pair = Pair::unconnected(QpOptions::default());
    assert_eq!(pair.left.qp.move_to(IBV_QPS_RTS), libc::EINVAL);
    let mut unknown = SendWork::send(8);
    unknown.raw.opcode = 99;
    assert!(pair.left.qp.try_post(&mut [unknown]).is_err());
    assert_eq!(log.lines(), [""; 0]);
}

/// The programs of this file.
pub const TESTS: &[Test] = &[
    test!(refused_creations_say_why).fails_on_c(SILENT),
    test!(refused_domains_say_why).fails_on_c("it has no parent domains"),
    test!(refused_sends_say_why).fails_on_c(SILENT),
    test!(refused_datagrams_say_why).fails_on_c(SILENT),
    test!(a_full_queue_is_told_on_request_only).fails_on_c(SILENT),
    test!(refused_batches_say_why).fails_on_c(SILENT),
    test!(refused_changes_say_what_to_do).fails_on_c(SILENT),
    test!(what_the_kernel_refuses_is_told_with_its_reason).fails_on_c(SILENT),
    test!(the_switch_shows_lines_without_a_log_file).fails_on_c(SILENT),
    test!(the_switch_off_shows_nothing),
];
