//! The methods of memory regions: registration with all its variants, dma-bufs, query.

use super::mr::{Wanted, enter, enter_buffer};
use crate::abi::number::access;
use crate::answer::Answer;
use crate::call::Call;
use crate::errno::{EINVAL, EOPNOTSUPP, EPROTONOSUPPORT, Result};
use crate::object::Mr;
use crate::profile::KernelVersion;

/// Attributes of these methods.
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
    pub const REG_HANDLE: u16 = 0;
    pub const REG_PD: u16 = 1;
    pub const REG_DMA_HANDLE: u16 = 2;
    pub const REG_IOVA: u16 = 3;
    pub const REG_ADDR: u16 = 4;
    pub const REG_LENGTH: u16 = 5;
    pub const REG_ACCESS: u16 = 6;
    pub const REG_FD: u16 = 7;
    pub const REG_FD_OFFSET: u16 = 8;
    pub const REG_LKEY: u16 = 9;
    pub const REG_RKEY: u16 = 10;
}

use attribute as a;

/// Rights that memory of a dma-buf can have.
const BUFFER_ACCESS: u32 = access::LOCAL_WRITE
    | access::REMOTE_READ
    | access::REMOTE_WRITE
    | access::REMOTE_ATOMIC
    | access::RELAXED_ORDERING;

/// `UVERBS_METHOD_REG_MR`: since 6.17.
pub fn register(call: &mut Call) -> Result<Answer> {
    if call.hardware.profile.kernel < KernelVersion::V7_2 {
        return Err(EPROTONOSUPPORT);
    }
    let request = call.request;
    let word = |id| request.truncated(id).map(u64::from_le_bytes);
    let mut wanted = Wanted {
        pd: request.handle(a::REG_PD)?,
        start: 0,
        length: word(a::REG_LENGTH)?,
        address: word(a::REG_IOVA)?,
        access: 0,
    };
    let is_buffer = request.has(a::REG_FD);
    // Either a dma-buf with an offset, or an address.
    if request.has(a::REG_FD_OFFSET) != is_buffer || request.has(a::REG_ADDR) == is_buffer {
        return Err(EINVAL);
    }
    wanted.start = word(if is_buffer { a::REG_FD_OFFSET } else { a::REG_ADDR })?;
    let allowed = if is_buffer { BUFFER_ACCESS } else { access::SUPPORTED };
    wanted.access = request.flags(a::REG_ACCESS, allowed)?;
    let (handle, key) = if is_buffer {
        enter_buffer(call, &wanted, request.descriptor(a::REG_FD)?)?
    } else {
        enter(call, &wanted)?
    };
    let mut answer = Answer::made(handle);
    answer.put_handle(request, a::REG_HANDLE, handle)?;
    answer.put(request, a::REG_LKEY, &key.to_le_bytes())?;
    answer.put(request, a::REG_RKEY, &key.to_le_bytes())?;
    Ok(answer)
}

/// `UVERBS_METHOD_REG_DMABUF_MR`.
pub fn register_buffer(call: &mut Call) -> Result<Answer> {
    let request = call.request;
    // The driver has it since 6.4.
    if call.hardware.profile.kernel < KernelVersion::V6_12 {
        return Err(EOPNOTSUPP);
    }
    let word = |id| request.truncated(id).map(u64::from_le_bytes);
    let wanted = Wanted {
        pd: request.handle(a::DMABUF_PD)?,
        start: word(a::DMABUF_OFFSET)?,
        length: word(a::DMABUF_LENGTH)?,
        address: word(a::DMABUF_IOVA)?,
        access: request.flags(a::DMABUF_ACCESS, BUFFER_ACCESS)?,
    };
    let (handle, key) = enter_buffer(call, &wanted, request.descriptor(a::DMABUF_FD)?)?;
    let mut answer = Answer::made(handle);
    answer.put_handle(request, a::DMABUF_HANDLE, handle)?;
    answer.put(request, a::DMABUF_LKEY, &key.to_le_bytes())?;
    answer.put(request, a::DMABUF_RKEY, &key.to_le_bytes())?;
    Ok(answer)
}

/// `UVERBS_METHOD_QUERY_MR`.
pub fn query(call: &mut Call) -> Result<Answer> {
    let mr: &Mr = call.file.get(call.request.handle(a::QUERY_HANDLE)?)?;
    let key = mr.key.unwrap_or(0).to_le_bytes();
    let mut answer = Answer::new();
    answer.put(call.request, a::QUERY_LKEY, &key)?;
    answer.put(call.request, a::QUERY_RKEY, &key)?;
    answer.put(call.request, a::QUERY_LENGTH, &mr.length.to_le_bytes())?;
    answer.offer(call.request, a::QUERY_IOVA, &mr.address.to_le_bytes());
    Ok(answer)
}
