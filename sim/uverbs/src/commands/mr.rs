//! Memory regions and ring registrations.

use std::rc::Rc;

use irdma_engine::spec::{Access, Generation, MemoryRegion, PdId};

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

/// Page of the device, in which rings are counted.
const PAGE: u64 = 4096;

/// `IB_MR_REREG_*`.
const REREG_TRANSLATION: u32 = 1;
const REREG_PD: u32 = 2;
const REREG_ACCESS: u32 = 4;

/// What a program asks of a region, in either form of the command.
pub struct Wanted {
    /// Handle of the PD.
    pub pd: u32,
    /// Where the memory is.
    pub start: u64,
    /// Bytes.
    pub length: u64,
    /// Address that the device is to know it under.
    pub address: u64,
    /// `IB_ACCESS_*`.
    pub access: u32,
}

/// `IB_USER_VERBS_CMD_REG_MR`.
pub fn register(call: &mut Call) -> Result<Answer> {
    let asked: RegMr = call.request.extensible(CORE_IN)?;
    call.file.context()?;
    let (handle, key) = enter(
        call,
        &Wanted {
            pd: asked.pd_handle,
            start: asked.start,
            length: asked.length,
            address: asked.hca_va,
            access: asked.access_flags,
        },
    )?;
    let mut answer = Answer::made(handle);
    answer.core(call.request, &RegMrResp { mr_handle: handle, lkey: key, rkey: key });
    Ok(answer)
}

/// Registers memory of the program, as a region or for a ring: the handle and the key.
pub fn enter(call: &mut Call, wanted: &Wanted) -> Result<(u32, u32)> {
    let page = call.hardware.profile.page_size;
    if wanted.start % page != wanted.address % page {
        return Err(EINVAL);
    }
    check_access(wanted.access)?;
    let pd = call.file.get::<Pd>(wanted.pd)?.id;
    if wanted.length > LARGEST_REGION {
        return Err(EINVAL);
    }
    let ring: MemRegReq = driver_request(call.request, size_of::<MemRegReq>())?;
    let program = call.request.program().clone();
    check_memory(&*program, wanted.start, wanted.length, wanted.access)?;
    let serial = call.hardware.serial();
    let mut mr = Mr {
        pd: wanted.pd,
        serial,
        key: None,
        address: wanted.address,
        length: wanted.length,
        access: wanted.access,
        memory: Memory::of_program(program.clone(), wanted.start, wanted.length),
    };
    if ring.reg_type == memory_type::MEM {
        mr.key = Some(create(call.hardware, &mr, pd)?);
    } else {
        let ring = check_ring(&call.hardware.profile, wanted, ring, serial, &program)?;
        call.file.rings.push(ring);
    }
    keep(call, mr)
}

/// Registers part of a dma-buf: `wanted.start` is an offset into it. Memory files (`memfd_create`)
/// stand in for dma-bufs; anything else is none.
pub fn enter_buffer(call: &mut Call, wanted: &Wanted, descriptor: i32) -> Result<(u32, u32)> {
    let page = call.hardware.profile.page_size;
    if wanted.start % page != wanted.address % page {
        return Err(EINVAL);
    }
    check_access(wanted.access)?;
    let pd = call.file.get::<Pd>(wanted.pd)?.id;
    if wanted.length > LARGEST_REGION || wanted.length == 0 {
        return Err(EINVAL);
    }
    let program = call.request.program();
    let name = program.descriptor_name(descriptor).ok_or(EBADF)?;
    if !name.starts_with("/memfd:") {
        return Err(EINVAL);
    }
    let buffer = program.open_descriptor(descriptor)?;
    let end = wanted.start.checked_add(wanted.length).ok_or(EINVAL)?;
    if end > buffer.metadata()?.len() {
        return Err(EINVAL);
    }
    let mut mr = Mr {
        pd: wanted.pd,
        serial: call.hardware.serial(),
        key: None,
        address: wanted.address,
        length: wanted.length,
        access: wanted.access,
        memory: Memory::of_file(buffer, wanted.start, wanted.length),
    };
    mr.key = Some(create(call.hardware, &mr, pd)?);
    keep(call, mr)
}

/// Gives a registration its handle.
fn keep(call: &mut Call, mr: Mr) -> Result<(u32, u32)> {
    let (pd, key) = (mr.pd, mr.key.unwrap_or(0));
    let handle = call.file.objects.insert(Object::Mr(mr));
    call.file.get_mut::<Pd>(pd)?.users += 1;
    Ok((handle, key))
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
    wanted: &Wanted,
    ring: MemRegReq,
    serial: u64,
    program: &Rc<dyn Program>,
) -> Result<Ring> {
    let offset = wanted.address % PAGE;
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
        address: wanted.address,
        memory,
        cq_pages: ring.cq_pages,
        rq_pages: ring.rq_pages,
        sq_pages: ring.sq_pages,
    })
}

/// The region as the device is told of it.
fn describe(profile: &Profile, mr: &Mr, pd: PdId) -> MemoryRegion<Memory> {
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
fn create(hardware: &mut Hardware, mr: &Mr, pd: PdId) -> Result<u32> {
    if hardware.counts.regions >= MR_COUNT {
        return Err(EOVERFLOW);
    }
    let region = describe(&hardware.profile, mr, pd);
    let key = hardware.engine.create_mr(region, None)?;
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
        hardware.engine.destroy_mr(hardware.function, key)?;
        hardware.counts.regions -= 1;
    } else if file.rings_in_use.contains(&serial) && hardware.profile.kernel >= KernelVersion::V7_2 {
        return Err(EBUSY);
    }
    file.rings.retain(|ring| ring.serial != serial);
    file.objects.remove(handle);
    file.get_mut::<Pd>(pd)?.users -= 1;
    Ok(())
}
