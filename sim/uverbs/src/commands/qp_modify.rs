//! Modify-QP, as the core checks it and the driver carries it out.

use std::time::Duration;

use irdma_engine::spec::{Access, Generation, QpChange, QpState};

use crate::abi::core::{ExModifyQp, ExModifyQpResp, ModifyQp};
use crate::abi::driver::{ModifyQpReq, ModifyQpResp};
use crate::abi::number::{CORE_IN, CORE_OUT, DRIVER_IN, DRIVER_OUT, access};
use crate::answer::Answer;
use crate::asynchronous::{FLUSH_GENERAL, flush, move_to_error};
use crate::call::{Call, Hardware, PORT};
use crate::errno::{EINVAL, EOPNOTSUPP, EPERM, Result};
use crate::object::{IbState, Qp, QpAttributes};
use crate::profile::{KernelVersion, Profile, Transport, feature};
use crate::request::Request;
use crate::transition::{self, mask};

/// Bytes of the driver's request at least, if there is one: both flush bytes.
const LEAST_REQUEST: usize = 2;
/// Room for the driver's answer at least, if there is any: up to `push_valid`.
const LEAST_ROOM: usize = 19;
/// `IB_QP_SET_QKEY`: Q_Keys that only privileged programs may use.
const PRIVILEGED_Q_KEY: u32 = 0x8000_0000;
/// The default partition, the only one on RoCE.
const P_KEY: u16 = 0xffff;
/// PSNs have 24 bits.
const PSN_MASK: u32 = 0xff_ffff;

/// `IB_USER_VERBS_CMD_MODIFY_QP`.
pub fn modify(call: &mut Call) -> Result<Answer> {
    let wanted: ModifyQp = call.request.extensible(CORE_IN)?;
    if wanted.attr_mask & !mask::STANDARD != 0 {
        return Err(EOPNOTSUPP);
    }
    carry_out(call, wanted)
}

/// `IB_USER_VERBS_EX_CMD_MODIFY_QP`.
pub fn modify_extended(call: &mut Call) -> Result<Answer> {
    let wanted: ExModifyQp = call.request.extensible(CORE_IN)?;
    // A rate limit is known to the core, but not to the driver.
    if wanted.base.attr_mask & !mask::STANDARD != 0 {
        return Err(EOPNOTSUPP);
    }
    let mut answer = carry_out(call, wanted.base)?;
    let room = call.request.length(CORE_OUT).min(size_of::<ExModifyQpResp>());
    answer.core(call.request, &ExModifyQpResp { comp_mask: 0, response_length: room as u32 });
    Ok(answer)
}

fn carry_out(call: &mut Call, mut wanted: ModifyQp) -> Result<Answer> {
    let request = call.request;
    let hardware = &mut *call.hardware;
    let qp: &mut Qp = call.file.get_mut(wanted.qp_handle)?;
    check_core(qp, request, &mut wanted)?;
    check_room(request)?;
    let state = match wanted.attr_mask & mask::STATE {
        0 => None,
        _ => Some(IbState::from_number(wanted.qp_state).ok_or(EINVAL)?),
    };
    let (change, attributes) = describe(hardware, qp, &wanted)?;
    let answered = match hardware.profile.transport {
        Transport::Roce => modify_roce(hardware, qp, request, &wanted, state, change)?,
        Transport::Iwarp => modify_iwarp(hardware, qp, request, state, change)?,
    };
    qp.attributes = attributes;
    if wanted.attr_mask & mask::PORT != 0 {
        qp.port = wanted.port_num;
    }
    if wanted.attr_mask & mask::EN_SQD_ASYNC_NOTIFY != 0 {
        qp.notify_drained = wanted.en_sqd_async_notify != 0;
    }
    let mut answer = Answer::new();
    let generation = hardware.profile.generation;
    if answered && state.is_some() && generation >= Generation::Gen2 {
        answer.driver(request, &push_page(hardware, qp, request));
    }
    Ok(answer)
}

