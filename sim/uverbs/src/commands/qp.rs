//! Queue pairs: create, query, destroy.

use irdma_engine::spec::{Generation, QpSpec, QpState, Service, Span};

use crate::abi::core::{CreateQp, CreateQpResp, DestroyWithAnswer, EventsReported, QpCap};
use crate::abi::driver::{CreateQpReq, CreateQpResp as DriverResp, qp_caps};
use crate::abi::number::{CORE_IN, DRIVER_OUT};
use crate::answer::Answer;
use crate::call::{Call, Hardware};
use crate::errno::{EBUSY, EINVAL, ENODATA, ENOENT, EOPNOTSUPP, EOVERFLOW, EPERM, Result};
use crate::events::ChannelId;
use crate::file::{Context, OpenFile};
use crate::object::{Cq, EventSource, IbState, Object, Pd, Qp, QpAttributes, QpKind, RingKind, Srq};
use crate::profile::{Profile, QP_COUNT, QueueSize, Transport};
use crate::request::{driver_request, driver_room};

/// `enum uverbs_attrs_create_qp_cmd_attr_ids`, and the answer to destroy.
pub mod attribute {
    #![allow(missing_docs, reason = "the kernel's names")]
    pub const HANDLE: u16 = 0;
    pub const PD_HANDLE: u16 = 2;
    pub const SRQ_HANDLE: u16 = 3;
    pub const SEND_CQ_HANDLE: u16 = 4;
    pub const RECV_CQ_HANDLE: u16 = 5;
    pub const USER_HANDLE: u16 = 7;
    pub const CAP: u16 = 8;
    pub const TYPE: u16 = 9;
    pub const FLAGS: u16 = 10;
    pub const SOURCE_QPN: u16 = 11;
    pub const EVENT_FD: u16 = 12;
    pub const RESP_CAP: u16 = 13;
    pub const RESP_QP_NUM: u16 = 14;
    pub const DESTROY_RESP: u16 = 1;
}

/// `enum ib_qp_type`.
mod kind {
    pub const RC: u64 = 2;
    pub const UC: u64 = 3;
    pub const UD: u64 = 4;
    pub const RAW_PACKET: u64 = 8;
    pub const XRC_INI: u64 = 9;
    pub const XRC_TGT: u64 = 10;
    pub const DRIVER: u64 = 0xff;
}

/// `IB_UVERBS_QP_CREATE_*`.
mod flag {
    pub const BLOCK_MULTICAST_LOOPBACK: u32 = 1 << 1;
    pub const SCATTER_FCS: u32 = 1 << 8;
    pub const CVLAN_STRIPPING: u32 = 1 << 9;
    pub const PCI_WRITE_END_PADDING: u32 = 1 << 11;
    pub const SQ_SIG_ALL: u32 = 1 << 12;
    pub const ALL: u32 =
        BLOCK_MULTICAST_LOOPBACK | SCATTER_FCS | CVLAN_STRIPPING | PCI_WRITE_END_PADDING | SQ_SIG_ALL;
}

/// Bytes of a page of the device.
const PAGE: u64 = 4096;
/// Bytes of a quantum.
const QUANTUM: u64 = 32;
/// Bytes of a shadow area.
const SHADOW: u64 = 64;
/// Room below which the driver takes the program for the legacy one: up to `rsvd`.
const LEGACY_ROOM: usize = 20;
/// `IRDMA_INVALID_PUSH_PAGE_INDEX_GEN_1`.
const NO_PUSH_PAGE: u16 = 0xffff;
/// Receive work requests of a QP on an SRQ, by which the driver sizes its unused receive queue.
const RECEIVES_WITH_SRQ: u32 = 4;
/// Retries that the driver sets until the program says otherwise.
const DEFAULT_RETRIES: u8 = 2;
/// `IB_MTU_1024`.
const MTU_1024: u8 = 3;

/// What a program asks of a QP, in either form of the command.
struct Wanted {
    kind: u64,
    pd: u32,
    send_cq: u32,
    recv_cq: u32,
    srq: Option<u32>,
    cap: QpCap,
    flags: u32,
    user_handle: u64,
    event_channel: Option<ChannelId>,
}

