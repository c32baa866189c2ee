//! Completion queues.

use irdma_engine::spec::{CqRing, CqSpec, Generation, Span};

use crate::abi::core::{CreateCq, CreateCqResp, DestroyCqResp, DestroyWithAnswer, ResizeCq, ResizeCqResp};
use crate::abi::driver::{CreateCqReq, CreateCqResp as DriverResp, ResizeCqReq};
use crate::abi::number::CORE_IN;
use crate::answer::Answer;
use crate::call::{Call, Hardware};
use crate::errno::{EBADF, EBUSY, EINVAL, ENOMEM, EOPNOTSUPP, EOVERFLOW, EPROTO, Result};
use crate::events::{ChannelId, ChannelKind};
use crate::file::OpenFile;
use crate::object::{Cq, EventSource, Object, RingKind};
use crate::platform::Memory;
use crate::profile::{COMPLETION_VECTORS, CQ_COUNT, Profile, feature};
use crate::request::{driver_request, driver_room};

/// `enum uverbs_attrs_create_cq_cmd_attr_ids`, and the answer to destroy.
pub mod attribute {
    #![allow(missing_docs, reason = "the kernel's names")]
    pub const HANDLE: u16 = 0;
    pub const CQE: u16 = 1;
    pub const USER_HANDLE: u16 = 2;
    pub const COMP_CHANNEL: u16 = 3;
    pub const COMP_VECTOR: u16 = 4;
    pub const FLAGS: u16 = 5;
    pub const RESP_CQE: u16 = 6;
    pub const EVENT_FD: u16 = 7;
    pub const DESTROY_RESP: u16 = 1;
}

/// `IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION`.
const TIMESTAMP: u32 = 1;
/// `IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN`.
const IGNORE_OVERRUN: u32 = 2;

/// Fewest CQEs of a CQ.
const SMALLEST: u32 = 4;
/// Bytes of a shadow area.
const SHADOW: u64 = 64;
/// Bytes of a page of the device.
const PAGE: u64 = 4096;

/// What a program asks of a CQ, in either form of the command.
struct Wanted {
    cqe: u32,
    vector: u32,
    flags: u32,
    user_handle: u64,
    completion_channel: Option<ChannelId>,
    event_channel: Option<ChannelId>,
}

/// `UVERBS_METHOD_CQ_CREATE`.
pub fn create(call: &mut Call) -> Result<Answer> {
    use attribute as a;
    let request = call.request;
    let vector = u32::from_le_bytes(request.truncated(a::COMP_VECTOR)?);
    let cqe = u32::from_le_bytes(request.truncated(a::CQE)?);
    if cqe == 0 {
        return Err(EINVAL);
    }
    let wanted = Wanted {
        cqe,
        vector,
        flags: request.flags(a::FLAGS, TIMESTAMP | IGNORE_OVERRUN)?,
        user_handle: u64::from_le_bytes(request.truncated(a::USER_HANDLE)?),
        completion_channel: request.channel(a::COMP_CHANNEL),
        event_channel: request.channel(a::EVENT_FD).or(call.file.default_events),
    };
    let (handle, entries, id) = make(call, &wanted)?;
    let mut answer = Answer::made(handle);
    answer.put_handle(request, a::HANDLE, handle)?;
    answer.put(request, a::RESP_CQE, &entries.to_le_bytes())?;
    answer.driver(request, &DriverResp { cq_id: id, cq_size: entries });
    Ok(answer)
}

/// `IB_USER_VERBS_CMD_CREATE_CQ`.
pub fn create_old(call: &mut Call) -> Result<Answer> {
    let asked: CreateCq = call.request.extensible(CORE_IN)?;
    if asked.cqe == 0 {
        return Err(EINVAL);
    }
    call.file.context()?;
    let mut completion_channel = None;
    if asked.comp_channel >= 0 {
        let id = call.file.channel_of(&**call.request.program(), asked.comp_channel).ok_or(EBADF)?;
        match call.file.channels.get(&id) {
            Some(channel) if channel.kind() == ChannelKind::Completion => completion_channel = Some(id),
            _ => return Err(EBADF),
        }
    }
    let wanted = Wanted {
        cqe: asked.cqe,
        vector: asked.comp_vector,
        flags: 0,
        user_handle: asked.user_handle,
        completion_channel,
        event_channel: call.file.default_events,
    };
    let (handle, entries, id) = make(call, &wanted)?;
    let mut answer = Answer::made(handle);
    answer.core(call.request, &CreateCqResp { cq_handle: handle, cqe: entries });
    answer.driver(call.request, &DriverResp { cq_id: id, cq_size: entries });
    Ok(answer)
}

/// Creation flags that the driver has.
fn known_flags(profile: &Profile) -> u32 {
    if profile.generation >= Generation::Gen3 { TIMESTAMP } else { 0 }
}