/// What the core checks for every driver.
fn check_core(qp: &Qp, request: &Request, wanted: &mut ModifyQp) -> Result<()> {
    let has = |bit| wanted.attr_mask & bit != 0;
    if has(mask::PORT) && wanted.port_num != PORT {
        return Err(EINVAL);
    }
    if has(mask::AV) {
        if wanted.dest.port_num != PORT {
            return Err(EINVAL);
        }
        if has(mask::STATE) && wanted.qp_state == IbState::ReadyToReceive as u8 {
            if wanted.dest.port_num != qp.port {
                return Err(EINVAL);
            }
        } else if has(mask::PORT) {
            if wanted.port_num != wanted.dest.port_num {
                return Err(EINVAL);
            }
        } else {
            wanted.attr_mask |= mask::PORT;
            wanted.port_num = wanted.dest.port_num;
        }
    }
    let has = |bit| wanted.attr_mask & bit != 0;
    // Alternate paths are InfiniBand's.
    if has(mask::ALT_PATH) {
        return Err(EINVAL);
    }
    if (has(mask::CUR_STATE) && IbState::from_number(wanted.cur_qp_state).is_none())
        || (has(mask::STATE) && IbState::from_number(wanted.qp_state).is_none())
    {
        return Err(EINVAL);
    }
    if has(mask::QKEY) && wanted.qkey & PRIVILEGED_Q_KEY != 0 && !request.program().may_send_raw() {
        return Err(EPERM);
    }
    Ok(())
}

/// What the driver checks of its own request and answer.
fn check_room(request: &Request) -> Result<()> {
    let (sent, room) = (request.length(DRIVER_IN), request.length(DRIVER_OUT));
    if (sent > 0 && sent < LEAST_REQUEST) || (room > 0 && room < LEAST_ROOM) {
        return Err(EINVAL);
    }
    Ok(())
}

/// The change for the device, and what query_qp will say after it.
fn describe(hardware: &Hardware, qp: &Qp, wanted: &ModifyQp) -> Result<(QpChange, QpAttributes)> {
    let mut change = QpChange::default();
    let mut known = qp.attributes.clone();
    let limits = hardware.profile.limits();
    let has = |bit| wanted.attr_mask & bit != 0;
    if has(mask::AV) {
        // RoCE has no addressing without a GRH. The kernel refuses any on iWARP; here it is
        // part of the departure of `modify_iwarp`.
        if wanted.dest.is_global == 0 {
            return Err(EINVAL);
        }
        change.source_gid = Some(hardware.gid(u32::from(wanted.dest.sgid_index))?);
        change.destination_gid = Some(wanted.dest.dgid);
        change.traffic_class = Some(wanted.dest.traffic_class);
    }
    if has(mask::DEST_QPN) {
        known.destination_qp = wanted.dest_qp_num;
        change.destination_qp = Some(wanted.dest_qp_num);
    }
    if has(mask::PKEY_INDEX) {
        if wanted.pkey_index != 0 {
            return Err(EINVAL);
        }
        known.p_key = P_KEY;
        change.p_key = Some(P_KEY);
    }
    if has(mask::QKEY) {
        known.q_key = wanted.qkey;
        change.q_key = Some(wanted.qkey);
    }
    if has(mask::PATH_MTU) {
        if !(1..=5).contains(&wanted.path_mtu) {
            return Err(EINVAL);
        }
        known.path_mtu = wanted.path_mtu;
        change.path_mtu = Some(128 << wanted.path_mtu);
    }
    if has(mask::SQ_PSN) {
        known.sq_psn = wanted.sq_psn & PSN_MASK;
        change.sq_psn = Some(known.sq_psn);
    }
    if has(mask::RQ_PSN) {
        known.rq_psn = wanted.rq_psn & PSN_MASK;
        change.rq_psn = Some(known.rq_psn);
    }
    if has(mask::RNR_RETRY) {
        known.rnr_retry = wanted.rnr_retry;
        change.rnr_retry = Some(wanted.rnr_retry);
    }
    if has(mask::RETRY_CNT) {
        known.retry_count = wanted.retry_cnt;
        change.retry_count = Some(wanted.retry_cnt);
    }
    if has(mask::TIMEOUT) {
        change.timeout = Some(acknowledge_timeout(wanted.timeout));
    }
    if has(mask::MIN_RNR_TIMER) {
        if hardware.profile.generation >= Generation::Gen3 {
            known.min_rnr_timer = wanted.min_rnr_timer;
        }
        change.min_rnr_timer = Some(rnr_delay(wanted.min_rnr_timer));
    }
    if has(mask::MAX_QP_RD_ATOMIC) {
        let count = u32::from(wanted.max_rd_atomic);
        if count > limits.outbound_reads {
            return Err(EINVAL);
        }
        if count > 0 {
            known.max_rd_atomic = count;
            change.max_rd_atomic = Some(count);
        }
    }
    if has(mask::MAX_DEST_RD_ATOMIC) {
        let count = u32::from(wanted.max_dest_rd_atomic);
        if count > limits.inbound_reads {
            return Err(EINVAL);
        }
        if count > 0 {
            known.max_dest_rd_atomic = count;
            change.max_dest_rd_atomic = Some(count);
        }
    }
    if has(mask::ACCESS_FLAGS) {
        let atomic = wanted.qp_access_flags & access::REMOTE_ATOMIC != 0;
        known.remote_atomic |= atomic && hardware.profile.has(feature::ATOMIC_OPS);
    }
    change.access = Some(granted(&hardware.profile, known.remote_atomic));
    Ok((change, known))
}

