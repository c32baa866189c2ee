//! The commands in their old form that there are, and who serves them.

use crate::abi::core;
use crate::abi::number::command;
use crate::commands::{ah, channel, cq, device, mr, multicast, mw, pd, qp, qp_modify, qp_query, srq};
use crate::method::Handler;

/// A command in its old form.
#[derive(Debug)]
pub struct Command {
    number: u32,
    extended: bool,
    /// What fault injection calls it.
    pub name: &'static str,
    /// Least bytes of the core's request.
    pub request: usize,
    /// Least bytes of room for the core's answer.
    pub answer: usize,
    /// Who serves it.
    pub handler: Handler,
}

const fn old<Request, Response>(number: u32, name: &'static str, handler: Handler) -> Command {
    let (request, answer) = (size_of::<Request>(), size_of::<Response>());
    Command { number, extended: false, name, request, answer, handler }
}

const fn extended(
    number: u32,
    name: &'static str,
    request: usize,
    answer: usize,
    handler: Handler,
) -> Command {
    Command { number, extended: true, name, request, answer, handler }
}

static COMMANDS: &[Command] = &[
    old::<core::QueryDevice, core::QueryDeviceResp>(
        command::QUERY_DEVICE,
        "query_device",
        device::query_device,
    ),
    old::<core::QueryPort, core::QueryPortResp>(command::QUERY_PORT, "query_port", device::query_port_old),
    old::<core::AllocPd, core::AllocPdResp>(command::ALLOC_PD, "alloc_pd", pd::allocate),
    old::<core::Handle, ()>(command::DEALLOC_PD, "dealloc_pd", pd::destroy_old),
    old::<core::CreateAh, core::CreateAhResp>(command::CREATE_AH, "create_ah", ah::create),
    old::<core::Handle, ()>(command::DESTROY_AH, "destroy_ah", ah::destroy_old),
    old::<core::RegMr, core::RegMrResp>(command::REG_MR, "reg_mr", mr::register),
    old::<core::ReregMr, core::ReregMrResp>(command::REREG_MR, "rereg_mr", mr::register_again),
    old::<core::Handle, ()>(command::DEREG_MR, "dereg_mr", mr::destroy_old),
    old::<core::AllocMw, core::AllocMwResp>(command::ALLOC_MW, "alloc_mw", mw::allocate),
    old::<core::Handle, ()>(command::DEALLOC_MW, "dealloc_mw", mw::destroy_old),
    old::<core::CreateCompChannel, core::CreateCompChannelResp>(
        command::CREATE_COMP_CHANNEL,
        "create_comp_channel",
        channel::create_completion,
    ),
    old::<core::CreateCq, core::CreateCqResp>(command::CREATE_CQ, "create_cq", cq::create_old),
    old::<core::ResizeCq, core::ResizeCqResp>(command::RESIZE_CQ, "resize_cq", cq::resize),
    old::<core::DestroyWithAnswer, core::DestroyCqResp>(command::DESTROY_CQ, "destroy_cq", cq::destroy_old),
    old::<core::CreateQp, core::CreateQpResp>(command::CREATE_QP, "create_qp", qp::create_old),
    old::<core::QueryQp, core::QueryQpResp>(command::QUERY_QP, "query_qp", qp_query::query),
    old::<core::ModifyQp, ()>(command::MODIFY_QP, "modify_qp", qp_modify::modify),
    old::<core::DestroyWithAnswer, core::EventsReported>(command::DESTROY_QP, "destroy_qp", qp::destroy_old),
    old::<core::AttachMcast, ()>(command::ATTACH_MCAST, "attach_mcast", multicast::attach),
    old::<core::AttachMcast, ()>(command::DETACH_MCAST, "detach_mcast", multicast::detach),
    old::<core::CreateSrq, core::CreateSrqResp>(command::CREATE_SRQ, "create_srq", srq::create_old),
    old::<core::ModifySrq, ()>(command::MODIFY_SRQ, "modify_srq", srq::modify),
    old::<core::QuerySrq, core::QuerySrqResp>(command::QUERY_SRQ, "query_srq", srq::query),
    old::<core::DestroyWithAnswer, core::EventsReported>(
        command::DESTROY_SRQ,
        "destroy_srq",
        srq::destroy_old,
    ),
    extended(
        command::QUERY_DEVICE,
        "query_device_ex",
        size_of::<core::ExQueryDevice>(),
        device::EX_QUERY_DEVICE_LEAST,
        device::query_device_extended,
    ),
    extended(
        command::MODIFY_QP,
        "modify_qp",
        size_of::<core::ModifyQp>(),
        size_of::<core::ExModifyQpResp>(),
        qp_modify::modify_extended,
    ),
];

/// The command of that number; extended and old ones count apart.
pub fn find(number: u32, is_extended: bool) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.number == number && command.extended == is_extended)
}

/// Whether there is a command of that name.
pub fn is_name(name: &str) -> bool {
    COMMANDS.iter().any(|command| command.name == name)
}
