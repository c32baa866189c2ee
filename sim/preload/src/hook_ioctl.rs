//! `ioctl`: verbs calls go to the device process, all others to the kernel.
//! `fstat`: a node looks like a character device.

use irdma_sim_protocol::{Operation, Request, VERBS_IOCTL};

use crate::configuration;
use crate::descriptor::{self, Kind};
use crate::device;
use crate::system::{self, Errno};

/// # Safety
/// As `ioctl(2)`. C declares it with a variable argument, which is passed like a third one.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn ioctl(
    descriptor: libc::c_int,
    number: libc::c_ulong,
    argument: *mut libc::c_void,
) -> libc::c_int {
    if number as u32 == VERBS_IOCTL as u32 && configuration::get().is_some() {
        match descriptor::classify(descriptor) {
            Ok(Kind::Node(token)) => return system::answer(verbs(token, argument as u64)),
            Ok(Kind::Foreign) => {}
            Err(errno) => return system::answer(Err(errno)),
        }
    }
    // SAFETY: the caller's.
    system::answer(unsafe {
        system::call(libc::SYS_ioctl, [descriptor as usize, number as usize, argument as usize, 0, 0, 0])
    })
}

/// A verbs call. A descriptor that comes with the answer gets its number here,
/// and the program finds it where the device process says.
fn verbs(token: u64, argument: u64) -> Result<usize, Errno> {
    let mut request = Request::new(Operation::Ioctl, token);
    request.a = argument;
    let answer = device::call(&request, &[], &mut [])?;
    let wanted = answer.reply.patch_length as usize;
    match answer.descriptor {
        Some(descriptor) => {
            let number = (descriptor as u64).to_le_bytes();
            let stored = system::store(answer.reply.patch_address, &number[..wanted.min(number.len())]);
            if stored.is_err() {
                system::close(descriptor);
            }
            stored?;
        }
        // The kernel could not give this process another descriptor.
        None if wanted > 0 => return Err(libc::EMFILE),
        None => {}
    }
    Ok(answer.reply.value as usize)
}

/// # Safety
/// As `fstat(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn fstat(descriptor: libc::c_int, buffer: *mut libc::stat) -> libc::c_int {
    // SAFETY: the caller's.
    let result = unsafe { system::call(libc::SYS_fstat, [descriptor as usize, buffer as usize, 0, 0, 0, 0]) };
    if result.is_ok() {
        // SAFETY: the kernel has just filled it.
        let status = unsafe { &mut *buffer };
        // `ibv_import_device` and librdmacm want to see a character device. Only an unlinked file
        // can be a BAR, only an unlinked pipe a node of the connection manager.
        if matches!(status.st_mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFIFO)
            && status.st_nlink == 0
            && Some(status.st_dev) == device::bar_device()
        {
            status.st_mode = status.st_mode & !libc::S_IFMT | libc::S_IFCHR;
            status.st_rdev = descriptor::NULL_DEVICE;
        }
    }
    system::answer(result)
}

/// # Safety
/// As `fstat(2)`, which it equals on 64-bit machines.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn fstat64(descriptor: libc::c_int, buffer: *mut libc::stat) -> libc::c_int {
    // SAFETY: the caller's.
    unsafe { fstat(descriptor, buffer) }
}