/// What remote ends may do: the driver enables remote reads and writes when it makes the QP,
/// and never disables them.
pub fn granted(profile: &Profile, remote_atomic: bool) -> Access {
    Access {
        local_write: true,
        remote_write: true,
        remote_read: true,
        remote_atomic,
        window_bind: profile.generation >= Generation::Gen3 || profile.kernel < KernelVersion::V7_2,
        zero_based: false,
    }
}

/// Modify for RoCE (`irdma_modify_qp_roce`). `false` if the driver leaves its answer unwritten.
fn modify_roce(
    hardware: &mut Hardware,
    qp: &mut Qp,
    request: &Request,
    wanted: &ModifyQp,
    state: Option<IbState>,
    mut change: QpChange,
) -> Result<bool> {
    let Some(state) = state else {
        hardware.engine.modify_qp(qp.id, &change)?;
        return Ok(true);
    };
    if !transition::is_allowed(qp.state, state, qp.kind, wanted.attr_mask) {
        return Err(EINVAL);
    }
    let untouched = matches!(qp.hardware, QpState::Reset | QpState::Init);
    let target = match state {
        IbState::Init if untouched => QpState::Init,
        IbState::ReadyToReceive if untouched => QpState::ReadyToReceive,
        IbState::ReadyToSend if qp.hardware != QpState::Error => QpState::ReadyToSend,
        IbState::SendQueueDrained if qp.hardware == QpState::SendQueueDrained => {
            return Ok(true);
        }
        IbState::SendQueueDrained if qp.hardware == QpState::ReadyToSend => QpState::SendQueueDrained,
        IbState::SendQueueError | IbState::Error | IbState::Reset => {
            return give_up(hardware, qp, request, state);
        }
        _ => return Err(EINVAL),
    };
    if target == QpState::ReadyToSend {
        allocate_push_page(hardware, qp)?;
    }
    change.state = Some(target);
    hardware.engine.modify_qp(qp.id, &change)?;
    qp.hardware = target;
    qp.state = state;
    Ok(true)
}

