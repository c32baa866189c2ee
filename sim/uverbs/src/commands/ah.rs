//! Address handles.

use irdma_engine::spec::AddressHandle;

use crate::abi::core::{CreateAh, CreateAhResp, Handle};
use crate::abi::driver::CreateAhResp as DriverResp;
use crate::abi::number::CORE_IN;
use crate::answer::Answer;
use crate::call::{Call, Hardware, PORT};
use crate::errno::{EINVAL, EOPNOTSUPP, EOVERFLOW, Result};
use crate::file::OpenFile;
use crate::object::{Ah, Object, Pd};
use crate::profile::{AH_COUNT, Transport};
use crate::request::driver_room;

/// Room the driver's answer needs at least.
const LEAST_ANSWER: usize = size_of::<DriverResp>();

/// `IB_USER_VERBS_CMD_CREATE_AH`.
pub fn create(call: &mut Call) -> Result<Answer> {
    if call.hardware.profile.transport == Transport::Iwarp {
        return Err(EOPNOTSUPP);
    }
    let wanted: CreateAh = call.request.extensible(CORE_IN)?;
    call.file.context()?;
    if wanted.attr.port_num != PORT {
        return Err(EINVAL);
    }
    let pd = call.file.get::<Pd>(wanted.pd_handle)?.id;
    // RoCE has no addressing without a GRH.
    if wanted.attr.is_global == 0 {
        return Err(EINVAL);
    }
    let source_gid = call.hardware.gid(u32::from(wanted.attr.sgid_index))?;
    driver_room(call.request, LEAST_ANSWER)?;
    if call.hardware.counts.address_handles >= AH_COUNT {
        return Err(EOVERFLOW);
    }
    let address = AddressHandle {
        pd,
        source_gid,
        destination_gid: wanted.attr.dgid,
        destination_mac: None,
        traffic_class: wanted.attr.traffic_class,
        hop_limit: wanted.attr.hop_limit,
        flow_label: wanted.attr.flow_label & 0xf_ffff,
    };
    let id = call.hardware.engine.create_ah(address, None)?;
    call.hardware.counts.address_handles += 1;
    let handle = call.file.objects.insert(Object::Ah(Ah { id, pd: wanted.pd_handle }));
    call.file.get_mut::<Pd>(wanted.pd_handle)?.users += 1;
    let mut answer = Answer::made(handle);
    answer.core(call.request, &CreateAhResp { ah_handle: handle });
    answer.driver(call.request, &DriverResp { ah_id: id.number, ..DriverResp::default() });
    Ok(answer)
}

/// `UVERBS_METHOD_AH_DESTROY`.
pub fn destroy(call: &mut Call) -> Result<Answer> {
    free(call.file, call.hardware, call.request.handle(0)?)?;
    Ok(Answer::new())
}

/// `IB_USER_VERBS_CMD_DESTROY_AH`.
pub fn destroy_old(call: &mut Call) -> Result<Answer> {
    let wanted: Handle = call.request.extensible(CORE_IN)?;
    free(call.file, call.hardware, wanted.handle)?;
    Ok(Answer::new())
}

/// Frees an address handle.
pub fn free(file: &mut OpenFile, hardware: &mut Hardware, handle: u32) -> Result<()> {
    let ah: &Ah = file.get(handle)?;
    let pd = ah.pd;
    hardware.engine.destroy_ah(ah.id)?;
    hardware.counts.address_handles -= 1;
    file.objects.remove(handle);
    file.get_mut::<Pd>(pd)?.users -= 1;
    Ok(())
}
