//! Creating objects: what the limits are, what is refused and how, what is reported back.

use irdma_tests::context::{Context, Pd};
use irdma_tests::cq::Cq;
use irdma_tests::cq_ex::{CqEx, READERS};
use irdma_tests::device::{Device, feature};
use irdma_tests::fixtures::Pair;
use irdma_tests::qp::{Connection, Qp, QpOptions};
use irdma_tests::runner::{Test, skip};
use irdma_tests::sys::*;
use irdma_tests::test;

/// The error number of creating a queue pair.
fn refusal(pd: &std::sync::Arc<Pd>, options: QpOptions) -> Option<i32> {
    let cq = Cq::new(pd.context(), 16);
    Qp::try_new(pd, &cq, &cq, options).err()
}

fn queue_pairs_beyond_a_limit_are_invalid() {
    let pd = Pd::new(&Context::open());
    let base = QpOptions {
        max_send_wr: 4,
        max_recv_wr: 4,
        max_send_sge: 1,
        max_recv_sge: 1,
        ..QpOptions::default()
    };
    let device = Device::present();
    let beyond = [
        QpOptions { max_send_sge: device.fragments + 1, ..base },
        QpOptions { max_recv_sge: device.fragments + 1, ..base },
        QpOptions { max_send_sge: u32::MAX, ..base },
        QpOptions { max_recv_sge: u32::MAX, ..base },
        QpOptions { max_inline_data: device.inline + 1, ..base },
        QpOptions { max_inline_data: 220, ..base },
        QpOptions { max_inline_data: u32::MAX, ..base },
        QpOptions { max_send_wr: device.send_quanta, ..base },
        QpOptions { max_recv_wr: device.receive_quanta, ..base },
    ];
    for options in beyond {
        for options in [options, QpOptions { qp_type: IBV_QPT_UD, ..options }] {
            assert_eq!(refusal(&pd, options), Some(libc::EINVAL), "{options:?}");
        }
    }
    assert_eq!(refusal(&pd, base), None);
}

fn queue_lengths_that_wrap_around_are_invalid() {
    let pd = Pd::new(&Context::open());
    for length in [u32::MAX, 1 << 31, (1 << 31) - 1, 1 << 30, u32::MAX / 8 + 1] {
        for (max_send_wr, max_recv_wr) in [(length, 1), (1, length)] {
            let options = QpOptions { max_send_wr, max_recv_wr, ..QpOptions::default() };
            assert_eq!(refusal(&pd, options), Some(libc::EINVAL), "{options:?}");
        }
    }
}

/// Log2 of the quanta of a send; from the second generation on an immediate may take an element's place.
fn send_shift(device: &Device, elements: u32, inline: u32) -> u32 {
    device.shift(elements + u32::from(device.generation > 1), inline)
}

fn the_longest_queues_are_those_that_fit_the_ring() {
    let pd = Pd::new(&Context::open());
    let device = Device::present();
    let most_elements = device.fragments;
    for (max_send_sge, max_inline_data) in
        [(0, 8), (1, 0), (2, 39), (3, 0), (6.min(most_elements), device.inline.min(101)), (most_elements, 0)]
    {
        if max_send_sge > most_elements {
            continue;
        }
        let most = (device.send_quanta - 258) >> send_shift(device, max_send_sge, max_inline_data);
        let options = QpOptions { max_send_sge, max_inline_data, max_recv_wr: 1, ..QpOptions::default() };
        assert_eq!(refusal(&pd, QpOptions { max_send_wr: most, ..options }), None, "{most} of {options:?}");
        let more = QpOptions { max_send_wr: most + 1, ..options };
        assert_eq!(refusal(&pd, more), Some(libc::EINVAL), "{more:?}");
    }
    for max_recv_sge in [1, 3, 7.min(most_elements), most_elements] {
        let most = (device.receive_quanta - 1) >> device.receive_shift(max_recv_sge);
        let options = QpOptions { max_recv_sge, max_send_wr: 1, ..QpOptions::default() };
        assert_eq!(refusal(&pd, QpOptions { max_recv_wr: most, ..options }), None, "{most} of {options:?}");
        let more = QpOptions { max_recv_wr: most + 1, ..options };
        assert_eq!(refusal(&pd, more), Some(libc::EINVAL), "{more:?}");
    }
}

