//! What no such device has: each call says EOPNOTSUPP, not something else, so that programs can do without.

use std::ptr::{NonNull, null, null_mut};

use irdma_tests::fixtures::Pair;
use irdma_tests::qp::QpOptions;
use irdma_tests::runner::Test;
use irdma_tests::sys::*;
use irdma_tests::{clear_errno, last_errno, test};

/// A call that makes an object: NULL with EOPNOTSUPP.
fn makes_nothing<T>(what: &str, call: impl FnOnce() -> *mut T) {
    clear_errno();
    let made = call();
    assert!(made.is_null(), "{what} makes something");
    assert_eq!(last_errno(), libc::EOPNOTSUPP, "{what}");
}

/// The library's extended context.
fn extended(pair: &Pair) -> &verbs_context {
    // SAFETY: the context is open, and libibverbs' contexts are extended ones.
    unsafe { NonNull::new(verbs_get_ctx(pair.left.context().raw())).expect("an extended context").as_ref() }
}

/// A function of the extended context, which libibverbs fills with one that refuses.
macro_rules! function {
    ($pair:expr, $name:ident) => {
        extended(&$pair).$name.expect(concat!("libibverbs fills ", stringify!($name)))
    };
}

fn objects_of_other_processes_are_not_imported() {
    let pair = Pair::unconnected(QpOptions::default());
    let (context, pd) = (pair.left.context().raw(), pair.left.pd().raw());
    // SAFETY: the context is alive; numbers are looked at at most.
    unsafe {
        let (descriptor, domain) = ((*context).cmd_fd, (*pd).handle);
        makes_nothing("import_device", || ibv_import_device(descriptor));
        makes_nothing("import_pd", || ibv_import_pd(context, domain));
        makes_nothing("import_mr", || ibv_import_mr(pd, (*pair.left.mr.raw()).handle));
        makes_nothing("import_dm", || ibv_import_dm(context, 1));
    }
}

fn there_is_no_memory_on_the_device() {
    let pair = Pair::unconnected(QpOptions::default());
    let (context, pd) = (pair.left.context().raw(), pair.left.pd().raw());
    let mut attributes = ibv_alloc_dm_attr { length: 4096, ..ibv_alloc_dm_attr::default() };
    // SAFETY: the objects are alive, the attributes valid for the call; a function that refuses looks at nothing else.
    unsafe {
        let (alloc, register) = (function!(pair, alloc_dm), function!(pair, reg_dm_mr));
        makes_nothing("alloc_dm", || alloc(context, &mut attributes));
        makes_nothing("reg_dm_mr", || register(pd, null_mut(), 0, 64, IBV_ACCESS_ZERO_BASED));
    }
}

fn special_regions_do_not_exist() {
    let pair = Pair::unconnected(QpOptions::default());
    let pd = pair.left.pd().raw();
    let mut range = pair.left.mr.whole();
    // SAFETY: the domain is alive, the range one of its region.
    unsafe {
        let (null_region, advise) = (function!(pair, alloc_null_mr), function!(pair, advise_mr));
        makes_nothing("alloc_null_mr", || null_region(pd));
        assert_eq!(advise(pd, IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH, 0, &mut range, 1), libc::EOPNOTSUPP);
    }
}

fn flows_and_raw_queues_do_not_exist() {
    let pair = Pair::unconnected(QpOptions::default());
    let (context, qp) = (pair.left.context().raw(), pair.left.qp.raw());
    let mut flow =
        ibv_flow_attr { size: size_of::<ibv_flow_attr>() as u16, port: 1, ..ibv_flow_attr::default() };
    let mut work_queue = ibv_wq_init_attr {
        max_wr: 16,
        max_sge: 1,
        pd: pair.left.pd().raw(),
        cq: pair.left.qp.recv_cq().raw(),
        ..ibv_wq_init_attr::default()
    };
    let mut table = ibv_rwq_ind_table_init_attr::default();
    // SAFETY: the objects are alive, the attributes valid for the call; a function that refuses looks at nothing else.
    unsafe {
        let functions = (
            function!(pair, ibv_create_flow),
            function!(pair, create_wq),
            function!(pair, create_rwq_ind_table),
        );
        makes_nothing("create_flow", || functions.0(qp, &mut flow));
        makes_nothing("create_wq", || functions.1(context, &mut work_queue));
        makes_nothing("create_rwq_ind_table", || functions.2(context, &mut table));
        let action = function!(pair, create_flow_action_esp);
        makes_nothing("create_flow_action_esp", || action(context, null_mut()));
    }
}

