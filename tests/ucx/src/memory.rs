//! What goes to the other side's memory: put, get, atomics.

use std::ffi::c_void;
use std::ptr;

use anyhow::{Result, ensure};

use crate::pair::Pair;
use crate::pattern;
use crate::side::{Request, check};
use crate::ucp;

/// Bytes around the target that nothing may touch.
const MARGIN: usize = 64;

/// Memory of the far side that the near one has a key of.
struct Remote<'pair> {
    pair: &'pair Pair,
    bytes: Vec<u8>,
    handle: ucp::ucp_mem_h,
    key: ucp::ucp_rkey_h,
}

impl Remote<'_> {
    /// Registers `bytes` with the far side.
    fn map(pair: &Pair, mut bytes: Vec<u8>) -> Result<Remote<'_>> {
        let fields = ucp::UCP_MEM_MAP_PARAM_FIELD_ADDRESS | ucp::UCP_MEM_MAP_PARAM_FIELD_LENGTH;
        let parameters = ucp::ucp_mem_map_params_t {
            field_mask: u64::from(fields),
            address: bytes.as_mut_ptr().cast(),
            length: bytes.len(),
            ..Default::default()
        };
        let mut handle = ptr::null_mut();
        let context = pair.far.context();
        // SAFETY: the bytes stay where they are until the region is unmapped.
        check(unsafe { ucp::ucp_mem_map(context, &raw const parameters, &raw mut handle) }, "ucp_mem_map")?;
        let (mut packed, mut size) = (ptr::null_mut(), 0);
        // SAFETY: the region is the context's; what is packed is released below.
        let status = unsafe { ucp::ucp_rkey_pack(context, handle, &raw mut packed, &raw mut size) };
        check(status, "ucp_rkey_pack")?;
        let mut key = ptr::null_mut();
        // SAFETY: the packed key is whole; it is not needed afterwards.
        let status = unsafe { ucp::ucp_ep_rkey_unpack(pair.out, packed, &raw mut key) };
        // SAFETY: as above.
        unsafe { ucp::ucp_rkey_buffer_release(packed) };
        check(status, "ucp_ep_rkey_unpack")?;
        Ok(Remote { pair, bytes, handle, key })
    }

    /// Address of byte `offset`.
    fn address(&self, offset: usize) -> u64 {
        self.bytes.as_ptr() as u64 + offset as u64
    }

    /// What is there now.
    fn read(&self) -> Vec<u8> {
        // SAFETY: the device writes there, but has ended what it was asked for.
        (0..self.bytes.len()).map(|index| unsafe { self.bytes.as_ptr().add(index).read_volatile() }).collect()
    }
}

impl Drop for Remote<'_> {
    fn drop(&mut self) {
        // SAFETY: key and region are this one's, and no operation uses them any more.
        unsafe {
            ucp::ucp_rkey_destroy(self.key);
            ucp::ucp_mem_unmap(self.pair.far.context(), self.handle);
        }
    }
}

/// Writes `length` bytes over there and leaves those around alone.
pub fn put(pair: &Pair, length: usize) -> Result<()> {
    let remote = Remote::map(pair, vec![0x5a; length + 2 * MARGIN])?;
    let data = pattern::bytes(length as u64 + 11, length);
    let parameters = ucp::ucp_request_param_t::default();
    // SAFETY: the data stays until the request has ended.
    let pointer = unsafe {
        let from = data.as_ptr().cast();
        ucp::ucp_put_nbx(pair.out, from, length, remote.address(MARGIN), remote.key, &raw const parameters)
    };
    pair.wait("put", Request::of(pointer, "ucp_put_nbx"))?;
    pair.flush()?;
    let margin = vec![0x5a; MARGIN];
    pattern::compare("put", &remote.read(), &[&margin[..], &data, &margin].concat())
}

/// Reads `length` bytes from there.
pub fn get(pair: &Pair, length: usize) -> Result<()> {
    let data = pattern::bytes(length as u64 + 12, length);
    let remote = Remote::map(pair, data.clone())?;
    let mut found = vec![0x5a; length];
    let parameters = ucp::ucp_request_param_t::default();
    // SAFETY: the buffer stays until the request has ended.
    let pointer = unsafe {
        let to: *mut c_void = found.as_mut_ptr().cast();
        ucp::ucp_get_nbx(pair.out, to, length, remote.address(0), remote.key, &raw const parameters)
    };
    pair.wait("get", Request::of(pointer, "ucp_get_nbx"))?;
    pattern::compare("get", &found, &data)
}

/// Every atomic operation that gives the former value, each looked at on both sides.
pub fn atomics(pair: &Pair) -> Result<()> {
    let first = 0x0123_4567_89ab_cdef_u64;
    let remote = Remote::map(pair, [first, u64::MAX].map(u64::to_ne_bytes).concat())?;
    let mut expected = first;
    let cases: [(ucp::ucp_atomic_op_t, u64, u64, u64); 4] = [
        (ucp::UCP_ATOMIC_OP_ADD, 5, 0, first.wrapping_add(5)),
        (ucp::UCP_ATOMIC_OP_SWAP, 77, 0, 77),
        (ucp::UCP_ATOMIC_OP_CSWAP, 77, 99, 99),
        (ucp::UCP_ATOMIC_OP_CSWAP, 1, 2, 99),
    ];
    for (operation, argument, swap, after) in cases {
        // Of a compare and swap, the place of the reply holds what to put there.
        let mut reply = swap;
        let fields = ucp::UCP_OP_ATTR_FIELD_REPLY_BUFFER | ucp::UCP_OP_ATTR_FIELD_DATATYPE;
        let parameters = ucp::ucp_request_param_t {
            op_attr_mask: fields,
            // A contiguous datatype has its size above three bits of kind.
            datatype: 8 << 3,
            reply_buffer: (&raw mut reply).cast(),
            ..Default::default()
        };
        // SAFETY: argument and reply stay until the request has ended.
        let pointer = unsafe {
            let from = (&raw const argument).cast();
            let to = remote.address(0);
            ucp::ucp_atomic_op_nbx(pair.out, operation, from, 1, to, remote.key, &raw const parameters)
        };
        pair.wait("an atomic operation", Request::of(pointer, "ucp_atomic_op_nbx"))?;
        pair.flush()?;
        // SAFETY: written through the address that the library was given.
        let former = unsafe { (&raw const reply).read_volatile() };
        ensure!(former == expected, "operation {operation} gave {former:#x} instead of {expected:#x}");
        let [now, beside] = [0, 8].map(|offset| remote.read()[offset..offset + 8].to_vec());
        pattern::compare("an atomic operation", &now, &after.to_ne_bytes())?;
        pattern::compare("what lies beside an atomic", &beside, &u64::MAX.to_ne_bytes())?;
        expected = after;
    }
    Ok(())
}
