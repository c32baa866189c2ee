//! Memory windows.

use irdma_engine::spec::{Generation, WindowKind};

use crate::abi::core::{AllocMw, AllocMwResp, Handle};
use crate::abi::number::CORE_IN;
use crate::answer::Answer;
use crate::call::{Call, Hardware};
use crate::errno::{EINVAL, EOPNOTSUPP, EOVERFLOW, Result};
use crate::file::OpenFile;
use crate::object::{Mw, Object, Pd};
use crate::profile::{KernelVersion, MR_COUNT, Profile};

/// Whether the driver has windows: from 7.2 on on GEN3 only.
pub fn supported(profile: &Profile) -> bool {
    profile.generation >= Generation::Gen3 || profile.kernel < KernelVersion::V7_2
}

/// `IB_USER_VERBS_CMD_ALLOC_MW`.
pub fn allocate(call: &mut Call) -> Result<Answer> {
    if !supported(&call.hardware.profile) {
        return Err(EOPNOTSUPP);
    }
    let wanted: AllocMw = call.request.extensible(CORE_IN)?;
    let pd = call.file.get::<Pd>(wanted.pd_handle)?.id;
    let kind = match wanted.mw_type {
        1 => WindowKind::Type1,
        2 => WindowKind::Type2,
        _ => return Err(EINVAL),
    };
    if call.hardware.counts.regions >= MR_COUNT {
        return Err(EOVERFLOW);
    }
    let key = call.hardware.engine.create_mw(pd, kind, None)?;
    call.hardware.counts.regions += 1;
    let handle = call.file.objects.insert(Object::Mw(Mw { pd: wanted.pd_handle, key }));
    call.file.get_mut::<Pd>(wanted.pd_handle)?.users += 1;
    let mut answer = Answer::made(handle);
    answer.core(call.request, &AllocMwResp { mw_handle: handle, rkey: key });
    Ok(answer)
}

/// `UVERBS_METHOD_MW_DESTROY`.
pub fn destroy(call: &mut Call) -> Result<Answer> {
    free(call.file, call.hardware, call.request.handle(0)?)?;
    Ok(Answer::new())
}

/// `IB_USER_VERBS_CMD_DEALLOC_MW`.
pub fn destroy_old(call: &mut Call) -> Result<Answer> {
    let wanted: Handle = call.request.extensible(CORE_IN)?;
    free(call.file, call.hardware, wanted.handle)?;
    Ok(Answer::new())
}

/// Frees a window.
pub fn free(file: &mut OpenFile, hardware: &mut Hardware, handle: u32) -> Result<()> {
    let mw: &Mw = file.get(handle)?;
    let pd = mw.pd;
    hardware.engine.destroy_mw(hardware.function, mw.key)?;
    hardware.counts.regions -= 1;
    file.objects.remove(handle);
    file.get_mut::<Pd>(pd)?.users -= 1;
    Ok(())
}
