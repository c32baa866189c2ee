//! Protection domains.

use crate::abi::core::{AllocPd, AllocPdResp, Handle};
use crate::abi::driver::AllocPdResp as DriverResp;
use crate::abi::number::CORE_IN;
use crate::answer::Answer;
use crate::call::{Call, Hardware};
use crate::errno::{EBUSY, EOVERFLOW, Result};
use crate::file::OpenFile;
use crate::object::{Object, Pd};
use crate::profile::PD_COUNT;
use crate::request::driver_room;

/// Room the driver's answer needs at least.
const LEAST_ANSWER: usize = size_of::<DriverResp>();

/// `IB_USER_VERBS_CMD_ALLOC_PD`.
pub fn allocate(call: &mut Call) -> Result<Answer> {
    call.request.extensible::<AllocPd>(CORE_IN)?;
    call.file.context()?;
    driver_room(call.request, LEAST_ANSWER)?;
    if call.hardware.counts.pds >= PD_COUNT {
        return Err(EOVERFLOW);
    }
    let id = call.hardware.engine.create_pd(call.hardware.function, None)?;
    call.hardware.counts.pds += 1;
    let handle = call.file.objects.insert(Object::Pd(Pd { id, users: 0 }));
    let mut answer = Answer::made(handle);
    answer.core(call.request, &AllocPdResp { pd_handle: handle });
    answer.driver(call.request, &DriverResp { pd_id: id.number, ..DriverResp::default() });
    Ok(answer)
}

/// `UVERBS_METHOD_PD_DESTROY`.
pub fn destroy(call: &mut Call) -> Result<Answer> {
    free(call.file, call.hardware, call.request.handle(0)?)?;
    Ok(Answer::new())
}

/// `IB_USER_VERBS_CMD_DEALLOC_PD`.
pub fn destroy_old(call: &mut Call) -> Result<Answer> {
    let wanted: Handle = call.request.extensible(CORE_IN)?;
    free(call.file, call.hardware, wanted.handle)?;
    Ok(Answer::new())
}

/// Frees a PD: `EBUSY` while anything lives in it.
pub fn free(file: &mut OpenFile, hardware: &mut Hardware, handle: u32) -> Result<()> {
    let pd: &Pd = file.get(handle)?;
    if pd.users > 0 {
        return Err(EBUSY);
    }
    hardware.engine.destroy_pd(pd.id)?;
    hardware.counts.pds -= 1;
    file.objects.remove(handle);
    Ok(())
}
