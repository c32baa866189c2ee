//! The commands and methods of the kernel's interface, field by field (ib_user_verbs.h,
//! ib_user_ioctl_cmds.h, irdma-abi.h). Fields follow one another without gaps.

/// How a field is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// Its value.
    Value,
    /// As an address: in the arena, 0, or somewhere of the provider's own.
    Address,
    /// Not at all: an address of the library's, or a descriptor.
    Hidden,
    /// A completion context; every provider has its own.
    Context,
    /// A handle: which of the objects made so far it names.
    Handle,
    /// The same of an object that is made.
    New,
}

/// Name, bytes, and how it is shown.
pub type Field = (&'static str, usize, Show);

use Show::{Address, Context, Handle, Hidden, New, Value};

/// What an attribute carries.
#[derive(Clone, Copy, Debug)]
pub enum Attribute {
    /// Data to the kernel.
    In(&'static [Field]),
    /// Data from the kernel.
    Out(&'static [Field]),
    /// Handle of an object.
    Handle,
    /// Handle of an object that is made.
    New,
    /// A descriptor's number.
    Descriptor,
}

/// A method: object, number, name, attributes by number.
pub type Method = (u16, u16, &'static str, &'static [(u16, Attribute)]);

/// A command in its old form: number, name, core request, core answer, and the driver's.
pub struct Command {
    /// `IB_USER_VERBS_CMD_*`.
    pub number: u32,
    /// Its name.
    pub name: &'static str,
    /// Request of the core, request of the driver.
    pub request: [&'static [Field]; 2],
    /// Answer of the core, answer of the driver.
    pub answer: [&'static [Field]; 2],
}

/// `UVERBS_ATTR_UHW_IN`.
pub const DRIVER_IN: u16 = 0x1000;
/// `UVERBS_ATTR_UHW_OUT`.
pub const DRIVER_OUT: u16 = 0x1001;

/// `UVERBS_OBJECT_CQ`.
pub const CQ: u16 = 3;
/// `UVERBS_OBJECT_QP`.
pub const QP: u16 = 4;
/// `UVERBS_OBJECT_SRQ`.
pub const SRQ: u16 = 5;

const CAP: &[Field] = &[
    ("max_send_wr", 4, Value),
    ("max_recv_wr", 4, Value),
    ("max_send_sge", 4, Value),
    ("max_recv_sge", 4, Value),
    ("max_inline", 4, Value),
];
const CQ_REQUEST: &[Field] = &[("ring", 8, Address), ("shadow", 8, Address)];
const CQ_ANSWER: &[Field] = &[("cq_id", 4, Value), ("cq_size", 4, Value)];
const SRQ_REQUEST: &[Field] = &[("ring", 8, Address), ("shadow", 8, Address)];
const SRQ_ANSWER: &[Field] = &[("srq_id", 4, Value), ("srq_size", 4, Value)];
const QP_REQUEST: &[Field] = &[("rings", 8, Address), ("context", 8, Context)];
const QP_ANSWER: &[Field] = &[
    ("qp_id", 4, Value),
    ("sq_size", 4, Value),
    ("rq_size", 4, Value),
    ("options", 4, Value),
    ("push_idx", 2, Value),
    ("lsmm", 1, Value),
    ("rsvd", 1, Value),
    ("qp_caps", 4, Value),
];
const CONTEXT_REQUEST: &[Field] =
    &[("rsvd32", 4, Value), ("userspace_ver", 1, Value), ("rsvd8", 3, Value), ("comp_mask", 8, Value)];
const NUMBER: &[Field] = &[("value", 8, Value)];
const HIDDEN: &[Field] = &[("value", 8, Hidden)];

/// Every method that programs call.
pub const METHODS: &[Method] = &[
    (0, 2, "query_port", &[(0, Attribute::In(NUMBER)), (1, Attribute::Out(&[]))]),
    (
        0,
        3,
        "get_context",
        &[
            (0, Attribute::Out(NUMBER)),
            (1, Attribute::Out(NUMBER)),
            (DRIVER_IN, Attribute::In(CONTEXT_REQUEST)),
            (DRIVER_OUT, Attribute::Out(&[])),
        ],
    ),
    (
        0,
        6,
        "query_gid_entry",
        &[
            (0, Attribute::In(NUMBER)),
            (1, Attribute::In(NUMBER)),
            (2, Attribute::In(NUMBER)),
            (3, Attribute::Out(&[])),
        ],
    ),
    (1, 0, "dealloc_pd", &[(0, Attribute::Handle)]),
    (
        CQ,
        0,
        "create_cq",
        &[
            (0, Attribute::New),
            (1, Attribute::In(&[("cqe", 4, Value)])),
            (2, Attribute::In(HIDDEN)),
            (3, Attribute::Descriptor),
            (4, Attribute::In(&[("vector", 4, Value)])),
            (5, Attribute::In(&[("flags", 8, Value)])),
            (6, Attribute::Out(&[("cqe", 4, Value)])),
            (7, Attribute::Descriptor),
            (DRIVER_IN, Attribute::In(CQ_REQUEST)),
            (DRIVER_OUT, Attribute::Out(CQ_ANSWER)),
        ],
    ),
    (CQ, 1, "destroy_cq", &[(0, Attribute::Handle), (1, Attribute::Out(NUMBER))]),
    (
        QP,
        0,
        "create_qp",
        &[
            (0, Attribute::New),
            (2, Attribute::Handle),
            (3, Attribute::Handle),
            (4, Attribute::Handle),
            (5, Attribute::Handle),
            (7, Attribute::In(HIDDEN)),
            (8, Attribute::In(CAP)),
            (9, Attribute::In(&[("kind", 8, Value)])),
            (10, Attribute::In(&[("flags", 8, Value)])),
            (11, Attribute::In(&[("source_qpn", 4, Value)])),
            (12, Attribute::Descriptor),
            (13, Attribute::Out(CAP)),
            (14, Attribute::Out(&[("number", 4, Value)])),
            (DRIVER_IN, Attribute::In(QP_REQUEST)),
            (DRIVER_OUT, Attribute::Out(QP_ANSWER)),
        ],
    ),
    (QP, 1, "destroy_qp", &[(0, Attribute::Handle), (1, Attribute::Out(NUMBER))]),
    (
        SRQ,
        0,
        "create_srq",
        &[
            (0, Attribute::New),
            (1, Attribute::Handle),
            (4, Attribute::In(HIDDEN)),
            (5, Attribute::In(&[("max_wr", 4, Value)])),
            (6, Attribute::In(&[("max_sge", 4, Value)])),
            (7, Attribute::In(&[("limit", 4, Value)])),
            (9, Attribute::In(NUMBER)),
            (10, Attribute::Descriptor),
            (11, Attribute::Out(&[("max_wr", 4, Value)])),
            (12, Attribute::Out(&[("max_sge", 4, Value)])),
            (DRIVER_IN, Attribute::In(SRQ_REQUEST)),
            (DRIVER_OUT, Attribute::Out(SRQ_ANSWER)),
        ],
    ),
    (SRQ, 1, "destroy_srq", &[(0, Attribute::Handle), (1, Attribute::Out(NUMBER))]),
    (6, 0, "destroy_ah", &[(0, Attribute::Handle)]),
    (7, 1, "dereg_mr", &[(0, Attribute::Handle)]),
    (8, 0, "dealloc_mw", &[(0, Attribute::Handle)]),
    (16, 0, "alloc_async_event", &[(0, Attribute::Descriptor)]),
];

const RESPONSE: Field = ("response", 8, Hidden);
const HANDLE: &[Field] = &[("handle", 4, New)];
const REGION: &[Field] =
    &[("reg_type", 2, Value), ("cq_pages", 2, Value), ("rq_pages", 2, Value), ("sq_pages", 2, Value)];
const MULTICAST: &[Field] =
    &[("gid", 16, Value), ("qp_handle", 4, Handle), ("mlid", 2, Value), ("reserved", 2, Value)];

/// `struct ib_uverbs_modify_qp`, and the end of its extended form.
const MODIFY: &[Field] = &[
    ("dest", 32, Value),
    ("alt_dest", 32, Value),
    ("qp_handle", 4, Handle),
    ("attr_mask", 4, Value),
    ("qkey", 4, Value),
    ("rq_psn", 4, Value),
    ("sq_psn", 4, Value),
    ("dest_qp_num", 4, Value),
    ("qp_access_flags", 4, Value),
    ("pkey_index", 2, Value),
    ("alt_pkey_index", 2, Value),
    ("qp_state", 1, Value),
    ("cur_qp_state", 1, Value),
    ("path_mtu", 1, Value),
    ("path_mig_state", 1, Value),
    ("en_sqd_async_notify", 1, Value),
    ("max_rd_atomic", 1, Value),
    ("max_dest_rd_atomic", 1, Value),
    ("min_rnr_timer", 1, Value),
    ("port_num", 1, Value),
    ("timeout", 1, Value),
    ("retry_cnt", 1, Value),
    ("rnr_retry", 1, Value),
    ("alt_port_num", 1, Value),
    ("alt_timeout", 1, Value),
    ("reserved", 2, Value),
    ("rate_limit", 4, Value),
    ("reserved2", 4, Value),
];

/// The flag of a command's extended form.
const EXTENDED: u32 = 0x8000_0000;

/// Every command that programs send in its old form.
pub const COMMANDS: &[Command] = &[
    Command { number: 1, name: "query_device", request: [&[RESPONSE], &[]], answer: [&[], &[]] },
    Command {
        number: EXTENDED | 1,
        name: "ex_query_device",
        request: [&[("comp_mask", 4, Value), ("reserved", 4, Value)], &[]],
        answer: [&[], &[]],
    },
    Command {
        number: 2,
        name: "query_port",
        request: [&[RESPONSE, ("port_num", 1, Value), ("reserved", 7, Value)], &[]],
        answer: [&[], &[]],
    },
    Command {
        number: 3,
        name: "alloc_pd",
        request: [&[RESPONSE], &[]],
        answer: [HANDLE, &[("pd_id", 4, Value), ("rsvd", 4, Value)]],
    },
    Command {
        number: 5,
        name: "create_ah",
        request: [
            &[
                RESPONSE,
                ("user_handle", 8, Hidden),
                ("pd_handle", 4, Handle),
                ("reserved", 4, Value),
                ("attr", 32, Value),
            ],
            &[],
        ],
        answer: [HANDLE, &[("ah_id", 4, Value), ("rsvd", 4, Value)]],
    },
    Command {
        number: 9,
        name: "reg_mr",
        request: [
            &[
                RESPONSE,
                ("start", 8, Address),
                ("length", 8, Value),
                ("hca_va", 8, Address),
                ("pd_handle", 4, Handle),
                ("access_flags", 4, Value),
            ],
            REGION,
        ],
        answer: [&[("handle", 4, New), ("lkey", 4, Value), ("rkey", 4, Value)], &[]],
    },
    Command {
        number: 11,
        name: "rereg_mr",
        request: [
            &[
                RESPONSE,
                ("handle", 4, Handle),
                ("flags", 4, Value),
                ("start", 8, Address),
                ("length", 8, Value),
                ("hca_va", 8, Address),
                ("pd_handle", 4, Handle),
                ("access_flags", 4, Value),
            ],
            REGION,
        ],
        answer: [&[("lkey", 4, Value), ("rkey", 4, Value)], &[]],
    },
    Command {
        number: 14,
        name: "alloc_mw",
        request: [&[RESPONSE, ("pd_handle", 4, Handle), ("mw_type", 1, Value), ("reserved", 3, Value)], &[]],
        answer: [&[("handle", 4, New), ("rkey", 4, Value)], &[]],
    },
    Command {
        number: 17,
        name: "create_comp_channel",
        request: [&[RESPONSE], &[]],
        answer: [&[("fd", 4, Hidden)], &[]],
    },
    Command {
        number: 19,
        name: "resize_cq",
        request: [&[RESPONSE, ("handle", 4, Handle), ("cqe", 4, Value)], &[("ring", 8, Address)]],
        answer: [&[("cqe", 4, Value), ("reserved", 4, Value)], &[]],
    },
    Command {
        number: 25,
        name: "query_qp",
        request: [&[RESPONSE, ("handle", 4, Handle), ("attr_mask", 4, Value)], &[]],
        answer: [&[], &[]],
    },
    Command { number: 26, name: "modify_qp", request: [MODIFY, &[]], answer: [&[], &[]] },
    Command {
        number: EXTENDED | 26,
        name: "ex_modify_qp",
        request: [MODIFY, &[("sq_flush", 1, Value), ("rq_flush", 1, Value), ("rsvd", 6, Value)]],
        answer: [&[], &[]],
    },
    Command {
        number: 33,
        name: "modify_srq",
        request: [
            &[("handle", 4, Handle), ("attr_mask", 4, Value), ("max_wr", 4, Value), ("limit", 4, Value)],
            &[],
        ],
        answer: [&[], &[]],
    },
    Command {
        number: 34,
        name: "query_srq",
        request: [&[RESPONSE, ("handle", 4, Handle), ("reserved", 4, Value)], &[]],
        answer: [
            &[("max_wr", 4, Value), ("max_sge", 4, Value), ("limit", 4, Value), ("reserved", 4, Value)],
            &[],
        ],
    },
    Command { number: 30, name: "attach_mcast", request: [MULTICAST, &[]], answer: [&[], &[]] },
    Command { number: 31, name: "detach_mcast", request: [MULTICAST, &[]], answer: [&[], &[]] },
];
