//! Memory regions and ring registrations.

use std::rc::Rc;

use irdma_engine::spec::{Access, Generation, MemoryRegion};

use crate::abi::core::{Handle, RegMr, RegMrResp, ReregMr, ReregMrResp};
use crate::abi::driver::{MemRegReq, memory_type};
use crate::abi::number::{CORE_IN, access};
use crate::answer::Answer;
use crate::call::{Call, Hardware};
use crate::errno::{EBADF, EBUSY, EFAULT, EINVAL, EOPNOTSUPP, EOVERFLOW, Result};
use crate::file::{OpenFile, Ring};
use crate::object::{Mr, Object, Pd, RingKind};
use crate::platform::Memory;
use crate::profile::{KernelVersion, LARGEST_REGION, MR_COUNT, Profile, Transport, feature};
use crate::program::Program;
use crate::request::driver_request;

/// Attributes of the methods of memory regions.
pub mod attribute {
    #![allow(missing_docs, reason = "the kernel's names")]
    pub const QUERY_HANDLE: u16 = 0;
    pub const QUERY_LKEY: u16 = 1;
    pub const QUERY_RKEY: u16 = 2;
    pub const QUERY_LENGTH: u16 = 3;
    pub const QUERY_IOVA: u16 = 4;
    pub const DMABUF_HANDLE: u16 = 0;
    pub const DMABUF_PD: u16 = 1;
    pub const DMABUF_OFFSET: u16 = 2;
    pub const DMABUF_LENGTH: u16 = 3;
    pub const DMABUF_IOVA: u16 = 4;
    pub const DMABUF_FD: u16 = 5;
    pub const DMABUF_ACCESS: u16 = 6;
    pub const DMABUF_LKEY: u16 = 7;
    pub const DMABUF_RKEY: u16 = 8;
}

/// Page of the device, in which rings are counted.
const PAGE: u64 = 4096;

/// `IB_MR_REREG_*`.
const REREG_TRANSLATION: u32 = 1;
const REREG_PD: u32 = 2;
const REREG_ACCESS: u32 = 4;

/// `IB_USER_VERBS_CMD_REG_MR`.
pub fn register(call: &mut Call) -> Result<Answer> {
    let wanted: RegMr = call.request.extensible(CORE_IN)?;
    let page = call.hardware.profile.page_size;
    if wanted.start % page != wanted.hca_va % page {
        return Err(EINVAL);
    }
    call.file.context()?;
    check_access(wanted.access_flags)?;
    let pd = call.file.get::<Pd>(wanted.pd_handle)?.id;
    if wanted.length > LARGEST_REGION {
        return Err(EINVAL);
    }
    let ring: MemRegReq = driver_request(call.request, size_of::<MemRegReq>())?;
    let program = call.request.program().clone();
    check_memory(&*program, wanted.start, wanted.length, wanted.access_flags)?;
    let serial = call.hardware.serial();
    let mut mr = Mr {
        pd: wanted.pd_handle,
        serial,
        key: None,
        address: wanted.hca_va,
        length: wanted.length,
        access: wanted.access_flags,
        memory: Memory::of_program(program.clone(), wanted.start, wanted.length),
    };
    if ring.reg_type == memory_type::MEM {
        mr.key = Some(create(call.hardware, &mr, pd)?);
    } else {
        let ring = check_ring(&call.hardware.profile, &wanted, ring, serial, &program)?;
        call.file.rings.push(ring);
    }
    let key = mr.key.unwrap_or(0);
    let handle = call.file.objects.insert(Object::Mr(mr));
    call.file.get_mut::<Pd>(wanted.pd_handle)?.users += 1;
    let mut answer = Answer::made(handle);
    answer.core(call.request, &RegMrResp { mr_handle: handle, lkey: key, rkey: key });
    Ok(answer)
}

/// The kernel's rules for access flags (`ib_check_mr_access`).
fn check_access(flags: u32) -> Result<()> {
    let remote_change = flags & (access::REMOTE_WRITE | access::REMOTE_ATOMIC) != 0;
    if remote_change && flags & access::LOCAL_WRITE == 0 {
        return Err(EINVAL);
    }
    if flags & !access::SUPPORTED != 0 {
        return Err(EINVAL);
    }
    if flags & (access::ON_DEMAND | access::FLUSH_GLOBAL | access::FLUSH_PERSISTENT) != 0 {
        return Err(EOPNOTSUPP);
    }
    Ok(())
}

/// Whether the program has that memory (`ib_umem_get`): it is pinned for writing if anybody may write to it.
fn check_memory(program: &dyn Program, start: u64, length: u64, flags: u32) -> Result<()> {
    let end = start.checked_add(length).and_then(|end| end.checked_next_multiple_of(PAGE));
    if length == 0 || end.is_none() {
        return Err(EINVAL);
    }
    let changing = access::LOCAL_WRITE | access::REMOTE_WRITE | access::REMOTE_ATOMIC | access::MW_BIND;
    if program.is_mapped(start, length, flags & changing != 0) { Ok(()) } else { Err(EFAULT) }
}