/// Modify for iWARP (`irdma_modify_qp`).
///
/// A departure from the kernel, so that programs without a connection manager have
/// connections here: there only `rdma_cm` brings a QP to RTS, any other attempt is EINVAL,
/// and so is an address. Here RTR takes the address of the peer and RTS connects, and does
/// what the kernel does when it has made a connection: the first WQEs of the send queue are
/// its own.
fn modify_iwarp(
    hardware: &mut Hardware,
    qp: &mut Qp,
    request: &Request,
    state: Option<IbState>,
    mut change: QpChange,
) -> Result<bool> {
    let untouched = matches!(qp.hardware, QpState::Reset | QpState::Init);
    match state {
        None => {}
        Some(IbState::Init) if untouched => change.state = Some(QpState::Init),
        Some(IbState::ReadyToReceive) if untouched => change.state = Some(QpState::ReadyToReceive),
        Some(IbState::ReadyToSend) if qp.hardware == QpState::ReadyToReceive => {
            hardware.engine.pass_connection_wqes(qp.id, connection_wqes(&hardware.profile))?;
            change.state = Some(QpState::ReadyToSend);
        }
        // Closing what is not connected: nothing to do.
        Some(IbState::SendQueueDrained) => return Ok(true),
        Some(IbState::SendQueueError | IbState::Error | IbState::Reset) => {
            return give_up(hardware, qp, request, state.unwrap_or(IbState::Error));
        }
        _ => return Err(EINVAL),
    }
    if let Some(IbState::Init | IbState::ReadyToReceive) = state {
        allocate_push_page(hardware, qp)?;
    }
    hardware.engine.modify_qp(qp.id, &change)?;
    if let Some(state) = state {
        qp.hardware = change.state.unwrap_or(qp.hardware);
        qp.state = state;
    }
    Ok(true)
}

/// Gives a queue pair a push page, if one is left. On GEN1 there are none.
fn allocate_push_page(hardware: &mut Hardware, qp: &mut Qp) -> Result<()> {
    if qp.push_page.is_none()
        && let Some(page) = hardware.pushes.allocate(qp.id)
    {
        qp.push_page = Some(page);
        hardware.engine.enable_push(qp.id)?;
    }
    Ok(())
}

/// What a program is told of its push page: all of it, but only once.
fn push_page(hardware: &Hardware, qp: &mut Qp, request: &Request) -> ModifyQpResp {
    let Some(page) = qp.push_page.filter(|_| !qp.push_told && request.length(DRIVER_OUT) > 0) else {
        return ModifyQpResp::default();
    };
    qp.push_told = true;
    let (push_wqe_mmap_key, push_db_mmap_key, push_offset) = hardware.pushes.keys(page);
    ModifyQpResp {
        push_wqe_mmap_key,
        push_db_mmap_key,
        push_offset,
        push_valid: 1,
        ..ModifyQpResp::default()
    }
}

/// WQEs by which the kernel sets up a connection.
pub fn connection_wqes(profile: &Profile) -> u32 {
    if profile.has(feature::RTS_AE) { 3 } else { 1 }
}

/// ERR; RESET and SQE are treated like it. On a QP that is there already a program may ask for another flush.
fn give_up(hardware: &mut Hardware, qp: &mut Qp, request: &Request, state: IbState) -> Result<bool> {
    if qp.hardware == QpState::Error {
        qp.state = state;
        if request.length(DRIVER_IN) > 0 && hardware.profile.generation < Generation::Gen3 {
            let again: ModifyQpReq = request.truncated(DRIVER_IN)?;
            flush(hardware, qp, again.sq_flush != 0, again.rq_flush != 0)?;
        }
        return Ok(false);
    }
    move_to_error(hardware, qp, FLUSH_GENERAL, FLUSH_GENERAL)?;
    qp.state = state;
    Ok(true)
}

/// Time without an answer after which a send is tried again: 4.096 us times a power of two, 0 for ever.
fn acknowledge_timeout(code: u8) -> Duration {
    match code & 31 {
        0 => Duration::ZERO,
        power => Duration::from_nanos(4096 << power),
    }
}

/// How long a sender is told to wait for a receive (InfiniBand specification, table 45).
fn rnr_delay(code: u8) -> Duration {
    /// In units of 10 us.
    const DELAYS: [u32; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
        3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    Duration::from_micros(10 * u64::from(DELAYS[usize::from(code & 31)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_become_times() {
        assert_eq!(acknowledge_timeout(0), Duration::ZERO);
        assert_eq!(acknowledge_timeout(14), Duration::from_nanos(67_108_864));
        assert_eq!(rnr_delay(0), Duration::from_micros(655_360));
        assert_eq!(rnr_delay(12), Duration::from_micros(640));
        assert_eq!(rnr_delay(31), Duration::from_micros(491_520));
    }
}
