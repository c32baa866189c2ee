//! System calls without the C library's hooks, cancellation points and buffers.

use core::ffi::CStr;
use core::ptr;

/// A positive error number.
pub type Errno = i32;

/// Makes a system call with up to six arguments.
///
/// # Safety
/// As the call demands of its pointers.
pub unsafe fn call(number: libc::c_long, arguments: [usize; 6]) -> Result<usize, Errno> {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the caller's.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if result == -1 { Err(errno()) } else { Ok(result as usize) }
}

/// The thread's error number.
pub fn errno() -> Errno {
    // SAFETY: the C library returns a valid pointer for every thread.
    unsafe { *libc::__errno_location() }
}

/// Sets the thread's error number.
pub fn set_errno(value: Errno) {
    // SAFETY: as in `errno`.
    unsafe { *libc::__errno_location() = value }
}

/// For the end of a hook: the value, or -1 and `errno`.
pub fn answer(result: Result<usize, Errno>) -> libc::c_int {
    match result {
        Ok(value) => value as libc::c_int,
        Err(errno) => {
            set_errno(errno);
            -1
        }
    }
}

/// Process number.
pub fn process() -> i32 {
    // SAFETY: no pointers.
    unsafe { call(libc::SYS_getpid, [0; 6]) }.unwrap_or(0) as i32
}

/// Opens a file to read.
pub fn open(path: &CStr) -> Result<i32, Errno> {
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
    // SAFETY: the path is terminated.
    unsafe { call(libc::SYS_openat, [libc::AT_FDCWD as usize, path.as_ptr() as usize, flags, 0, 0, 0]) }
        .map(|descriptor| descriptor as i32)
}

/// Reads into `buffer`.
pub fn read(descriptor: i32, buffer: &mut [u8]) -> Result<usize, Errno> {
    loop {
        let arguments = [descriptor as usize, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0];
        // SAFETY: the buffer is ours for its length.
        match unsafe { call(libc::SYS_read, arguments) } {
            Err(libc::EINTR) => {}
            result => return result,
        }
    }
}

/// Writes to standard error, as much as goes.
pub fn write_error(bytes: &[u8]) {
    let arguments = [libc::STDERR_FILENO as usize, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0];
    // SAFETY: the bytes are readable. A failure to complain is not worth a complaint.
    let _ = unsafe { call(libc::SYS_write, arguments) };
}

/// Closes a descriptor.
pub fn close(descriptor: i32) {
    // SAFETY: no pointers. A failed close leaves nothing to do.
    let _ = unsafe { call(libc::SYS_close, [descriptor as usize, 0, 0, 0, 0, 0]) };
}

/// What a descriptor refers to, unhooked.
pub fn status(descriptor: i32) -> Result<libc::stat, Errno> {
    // SAFETY: all-zero is a valid value of this plain struct.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the kernel fills the struct, whose layout is its own on 64-bit targets.
    unsafe { call(libc::SYS_fstat, [descriptor as usize, ptr::from_mut(&mut status) as usize, 0, 0, 0, 0]) }?;
    Ok(status)
}

/// Milliseconds of the monotonic clock.
pub fn milliseconds() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let arguments = [libc::CLOCK_MONOTONIC as usize, ptr::from_mut(&mut time) as usize, 0, 0, 0, 0];
    // SAFETY: the kernel fills the struct; it cannot fail for this clock.
    let _ = unsafe { call(libc::SYS_clock_gettime, arguments) };
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

/// Sleeps for a millisecond, or less if interrupted.
pub fn pause() {
    let time = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    // SAFETY: the struct is readable.
    let _ = unsafe { call(libc::SYS_nanosleep, [ptr::from_ref(&time) as usize, 0, 0, 0, 0, 0]) };
}

/// Stores bytes into this process at an address that may be wrong.
pub fn store(address: u64, bytes: &[u8]) -> Result<(), Errno> {
    let from = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let to = libc::iovec { iov_base: address as usize as *mut libc::c_void, iov_len: bytes.len() };
    let arguments = [process() as usize, ptr::from_ref(&from) as usize, 1, ptr::from_ref(&to) as usize, 1, 0];
    // SAFETY: the kernel checks the target.
    match unsafe { call(libc::SYS_process_vm_writev, arguments) } {
        Ok(written) if written == bytes.len() => Ok(()),
        _ => Err(libc::EFAULT),
    }
}

/// Lets the device process read and write this process where Yama
/// (`kernel.yama.ptrace_scope` 1) asks for a permission.
pub fn allow_memory_access() {
    let any = libc::PR_SET_PTRACER_ANY as usize;
    // SAFETY: no pointers. Without Yama it fails, and is not needed.
    let _ = unsafe { call(libc::SYS_prctl, [libc::PR_SET_PTRACER as usize, any, 0, 0, 0, 0]) };
}