/// Checks a ring registration against the pages registered, as the driver does.
fn check_ring(
    profile: &Profile,
    wanted: &RegMr,
    ring: MemRegReq,
    serial: u64,
    program: &Rc<dyn Program>,
) -> Result<Ring> {
    let offset = wanted.hca_va % PAGE;
    let pages = (offset + wanted.length).div_ceil(PAGE);
    let (kind, needed) = match ring.reg_type {
        memory_type::QP => {
            // iWARP: the driver refuses memory that does not start on an OS page.
            if profile.transport == Transport::Iwarp && !wanted.start.is_multiple_of(profile.page_size) {
                return Err(EINVAL);
            }
            (RingKind::Qp, u64::from(ring.sq_pages) + u64::from(ring.rq_pages) + 1)
        }
        memory_type::CQ => {
            let shadow = u64::from(!profile.has(feature::CQ_RESIZE));
            (RingKind::Cq, u64::from(ring.cq_pages) + shadow)
        }
        memory_type::SRQ if profile.kernel >= KernelVersion::V7_2 => {
            (RingKind::Srq, u64::from(ring.rq_pages) + 1)
        }
        _ => return Err(EINVAL),
    };
    if needed > pages {
        return Err(EINVAL);
    }
    // The device is told pages, so a ring starts at the start of its first page.
    let memory = Memory::of_program(program.clone(), wanted.start - wanted.start % PAGE, pages * PAGE);
    Ok(Ring {
        serial,
        kind,
        address: wanted.hca_va,
        memory,
        cq_pages: ring.cq_pages,
        rq_pages: ring.rq_pages,
        sq_pages: ring.sq_pages,
    })
}

/// The region as the device is told of it.
fn describe(profile: &Profile, mr: &Mr, pd: u32) -> MemoryRegion<Memory> {
    let has = |flag| mr.access & flag != 0;
    // From 7.2 on the driver lets windows be bound on GEN3 only.
    let windows = profile.generation >= Generation::Gen3 || profile.kernel < KernelVersion::V7_2;
    MemoryRegion {
        pd,
        address: mr.address,
        length: mr.length,
        access: Access {
            local_write: has(access::LOCAL_WRITE),
            remote_write: has(access::REMOTE_WRITE),
            remote_read: has(access::REMOTE_READ),
            remote_atomic: has(access::REMOTE_ATOMIC) && profile.has(feature::ATOMIC_OPS),
            window_bind: has(access::MW_BIND) && windows,
            zero_based: has(access::ZERO_BASED),
        },
        backing: mr.memory.clone(),
    }
}

/// Makes the region on the device.
fn create(hardware: &mut Hardware, mr: &Mr, pd: u32) -> Result<u32> {
    if hardware.counts.regions >= MR_COUNT {
        return Err(EOVERFLOW);
    }
    let region = describe(&hardware.profile, mr, pd);
    let key = hardware.engine.create_mr(region)?;
    hardware.counts.regions += 1;
    Ok(key)
}

/// `IB_USER_VERBS_CMD_REREG_MR`.
pub fn register_again(call: &mut Call) -> Result<Answer> {
    // The driver has it since 6.7.
    if call.hardware.profile.kernel < KernelVersion::V6_12 {
        return Err(EOPNOTSUPP);
    }
    let wanted: ReregMr = call.request.extensible(CORE_IN)?;
    if wanted.flags == 0 {
        return Err(EINVAL);
    }
    if wanted.flags & !(REREG_TRANSLATION | REREG_PD | REREG_ACCESS) != 0 {
        return Err(EOPNOTSUPP);
    }
    let page = call.hardware.profile.page_size;
    if wanted.flags & REREG_TRANSLATION != 0 && wanted.start % page != wanted.hca_va % page {
        return Err(EINVAL);
    }
    let program = call.request.program().clone();
    let old: &Mr = call.file.get(wanted.mr_handle)?;
    if wanted.flags & REREG_ACCESS != 0 {
        check_access(wanted.access_flags)?;
    }
    let old_pd = old.pd;
    let new_pd = if wanted.flags & REREG_PD != 0 { wanted.pd_handle } else { old_pd };
    let pd = call.file.get::<Pd>(new_pd)?.id;
    let key = old.key.ok_or(EINVAL)?;
    if wanted.length > LARGEST_REGION {
        return Err(EINVAL);
    }
    let mut mr = Mr { pd: new_pd, memory: old.memory.clone(), ..*old };
    if wanted.flags & REREG_ACCESS != 0 {
        mr.access = wanted.access_flags;
    }
    if wanted.flags & REREG_TRANSLATION != 0 {
        check_memory(&*program, wanted.start, wanted.length, mr.access)?;
        mr.address = wanted.hca_va;
        mr.length = wanted.length;
        mr.memory = Memory::of_program(program, wanted.start, wanted.length);
    }
    let region = describe(&call.hardware.profile, &mr, pd);
    call.hardware.engine.update_mr(key, region)?;
    *call.file.get_mut::<Mr>(wanted.mr_handle)? = mr;
    call.file.get_mut::<Pd>(old_pd)?.users -= 1;
    call.file.get_mut::<Pd>(new_pd)?.users += 1;
    let mut answer = Answer::new();
    answer.core(call.request, &ReregMrResp { lkey: key, rkey: key });
    Ok(answer)
}