/// `UVERBS_METHOD_QP_CREATE`.
pub fn create(call: &mut Call) -> Result<Answer> {
    use attribute as a;
    let request = call.request;
    let cap: QpCap = request.truncated(a::CAP)?;
    let user_handle = u64::from_le_bytes(request.truncated(a::USER_HANDLE)?);
    let kind = request.constant(a::TYPE, u64::from(u32::MAX))?;
    check_kind(kind)?;
    // A missing one is ENOENT, as any handle that leads nowhere.
    let (pd, send_cq) = (request.handle(a::PD_HANDLE)?, request.handle(a::SEND_CQ_HANDLE)?);
    let recv_cq = if kind == kind::XRC_INI { send_cq } else { request.handle(a::RECV_CQ_HANDLE)? };
    let flags = request.flags(a::FLAGS, flag::ALL)?;
    check_flags(kind, flags)?;
    if request.has(a::SOURCE_QPN) {
        return Err(EOPNOTSUPP);
    }
    let srq = request.has(a::SRQ_HANDLE).then(|| request.handle(a::SRQ_HANDLE)).transpose()?;
    let event_channel = request.channel(a::EVENT_FD).or(call.file.default_events);
    let wanted = Wanted { kind, pd, send_cq, recv_cq, srq, cap, flags, user_handle, event_channel };
    let made = make(call, &wanted)?;
    let mut answer = Answer::made(made.handle);
    answer.put_handle(request, a::HANDLE, made.handle)?;
    answer.fill(request, a::RESP_CAP, &made.cap)?;
    answer.put(request, a::RESP_QP_NUM, &made.told.qp_id.to_le_bytes())?;
    answer.driver(request, &made.told);
    Ok(answer)
}

/// `IB_USER_VERBS_CMD_CREATE_QP`.
pub fn create_old(call: &mut Call) -> Result<Answer> {
    let asked: CreateQp = call.request.extensible(CORE_IN)?;
    let kind = u64::from(asked.qp_type);
    check_kind(kind)?;
    call.file.context()?;
    let wanted = Wanted {
        kind,
        pd: asked.pd_handle,
        send_cq: asked.send_cq_handle,
        recv_cq: asked.recv_cq_handle,
        srq: (asked.is_srq != 0).then_some(asked.srq_handle),
        cap: asked.cap,
        flags: if asked.sq_sig_all != 0 { flag::SQ_SIG_ALL } else { 0 },
        user_handle: asked.user_handle,
        event_channel: call.file.default_events,
    };
    let made = make(call, &wanted)?;
    let mut answer = Answer::made(made.handle);
    answer.core(
        call.request,
        &CreateQpResp { qp_handle: made.handle, qpn: made.told.qp_id, cap: made.cap, reserved: 0 },
    );
    answer.driver(call.request, &made.told);
    Ok(answer)
}

/// Types that the core knows; raw packets take a privilege that no program has here.
fn check_kind(kind: u64) -> Result<()> {
    match kind {
        kind::RAW_PACKET => Err(EPERM),
        // The core looks for an XRC domain, of which there is none.
        kind::XRC_TGT => Err(ENOENT),
        kind::RC | kind::UC | kind::UD | kind::XRC_INI | kind::DRIVER => Ok(()),
        _ => Err(EINVAL),
    }
}

/// Flags that the core takes with a type; the driver takes none.
fn check_flags(kind: u64, flags: u32) -> Result<()> {
    let flags = flags & !flag::SQ_SIG_ALL;
    if flags == 0 || kind == kind::DRIVER {
        return Ok(());
    }
    if kind != kind::UD || flags & (flag::SCATTER_FCS | flag::CVLAN_STRIPPING) != 0 {
        return Err(EINVAL);
    }
    Ok(())
}

/// A queue pair just made.
struct Made {
    handle: u32,
    cap: QpCap,
    told: DriverResp,
}

