//! The connection manager's node, `/dev/infiniband/rdma_cm`.
//!
//! An opened node is the reading end of a pipe of the device process at once, since
//! programs may wait for events before they give the first command: the pipe is
//! readable while an event waits. So the kernel itself looks after `poll` and its
//! kind, `dup`, `fork` and `close`; the pipe's inode number is the token.

use core::ffi::{CStr, c_char, c_int};

use irdma_sim_protocol::{Operation, Request};

use crate::configuration;
use crate::descriptor::{self, NULL_DEVICE};
use crate::device;
use crate::system::{self, Errno};

/// The node.
const NODE: &CStr = c"/dev/infiniband/rdma_cm";

/// Puts the pipe under a descriptor that has just been opened with `path`, if that is the node.
///
/// # Safety
/// `path` must be null or terminated, `opened` what opening it gave: nobody else may know it yet.
pub unsafe fn present(path: *const c_char, opened: c_int) -> c_int {
    if opened < 0 || path.is_null() || configuration::get().is_none() {
        return opened;
    }
    // SAFETY: the caller's.
    if unsafe { CStr::from_ptr(path) } != NODE || !is_stand_in(opened) {
        return opened;
    }
    match open(opened) {
        Ok(()) => opened,
        Err(errno) => {
            system::close(opened);
            system::answer(Err(errno))
        }
    }
}

/// Whether a descriptor is what stands for nodes until something better comes.
fn is_stand_in(descriptor: i32) -> bool {
    system::status(descriptor)
        .is_ok_and(|status| status.st_mode & libc::S_IFMT == libc::S_IFCHR && status.st_rdev == NULL_DEVICE)
}

fn open(descriptor: i32) -> Result<(), Errno> {
    let answer = device::call(&Request::new(Operation::OpenManager, 0), &[], &mut [])?;
    let pipe = answer.descriptor.ok_or(libc::EMFILE)?;
    let waits = flags(descriptor).map(|flags| flags & libc::O_NONBLOCK);
    let placed = descriptor::place(pipe, descriptor);
    system::close(pipe);
    placed?;
    let arguments = [descriptor as usize, libc::F_SETFL as usize, waits? as usize, 0, 0, 0];
    // SAFETY: no pointers.
    unsafe { system::call(libc::SYS_fcntl, arguments) }?;
    Ok(())
}

/// Whether a program wants to wait for events; an error if the descriptor is closed.
pub fn waits(descriptor: i32) -> Result<bool, Errno> {
    Ok(flags(descriptor)? & libc::O_NONBLOCK == 0)
}

/// Status flags of a descriptor.
fn flags(descriptor: i32) -> Result<c_int, Errno> {
    let arguments = [descriptor as usize, libc::F_GETFL as usize, 0, 0, 0, 0];
    // SAFETY: no pointers.
    unsafe { system::call(libc::SYS_fcntl, arguments) }.map(|flags| flags as c_int)
}

/// The node behind a descriptor that cannot be written to; `None` if it is none.
pub fn token(descriptor: i32) -> Option<u64> {
    let status = system::status(descriptor).ok()?;
    let unnamed_pipe = status.st_mode & libc::S_IFMT == libc::S_IFIFO && status.st_nlink == 0;
    // A pipe of the system has no name either, but it counts as one.
    (unnamed_pipe && configuration::get().is_some()).then_some(status.st_ino)
}

/// Hands a command to the device process. The number of bytes taken; `EBADF` if it knows no such node.
pub fn command(token: u64, buffer: u64, length: u64) -> Result<usize, Errno> {
    let mut request = Request::new(Operation::Manage, token);
    (request.a, request.b) = (buffer, length);
    device::call(&request, &[], &mut []).map(|answer| answer.reply.value as usize)
}