/// `UVERBS_METHOD_REG_DMABUF_MR`. Memory files (`memfd_create`) stand in for dma-bufs; anything else is none.
pub fn register_dmabuf(call: &mut Call) -> Result<Answer> {
    use attribute as a;
    let request = call.request;
    // The driver has it since 6.4.
    if call.hardware.profile.kernel < KernelVersion::V6_12 {
        return Err(EOPNOTSUPP);
    }
    let pd_handle = request.handle(a::DMABUF_PD)?;
    let pd = call.file.get::<Pd>(pd_handle)?.id;
    let [offset, length, address] = [
        u64::from_le_bytes(request.truncated(a::DMABUF_OFFSET)?),
        u64::from_le_bytes(request.truncated(a::DMABUF_LENGTH)?),
        u64::from_le_bytes(request.truncated(a::DMABUF_IOVA)?),
    ];
    let page = call.hardware.profile.page_size;
    if offset % page != address % page {
        return Err(EINVAL);
    }
    let allowed = access::LOCAL_WRITE
        | access::REMOTE_READ
        | access::REMOTE_WRITE
        | access::REMOTE_ATOMIC
        | access::RELAXED_ORDERING;
    let flags = request.flags(a::DMABUF_ACCESS, allowed)?;
    check_access(flags)?;
    if length > LARGEST_REGION || length == 0 {
        return Err(EINVAL);
    }
    let descriptor = request.descriptor(a::DMABUF_FD)?;
    let name = request.program().descriptor_name(descriptor).ok_or(EBADF)?;
    if !name.starts_with("/memfd:") {
        return Err(EINVAL);
    }
    let buffer = request.program().open_descriptor(descriptor)?;
    let end = offset.checked_add(length).ok_or(EINVAL)?;
    if end > buffer.metadata()?.len() {
        return Err(EINVAL);
    }
    let serial = call.hardware.serial();
    let memory = Memory::of_file(buffer, offset, length);
    let mut mr = Mr { pd: pd_handle, serial, key: None, address, length, access: flags, memory };
    let key = create(call.hardware, &mr, pd)?;
    mr.key = Some(key);
    let handle = call.file.objects.insert(Object::Mr(mr));
    call.file.get_mut::<Pd>(pd_handle)?.users += 1;
    let mut answer = Answer::made(handle);
    answer.put_handle(request, a::DMABUF_HANDLE, handle)?;
    answer.put(request, a::DMABUF_LKEY, &key.to_le_bytes())?;
    answer.put(request, a::DMABUF_RKEY, &key.to_le_bytes())?;
    Ok(answer)
}

/// `UVERBS_METHOD_QUERY_MR`.
pub fn query(call: &mut Call) -> Result<Answer> {
    use attribute as a;
    let mr: &Mr = call.file.get(call.request.handle(a::QUERY_HANDLE)?)?;
    let key = mr.key.unwrap_or(0).to_le_bytes();
    let mut answer = Answer::new();
    answer.put(call.request, a::QUERY_LKEY, &key)?;
    answer.put(call.request, a::QUERY_RKEY, &key)?;
    answer.put(call.request, a::QUERY_LENGTH, &mr.length.to_le_bytes())?;
    answer.offer(call.request, a::QUERY_IOVA, &mr.address.to_le_bytes());
    Ok(answer)
}

/// `UVERBS_METHOD_MR_DESTROY`.
pub fn destroy(call: &mut Call) -> Result<Answer> {
    free(call.file, call.hardware, call.request.handle(0)?)?;
    Ok(Answer::new())
}

/// `IB_USER_VERBS_CMD_DEREG_MR`.
pub fn destroy_old(call: &mut Call) -> Result<Answer> {
    let wanted: Handle = call.request.extensible(CORE_IN)?;
    free(call.file, call.hardware, wanted.handle)?;
    Ok(Answer::new())
}

/// Frees a region (`EBUSY` while windows are bound to it) or a ring
/// registration (from 7.2 on `EBUSY` while a queue uses it).
pub fn free(file: &mut OpenFile, hardware: &mut Hardware, handle: u32) -> Result<()> {
    let mr: &Mr = file.get(handle)?;
    let (pd, serial) = (mr.pd, mr.serial);
    if let Some(key) = mr.key {
        hardware.engine.destroy_mr(key)?;
        hardware.counts.regions -= 1;
    } else if file.rings_in_use.contains(&serial) && hardware.profile.kernel >= KernelVersion::V7_2 {
        return Err(EBUSY);
    }
    file.rings.retain(|ring| ring.serial != serial);
    file.objects.remove(handle);
    file.get_mut::<Pd>(pd)?.users -= 1;
    Ok(())
}