/// Makes a QP.
fn make(call: &mut Call, wanted: &Wanted) -> Result<Made> {
    let hardware = &mut *call.hardware;
    let profile = &hardware.profile;
    let context = call.file.context()?;
    let srq = wanted.srq.map(|handle| call.file.get::<Srq>(handle).map(|srq| srq.id)).transpose()?;
    let recv_cq = call.file.get::<Cq>(wanted.recv_cq)?.id;
    let send_cq = call.file.get::<Cq>(wanted.send_cq)?.id;
    let pd = call.file.get::<Pd>(wanted.pd)?.id;
    let mut cap = wanted.cap;
    if srq.is_some() {
        cap.max_recv_sge = profile.limits().fragments;
        cap.max_recv_wr = RECEIVES_WITH_SRQ;
    }
    let kind = check_attributes(profile, wanted, &cap)?;
    let rings: CreateQpReq = driver_request(call.request, size_of::<CreateQpReq>())?;
    driver_room(call.request, LEGACY_ROOM)?;
    if hardware.qps.len() >= QP_COUNT as usize {
        return Err(EOVERFLOW);
    }
    let ring = call.file.take_ring(RingKind::Qp, rings.user_wqe_bufs).ok_or(ENODATA)?;
    let (sq, rq) = queue_sizes(profile, context, &cap)?;
    let (sq_bytes, rq_bytes) = (u64::from(ring.sq_pages) * PAGE, u64::from(ring.rq_pages) * PAGE);
    let generation = profile.generation;
    let roce = profile.transport == Transport::Roce;
    let i40iw = profile.legacy.is_some();
    let inbound = profile.limits().inbound_reads;
    let outbound = profile.limits().outbound_reads;
    let service = match (roce, kind) {
        (false, _) => Service::Iwarp,
        (true, QpKind::Rc) => Service::ReliableConnection,
        (true, QpKind::Ud) => Service::UnreliableDatagram,
    };
    let spec = QpSpec {
        pd,
        service,
        send_cq,
        recv_cq,
        srq,
        sq: Span { backing: ring.memory.part(0, sq_bytes.min(u64::from(sq.quanta) * QUANTUM)), offset: 0 },
        sq_quanta: sq.quanta,
        rq: Span {
            backing: ring.memory.part(sq_bytes, rq_bytes.min(u64::from(rq.quanta) * QUANTUM)),
            offset: 0,
        },
        rq_quanta: rq.quanta,
        rq_wqe_quanta: 1 << rq.shift,
        shadow: Span { backing: ring.memory.part(sq_bytes + rq_bytes, SHADOW), offset: 0 },
        completion_context: rings.user_compl_ctx,
        privileged: None,
    };
    let id = hardware.engine.create_qp(spec, None)?;
    let qp = Qp {
        id,
        source: EventSource {
            serial: hardware.serial(),
            user_handle: wanted.user_handle,
            channel: wanted.event_channel,
            sent: 0,
        },
        kind,
        pd: wanted.pd,
        send_cq: wanted.send_cq,
        recv_cq: wanted.recv_cq,
        srq: wanted.srq,
        completion_context: rings.user_compl_ctx,
        state: IbState::Reset,
        hardware: QpState::Reset,
        cap: QpCap { max_send_wr: sq.work_requests, max_recv_wr: rq.work_requests, ..cap },
        attributes: QpAttributes {
            path_mtu: MTU_1024,
            retry_count: DEFAULT_RETRIES,
            rnr_retry: DEFAULT_RETRIES,
            max_rd_atomic: outbound,
            max_dest_rd_atomic: inbound,
            ..QpAttributes::default()
        },
        port: 0,
        flush_issued: false,
        notify_drained: false,
        groups: Vec::new(),
        ring: ring.serial,
        push_page: None,
        push_told: false,
        connected: false,
    };
    call.file.rings_in_use.insert(ring.serial);
    let handle = call.file.objects.insert(Object::Qp(Box::new(qp)));
    call.file.get_mut::<Pd>(wanted.pd)?.users += 1;
    call.file.get_mut::<Cq>(wanted.send_cq)?.users += 1;
    call.file.get_mut::<Cq>(wanted.recv_cq)?.users += 1;
    if let Some(srq) = wanted.srq {
        call.file.get_mut::<Srq>(srq)?.users += 1;
    }
    hardware.qps.insert(id, (call.file.token, handle));
    let legacy = i40iw || call.request.length(DRIVER_OUT) < size_of::<DriverResp>();
    let told = DriverResp {
        qp_id: id.number,
        actual_sq_size: sq.entries(),
        actual_rq_size: rq.entries(),
        irdma_drv_opt: 0,
        push_idx: if legacy { NO_PUSH_PAGE } else { 0 },
        lsmm: u8::from(legacy || !roce),
        rsvd: 0,
        // The old kernel's answer ends before it.
        qp_caps: if i40iw { 0 } else { capabilities(generation, service) },
    };
    Ok(Made { handle, cap, told })
}

