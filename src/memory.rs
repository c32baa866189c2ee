//! Memory that is mapped: owners that release exactly what they hold.
//!
//! Memory of the device never shares a page with the heap: fork protection works
//! on whole pages, and would take its neighbours from a child.

use core::ffi::{c_int, c_void};
use core::mem::ManuallyDrop;
use core::ptr::{NonNull, null_mut};

use rdma_core_sys::bindings::{
    IBV_ACCESS_LOCAL_WRITE, ibv_cmd_dereg_mr, ibv_context, ibv_dofork_range, ibv_dontfork_range, ibv_pd,
    verbs_mr,
};
use rdma_core_sys::driver_data::RegisterMemoryRequest;

use crate::command;
use crate::context::Context;
use crate::domain::{Domain, Lent};
use crate::errno::{Errno, Result};
use crate::log::{self, Level};

/// Bytes of a page of the system.
pub fn page_size() -> usize {
    // SAFETY: has no preconditions.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

/// `length` rounded up to whole pages of the system; at least one.
fn whole_pages(length: usize) -> Result<usize> {
    length.max(1).checked_next_multiple_of(page_size()).ok_or(Errno::NO_MEMORY)
}

/// A mapping, unmapped on drop.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    length: usize,
}

impl Mapping {
    /// Maps `length` bytes, a multiple of the page size, readable and writable.
    fn new(length: usize, flags: c_int, descriptor: c_int, offset: i64) -> Result<Mapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses the place, so nothing that exists is affected.
        let base = unsafe { libc::mmap(null_mut(), length, protection, flags, descriptor, offset) };
        if base == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let base = NonNull::new(base.cast()).ok_or(Errno::NO_MEMORY)?;
        Ok(Mapping { base, length })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped, and nothing refers to it after its owner.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.length) };
    }
}

// SAFETY: a mapping belongs to the process, not to a thread; access through `base` is its user's matter.
unsafe impl Send for Mapping {}
// SAFETY: as above; the owner itself is never changed.
unsafe impl Sync for Mapping {}

/// Zeroed private memory that takes room only where it is touched.
#[derive(Debug)]
pub struct Anonymous(Mapping);

impl Anonymous {
    /// `length` bytes of it.
    pub fn reserve(length: usize) -> Result<Anonymous> {
        let flags = ANONYMOUS | libc::MAP_NORESERVE;
        Mapping::new(whole_pages(length)?, flags, -1, 0).map(Anonymous)
    }

    /// Its first byte.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        self.0.base
    }
}

/// Zeroed memory for a ring or a shadow area: whole pages of its own, kept out of forked children.
pub struct DmaBuffer {
    pages: Pages,
    length: usize,
}

/// Bytes of a huge page.
const HUGE_PAGE: usize = 2 << 20;

/// Private memory that no file is behind.
const ANONYMOUS: c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

/// Whose pages they are.
enum Pages {
    Own(Mapping),
    /// The program's; to keep them out of children is its part as well.
    Lent(Lent),
}

impl DmaBuffer {
    /// At least `length` bytes, aligned to a page of the system.
    pub fn allocate(length: usize) -> Result<DmaBuffer> {
        let length = whole_pages(length)?;
        DmaBuffer::keep_from_children(Mapping::new(length, ANONYMOUS, -1, 0)?, length)
    }

    /// The same on huge pages, which take fewer entries of the processor's and the device's translation caches.
    fn allocate_huge(length: usize) -> Result<DmaBuffer> {
        let length = whole_pages(length)?;
        let whole = length.checked_next_multiple_of(HUGE_PAGE).ok_or(Errno::NO_MEMORY)?;
        let flags = ANONYMOUS | libc::MAP_HUGETLB | libc::MAP_HUGE_2MB;
        DmaBuffer::keep_from_children(Mapping::new(whole, flags, -1, 0)?, length)
    }

