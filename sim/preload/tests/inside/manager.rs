//! Nodes of the connection manager.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

/// What `write` gives: a number of bytes or an errno.
fn write(descriptor: RawFd, bytes: &[u8]) -> Result<isize, i32> {
    // SAFETY: the bytes are readable for their length.
    match unsafe { libc::write(descriptor, bytes.as_ptr().cast(), bytes.len()) } {
        -1 => Err(io::Error::last_os_error().raw_os_error().unwrap()),
        taken => Ok(taken),
    }
}

fn flags(descriptor: RawFd, which: libc::c_int) -> libc::c_int {
    // SAFETY: no pointers.
    unsafe { libc::fcntl(descriptor, which) }
}

fn open_manager(flags: libc::c_int) -> File {
    let mut options = File::options();
    options.read(true).write(true).custom_flags(flags).open("/dev/infiniband/rdma_cm").unwrap()
}

const EVENT_NEVER: [u8; 8] = [1, 0, 0, 0, 0, 0, 0, 0];
const EVENT_SOON: [u8; 8] = [2, 0, 0, 0, 0, 0, 0, 0];
const COMMAND: [u8; 8] = [3, 0, 0, 0, 0, 0, 0, 0];

#[test]
#[ignore = "run by the tests in program"]
fn manager() {
    let node = open_manager(libc::O_NONBLOCK);
    let descriptor = node.as_raw_fd();
    assert_eq!(flags(descriptor, libc::F_GETFL) & libc::O_NONBLOCK, libc::O_NONBLOCK);
    assert_eq!(flags(descriptor, libc::F_GETFD), libc::FD_CLOEXEC);
    assert_eq!(write(descriptor, &[22, 0, 0, 0]), Err(libc::EINVAL));
    assert_eq!(write(descriptor, &EVENT_NEVER), Err(libc::EAGAIN));
    let ready = |descriptor| {
        let mut watched = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry; it does not wait.
        unsafe { libc::poll(&mut watched, 1, 0) == 1 }
    };
    assert!(!ready(descriptor));
    assert_eq!(write(descriptor, &COMMAND), Ok(8));
    assert!(ready(descriptor));
    // A duplicate is the same node, which waits or does not wait with it.
    let twin = node.try_clone().unwrap();
    assert_eq!(write(twin.as_raw_fd(), &COMMAND), Ok(8));

    let waiting = open_manager(0);
    assert_eq!(flags(waiting.as_raw_fd(), libc::F_GETFL) & libc::O_NONBLOCK, 0);
    let start = std::time::Instant::now();
    assert_eq!(write(waiting.as_raw_fd(), &EVENT_SOON), Ok(8));
    assert!(start.elapsed() >= std::time::Duration::from_millis(90));

    // What is not the node's is the system's.
    let (reader, writer) = io::pipe().unwrap();
    assert_eq!(write(reader.as_raw_fd(), &COMMAND), Err(libc::EBADF));
    assert_eq!(write(writer.as_raw_fd(), &COMMAND), Ok(8));
    assert_eq!(write(-1, &COMMAND), Err(libc::EBADF));
}

// SAFETY: the signature is that of POSIX.
unsafe extern "C" {
    fn pthread_cancel(thread: libc::pthread_t) -> libc::c_int;
}

/// Waits for an event that never comes. May be unwound, so it owns nothing.
extern "C-unwind" fn wait_for_ever(node: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: the bytes are readable for their length.
    unsafe { write_unwinding(node as usize as RawFd, EVENT_NEVER.as_ptr().cast(), EVENT_NEVER.len()) };
    std::ptr::null_mut()
}

// SAFETY: the signature is that of POSIX; a cancelled thread unwinds through it.
unsafe extern "C-unwind" {
    #[link_name = "write"]
    fn write_unwinding(descriptor: RawFd, bytes: *const libc::c_void, length: usize) -> isize;
}

#[test]
#[ignore = "run by the tests in program"]
fn cancelled() {
    let node = open_manager(0);
    type Start = extern "C" fn(*mut libc::c_void) -> *mut libc::c_void;
    type Unwinding = extern "C-unwind" fn(*mut libc::c_void) -> *mut libc::c_void;
    // SAFETY: the same convention, but for being unwound, which C's threads allow.
    let start = unsafe { std::mem::transmute::<Unwinding, Start>(wait_for_ever) };
    // SAFETY: the thread is joined below, and the node outlives it.
    unsafe {
        let mut thread: libc::pthread_t = std::mem::zeroed();
        let argument = node.as_raw_fd() as usize as *mut libc::c_void;
        assert_eq!(libc::pthread_create(&mut thread, std::ptr::null(), start, argument), 0);
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert_eq!(pthread_cancel(thread), 0);
        let mut ended = std::ptr::null_mut();
        assert_eq!(libc::pthread_join(thread, &mut ended), 0);
        // PTHREAD_CANCELED.
        assert_eq!(ended as isize, -1);
    }
}