/// What the driver checks before it looks for memory (`irdma_validate_qp_attrs`).
fn check_attributes(profile: &Profile, wanted: &Wanted, cap: &QpCap) -> Result<QpKind> {
    let limits = profile.limits();
    if wanted.flags & !flag::SQ_SIG_ALL != 0 {
        return Err(EOPNOTSUPP);
    }
    if cap.max_inline_data > limits.inline_bytes
        || cap.max_send_sge > limits.fragments
        || cap.max_recv_sge > limits.fragments
        || cap.max_send_wr > limits.sq_quanta
        || cap.max_recv_wr > limits.rq_quanta
    {
        return Err(EINVAL);
    }
    match (wanted.kind, profile.transport) {
        (kind::RC, _) => Ok(QpKind::Rc),
        (kind::UD, Transport::Roce) => Ok(QpKind::Ud),
        _ => Err(EOPNOTSUPP),
    }
}

/// Sizes of both queues. Programs without raw attributes say depths in WQEs where others say work requests.
fn queue_sizes(profile: &Profile, context: Context, cap: &QpCap) -> Result<(QueueSize, QueueSize)> {
    let sq_shift = profile.sq_shift(cap.max_send_sge, cap.max_inline_data);
    let rq_shift = profile.rq_shift(cap.max_recv_sge, context.abi);
    if context.raw_attributes {
        let sq = profile.sq_size(cap.max_send_wr, sq_shift).ok_or(EINVAL)?;
        let rq = profile.rq_size(cap.max_recv_wr, rq_shift).ok_or(EINVAL)?;
        return Ok((sq, rq));
    }
    let depth = |entries: u32, shift: u8| -> Result<QueueSize> {
        let quanta = entries.checked_mul(1 << shift).ok_or(EINVAL)?;
        Ok(QueueSize { quanta, shift, work_requests: entries })
    };
    Ok((depth(cap.max_send_wr, sq_shift)?, depth(cap.max_recv_wr, rq_shift)?))
}

/// `qp_caps` of a service.
fn capabilities(generation: Generation, service: Service) -> u32 {
    let immediate = match service {
        Service::ReliableConnection => qp_caps::WRITE_WITH_IMM | qp_caps::SEND_WITH_IMM | qp_caps::ROCE,
        Service::UnreliableDatagram => qp_caps::SEND_WITH_IMM | qp_caps::ROCE,
        Service::Iwarp => qp_caps::WRITE_WITH_IMM,
    };
    // Set although drivers give out no push pages.
    if generation > Generation::Gen1 { immediate | qp_caps::PUSH_MODE } else { immediate }
}

/// `UVERBS_METHOD_QP_DESTROY`.
pub fn destroy(call: &mut Call) -> Result<Answer> {
    let handle = call.request.handle(0)?;
    let reported = destroy_detached(call, handle)?;
    let mut answer = Answer::new();
    answer.put(call.request, attribute::DESTROY_RESP, &EventsReported { events_reported: reported })?;
    Ok(answer)
}

/// `IB_USER_VERBS_CMD_DESTROY_QP`.
pub fn destroy_old(call: &mut Call) -> Result<Answer> {
    let wanted: DestroyWithAnswer = call.request.extensible(CORE_IN)?;
    let reported = destroy_detached(call, wanted.handle)?;
    let mut answer = Answer::new();
    answer.core(call.request, &EventsReported { events_reported: reported });
    Ok(answer)
}

/// A program must leave multicast groups before it destroys a QP.
fn destroy_detached(call: &mut Call, handle: u32) -> Result<u32> {
    if !call.file.get::<Qp>(handle)?.groups.is_empty() {
        return Err(EBUSY);
    }
    free(call.file, call.hardware, handle)
}

/// Frees a QP, wherever it is still attached; the events that its program has read.
pub fn free(file: &mut OpenFile, hardware: &mut Hardware, handle: u32) -> Result<u32> {
    let qp: &mut Qp = file.get_mut(handle)?;
    qp.lose_connection(&mut hardware.lost);
    while let Some((gid, _)) = qp.groups.pop() {
        super::multicast::leave(hardware, qp, gid);
    }
    hardware.engine.destroy_qp(qp.id)?;
    hardware.qps.remove(&qp.id);
    let Some(Object::Qp(qp)) = file.objects.remove(handle) else { return Err(EINVAL) };
    file.rings_in_use.remove(&qp.ring);
    if let Some(page) = qp.push_page {
        hardware.pushes.free(page);
    }
    file.get_mut::<Pd>(qp.pd)?.users -= 1;
    file.get_mut::<Cq>(qp.send_cq)?.users -= 1;
    file.get_mut::<Cq>(qp.recv_cq)?.users -= 1;
    if let Some(srq) = qp.srq {
        file.get_mut::<Srq>(srq)?.users -= 1;
    }
    Ok(OpenFile::settle_events(&mut file.channels, &qp.source))
}
