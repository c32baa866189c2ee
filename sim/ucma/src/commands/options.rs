//! Options of an identifier.

use zerocopy::{FromZeros, IntoBytes};

use crate::abi::{PathData, SetOption};
use crate::call::{Call, EFAULT, EINVAL, ENOSYS, Result};
use crate::event::Kind;
use crate::id::{State, queue_pair};
use crate::path::Path;

/// `RDMA_OPTION_ID`.
const LEVEL_ID: u32 = 0;
/// `RDMA_OPTION_IB`.
const LEVEL_IB: u32 = 1;
/// `RDMA_OPTION_IB_PATH`.
const IB_PATH: u32 = 1;
/// Longer values are refused; none that means something is longer than a few path records.
const LONGEST: u32 = 1 << 16;
/// `IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL`.
pub const PRIMARY: u32 = 1 | 2 | 8 | 32;

/// `RDMA_OPTION_ID_*`.
mod option {
    pub const TYPE_OF_SERVICE: u32 = 0;
    pub const REUSE_ADDRESS: u32 = 1;
    pub const ONLY_FAMILY: u32 = 2;
    pub const ACK_TIMEOUT: u32 = 3;
}

/// `RDMA_USER_CM_CMD_SET_OPTION`.
pub fn set(call: &mut Call) -> Result<()> {
    let wanted: SetOption = call.request()?;
    if wanted.optlen > LONGEST {
        return Err(EINVAL);
    }
    call.id(wanted.id)?;
    let mut value = vec![0; wanted.optlen as usize];
    call.program.read(wanted.optval, &mut value).map_err(|_| EFAULT)?;
    match (wanted.level, wanted.optname) {
        (LEVEL_ID, name) => set_id(call, wanted.id, name, &value),
        (LEVEL_IB, IB_PATH) => set_path(call, wanted.id, &value),
        _ => Err(ENOSYS),
    }
}

fn set_id(call: &mut Call, number: u32, name: u32, value: &[u8]) -> Result<()> {
    let id = call.id(number)?;
    match name {
        option::TYPE_OF_SERVICE => id.service_type = Some(byte(value)?),
        option::REUSE_ADDRESS => {
            let wanted = switch(value)?;
            if (!wanted || id.state == State::Listen) && id.state != State::Idle {
                return Err(EINVAL);
            }
            id.reuses_address = wanted;
        }
        option::ONLY_FAMILY => {
            let wanted = switch(value)?;
            if !matches!(id.state, State::Idle | State::Bound) {
                return Err(EINVAL);
            }
            id.only_family = Some(wanted);
        }
        option::ACK_TIMEOUT => {
            let wanted = byte(value)?;
            if id.kind != queue_pair::RC {
                return Err(EINVAL);
            }
            id.ack_timeout = Some(wanted);
        }
        _ => return Err(ENOSYS),
    }
    Ok(())
}

fn byte(value: &[u8]) -> Result<u8> {
    match value {
        [byte] => Ok(*byte),
        _ => Err(EINVAL),
    }
}

fn switch(value: &[u8]) -> Result<bool> {
    let value: [u8; 4] = value.try_into().map_err(|_| EINVAL)?;
    Ok(value != [0; 4])
}

/// The program knows the way by itself.
fn set_path(call: &mut Call, number: u32, value: &[u8]) -> Result<()> {
    if !value.len().is_multiple_of(size_of::<PathData>()) {
        return Err(EINVAL);
    }
    let records = value.chunks(size_of::<PathData>()).map(|bytes| {
        let mut record = PathData::new_zeroed();
        record.as_mut_bytes().copy_from_slice(bytes);
        record
    });
    let record = records.into_iter().find(|record| record.flags == PRIMARY).ok_or(EINVAL)?;
    let path = Path::unpack(&record.path_rec);
    let table = call.card.gids().to_vec();
    let id = call.attached_id(number)?;
    if id.state != State::AddressResolved {
        return Err(EINVAL);
    }
    id.take_path(path, &table);
    id.state = State::RouteResolved;
    call.manager.emit(number, Kind::RouteResolved, 0, |event| event);
    Ok(())
}
