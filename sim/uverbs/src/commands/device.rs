//! What can be asked of the device itself: attributes, ports, GIDs; and the way into the old commands.

use irdma_engine::spec::Generation;
use zerocopy::IntoBytes;

use super::mw;
use crate::abi::core::{
    ExQueryDevice, ExQueryDeviceResp, GidEntry, QueryDevice, QueryDeviceResp, QueryPort, QueryPortResp,
    QueryPortRespEx,
};
use crate::abi::number::{COMMAND_EXTENDED, COMMAND_MASK, CORE_IN, CORE_OUT, DRIVER_IN, WRITE_COMMAND};
use crate::answer::Answer;
use crate::call::{Call, Hardware, PORT};
use crate::command;
use crate::errno::{EINVAL, ENOSPC, EOPNOTSUPP, EPROTONOSUPPORT, Result};
use crate::identity;
use crate::profile::{
    AH_COUNT, CQ_COUNT, KernelVersion, LARGEST_REGION, MR_COUNT, MULTICAST_GROUP_COUNT, PD_COUNT, QP_COUNT,
    QPS_PER_MULTICAST_GROUP, SRQ_COUNT, Transport, feature,
};

/// Attributes of the device's methods.
pub mod attribute {
    #![allow(missing_docs, reason = "the kernel's names")]
    pub const PORT_NUM: u16 = 0;
    pub const PORT_RESP: u16 = 1;
    pub const GID_ENTRY_SIZE: u16 = 0;
    pub const GID_FLAGS: u16 = 1;
    pub const GID_ENTRIES: u16 = 2;
    pub const GID_COUNT: u16 = 3;
    pub const GID_PORT: u16 = 0;
    pub const GID_INDEX: u16 = 1;
    pub const GID_ENTRY_FLAGS: u16 = 2;
    pub const GID_ENTRY: u16 = 3;
}

/// Least room for the extended answer: up to `response_length`.
pub const EX_QUERY_DEVICE_LEAST: usize = size_of::<QueryDeviceResp>() + 8;

/// `IB_DEVICE_*` capability flags that the driver sets.
mod capability {
    pub const RC_RNR_NAK_GEN: u32 = 1 << 12;
    pub const MEM_WINDOW: u32 = 1 << 17;
    pub const MEM_MGT_EXTENSIONS: u32 = 1 << 21;
    pub const MEM_WINDOW_TYPE_2B: u32 = 1 << 24;
}

/// `IB_PORT_*` capability flags, and `IB_UVERBS_PCF_IP_BASED_GIDS`.
mod port_capability {
    pub const CM_SUP: u32 = 1 << 16;
    pub const REINIT_SUP: u32 = 1 << 18;
    pub const IP_BASED_GIDS: u32 = 1 << 26;
}

/// `IB_MTU_1024`.
const MTU_1024: u8 = 3;
/// `IB_MTU_4096`.
const MTU_4096: u8 = 5;
/// `IB_UVERBS_GID_TYPE_ROCE_V2`.
const GID_TYPE_ROCE_V2: u32 = 2;
/// Ticks of the completion clock per millisecond.
const CLOCK_KHZ: u64 = 1_000_000;

/// `UVERBS_METHOD_INVOKE_WRITE`.
pub fn invoke_write(call: &mut Call) -> Result<Answer> {
    let number = call.request.constant(WRITE_COMMAND, u64::from(u32::MAX))? as u32;
    if number & !(COMMAND_EXTENDED | COMMAND_MASK) != 0 {
        return Err(EINVAL);
    }
    let command = command::find(number & COMMAND_MASK, number & COMMAND_EXTENDED != 0).ok_or(EOPNOTSUPP)?;
    if call.request.length(CORE_IN) < command.request || call.request.length(CORE_OUT) < command.answer {
        return Err(ENOSPC);
    }
    call.hardware.faults.check(command.name)?;
    let mut answer = (command.handler)(call)?;
    call.distort(command.name, &mut answer);
    Ok(answer)
}