    fn keep_from_children(mapping: Mapping, length: usize) -> Result<DmaBuffer> {
        // SAFETY: a range of whole pages that this mapping owns.
        Errno::check(unsafe { ibv_dontfork_range(mapping.base.as_ptr().cast(), mapping.length) })?;
        Ok(DmaBuffer { pages: Pages::Own(mapping), length })
    }

    /// Memory of a queue of `context`: on huge pages if the environment asks for them and there are any.
    ///
    /// # Safety
    /// `context` is open.
    unsafe fn allocate_for(context: *mut ibv_context, length: usize) -> Result<DmaBuffer> {
        // SAFETY: as the caller promises.
        if length > page_size() && unsafe { Context::of(context) }.uses_huge_pages() {
            match DmaBuffer::allocate_huge(length) {
                Ok(buffer) => return Ok(buffer),
                Err(errno) => {
                    let why = format_args!("{length} bytes of a queue are not on huge pages: {errno}");
                    // SAFETY: as the caller promises.
                    unsafe { log::line(context, Level::Debug, why) };
                }
            }
        }
        DmaBuffer::allocate(length)
    }

    /// Its first byte.
    pub fn base(&self) -> NonNull<u8> {
        match &self.pages {
            Pages::Own(mapping) => mapping.base,
            Pages::Lent(lent) => lent.base(),
        }
    }

    /// Its address, as the kernel is told it.
    pub fn address(&self) -> u64 {
        self.base().as_ptr().expose_provenance() as u64
    }

    /// Bytes, a multiple of the page size of the system.
    pub fn length(&self) -> usize {
        self.length
    }
}

impl Drop for DmaBuffer {
    fn drop(&mut self) {
        if let Pages::Own(mapping) = &self.pages {
            // SAFETY: the range of `allocate`, still mapped. A failure leaves the pages out of
            // children, which is harmless for pages that are unmapped next.
            unsafe { ibv_dofork_range(mapping.base.as_ptr().cast(), mapping.length) };
        }
    }
}

/// A [`DmaBuffer`] that the kernel knows as memory of a queue. Deregistered, then unmapped, on drop.
///
/// Its queue must be gone by then.
pub struct QueueMemory {
    // In this order: fields are dropped as they are declared.
    _registration: Registration,
    buffer: DmaBuffer,
}

impl QueueMemory {
    /// Memory of at least `length` bytes, registered in `pd` as `kind` says.
    ///
    /// `pd` outlives it.
    pub fn allocate(pd: NonNull<ibv_pd>, length: usize, kind: RegisterMemoryRequest) -> Result<QueueMemory> {
        // SAFETY: the PD is alive as the caller promises, so its context is open.
        let buffer = unsafe { DmaBuffer::allocate_for(pd.as_ref().context, length)? };
        QueueMemory::register(pd, buffer, kind)
    }

    /// The same, of the program's memory if it has a say in `domain`, which outlives it.
    pub fn allocate_in(
        domain: &Domain,
        pd: NonNull<ibv_pd>,
        length: usize,
        kind: RegisterMemoryRequest,
    ) -> Result<QueueMemory> {
        let length = whole_pages(length)?;
        match domain.allocate(length, page_size(), kind.reg_type)? {
            Some(lent) => {
                let buffer = DmaBuffer { pages: Pages::Lent(lent), length };
                QueueMemory::register(pd, buffer, kind)
            }
            None => QueueMemory::allocate(pd, length, kind),
        }
    }

    fn register(pd: NonNull<ibv_pd>, buffer: DmaBuffer, kind: RegisterMemoryRequest) -> Result<QueueMemory> {
        let registration = Registration::new(pd, &buffer, kind)?;
        Ok(QueueMemory { _registration: registration, buffer })
    }

    /// The memory.
    pub fn buffer(&self) -> &DmaBuffer {
        &self.buffer
    }
}

/// The kernel's memory region of a [`DmaBuffer`]; deregistered on drop.
struct Registration(verbs_mr);