fn created_queues_report_what_they_hold() {
    let pd = Pd::new(&Context::open());
    let cq = Cq::new(pd.context(), 16);
    let device = Device::present();
    let most = device.fragments;
    for (asked, elements, inline) in
        [(1, 1, 0), (100, 1, 8), (200, 3, 39), (17, most, device.inline), (device.send_quanta / 11, 2, 0)]
    {
        let options = QpOptions {
            max_send_wr: asked,
            max_recv_wr: asked,
            max_send_sge: elements,
            max_recv_sge: elements,
            max_inline_data: inline,
            ..QpOptions::default()
        };
        let qp = Qp::new(&pd, &cq, &cq, options);
        let (send_shift, recv_shift) = (send_shift(device, elements, inline), device.receive_shift(elements));
        let smallest = device.smallest_queue;
        let send_depth = ((asked << send_shift) + 258).next_power_of_two().max(smallest << send_shift);
        let recv_depth = ((asked << recv_shift) + 1).next_power_of_two().max(smallest << recv_shift);
        assert_eq!(qp.caps.max_send_wr, (send_depth - 258) >> send_shift, "{options:?}");
        assert_eq!(qp.caps.max_recv_wr, (recv_depth - 1) >> recv_shift, "{options:?}");
        assert_eq!((qp.caps.max_send_sge, qp.caps.max_recv_sge), (elements, elements));
        assert_eq!(qp.caps.max_inline_data, inline);
    }
}

fn a_queue_pair_says_after_creation_what_it_is() {
    let pd = Pd::new(&Context::open());
    let cq = Cq::new(pd.context(), 16);
    let (first, second) =
        (Qp::new(&pd, &cq, &cq, QpOptions::default()), Qp::new(&pd, &cq, &cq, QpOptions::datagram()));
    assert_ne!(first.number(), second.number());
    for (qp, qp_type) in [(&first, IBV_QPT_RC), (&second, IBV_QPT_UD)] {
        // SAFETY: the queue pair is alive.
        let raw = unsafe { &*qp.raw() };
        assert_eq!((raw.state, raw.qp_type, raw.pd), (IBV_QPS_RESET, qp_type, pd.raw()));
        assert_eq!((raw.send_cq, raw.recv_cq, raw.srq), (cq.raw(), cq.raw(), std::ptr::null_mut()));
        assert!(raw.qp_num > 1, "0 and 1 are special queue pairs");
        // SAFETY: the queue pair is alive.
        let extended = unsafe { ibv_qp_to_qp_ex(qp.raw()) };
        assert!(extended.is_null(), "a plain queue pair must not pass for an extended one");
    }
}

fn transports_that_do_not_exist_are_not_supported() {
    let pd = Pd::new(&Context::open());
    for qp_type in [IBV_QPT_UC, IBV_QPT_XRC_SEND, IBV_QPT_RAW_PACKET, 99] {
        let errno = refusal(&pd, QpOptions { qp_type, ..QpOptions::default() });
        assert!([Some(libc::EOPNOTSUPP), Some(libc::EINVAL)].contains(&errno), "type {qp_type}: {errno:?}");
    }
}

fn a_refused_queue_pair_leaves_the_request_as_it_was() {
    let pd = Pd::new(&Context::open());
    let cq = Cq::new(pd.context(), 16);
    let options = QpOptions { max_inline_data: 500, ..QpOptions::default() };
    let mut attributes = options.attributes(cq.raw(), cq.raw());
    // SAFETY: PD and CQ are alive, the attributes valid for the call.
    assert!(unsafe { ibv_create_qp(pd.raw(), &mut attributes) }.is_null());
    let cap = attributes.cap;
    assert_eq!((cap.max_send_wr, cap.max_recv_wr, cap.max_inline_data), (64, 64, 500));
    assert_eq!((cap.max_send_sge, cap.max_recv_sge), (options.max_send_sge, options.max_recv_sge));
}

fn completion_queues_have_limits() {
    let context = Context::open();
    for entries in [0, -1, i32::MIN, i32::MAX, 1 << 20] {
        assert_eq!(Cq::try_new(&context, entries, None).err(), Some(libc::EINVAL), "{entries} entries");
    }
    for entries in [1, 2, 3, 100, 4095, 65536] {
        let cq = Cq::new(&context, entries);
        assert_eq!(cq.entries(), entries, "entries as asked for");
    }
}

fn the_reported_largest_completion_queue_can_be_created() {
    let context = Context::open();
    let most = context.query_device().max_cqe;
    assert_eq!(Cq::new(&context, most).entries(), most);
    assert_eq!(Cq::try_new(&context, most + 1, None).err(), Some(libc::EINVAL));
}

fn a_completion_vector_that_does_not_exist_is_invalid() {
    let context = Context::open();
    // SAFETY: the context is alive.
    let vectors = unsafe { (*context.raw()).num_comp_vectors };
    assert!(vectors >= 1);
    irdma_tests::clear_errno();
    // SAFETY: the context is alive.
    let cq = unsafe { ibv_create_cq(context.raw(), 16, std::ptr::null_mut(), std::ptr::null_mut(), vectors) };
    assert!(cq.is_null());
    assert_eq!(irdma_tests::last_errno(), libc::EINVAL);
}

