//! Requests to the profiler that the program runs under.
//!
//! Valgrind recognises a sequence of instructions that changes nothing
//! (valgrind.h, "client requests"), so that outside of it these do nothing.

use std::ffi::CString;

/// `VG_USERREQ__RUNNING_ON_VALGRIND` of valgrind.h.
const RUNNING_ON_VALGRIND: usize = 0x1001;
/// Callgrind's requests are numbered from here on: `VG_USERREQ_TOOL_BASE('C', 'T')` of valgrind.h.
const CALLGRIND: usize = 0x4354_0000;
/// `VG_USERREQ__ZERO_STATS` of callgrind.h.
const ZERO_STATS: usize = CALLGRIND + 1;
/// `VG_USERREQ__TOGGLE_COLLECT` of callgrind.h.
const TOGGLE_COLLECT: usize = CALLGRIND + 2;
/// `VG_USERREQ__DUMP_STATS_AT` of callgrind.h.
const DUMP_STATS_AT: usize = CALLGRIND + 3;

/// Whether the program runs under valgrind.
pub fn is_running() -> bool {
    request(RUNNING_ON_VALGRIND, 0) != 0
}

/// Forgets what was counted.
pub fn zero() {
    request(ZERO_STATS, 0);
}

/// Writes what was counted to a file that `name` is noted in, and forgets it.
pub fn dump(name: &str) {
    let name = CString::new(name).expect("names have no zero byte");
    request(DUMP_STATS_AT, name.as_ptr() as usize);
}

/// Counts the instructions of a call, and of the few around it.
pub fn collecting(measured: &mut dyn FnMut() -> i64) -> i64 {
    request(TOGGLE_COLLECT, 0);
    let outcome = measured();
    request(TOGGLE_COLLECT, 0);
    outcome
}

#[cfg(target_arch = "x86_64")]
#[inline(never)]
fn request(number: usize, argument: usize) -> usize {
    let block: [usize; 6] = [number, argument, 0, 0, 0, 0];
    let mut result = 0;
    // SAFETY: 128 bits of rotation and an exchange of a register with itself change nothing; under
    // valgrind they stand for a request that reads `block` and sets rdx.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
            in("rax") &raw const block,
            inout("rdx") result,
            options(nostack),
        );
    }
    result
}

#[cfg(not(target_arch = "x86_64"))]
fn request(_number: usize, _argument: usize) -> usize {
    0
}