/// What both forms of query_device answer.
fn describe(hardware: &Hardware) -> QueryDeviceResp {
    let profile = &hardware.profile;
    let limits = profile.limits();
    let roce = profile.transport == Transport::Roce;
    let mut flags = capability::MEM_WINDOW | capability::MEM_MGT_EXTENSIONS;
    if roce {
        flags |= capability::RC_RNR_NAK_GEN;
    }
    if profile.generation >= Generation::Gen3 {
        flags |= capability::MEM_WINDOW_TYPE_2B;
    }
    let regions = MR_COUNT - hardware.counts.regions;
    let guid = identity::NODE_GUID.to_be_bytes();
    QueryDeviceResp {
        fw_ver: u64::from(identity::FIRMWARE.0) << 32 | u64::from(identity::FIRMWARE.1),
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: LARGEST_REGION,
        page_size_cap: limits.page_sizes,
        vendor_id: identity::VENDOR_ID,
        vendor_part_id: identity::part_id(profile.generation),
        hw_ver: identity::PCI_REVISION,
        max_qp: QP_COUNT - hardware.qps.len() as u32,
        max_qp_wr: limits.work_requests,
        device_cap_flags: flags,
        max_sge: limits.fragments,
        max_sge_rd: limits.read_fragments,
        max_cq: CQ_COUNT - hardware.cqs.len() as u32,
        max_cqe: limits.cq_entries - 1,
        max_mr: regions,
        max_pd: PD_COUNT - hardware.counts.pds,
        max_qp_rd_atom: limits.inbound_reads,
        max_qp_init_rd_atom: limits.outbound_reads,
        // IB_ATOMIC_HCA.
        atomic_cap: u32::from(profile.has(feature::ATOMIC_OPS)),
        max_mw: if mw::supported(profile) { regions } else { 0 },
        max_mcast_grp: MULTICAST_GROUP_COUNT,
        max_mcast_qp_attach: QPS_PER_MULTICAST_GROUP,
        max_total_mcast_qp_attach: QP_COUNT * QPS_PER_MULTICAST_GROUP,
        max_ah: AH_COUNT,
        max_srq: if profile.has(feature::SRQ) { SRQ_COUNT - hardware.srqs.len() as u32 } else { 0 },
        // The kernel reports the numbers of GEN3 on all generations.
        max_srq_wr: if profile.kernel >= KernelVersion::V7_2 { (262_144 - 1) / 8 } else { 0 },
        max_srq_sge: if profile.kernel >= KernelVersion::V7_2 { limits.fragments } else { 0 },
        max_pkeys: u16::from(roce),
        phys_port_cnt: 1,
        ..QueryDeviceResp::default()
    }
}

/// `IB_USER_VERBS_CMD_QUERY_DEVICE`.
pub fn query_device(call: &mut Call) -> Result<Answer> {
    call.file.context()?;
    call.request.extensible::<QueryDevice>(CORE_IN)?;
    let mut answer = Answer::new();
    answer.core(call.request, &describe(call.hardware));
    Ok(answer)
}

/// `IB_USER_VERBS_EX_CMD_QUERY_DEVICE`.
pub fn query_device_extended(call: &mut Call) -> Result<Answer> {
    call.file.context()?;
    let wanted: ExQueryDevice = call.request.extensible(CORE_IN)?;
    if wanted.comp_mask != 0 || wanted.reserved != 0 {
        return Err(EINVAL);
    }
    let kernel = call.hardware.profile.kernel;
    if kernel >= KernelVersion::V7_2 {
        // No driver data is defined: zeros are let pass.
        call.request.extensible::<[u8; 0]>(DRIVER_IN)?;
    } else if call.request.length(DRIVER_IN) > 0 {
        return Err(EINVAL);
    }
    let timestamps = call.hardware.profile.has(feature::CQE_TIMESTAMPING);
    let base = describe(call.hardware);
    let told = ExQueryDeviceResp {
        base,
        response_length: call.request.length(CORE_OUT).min(size_of::<ExQueryDeviceResp>()) as u32,
        timestamp_mask: if timestamps { 0xffff_ffff } else { 0 },
        hca_core_clock: if timestamps { CLOCK_KHZ } else { 0 },
        device_cap_flags_ex: u64::from(base.device_cap_flags),
        ..ExQueryDeviceResp::default()
    };
    let mut answer = Answer::new();
    answer.core(call.request, &told);
    answer.driver(call.request, &());
    Ok(answer)
}