impl Registration {
    fn new(pd: NonNull<ibv_pd>, buffer: &DmaBuffer, kind: RegisterMemoryRequest) -> Result<Registration> {
        let mut mr = verbs_mr::default();
        let address: *mut c_void = buffer.base().as_ptr().cast();
        let access = IBV_ACCESS_LOCAL_WRITE as c_int;
        // SAFETY: the PD is alive as the caller promises; the memory is the buffer's.
        unsafe {
            command::register_memory(
                pd.as_ptr(),
                address,
                buffer.length(),
                buffer.address(),
                access,
                &mut mr,
                kind,
            )?
        };
        Ok(Registration(mr))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: the context outlives what was registered through it.
        let context = unsafe { Context::of(self.0.ibv_mr.context) };
        if context.is_closing() {
            return;
        }
        // A failure (a device that was removed) leaves the pages pinned until the context is closed.
        // SAFETY: registered in `new`, and not deregistered since.
        unsafe { ibv_cmd_dereg_mr(&mut self.0) };
    }
}

// SAFETY: the kernel's object belongs to the process.
unsafe impl Send for Registration {}
// SAFETY: never changed.
unsafe impl Sync for Registration {}

/// A page of the device: doorbells or push WQEs. As long as a system page.
#[derive(Debug)]
pub struct DevicePage(NonNull<u8>);

// SAFETY: as for `Mapping`.
unsafe impl Send for DevicePage {}
// SAFETY: as above.
unsafe impl Sync for DevicePage {}

impl DevicePage {
    /// Maps the page that the kernel offers under `key` on a context's descriptor.
    pub fn map(descriptor: c_int, key: u64) -> Result<DevicePage> {
        let offset = i64::try_from(key).map_err(|_| Errno::PROTOCOL)?;
        Mapping::new(page_size(), libc::MAP_SHARED, descriptor, offset).map(DevicePage::of)
    }

    /// The page of a mapping, whose length need not be remembered.
    fn of(page: Mapping) -> DevicePage {
        DevicePage(ManuallyDrop::new(page).base)
    }

    /// The byte at `offset`, with `room` bytes behind it; `None` if they are not on the page.
    pub fn at(&self, offset: usize, room: usize) -> Option<NonNull<u8>> {
        if offset.checked_add(room)? > page_size() {
            return None;
        }
        // SAFETY: within the mapping, as just checked.
        Some(unsafe { self.0.add(offset) })
    }
}

impl Drop for DevicePage {
    fn drop(&mut self) {
        drop(Mapping { base: self.0, length: page_size() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_whole_zeroed_pages() {
        for length in [0, 1, page_size() - 1, page_size(), page_size() + 1] {
            let buffer = DmaBuffer::allocate(length).unwrap();
            assert!(buffer.length() >= length && buffer.length().is_multiple_of(page_size()));
            assert_eq!(buffer.address() as usize % page_size(), 0);
            // SAFETY: the buffer's own memory.
            let bytes = unsafe { core::slice::from_raw_parts(buffer.base().as_ptr(), buffer.length()) };
            assert!(bytes.iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn impossible_lengths_are_refused() {
        assert_eq!(DmaBuffer::allocate(usize::MAX).err(), Some(Errno::NO_MEMORY));
        assert_eq!(DmaBuffer::allocate(usize::MAX / 2).err(), Some(Errno::NO_MEMORY));
    }

    #[test]
    fn a_device_page_has_an_end() {
        let page = DevicePage::of(
            Mapping::new(page_size(), libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0).unwrap(),
        );
        let base = page.at(0, 4).unwrap();
        assert_eq!(page.at(256, 256).map(|at| at.addr().get() - base.addr().get()), Some(256));
        assert!(page.at(page_size() - 4, 4).is_some());
        assert!(page.at(page_size() - 3, 4).is_none());
        assert!(page.at(usize::MAX, 4).is_none());
    }

    #[test]
    fn mapping_nothing_fails_with_the_reason() {
        assert_eq!(DevicePage::map(-1, 0).unwrap_err().number(), libc::EBADF);
        assert_eq!(DevicePage::map(-1, u64::MAX).unwrap_err(), Errno::PROTOCOL);
    }
}
