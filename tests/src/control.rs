//! Orders to the software device that a program runs on: faults, hand-made completions, counts.
//!
//! The preloaded library exports `irdma_sim_control`, which takes a command in
//! text, as `irdma-sim ctl` does, and gives the answer in text.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_long};

/// `irdma_sim_control(command, reply, size of reply)`: length of the reply, or a negative errno.
type Control = unsafe extern "C" fn(*const c_char, *mut c_char, usize) -> c_long;

/// Gives the device a command; its answer, or its refusal.
pub fn try_control(command: &str) -> Result<String, String> {
    // SAFETY: a plain look-up by name.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"irdma_sim_control".as_ptr()) };
    if symbol.is_null() {
        return Err("no irdma_sim_control: not on the software device".to_owned());
    }
    // SAFETY: the preloaded library declares the symbol so.
    let function: Control = unsafe { std::mem::transmute::<*mut libc::c_void, Control>(symbol) };
    let text = CString::new(command).expect("commands have no zero byte");
    let mut reply = vec![0u8; 32768];
    // SAFETY: both buffers are valid for the call and the size is that of `reply`.
    let result = unsafe { function(text.as_ptr(), reply.as_mut_ptr().cast(), reply.len()) };
    let length = reply.iter().position(|&byte| byte == 0).unwrap_or(reply.len());
    let answer = String::from_utf8_lossy(&reply[..length]).into_owned();
    if result < 0 { Err(format!("errno {}: {answer}", -result)) } else { Ok(answer) }
}

/// Gives the device a command, which it must accept.
#[track_caller]
pub fn control(command: &str) -> String {
    try_control(command).unwrap_or_else(|refusal| panic!("device command \"{command}\": {refusal}"))
}

/// How many objects of each kind the device holds.
pub fn object_counts() -> BTreeMap<String, u64> {
    control("status")
        .split(|separator: char| separator.is_whitespace() || separator == ',')
        .filter_map(|word| {
            let (kind, count) = word.split_once('=')?;
            Some((kind.to_owned(), count.parse().ok()?))
        })
        .collect()
}
