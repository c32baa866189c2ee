//! The methods there are, their attributes and who serves them.

use crate::abi::core;
use crate::abi::number::{self, DRIVER_IN, DRIVER_OUT, object};
use crate::answer::Answer;
use crate::call::Call;
use crate::command;
use crate::commands::{ah, channel, context, cq, device, mr, mr_method, mw, pd, qp, srq};
use crate::errno::Result;
use crate::events::ChannelKind;

/// Serves a method or command.
pub type Handler = fn(&mut Call) -> Result<Answer>;

/// A method of an object.
#[derive(Debug)]
pub struct Method {
    object: u16,
    number: u16,
    /// What fault injection calls it.
    pub name: &'static str,
    /// What it takes.
    pub attributes: &'static [AttributeSpec],
    /// Who serves it.
    pub handler: Handler,
}

/// An attribute of a method.
#[derive(Debug)]
pub struct AttributeSpec {
    /// Its number.
    pub id: u16,
    /// What it carries.
    pub kind: AttributeType,
    /// The method cannot do without it.
    pub mandatory: bool,
}

/// What an attribute carries.
#[derive(Clone, Copy, Debug)]
pub enum AttributeType {
    /// Data from the program: at least `least` bytes; beyond `most` only zeros, and those only if it `grows`.
    Input { least: u16, most: u16, grows: bool },
    /// Room for data to the program; longer than `most` only if it `grows`.
    Output { least: u16, most: u16, grows: bool },
    /// Handle of an object of that type.
    Handle(u16, Access),
    /// A descriptor of any kind.
    Descriptor,
    /// Descriptor of a channel.
    Channel(ChannelKind, Access),
}

/// What happens to the object that an attribute names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It is made.
    New,
    /// It is used or destroyed.
    Existing,
}

const fn spec(id: u16, kind: AttributeType) -> AttributeSpec {
    AttributeSpec { id, kind, mandatory: true }
}

/// Input of exactly `size` bytes.
const fn input(id: u16, size: u16) -> AttributeSpec {
    spec(id, AttributeType::Input { least: size, most: size, grows: false })
}

/// A number, always sent as 8 bytes.
const fn constant(id: u16) -> AttributeSpec {
    input(id, 8)
}

/// Flags of 4 or 8 bytes.
const fn flags(id: u16) -> AttributeSpec {
    spec(id, AttributeType::Input { least: 4, most: 8, grows: false })
}

/// A struct that may grow at its end.
const fn input_struct(id: u16, size: u16) -> AttributeSpec {
    spec(id, AttributeType::Input { least: size, most: size, grows: true })
}

/// Room for exactly `size` bytes.
const fn output(id: u16, size: u16) -> AttributeSpec {
    spec(id, AttributeType::Output { least: size, most: size, grows: false })
}

/// Room for a struct that may grow at its end.
const fn output_struct(id: u16, size: u16) -> AttributeSpec {
    spec(id, AttributeType::Output { least: size, most: size, grows: true })
}

/// Room for at least `least` bytes.
const fn output_from(id: u16, least: u16) -> AttributeSpec {
    spec(id, AttributeType::Output { least, most: u16::MAX, grows: false })
}

const fn handle(id: u16, of: u16) -> AttributeSpec {
    spec(id, AttributeType::Handle(of, Access::Existing))
}

const fn new_handle(id: u16, of: u16) -> AttributeSpec {
    spec(id, AttributeType::Handle(of, Access::New))
}

const fn channel(id: u16, kind: ChannelKind) -> AttributeSpec {
    optional(spec(id, AttributeType::Channel(kind, Access::Existing)))
}

const fn optional(mut spec: AttributeSpec) -> AttributeSpec {
    spec.mandatory = false;
    spec
}

const DRIVER_REQUEST: AttributeSpec =
    optional(spec(DRIVER_IN, AttributeType::Input { least: 0, most: u16::MAX, grows: false }));
const DRIVER_ANSWER: AttributeSpec = optional(output_from(DRIVER_OUT, 0));

/// Number of a method's first attribute, where it has only that one.
const FIRST: u16 = 0;

