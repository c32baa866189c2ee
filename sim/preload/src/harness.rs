//! For test programs: step the device and command it. Found with `dlsym`.
//!
//! ```c
//! /* Lets the device work until nothing is left to do (step mode). Its time, which passes by steps
//!    alone, goes on by 10 ms. Doorbells served, or -errno. */
//! long irdma_sim_step(void);
//! /* Runs a control command, as `irdma-sim ctl` does. Stores at most `reply_length` bytes of its
//!    answer, or of the reason for a refusal, the last of them 0. Length of the answer, or -errno. */
//! long irdma_sim_control(const char *text, char *reply, size_t reply_length);
//! ```

use core::ffi::{CStr, c_char, c_long};

use irdma_sim_protocol::{MAX_PAYLOAD, Operation, Request};

use crate::device;

/// See above.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn irdma_sim_step() -> c_long {
    match device::call(&Request::new(Operation::Step, 0), &[], &mut []) {
        Ok(answer) => answer.reply.value as c_long,
        Err(errno) => -c_long::from(errno),
    }
}

/// See above.
///
/// # Safety
/// `text` must be terminated, `reply` writable for `reply_length` bytes.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn irdma_sim_control(
    text: *const c_char,
    reply: *mut c_char,
    reply_length: usize,
) -> c_long {
    if text.is_null() || reply.is_null() || reply_length == 0 {
        return -c_long::from(libc::EINVAL);
    }
    // SAFETY: the caller's.
    let text = unsafe { CStr::from_ptr(text) }.to_bytes();
    if text.len() > MAX_PAYLOAD {
        return -c_long::from(libc::E2BIG);
    }
    // SAFETY: the caller's. Zeroed first, so that a reference to it is allowed.
    let reply = unsafe {
        reply.write_bytes(0, reply_length);
        core::slice::from_raw_parts_mut(reply.cast::<u8>(), reply_length - 1)
    };
    match device::call(&Request::new(Operation::Control, 0), text, reply) {
        Ok(answer) => answer.payload as c_long,
        Err(errno) => -c_long::from(errno),
    }
}
