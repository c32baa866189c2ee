//! Functions of libibverbs whose arguments differ between layouts, with the same
//! arguments in all of them.
//!
//! They return 0 or an errno, as the functions they call do.

use core::ffi::c_int;
#[cfg(any(layout_since = "57", layout_since = "59"))]
use core::ptr::null_mut;

use crate::bindings::*;

/// Opens the kernel's context.
///
/// # Safety
/// `context` is being opened, `command` and `response` have `command_size` and
/// `response_size` bytes, at least those of their types.
pub unsafe fn get_context(
    context: *mut verbs_context,
    command: *mut ibv_get_context,
    command_size: usize,
    response: *mut ib_uverbs_get_context_resp,
    response_size: usize,
) -> c_int {
    // SAFETY: as the caller promises; no descriptors are handed over.
    unsafe {
        ibv_cmd_get_context(
            context,
            command,
            command_size,
            #[cfg(layout_since = "57")]
            null_mut(),
            response,
            response_size,
        )
    }
}

/// Creates a completion queue by the extended command.
///
/// # Safety
/// `context` is open, `attributes` valid, `cq` not yet in use; `command` and
/// `response` have `command_size` and `response_size` bytes, at least those of
/// their types.
#[allow(clippy::too_many_arguments)] // as many as the function has
pub unsafe fn create_cq_ex(
    context: *mut ibv_context,
    attributes: *const ibv_cq_init_attr_ex,
    cq: *mut verbs_cq,
    command: *mut ibv_create_cq_ex,
    command_size: usize,
    response: *mut ib_uverbs_ex_create_cq_resp,
    response_size: usize,
    flags: u32,
) -> c_int {
    // SAFETY: as the caller promises; no attributes of the provider's own.
    unsafe {
        ibv_cmd_create_cq_ex(
            context,
            attributes,
            #[cfg(layout_since = "59")]
            null_mut(),
            cq,
            command,
            command_size,
            response,
            response_size,
            flags,
        )
    }
}
