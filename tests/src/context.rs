//! An open device, and protection domains.

use std::sync::Arc;

use crate::domain::ThreadDomain;
use crate::sys::*;
use crate::{Errno, clear_errno, last_errno};

/// The device's only port.
pub const PORT: u8 = 1;

/// Complains about a failed destroy, unless a failure is already on its way.
pub fn check_destroyed(what: &str, result: i32) {
    if result != 0 && !std::thread::panicking() {
        panic!("{what}: errno {result}");
    }
}

/// An open device.
pub struct Context(*mut ibv_context);

// SAFETY: libibverbs contexts may be used from any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Opens the first device.
    pub fn try_open() -> Result<Arc<Context>, Errno> {
        let mut count = 0;
        // SAFETY: `count` is valid for the call.
        let list = unsafe { ibv_get_device_list(&mut count) };
        assert!(!list.is_null(), "ibv_get_device_list: errno {}", last_errno());
        assert!(count > 0, "no RDMA device: the test must run on the software device");
        clear_errno();
        // SAFETY: the list has at least one device; it is freed once and not used after.
        let (raw, errno) = unsafe {
            let raw = ibv_open_device(*list);
            let errno = last_errno();
            ibv_free_device_list(list);
            (raw, errno)
        };
        if raw.is_null() { Err(errno) } else { Ok(Arc::new(Context(raw))) }
    }

    /// Opens the first device, which must succeed.
    pub fn open() -> Arc<Context> {
        Context::try_open().unwrap_or_else(|errno| panic!("ibv_open_device: errno {errno}"))
    }

    /// The library's object.
    pub fn raw(&self) -> *mut ibv_context {
        self.0
    }

    /// Descriptor of asynchronous events.
    pub fn async_fd(&self) -> i32 {
        // SAFETY: the context is alive.
        unsafe { (*self.0).async_fd }
    }

    /// Device attributes.
    pub fn query_device(&self) -> ibv_device_attr {
        let mut attributes = ibv_device_attr::default();
        // SAFETY: the context is alive, `attributes` valid for the call.
        let result = unsafe { ibv_query_device(self.0, &mut attributes) };
        assert_eq!(result, 0, "query_device");
        attributes
    }

    /// Index of the first GID that the port has.
    pub fn gid_index(&self) -> u8 {
        let present = |&index: &u8| {
            let mut gid = ibv_gid { raw: [0; 16] };
            // SAFETY: the context is alive, `gid` valid for the call.
            let result = unsafe { ibv_query_gid(self.0, PORT, i32::from(index), &mut gid) };
            // SAFETY: every byte pattern is a valid array.
            result == 0 && unsafe { gid.raw } != [0; 16]
        };
        (0..16).find(present).expect("the port has a GID")
    }

    /// GID `index` of the port.
    pub fn gid(&self, index: i32) -> ibv_gid {
        let mut gid = ibv_gid { raw: [0; 16] };
        // SAFETY: the context is alive, `gid` valid for the call.
        let result = unsafe { ibv_query_gid(self.0, PORT, index, &mut gid) };
        assert_eq!(result, 0, "query_gid {index}");
        gid
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: every object of the context holds a reference to it, so all are gone.
        let result = unsafe { ibv_close_device(self.0) };
        check_destroyed("close_device", result);
    }
}

/// A protection domain.
pub struct Pd {
    raw: *mut ibv_pd,
    context: Arc<Context>,
    /// What a parent domain is made of.
    _parts: Option<(Arc<Pd>, Option<Arc<ThreadDomain>>)>,
}

// SAFETY: libibverbs objects may be used from any thread.
unsafe impl Send for Pd {}
// SAFETY: as above.
unsafe impl Sync for Pd {}

impl Pd {
    /// Allocates one.
    pub fn try_new(context: &Arc<Context>) -> Result<Arc<Pd>, Errno> {
        clear_errno();
        // SAFETY: the context is alive.
        let raw = unsafe { ibv_alloc_pd(context.raw()) };
        if raw.is_null() {
            return Err(last_errno());
        }
        Ok(Arc::new(Pd::own(raw, context)))
    }

    /// Takes over a domain made by the library.
    pub fn own(raw: *mut ibv_pd, context: &Arc<Context>) -> Pd {
        Pd { raw, context: Arc::clone(context), _parts: None }
    }

    /// Takes over a parent domain made by the library.
    pub(crate) fn own_parent(
        raw: *mut ibv_pd,
        below: &Arc<Pd>,
        threads: Option<&Arc<ThreadDomain>>,
    ) -> Arc<Pd> {
        let context = Arc::clone(&below.context);
        Arc::new(Pd { raw, context, _parts: Some((Arc::clone(below), threads.cloned())) })
    }

    /// Tries to free it while something needs it: must be refused with the returned error number.
    pub fn refused_dealloc(&self) -> Errno {
        // SAFETY: the domain is alive; a refused call leaves it so, a success ends the program.
        let result = unsafe { ibv_dealloc_pd(self.raw) };
        assert_ne!(result, 0, "dealloc_pd of a domain in use");
        result
    }

    /// Allocates one, which must succeed.
    pub fn new(context: &Arc<Context>) -> Arc<Pd> {
        Pd::try_new(context).unwrap_or_else(|errno| panic!("alloc_pd: errno {errno}"))
    }

    /// The library's object.
    pub fn raw(&self) -> *mut ibv_pd {
        self.raw
    }

    /// The device it belongs to.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: everything in the domain holds a reference to it, so all is gone.
        let result = unsafe { ibv_dealloc_pd(self.raw) };
        check_destroyed("dealloc_pd", result);
    }
}
