//! Memory windows.

use std::sync::Arc;

use crate::context::{Pd, check_destroyed};
use crate::memory::Mr;
use crate::qp::Qp;
use crate::runner::skip;
use crate::sys::*;
use crate::{Errno, clear_errno, last_errno};

/// A memory window of type 1.
pub struct Window {
    raw: *mut ibv_mw,
    _pd: Arc<Pd>,
}

impl Window {
    /// Allocates one.
    pub fn try_new(pd: &Arc<Pd>, kind: u32) -> Result<Window, Errno> {
        clear_errno();
        // SAFETY: the PD is alive.
        let raw = unsafe { ibv_alloc_mw(pd.raw(), kind) };
        if raw.is_null() { Err(last_errno()) } else { Ok(Window { raw, _pd: Arc::clone(pd) }) }
    }

    /// Allocates one of type 1; skips the program where the kernel has none for this device.
    pub fn new_or_skip(pd: &Arc<Pd>) -> Window {
        match Window::try_new(pd, IBV_MW_TYPE_1) {
            Ok(window) => window,
            Err(libc::EOPNOTSUPP) => skip("the kernel has no memory windows for this device"),
            Err(errno) => panic!("alloc_mw: errno {errno}"),
        }
    }

    /// The library's object.
    pub fn raw(&self) -> *mut ibv_mw {
        self.raw
    }

    /// Its key as of the last bind.
    pub fn rkey(&self) -> u32 {
        // SAFETY: the window is alive.
        unsafe { (*self.raw).rkey }
    }

    /// Binds it to `length` bytes at `offset` of `mr` with rights `access`; 0 or an error number.
    pub fn bind(&self, qp: &Qp, wr_id: u64, mr: &Mr, offset: usize, length: usize, access: u32) -> Errno {
        let mut bind = ibv_mw_bind {
            wr_id,
            send_flags: IBV_SEND_SIGNALED,
            bind_info: ibv_mw_bind_info {
                mr: mr.raw(),
                addr: mr.address() + offset as u64,
                length: length as u64,
                mw_access_flags: access,
            },
        };
        // SAFETY: the objects are alive, the request valid for the call.
        unsafe { ibv_bind_mw(qp.raw(), self.raw, &mut bind) }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: this owner is the only one.
        let result = unsafe { ibv_dealloc_mw(self.raw) };
        check_destroyed("dealloc_mw", result);
    }
}