fn connections_are_not_shared_between_processes() {
    let pair = Pair::unconnected(QpOptions::default());
    let context = pair.left.context().raw();
    let mut domain = ibv_xrcd_init_attr {
        comp_mask: IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
        fd: -1,
        oflags: libc::O_CREAT,
    };
    let mut attributes = ibv_srq_init_attr_ex {
        attr: ibv_srq_attr { max_wr: 16, max_sge: 1, srq_limit: 0 },
        comp_mask: IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
        srq_type: IBV_SRQT_XRC,
        pd: pair.left.pd().raw(),
        ..ibv_srq_init_attr_ex::default()
    };
    let mut opened = ibv_qp_open_attr::default();
    // SAFETY: the context is alive, the attributes valid for the call.
    unsafe {
        let functions =
            (function!(pair, open_xrcd), function!(pair, create_srq_ex), function!(pair, open_qp));
        makes_nothing("open_xrcd", || functions.0(context, &mut domain));
        makes_nothing("create_srq_ex", || functions.1(context, &mut attributes));
        makes_nothing("open_qp", || functions.2(context, &mut opened));
    }
}

fn nothing_is_counted() {
    let pair = Pair::unconnected(QpOptions::default());
    let context = pair.left.context().raw();
    let mut attributes = ibv_counters_init_attr::default();
    // SAFETY: the context is alive, the attributes valid for the call.
    unsafe {
        let create = function!(pair, create_counters);
        makes_nothing("create_counters", || create(context, &mut attributes));
    }
}

fn queues_are_neither_moderated_nor_limited_in_rate() {
    let pair = Pair::unconnected(QpOptions::default());
    let context = pair.left.context().raw();
    let mut moderation = ibv_modify_cq_attr {
        attr_mask: IBV_CQ_ATTR_MODERATE,
        moderate: ibv_moderate_cq { cq_count: 4, cq_period: 10 },
    };
    let mut rate = ibv_qp_rate_limit_attr { rate_limit: 1000, ..ibv_qp_rate_limit_attr::default() };
    let mut values = ibv_values_ex { comp_mask: IBV_VALUES_MASK_RAW_CLOCK, ..ibv_values_ex::default() };
    // SAFETY: the objects are alive, the attributes valid for the call.
    unsafe {
        let modify_cq = function!(pair, modify_cq);
        assert_eq!(modify_cq(pair.left.qp.send_cq().raw(), &mut moderation), libc::EOPNOTSUPP, "modify_cq");
        let modify_rate = function!(pair, modify_qp_rate_limit);
        assert_eq!(modify_rate(pair.left.qp.raw(), &mut rate), libc::EOPNOTSUPP, "modify_qp_rate_limit");
        let read_clock = function!(pair, query_rt_values);
        assert_eq!(read_clock(context, &mut values), libc::EOPNOTSUPP, "query_rt_values_ex");
    }
}

fn connections_are_not_enhanced() {
    let pair = Pair::unconnected(QpOptions::default());
    let mut options = ibv_ece { vendor_id: 0x8086, options: 1, comp_mask: 0 };
    // SAFETY: the queue pair is alive, the options valid for the call.
    unsafe {
        assert_eq!(ibv_set_ece(pair.left.qp.raw(), &mut options), libc::EOPNOTSUPP, "set_ece");
        assert_eq!(ibv_query_ece(pair.left.qp.raw(), &mut options), libc::EOPNOTSUPP, "query_ece");
    }
}

fn the_order_in_which_data_arrives_is_not_promised() {
    let pair = Pair::unconnected(QpOptions::default());
    for opcode in [IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ] {
        // SAFETY: the queue pair is alive.
        let promised = unsafe { ibv_query_qp_data_in_order(pair.left.qp.raw(), opcode, 0) };
        assert_eq!(promised, 0, "opcode {opcode}");
    }
}

fn a_parent_domain_that_is_none_is_invalid() {
    irdma_tests::device::Device::present().require_extended_queues();
    let pair = Pair::unconnected(QpOptions::default());
    for parent in [null(), pair.left.pd().raw().cast_const()] {
        let mut attributes = ibv_cq_init_attr_ex {
            cqe: 16,
            comp_mask: IBV_CQ_INIT_ATTR_MASK_PD,
            parent_domain: parent.cast_mut(),
            ..ibv_cq_init_attr_ex::default()
        };
        clear_errno();
        // SAFETY: the context is alive, the attributes valid for the call.
        let cq = unsafe { ibv_create_cq_ex(pair.left.context().raw(), &mut attributes) };
        assert!(cq.is_null());
        assert_eq!(last_errno(), libc::EINVAL, "parent domain {parent:?}");
    }
}

/// The programs of this file.
pub const TESTS: &[Test] = &[
    test!(objects_of_other_processes_are_not_imported),
    test!(there_is_no_memory_on_the_device),
    test!(special_regions_do_not_exist),
    test!(flows_and_raw_queues_do_not_exist),
    test!(connections_are_not_shared_between_processes),
    test!(nothing_is_counted),
    test!(queues_are_neither_moderated_nor_limited_in_rate),
    test!(connections_are_not_enhanced),
    test!(the_order_in_which_data_arrives_is_not_promised),
    test!(a_parent_domain_that_is_none_is_invalid).fails_on_c("has no parent domains"),
];
