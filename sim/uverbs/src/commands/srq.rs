//! Shared receive queues (GEN3).

use irdma_engine::spec::{Generation, Span, SrqSpec};

use crate::abi::core::{
    CreateSrq, CreateSrqResp, DestroyWithAnswer, EventsReported, ModifySrq, QuerySrq, QuerySrqResp,
};
use crate::abi::driver::{CreateSrqReq, CreateSrqResp as DriverResp};
use crate::abi::number::CORE_IN;
use crate::answer::Answer;
use crate::call::{Call, Hardware};
use crate::errno::{EBUSY, EINVAL, EOPNOTSUPP, EOVERFLOW, EPROTO, EPROTONOSUPPORT, Result};
use crate::events::ChannelId;
use crate::file::OpenFile;
use crate::object::{EventSource, Object, Pd, RingKind, Srq};
use crate::profile::{SRQ_COUNT, feature};
use crate::request::driver_request;

/// `enum uverbs_attrs_create_srq_cmd_attr_ids`, and the answer to destroy.
pub mod attribute {
    #![allow(missing_docs, reason = "the kernel's names")]
    pub const HANDLE: u16 = 0;
    pub const PD_HANDLE: u16 = 1;
    pub const CQ_HANDLE: u16 = 3;
    pub const USER_HANDLE: u16 = 4;
    pub const MAX_WR: u16 = 5;
    pub const MAX_SGE: u16 = 6;
    pub const LIMIT: u16 = 7;
    pub const MAX_NUM_TAGS: u16 = 8;
    pub const TYPE: u16 = 9;
    pub const EVENT_FD: u16 = 10;
    pub const RESP_MAX_WR: u16 = 11;
    pub const RESP_MAX_SGE: u16 = 12;
    pub const RESP_SRQ_NUM: u16 = 13;
    pub const DESTROY_RESP: u16 = 1;
}

/// `IB_SRQ_MAX_WR`.
const MASK_MAX_WR: u32 = 1;
/// `IB_SRQ_LIMIT`.
const MASK_LIMIT: u32 = 2;
/// `IB_UVERBS_SRQT_BASIC`.
const BASIC: u64 = 0;
/// `IB_UVERBS_SRQT_TM`, the last type known.
const LAST_TYPE: u64 = 2;
/// Largest limit that the hardware takes.
const LARGEST_LIMIT: u32 = 0xfff;
/// Bytes of a page of the device.
const PAGE: u64 = 4096;
/// Bytes of a shadow area.
const SHADOW: u64 = 64;

/// What a program asks of an SRQ, in either form of the command.
struct Wanted {
    pd: u32,
    max_wr: u32,
    max_sge: u32,
    user_handle: u64,
    event_channel: Option<ChannelId>,
}

/// The SRQ calls exist on GEN3 only.
fn supported(hardware: &Hardware) -> bool {
    hardware.profile.generation >= Generation::Gen3
}

/// `UVERBS_METHOD_SRQ_CREATE`.
pub fn create(call: &mut Call) -> Result<Answer> {
    use attribute as a;
    // Without the driver's function the kernel has no such object at all.
    if !supported(call.hardware) {
        return Err(EPROTONOSUPPORT);
    }
    let request = call.request;
    let wanted = Wanted {
        pd: request.handle(a::PD_HANDLE)?,
        max_wr: u32::from_le_bytes(request.truncated(a::MAX_WR)?),
        max_sge: u32::from_le_bytes(request.truncated(a::MAX_SGE)?),
        user_handle: u64::from_le_bytes(request.truncated(a::USER_HANDLE)?),
        event_channel: request.channel(a::EVENT_FD).or(call.file.default_events),
    };
    match request.constant(a::TYPE, u64::from(u32::MAX))? {
        BASIC => {}
        kind if kind <= LAST_TYPE => return Err(EOPNOTSUPP),
        _ => return Err(EINVAL),
    }
    let (handle, max_wr, told) = make(call, &wanted)?;
    let mut answer = Answer::made(handle);
    answer.put_handle(request, a::HANDLE, handle)?;
    answer.put(request, a::RESP_MAX_WR, &max_wr.to_le_bytes())?;
    answer.put(request, a::RESP_MAX_SGE, &wanted.max_sge.to_le_bytes())?;
    answer.driver(request, &told);
    Ok(answer)
}

/// `IB_USER_VERBS_CMD_CREATE_SRQ`.
pub fn create_old(call: &mut Call) -> Result<Answer> {
    if !supported(call.hardware) {
        return Err(EOPNOTSUPP);
    }
    let asked: CreateSrq = call.request.extensible(CORE_IN)?;
    call.file.context()?;
    let wanted = Wanted {
        pd: asked.pd_handle,
        max_wr: asked.max_wr,
        max_sge: asked.max_sge,
        user_handle: asked.user_handle,
        event_channel: call.file.default_events,
    };
    let (handle, max_wr, told) = make(call, &wanted)?;
    let mut answer = Answer::made(handle);
    answer.core(call.request, &CreateSrqResp { srq_handle: handle, max_wr, max_sge: asked.max_sge, srqn: 0 });
    answer.driver(call.request, &told);
    Ok(answer)
}

