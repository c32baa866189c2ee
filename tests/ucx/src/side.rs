//! One side of a conversation: a context with its worker, and the endpoint to the other side.

use std::ffi::{CStr, c_uint, c_void};
use std::ptr;

use anyhow::{Result, ensure};

use crate::ucp;

/// What this program makes use of.
const FEATURES: u32 =
    ucp::UCP_FEATURE_TAG | ucp::UCP_FEATURE_AM | ucp::UCP_FEATURE_RMA | ucp::UCP_FEATURE_AMO64;

/// An error unless `status` is good news.
pub fn check(status: ucp::ucs_status_t, what: &str) -> Result<()> {
    // SAFETY: the function takes any status and returns a string that stays.
    let text = || unsafe { CStr::from_ptr(ucp::ucs_status_string(status)) }.to_string_lossy();
    ensure!(status == ucp::UCS_OK, "{what}: {}", text());
    Ok(())
}

/// A context and its worker. Both and the endpoint go when the process does: what is tested is the
/// traffic, and closing needs both sides.
pub struct Side {
    context: ucp::ucp_context_h,
    worker: ucp::ucp_worker_h,
}

impl Side {
    /// Opens the devices that the environment names.
    pub fn open() -> Result<Side> {
        let mut config = ptr::null_mut();
        // SAFETY: no prefix and no file are allowed; the result is written on success.
        check(unsafe { ucp::ucp_config_read(ptr::null(), ptr::null(), &raw mut config) }, "ucp_config_read")?;
        let parameters = ucp::ucp_params_t {
            field_mask: u64::from(ucp::UCP_PARAM_FIELD_FEATURES),
            features: u64::from(FEATURES),
            ..Default::default()
        };
        let mut context = ptr::null_mut();
        let (major, minor) = (ucp::UCP_API_MAJOR as c_uint, ucp::UCP_API_MINOR as c_uint);
        // SAFETY: parameters say which fields are valid; config is the library's.
        let status =
            unsafe { ucp::ucp_init_version(major, minor, &raw const parameters, config, &raw mut context) };
        // SAFETY: config is not needed after this.
        unsafe { ucp::ucp_config_release(config) };
        check(status, "ucp_init")?;
        let parameters = ucp::ucp_worker_params_t::default();
        let mut worker = ptr::null_mut();
        // SAFETY: no field of the parameters is said to be valid; the context is open.
        let status = unsafe { ucp::ucp_worker_create(context, &raw const parameters, &raw mut worker) };
        check(status, "ucp_worker_create")?;
        Ok(Side { context, worker })
    }

    /// The context, for what concerns memory.
    pub fn context(&self) -> ucp::ucp_context_h {
        self.context
    }

    /// The worker, for what is received.
    pub fn worker(&self) -> ucp::ucp_worker_h {
        self.worker
    }

    /// An endpoint of this side to `other`.
    pub fn connect(&self, other: &Side) -> Result<ucp::ucp_ep_h> {
        let (mut address, mut length) = (ptr::null_mut(), 0);
        // SAFETY: the worker is open; address and length are written on success.
        let status = unsafe { ucp::ucp_worker_get_address(other.worker, &raw mut address, &raw mut length) };
        check(status, "ucp_worker_get_address")?;
        let parameters = ucp::ucp_ep_params_t {
            field_mask: u64::from(ucp::UCP_EP_PARAM_FIELD_REMOTE_ADDRESS),
            address,
            ..Default::default()
        };
        let mut endpoint = ptr::null_mut();
        // SAFETY: the address is valid until it is released, which is after the call.
        let status = unsafe { ucp::ucp_ep_create(self.worker, &raw const parameters, &raw mut endpoint) };
        // SAFETY: got from this worker and not used again.
        unsafe { ucp::ucp_worker_release_address(other.worker, address) };
        check(status, "ucp_ep_create")?;
        Ok(endpoint)
    }

    /// Lets this side do what is to be done now.
    pub fn progress(&self) {
        // SAFETY: the worker is open, and no callback of this program comes back here.
        unsafe { ucp::ucp_worker_progress(self.worker) };
    }
}

/// What a non-blocking call returned: done, failed, or a request.
pub struct Request {
    pointer: *mut c_void,
    what: &'static str,
}

impl Request {
    /// Of the call `what`.
    pub fn of(pointer: ucp::ucs_status_ptr_t, what: &'static str) -> Request {
        Request { pointer, what }
    }

    /// Whether it is done. A failure of the operation is an error.
    pub fn is_done(&mut self) -> Result<bool> {
        let value = self.pointer as isize;
        if value == 0 {
            return Ok(true);
        }
        // As the header says, the last hundred addresses are statuses.
        if (isize::from(ucp::UCS_ERR_LAST)..0).contains(&value) {
            check(value as ucp::ucs_status_t, self.what)?;
        }
        // SAFETY: neither null nor a status, so a request, and not freed before.
        let status = unsafe { ucp::ucp_request_check_status(self.pointer) };
        if status == ucp::UCS_INPROGRESS {
            return Ok(false);
        }
        // SAFETY: the request has ended and is forgotten.
        unsafe { ucp::ucp_request_free(self.pointer) };
        self.pointer = ptr::null_mut();
        check(status, self.what)?;
        Ok(true)
    }
}