fn creating_an_extended_queue_leaves_the_request_as_it_was() {
    let context = Context::open();
    let mut attributes = CqEx::attributes(100, u64::from(READERS));
    for _ in 0..3 {
        let cq = CqEx::try_new(&context, None, &mut attributes).expect("create_cq_ex");
        assert_eq!((attributes.cqe, cq.plain().entries()), (100, 100));
    }
    let mut attributes = CqEx::attributes(0, u64::from(READERS));
    assert_eq!(CqEx::try_new(&context, None, &mut attributes).err(), Some(libc::EINVAL));
    assert_eq!(attributes.cqe, 0);
}

fn readers_that_the_device_lacks_are_not_supported() {
    let context = Context::open();
    let mut lacking = vec![
        IBV_WC_EX_WITH_CVLAN,
        IBV_WC_EX_WITH_FLOW_TAG,
        IBV_WC_EX_WITH_TM_INFO,
        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
    ];
    if !Device::present().has(feature::CQE_TIMESTAMPING) {
        lacking.push(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
    }
    for flag in lacking {
        let mut attributes = CqEx::attributes(16, u64::from(READERS | flag));
        let errno = CqEx::try_new(&context, None, &mut attributes).err();
        assert_eq!(errno, Some(libc::EOPNOTSUPP), "reader {flag:#x}");
    }
}

fn shared_receive_queues_do_not_exist() {
    if Device::present().has(feature::SRQ) {
        skip("the device has shared receive queues");
    }
    let context = Context::open();
    let pd = Pd::new(&context);
    assert_eq!(context.query_device().max_srq, 0);
    let mut attributes = ibv_srq_init_attr {
        attr: ibv_srq_attr { max_wr: 16, max_sge: 1, srq_limit: 0 },
        ..ibv_srq_init_attr::default()
    };
    irdma_tests::clear_errno();
    // SAFETY: the PD is alive, the attributes valid for the call.
    assert!(unsafe { ibv_create_srq(pd.raw(), &mut attributes) }.is_null());
    assert_eq!(irdma_tests::last_errno(), libc::EOPNOTSUPP);
}

fn sixty_four_queue_pairs_share_a_completion_queue() {
    let pair = Pair::unconnected(QpOptions::default());
    let (pd, mr) = (pair.left.pd(), &pair.left.mr);
    let cq = Cq::new(pair.left.context(), 64 * 8);
    let options = QpOptions { max_send_wr: 8, max_recv_wr: 8, ..QpOptions::default() };
    let qps: Vec<_> = (0..64).map(|_| Qp::new(pd, &cq, &cq, options)).collect();
    for (index, qp) in qps.iter().enumerate() {
        qp.connect(Connection::default(), qps[(index + 1) % 64].number(), pair.left.gid());
    }
    for (index, qp) in qps.iter().enumerate() {
        qp.receive(irdma_tests::work::ReceiveWork::new(1000 + index as u64).sge(mr.sge(index * 16, 16)));
    }
    for (index, qp) in qps.iter().enumerate() {
        qp.post(irdma_tests::work::SendWork::send(index as u64).sge(mr.sge(4096 + index * 16, 16)));
    }
    let mut seen: Vec<_> = cq.wait_in_batches(128, 7).iter().map(|wc| (wc.qp_num, wc.wr_id)).collect();
    let mut expected: Vec<_> = qps
        .iter()
        .enumerate()
        .flat_map(|(index, qp)| [(qp.number(), index as u64), (qp.number(), 1000 + index as u64)])
        .collect();
    seen.sort_unstable();
    expected.sort_unstable();
    assert_eq!(seen, expected);
    drop(qps);
    cq.expect_empty();
}

/// The programs of this file.
pub const TESTS: &[Test] = &[
    test!(queue_pairs_beyond_a_limit_are_invalid),
    test!(queue_lengths_that_wrap_around_are_invalid).may_fail_on_c("they are shifted in 32 bits"),
    test!(the_longest_queues_are_those_that_fit_the_ring),
    test!(created_queues_report_what_they_hold),
    test!(a_queue_pair_says_after_creation_what_it_is),
    test!(transports_that_do_not_exist_are_not_supported),
    test!(a_refused_queue_pair_leaves_the_request_as_it_was),
    test!(completion_queues_have_limits),
    test!(the_reported_largest_completion_queue_can_be_created)
        .fails_on_c("the reported size is that of the ring, of which each completion takes two slots"),
    test!(a_completion_vector_that_does_not_exist_is_invalid),
    test!(creating_an_extended_queue_leaves_the_request_as_it_was).may_fail_on_c("cqe comes back doubled"),
    test!(readers_that_the_device_lacks_are_not_supported),
    test!(shared_receive_queues_do_not_exist),
    test!(sixty_four_queue_pairs_share_a_completion_queue),
];