/// Makes an SRQ: its handle, work requests and the driver's answer.
fn make(call: &mut Call, wanted: &Wanted) -> Result<(u32, u32, DriverResp)> {
    let hardware = &mut *call.hardware;
    let pd = call.file.get::<Pd>(wanted.pd)?.id;
    let limits = hardware.profile.limits();
    if !hardware.profile.has(feature::SRQ) || wanted.max_sge > limits.fragments {
        return Err(EINVAL);
    }
    if hardware.srqs.len() >= SRQ_COUNT as usize {
        return Err(EOVERFLOW);
    }
    let size = hardware.profile.srq_size(wanted.max_wr, wanted.max_sge).ok_or(EINVAL)?;
    let rings: CreateSrqReq = driver_request(call.request, size_of::<CreateSrqReq>())?;
    let ring = call.file.take_ring(RingKind::Srq, rings.user_srq_buf).ok_or(EPROTO)?;
    let ring_bytes = u64::from(ring.rq_pages) * PAGE;
    let spec = SrqSpec {
        pd,
        ring: Span { backing: ring.memory.part(0, ring_bytes), offset: 0 },
        quanta: size.quanta,
        wqe_quanta: 1 << size.shift,
        shadow: Span { backing: ring.memory.part(ring_bytes, SHADOW), offset: 0 },
    };
    let id = hardware.engine.create_srq(spec, None)?;
    let srq = Srq {
        id,
        source: EventSource {
            serial: hardware.serial(),
            user_handle: wanted.user_handle,
            channel: wanted.event_channel,
            sent: 0,
        },
        pd: wanted.pd,
        max_wr: size.work_requests,
        max_sge: wanted.max_sge,
        ring_entries: size.entries(),
        limit: 0,
        ring: ring.serial,
        users: 0,
    };
    call.file.rings_in_use.insert(ring.serial);
    let handle = call.file.objects.insert(Object::Srq(srq));
    call.file.get_mut::<Pd>(wanted.pd)?.users += 1;
    hardware.srqs.insert(id, (call.file.token, handle));
    Ok((handle, size.work_requests, DriverResp { srq_id: id.number, srq_size: size.entries() }))
}

/// `IB_USER_VERBS_CMD_MODIFY_SRQ`.
pub fn modify(call: &mut Call) -> Result<Answer> {
    if !supported(call.hardware) {
        return Err(EOPNOTSUPP);
    }
    let wanted: ModifySrq = call.request.extensible(CORE_IN)?;
    let srq: &mut Srq = call.file.get_mut(wanted.srq_handle)?;
    if wanted.attr_mask & MASK_MAX_WR != 0 {
        return Err(EINVAL);
    }
    if wanted.attr_mask & MASK_LIMIT == 0 {
        return Ok(Answer::new());
    }
    if wanted.srq_limit > srq.ring_entries {
        return Err(EINVAL);
    }
    let limit = wanted.srq_limit.min(LARGEST_LIMIT);
    call.hardware.engine.modify_srq_limit(srq.id, limit)?;
    srq.limit = limit;
    Ok(Answer::new())
}

/// `IB_USER_VERBS_CMD_QUERY_SRQ`.
pub fn query(call: &mut Call) -> Result<Answer> {
    if !supported(call.hardware) {
        return Err(EOPNOTSUPP);
    }
    let wanted: QuerySrq = call.request.extensible(CORE_IN)?;
    let srq: &Srq = call.file.get(wanted.srq_handle)?;
    let mut answer = Answer::new();
    answer.core(
        call.request,
        &QuerySrqResp { max_wr: srq.max_wr, max_sge: srq.max_sge, srq_limit: srq.limit, reserved: 0 },
    );
    Ok(answer)
}

/// `UVERBS_METHOD_SRQ_DESTROY`.
pub fn destroy(call: &mut Call) -> Result<Answer> {
    let reported = free(call.file, call.hardware, call.request.handle(0)?)?;
    let mut answer = Answer::new();
    answer.put(call.request, attribute::DESTROY_RESP, &EventsReported { events_reported: reported })?;
    Ok(answer)
}

/// `IB_USER_VERBS_CMD_DESTROY_SRQ`.
pub fn destroy_old(call: &mut Call) -> Result<Answer> {
    let wanted: DestroyWithAnswer = call.request.extensible(CORE_IN)?;
    let reported = free(call.file, call.hardware, wanted.handle)?;
    let mut answer = Answer::new();
    answer.core(call.request, &EventsReported { events_reported: reported });
    Ok(answer)
}

/// Frees an SRQ, `EBUSY` while queue pairs are on it; the events that its program has read.
pub fn free(file: &mut OpenFile, hardware: &mut Hardware, handle: u32) -> Result<u32> {
    let srq: &Srq = file.get(handle)?;
    if srq.users > 0 {
        return Err(EBUSY);
    }
    let id = srq.id;
    hardware.engine.destroy_srq(id)?;
    hardware.srqs.remove(&id);
    let Some(Object::Srq(srq)) = file.objects.remove(handle) else { return Err(EINVAL) };
    file.rings_in_use.remove(&srq.ring);
    file.get_mut::<Pd>(srq.pd)?.users -= 1;
    Ok(OpenFile::settle_events(&mut file.channels, &srq.source))
}