/// What all forms of query_port answer.
fn describe_port(hardware: &Hardware, port: u64) -> Result<QueryPortResp> {
    if port != u64::from(PORT) {
        return Err(EINVAL);
    }
    let profile = &hardware.profile;
    let roce = profile.transport == Transport::Roce;
    let mut flags = port_capability::CM_SUP | port_capability::REINIT_SUP;
    if roce {
        flags |= port_capability::IP_BASED_GIDS;
    }
    Ok(QueryPortResp {
        port_cap_flags: flags,
        max_msg_sz: profile.limits().message_bytes,
        gid_tbl_len: profile.gid_table_length(),
        pkey_tbl_len: u16::from(roce),
        lid: 1,
        state: 4,
        max_mtu: MTU_4096,
        active_mtu: MTU_1024,
        // 4X EDR: 100 Gbit/s.
        active_width: 2,
        active_speed: 32,
        // Link up.
        phys_state: 5,
        // Ethernet.
        link_layer: 2,
        ..QueryPortResp::default()
    })
}

/// `UVERBS_METHOD_QUERY_PORT`.
pub fn query_port(call: &mut Call) -> Result<Answer> {
    call.file.context()?;
    let port = call.request.constant(attribute::PORT_NUM, u64::from(u8::MAX))?;
    let legacy_resp = describe_port(call.hardware, port)?;
    let mut told = QueryPortRespEx { legacy_resp, ..QueryPortRespEx::default() };
    if call.hardware.profile.kernel >= KernelVersion::V6_12 {
        told.active_speed_ex = u32::from(legacy_resp.active_speed);
    }
    let mut answer = Answer::new();
    answer.fill(call.request, attribute::PORT_RESP, &told)?;
    Ok(answer)
}

/// `IB_USER_VERBS_CMD_QUERY_PORT`.
pub fn query_port_old(call: &mut Call) -> Result<Answer> {
    call.file.context()?;
    let wanted: QueryPort = call.request.extensible(CORE_IN)?;
    let mut answer = Answer::new();
    answer.core(call.request, &describe_port(call.hardware, u64::from(wanted.port_num))?);
    Ok(answer)
}

/// `UVERBS_METHOD_QUERY_PORT_SPEED`: newer than most kernels, and the driver has none.
pub fn query_port_speed(call: &mut Call) -> Result<Answer> {
    if call.hardware.profile.kernel < KernelVersion::V7_2 {
        return Err(EPROTONOSUPPORT);
    }
    call.file.context()?;
    Err(EOPNOTSUPP)
}

/// An entry of the GID table.
fn gid_entry(hardware: &Hardware, index: u32) -> Result<GidEntry> {
    let roce = hardware.profile.transport == Transport::Roce;
    Ok(GidEntry {
        gid: hardware.gid(index)?,
        gid_index: index,
        port_num: u32::from(PORT),
        gid_type: if roce { GID_TYPE_ROCE_V2 } else { 0 },
        netdev_ifindex: 0,
    })
}

/// `UVERBS_METHOD_QUERY_GID_ENTRY`.
pub fn query_gid_entry(call: &mut Call) -> Result<Answer> {
    let request = call.request;
    request.flags(attribute::GID_ENTRY_FLAGS, 0)?;
    let port = request.constant(attribute::GID_PORT, u64::from(u32::MAX))?;
    let index = request.constant(attribute::GID_INDEX, u64::from(u32::MAX))? as u32;
    call.file.context()?;
    if port != u64::from(PORT) {
        return Err(EINVAL);
    }
    let mut answer = Answer::new();
    answer.fill(request, attribute::GID_ENTRY, &gid_entry(call.hardware, index)?)?;
    Ok(answer)
}

/// `UVERBS_METHOD_QUERY_GID_TABLE`.
pub fn query_gid_table(call: &mut Call) -> Result<Answer> {
    let request = call.request;
    request.flags(attribute::GID_FLAGS, 0)?;
    let entry_size = request.constant(attribute::GID_ENTRY_SIZE, u64::MAX)?;
    let room = request.length(attribute::GID_ENTRIES) as u64;
    if entry_size == 0 || !room.is_multiple_of(entry_size) || room < entry_size {
        return Err(EINVAL);
    }
    call.file.context()?;
    let count = call.hardware.profile.gids.len() as u64;
    if count > room / entry_size {
        return Err(EINVAL);
    }
    let mut entries = Vec::new();
    for index in 0..count {
        let mut entry = gid_entry(call.hardware, index as u32)?.as_bytes().to_vec();
        entry.resize(entry_size as usize, 0);
        entries.extend(entry);
    }
    let mut answer = Answer::new();
    answer.put(request, attribute::GID_ENTRIES, entries.as_slice())?;
    answer.put(request, attribute::GID_COUNT, &count.to_le_bytes())?;
    Ok(answer)
}
