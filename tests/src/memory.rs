//! Memory for messages, and its registration.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::context::Pd;
use crate::sys::*;
use crate::{Errno, last_errno};

/// Bytes of a page here.
pub const PAGE: usize = 4096;

/// Zeroed memory that ends right before an unreadable page, so that one byte too far is a crash.
pub struct Buffer {
    map: NonNull<u8>,
    map_length: usize,
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory belongs to this owner alone; it is accessed by copies through raw pointers.
unsafe impl Send for Buffer {}
// SAFETY: as above; programs that share a buffer between threads use disjoint parts.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// `length` bytes.
    pub fn new(length: usize) -> Buffer {
        let body = length.max(1).next_multiple_of(PAGE);
        let map_length = body + PAGE;
        // SAFETY: a new anonymous mapping touches nothing that exists.
        let map = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                map_length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(map, libc::MAP_FAILED, "mmap of {map_length} bytes: {}", last_errno());
        let map = NonNull::new(map.cast::<u8>()).expect("mmap never returns a null page");
        // SAFETY: `body` and `body - length` lie within the new mapping.
        let (guard, start) = unsafe { (map.add(body), map.add(body - length)) };
        // SAFETY: the guard page is the last of our mapping.
        let result = unsafe { libc::mprotect(guard.as_ptr().cast(), PAGE, libc::PROT_NONE) };
        assert_eq!(result, 0, "mprotect: {}", last_errno());
        Buffer { map, map_length, start, length }
    }

    /// `length` bytes, byte `i` being a function of `i` and `seed`.
    pub fn patterned(length: usize, seed: u8) -> Buffer {
        let buffer = Buffer::new(length);
        buffer.write(0, &pattern(length, seed));
        buffer
    }

    /// First byte.
    pub fn pointer(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// First byte, as the device counts.
    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there is not one byte.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Copies `bytes` to `offset`.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.length);
        // SAFETY: the range was checked to lie in the mapping, which cannot overlap a slice of the caller's.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.pointer().add(offset), bytes.len()) };
    }

    /// Fills all of it.
    pub fn fill(&self, byte: u8) {
        // SAFETY: the range is the whole buffer.
        unsafe { std::ptr::write_bytes(self.pointer(), byte, self.length) };
    }

    /// A copy of `length` bytes at `offset`.
    pub fn read(&self, offset: usize, length: usize) -> Vec<u8> {
        assert!(offset + length <= self.length);
        let mut bytes = vec![0; length];
        // SAFETY: the range was checked to lie in the mapping; the device may write it meanwhile, which only
        // matters to programs that look too early.
        unsafe { std::ptr::copy_nonoverlapping(self.pointer().add(offset), bytes.as_mut_ptr(), length) };
        bytes
    }

    /// A copy of everything.
    pub fn bytes(&self) -> Vec<u8> {
        self.read(0, self.length)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `new`.
        unsafe { libc::munmap(self.map.as_ptr().cast(), self.map_length) };
    }
}

/// Bytes that differ between neighbours, pages and seeds.
pub fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|index| (index as u8).wrapping_mul(31) ^ (index >> 8) as u8 ^ seed).collect()
}

/// Every right a region of ours needs.
pub const ALL_ACCESS: i32 =
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ) as i32;

/// A registered buffer.
pub struct Mr {
    raw: *mut ibv_mr,
    buffer: Arc<Buffer>,
    _pd: Arc<Pd>,
}

// SAFETY: libibverbs objects may be used from any thread.
unsafe impl Send for Mr {}
// SAFETY: as above.
unsafe impl Sync for Mr {}

impl Mr {
    /// Registers all of `buffer`.
    pub fn try_new(pd: &Arc<Pd>, buffer: &Arc<Buffer>, access: i32) -> Result<Mr, Errno> {
        crate::clear_errno();
        // SAFETY: the PD is alive, the memory stays mapped as long as the registration.
        let raw = unsafe { ibv_reg_mr(pd.raw(), buffer.pointer().cast(), buffer.len(), access) };
        if raw.is_null() {
            return Err(last_errno());
        }
        Ok(Mr { raw, buffer: Arc::clone(buffer), _pd: Arc::clone(pd) })
    }

    /// As [`Mr::try_new`], which must succeed.
    pub fn new(pd: &Arc<Pd>, buffer: &Arc<Buffer>, access: i32) -> Mr {
        Mr::try_new(pd, buffer, access).unwrap_or_else(|errno| panic!("reg_mr: errno {errno}"))
    }

    /// A fresh buffer of `length` bytes with every right.
    pub fn fresh(pd: &Arc<Pd>, length: usize) -> Mr {
        Mr::new(pd, &Arc::new(Buffer::new(length)), ALL_ACCESS)
    }

    /// A fresh buffer that holds [`pattern`], with every right.
    pub fn patterned(pd: &Arc<Pd>, length: usize, seed: u8) -> Mr {
        Mr::new(pd, &Arc::new(Buffer::patterned(length, seed)), ALL_ACCESS)
    }

    /// The library's object.
    pub fn raw(&self) -> *mut ibv_mr {
        self.raw
    }

    /// Its memory.
    pub fn buffer(&self) -> &Arc<Buffer> {
        &self.buffer
    }

    /// First byte, as the device counts.
    pub fn address(&self) -> u64 {
        self.buffer.address()
    }

    /// Key for local use.
    pub fn lkey(&self) -> u32 {
        // SAFETY: `raw` is alive as long as `self`.
        unsafe { (*self.raw).lkey }
    }

    /// Key for remote use.
    pub fn rkey(&self) -> u32 {
        // SAFETY: `raw` is alive as long as `self`.
        unsafe { (*self.raw).rkey }
    }

    /// A scatter element of `length` bytes at `offset`; nothing is checked.
    pub fn sge(&self, offset: usize, length: usize) -> ibv_sge {
        ibv_sge { addr: self.address() + offset as u64, length: length as u32, lkey: self.lkey() }
    }

    /// A scatter element of everything.
    pub fn whole(&self) -> ibv_sge {
        self.sge(0, self.buffer.len())
    }

    /// Deregisters; the error number of a refusal is returned with the region, which lives on.
    pub fn deregister(mut self) -> Result<(), (Errno, Mr)> {
        // SAFETY: `raw` is alive; it is forgotten on success.
        match unsafe { ibv_dereg_mr(self.raw) } {
            0 => {
                self.raw = std::ptr::null_mut();
                Ok(())
            }
            errno => Err((errno, self)),
        }
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        if self.raw.is_null() {
            return;
        }
        // SAFETY: `raw` is alive and not used after this.
        let result = unsafe { ibv_dereg_mr(self.raw) };
        crate::context::check_destroyed("dereg_mr", result);
    }
}