/// Makes a CQ: its handle, CQEs and number.
fn make(call: &mut Call, wanted: &Wanted) -> Result<(u32, u32, u32)> {
    let hardware = &mut *call.hardware;
    if wanted.vector >= COMPLETION_VECTORS {
        return Err(EINVAL);
    }
    if wanted.flags & !known_flags(&hardware.profile) != 0 {
        return Err(EOPNOTSUPP);
    }
    // The ring's address must be there; the shadow area's only where it is one of its own.
    let rings: CreateCqReq = driver_request(call.request, 8)?;
    driver_room(call.request, size_of::<DriverResp>())?;
    if hardware.cqs.len() >= CQ_COUNT as usize {
        return Err(EOVERFLOW);
    }
    let ring = call.file.take_ring(RingKind::Cq, rings.user_cq_buf).ok_or(EPROTO)?;
    let ring_bytes = u64::from(ring.cq_pages) * PAGE;
    let (shadow, shadow_serial) = if hardware.profile.has(feature::CQ_RESIZE) {
        let shadow = call.file.take_ring(RingKind::Cq, rings.user_shadow_area).ok_or(EPROTO)?;
        (shadow.memory.part(0, SHADOW), Some(shadow.serial))
    } else {
        (ring.memory.part(ring_bytes, SHADOW), None)
    };
    let entries = wanted.cqe.max(SMALLEST);
    let spec = CqSpec {
        ring: span_of_entries(ring.memory.part(0, ring_bytes), entries),
        shadow: Span { backing: shadow, offset: 0 },
        slot_bytes: hardware.profile.cqe_size(),
    };
    let id = hardware.engine.create_cq(hardware.function, spec, None)?;
    let cq = Cq {
        id,
        source: EventSource {
            serial: hardware.serial(),
            user_handle: wanted.user_handle,
            channel: wanted.event_channel,
            sent: 0,
        },
        completion_channel: wanted.completion_channel,
        completions_sent: 0,
        entries,
        reported: entries,
        ring: ring.serial,
        shadow: shadow_serial,
        users: 0,
    };
    call.file.rings_in_use.insert(ring.serial);
    call.file.rings_in_use.extend(shadow_serial);
    let handle = call.file.objects.insert(Object::Cq(cq));
    hardware.cqs.insert(id, (call.file.token, handle));
    Ok((handle, entries, id.number))
}

/// A ring at the start of some memory.
fn span_of_entries(memory: Memory, entries: u32) -> CqRing<Memory> {
    CqRing { ring: Span { backing: memory, offset: 0 }, entries }
}

/// `IB_USER_VERBS_CMD_RESIZE_CQ`.
pub fn resize(call: &mut Call) -> Result<Answer> {
    let wanted: ResizeCq = call.request.extensible(CORE_IN)?;
    if wanted.cqe == 0 {
        return Err(EINVAL);
    }
    let cq: &Cq = call.file.get(wanted.cq_handle)?;
    let (id, old_ring, old_entries, reported) = (cq.id, cq.ring, cq.entries, cq.reported);
    let hardware = &mut *call.hardware;
    if !hardware.profile.has(feature::CQ_RESIZE) {
        return Err(EOPNOTSUPP);
    }
    let rings: ResizeCqReq = driver_request(call.request, size_of::<ResizeCqReq>())?;
    if wanted.cqe > hardware.profile.limits().cq_entries {
        return Err(EINVAL);
    }
    let entries = wanted.cqe.max(SMALLEST);
    let mut answer = Answer::new();
    // Nothing to do if it has that size; the driver compares with one less.
    if entries == old_entries.wrapping_sub(1) {
        answer.core(call.request, &ResizeCqResp { cqe: reported, reserved: 0 });
        return Ok(answer);
    }
    let ring = call.file.take_ring(RingKind::Cq, rings.user_cq_buffer).ok_or(ENOMEM)?;
    let memory = ring.memory.part(0, u64::from(ring.cq_pages) * PAGE);
    hardware.engine.resize_cq(id, span_of_entries(memory, entries))?;
    call.file.rings_in_use.remove(&old_ring);
    call.file.rings_in_use.insert(ring.serial);
    let cq: &mut Cq = call.file.get_mut(wanted.cq_handle)?;
    cq.ring = ring.serial;
    cq.entries = entries;
    cq.reported = entries - 1;
    answer.core(call.request, &ResizeCqResp { cqe: cq.reported, reserved: 0 });
    Ok(answer)
}

/// `UVERBS_METHOD_CQ_DESTROY`.
pub fn destroy(call: &mut Call) -> Result<Answer> {
    let reported = free(call.file, call.hardware, call.request.handle(0)?)?;
    let mut answer = Answer::new();
    answer.put(call.request, attribute::DESTROY_RESP, &reported)?;
    Ok(answer)
}

/// `IB_USER_VERBS_CMD_DESTROY_CQ`.
pub fn destroy_old(call: &mut Call) -> Result<Answer> {
    let wanted: DestroyWithAnswer = call.request.extensible(CORE_IN)?;
    let reported = free(call.file, call.hardware, wanted.handle)?;
    let mut answer = Answer::new();
    answer.core(call.request, &reported);
    Ok(answer)
}

/// Frees a CQ, `EBUSY` while queue pairs use it; the events that its program has read.
pub fn free(file: &mut OpenFile, hardware: &mut Hardware, handle: u32) -> Result<DestroyCqResp> {
    let cq: &Cq = file.get(handle)?;
    if cq.users > 0 {
        return Err(EBUSY);
    }
    let id = cq.id;
    hardware.engine.destroy_cq(id)?;
    hardware.cqs.remove(&id);
    let Some(Object::Cq(cq)) = file.objects.remove(handle) else { return Err(EINVAL) };
    file.rings_in_use.remove(&cq.ring);
    if let Some(shadow) = cq.shadow {
        file.rings_in_use.remove(&shadow);
    }
    let withdrawn = cq
        .completion_channel
        .and_then(|id| file.channels.get_mut(&id))
        .map_or(0, |channel| channel.withdraw(cq.source.serial));
    Ok(DestroyCqResp {
        comp_events_reported: cq.completions_sent - withdrawn,
        async_events_reported: OpenFile::settle_events(&mut file.channels, &cq.source),
    })
}