static METHODS: &[Method] = &[
    Method {
        object: object::DEVICE,
        number: number::INVOKE_WRITE,
        name: "invoke_write",
        attributes: &[
            constant(number::WRITE_COMMAND),
            optional(spec(number::CORE_IN, AttributeType::Input { least: 4, most: u16::MAX, grows: false })),
            optional(output_from(number::CORE_OUT, 0)),
            DRIVER_REQUEST,
            DRIVER_ANSWER,
        ],
        handler: device::invoke_write,
    },
    Method {
        object: object::DEVICE,
        number: 2,
        name: "query_port",
        attributes: &[
            constant(device::attribute::PORT_NUM),
            output_struct(device::attribute::PORT_RESP, size_of::<core::QueryPortRespEx>() as u16),
        ],
        handler: device::query_port,
    },
    Method {
        object: object::DEVICE,
        number: 3,
        name: "get_context",
        attributes: &[
            optional(output(context::attribute::NUM_COMP_VECTORS, 4)),
            optional(output(context::attribute::CORE_SUPPORT, 8)),
            DRIVER_REQUEST,
            DRIVER_ANSWER,
        ],
        handler: context::get_context,
    },
    Method {
        object: object::DEVICE,
        number: 5,
        name: "query_gid_table",
        attributes: &[
            constant(device::attribute::GID_ENTRY_SIZE),
            optional(flags(device::attribute::GID_FLAGS)),
            output_from(device::attribute::GID_ENTRIES, 0),
            output(device::attribute::GID_COUNT, 8),
        ],
        handler: device::query_gid_table,
    },
    Method {
        object: object::DEVICE,
        number: 6,
        name: "query_gid_entry",
        attributes: &[
            constant(device::attribute::GID_PORT),
            constant(device::attribute::GID_INDEX),
            flags(device::attribute::GID_ENTRY_FLAGS),
            output_struct(device::attribute::GID_ENTRY, size_of::<core::GidEntry>() as u16),
        ],
        handler: device::query_gid_entry,
    },
    Method {
        object: object::DEVICE,
        number: 7,
        name: "query_port_speed",
        attributes: &[constant(device::attribute::PORT_NUM), output(device::attribute::PORT_RESP, 8)],
        handler: device::query_port_speed,
    },
    Method {
        object: object::PD,
        number: 0,
        name: "dealloc_pd",
        attributes: &[handle(FIRST, object::PD)],
        handler: pd::destroy,
    },
    Method {
        object: object::CQ,
        number: 0,
        name: "create_cq",
        attributes: &[
            new_handle(cq::attribute::HANDLE, object::CQ),
            input(cq::attribute::CQE, 4),
            input(cq::attribute::USER_HANDLE, 8),
            channel(cq::attribute::COMP_CHANNEL, ChannelKind::Completion),
            input(cq::attribute::COMP_VECTOR, 4),
            optional(flags(cq::attribute::FLAGS)),
            output(cq::attribute::RESP_CQE, 4),
            channel(cq::attribute::EVENT_FD, ChannelKind::Asynchronous),
            DRIVER_REQUEST,
            DRIVER_ANSWER,
        ],
        handler: cq::create,
    },
    Method {
        object: object::CQ,
        number: 1,
        name: "destroy_cq",
        attributes: &[handle(FIRST, object::CQ), output(cq::attribute::DESTROY_RESP, 8)],
        handler: cq::destroy,
    },
    Method {
        object: object::QP,
        number: 0,
        name: "create_qp",
        attributes: &[
            new_handle(qp::attribute::HANDLE, object::QP),
            optional(handle(qp::attribute::PD_HANDLE, object::PD)),
            optional(handle(qp::attribute::SRQ_HANDLE, object::SRQ)),
            optional(handle(qp::attribute::SEND_CQ_HANDLE, object::CQ)),
            optional(handle(qp::attribute::RECV_CQ_HANDLE, object::CQ)),
            input(qp::attribute::USER_HANDLE, 8),
            input_struct(qp::attribute::CAP, size_of::<core::QpCap>() as u16),
            constant(qp::attribute::TYPE),
            optional(flags(qp::attribute::FLAGS)),
            optional(input(qp::attribute::SOURCE_QPN, 4)),
            channel(qp::attribute::EVENT_FD, ChannelKind::Asynchronous),
            output_struct(qp::attribute::RESP_CAP, size_of::<core::QpCap>() as u16),
            output(qp::attribute::RESP_QP_NUM, 4),
            DRIVER_REQUEST,
            DRIVER_ANSWER,
        ],
        handler: qp::create,
    },
    Method {
        object: object::QP,
        number: 1,
        name: "destroy_qp",
        attributes: &[handle(FIRST, object::QP), output(qp::attribute::DESTROY_RESP, 4)],
        handler: qp::destroy,
    },
    Method {
        object: object::SRQ,
        number: 0,
        name: "create_srq",
        attributes: &[
            new_handle(srq::attribute::HANDLE, object::SRQ),
            handle(srq::attribute::PD_HANDLE, object::PD),
            constant(srq::attribute::TYPE),
            input(srq::attribute::USER_HANDLE, 8),
            input(srq::attribute::MAX_WR, 4),
            input(srq::attribute::MAX_SGE, 4),
            input(srq::attribute::LIMIT, 4),
            optional(handle(srq::attribute::CQ_HANDLE, object::CQ)),
            optional(input(srq::attribute::MAX_NUM_TAGS, 4)),
            channel(srq::attribute::EVENT_FD, ChannelKind::Asynchronous),
            output(srq::attribute::RESP_MAX_WR, 4),
            output(srq::attribute::RESP_MAX_SGE, 4),
            optional(output(srq::attribute::RESP_SRQ_NUM, 4)),
            DRIVER_REQUEST,
            DRIVER_ANSWER,
        ],
        handler: srq::create,
    },
    Method {
        object: object::SRQ,
        number: 1,
        name: "destroy_srq",
        attributes: &[handle(FIRST, object::SRQ), output(srq::attribute::DESTROY_RESP, 4)],
        handler: srq::destroy,
    },
    Method {
        object: object::AH,
        number: 0,
        name: "destroy_ah",
        attributes: &[handle(FIRST, object::AH)],
        handler: ah::destroy,
    },
    Method {
        object: object::MR,
        number: 1,
        name: "dereg_mr",
        attributes: &[handle(FIRST, object::MR)],
        handler: mr::destroy,
    },
    Method {
        object: object::MR,
        number: 3,
        name: "query_mr",
        attributes: &[
            handle(mr_method::attribute::QUERY_HANDLE, object::MR),
            output(mr_method::attribute::QUERY_LKEY, 4),
            output(mr_method::attribute::QUERY_RKEY, 4),
            output(mr_method::attribute::QUERY_LENGTH, 8),
            optional(output(mr_method::attribute::QUERY_IOVA, 8)),
        ],
        handler: mr_method::query,
    },
    Method {
        object: object::MR,
        number: 4,
        name: "reg_dmabuf_mr",
        attributes: &[
            new_handle(mr_method::attribute::DMABUF_HANDLE, object::MR),
            handle(mr_method::attribute::DMABUF_PD, object::PD),
            input(mr_method::attribute::DMABUF_OFFSET, 8),
            input(mr_method::attribute::DMABUF_LENGTH, 8),
            input(mr_method::attribute::DMABUF_IOVA, 8),
            input(mr_method::attribute::DMABUF_FD, 4),
            optional(flags(mr_method::attribute::DMABUF_ACCESS)),
            output(mr_method::attribute::DMABUF_LKEY, 4),
            output(mr_method::attribute::DMABUF_RKEY, 4),
        ],
        handler: mr_method::register_buffer,
    },
    Method {
        object: object::MR,
        number: 5,
        name: "reg_mr",
        attributes: &[
            new_handle(mr_method::attribute::REG_HANDLE, object::MR),
            handle(mr_method::attribute::REG_PD, object::PD),
            optional(handle(mr_method::attribute::REG_DMA_HANDLE, object::DMAH)),
            input(mr_method::attribute::REG_IOVA, 8),
            optional(input(mr_method::attribute::REG_ADDR, 8)),
            input(mr_method::attribute::REG_LENGTH, 8),
            flags(mr_method::attribute::REG_ACCESS),
            optional(spec(mr_method::attribute::REG_FD, AttributeType::Descriptor)),
            optional(input(mr_method::attribute::REG_FD_OFFSET, 8)),
            output(mr_method::attribute::REG_LKEY, 4),
            output(mr_method::attribute::REG_RKEY, 4),
            DRIVER_REQUEST,
            DRIVER_ANSWER,
        ],
        handler: mr_method::register,
    },
    Method {
        object: object::MW,
        number: 0,
        name: "dealloc_mw",
        attributes: &[handle(FIRST, object::MW)],
        handler: mw::destroy,
    },
    Method {
        object: object::ASYNC_EVENT,
        number: 0,
        name: "alloc_async_event",
        attributes: &[spec(FIRST, AttributeType::Channel(ChannelKind::Asynchronous, Access::New))],
        handler: channel::allocate_events,
    },
];

/// The method of that object and number.
pub fn find(object: u16, number: u16) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.object == object && method.number == number)
}

/// Whether fault injection knows a method or command of that name.
pub fn is_name(name: &str) -> bool {
    METHODS.iter().any(|method| method.name == name) || command::is_name(name)
}
