//! The device process as this program sees it: greeted, alive or removed.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use irdma_sim_protocol::{MAGIC, Operation, Reply, Request};

use crate::configuration::{self, Configuration};
use crate::connection::{self, Answer, Connection, Failure};
use crate::report;
use crate::system::{self, Errno};
use crate::trap;

/// Set once the device process is gone, silent or not allowed to see us.
static REMOVED: AtomicBool = AtomicBool::new(false);
/// `st_dev` of all BAR files; 0 until greeted.
static BAR_DEVICE: AtomicU64 = AtomicU64::new(0);
/// Where the device process checks that it can read this program.
static PROOF: AtomicU32 = AtomicU32::new(MAGIC);

/// `st_dev` of BAR files, if the device process has been greeted.
pub fn bar_device() -> Option<u64> {
    Some(BAR_DEVICE.load(Ordering::Relaxed)).filter(|device| *device != 0)
}

/// Makes a call. `EIO` once the device is removed.
///
/// # Errors
/// What the device process answers, as a positive errno.
pub fn call(request: &Request, payload: &[u8], reply_payload: &mut [u8]) -> Result<Answer, Errno> {
    let configuration = configuration::get().ok_or(libc::ENODEV)?;
    if REMOVED.load(Ordering::Relaxed) {
        return Err(libc::EIO);
    }
    let connection = match connect(configuration) {
        Ok(connection) => connection?,
        // An ioctl can tell that there are no descriptors left; a doorbell would be lost.
        Err(Failure::Exhausted(errno)) if request.operation != Operation::Doorbell as u32 => {
            return Err(errno);
        }
        Err(failure) => return Err(remove(failure, configuration.timeout)),
    };
    match connection.exchange(configuration.timeout, request, payload, reply_payload) {
        Ok(answer) => {
            connection.release();
            if answer.reply.result < 0 {
                if let Some(descriptor) = answer.descriptor {
                    system::close(descriptor);
                }
                return Err(-answer.reply.result);
            }
            Ok(answer)
        }
        Err(failure) => {
            connection.close();
            Err(remove(failure, configuration.timeout))
        }
    }
}

/// The device counts as removed from now on; says so the first time.
fn remove(failure: Failure, timeout: u64) -> Errno {
    if !REMOVED.swap(true, Ordering::Relaxed) {
        connection::explain(failure, timeout);
    }
    libc::EIO
}

/// A greeted connection. While the process has no descriptor left it waits for
/// one: a doorbell must not get lost for that.
fn connect(configuration: &Configuration) -> Result<Result<Connection, Errno>, Failure> {
    let mut deadline = None;
    loop {
        match Connection::acquire(configuration) {
            Ok((connection, true)) => return Ok(Ok(connection)),
            Ok((connection, false)) => return greet(configuration, connection),
            Err(Failure::Exhausted(errno)) => {
                let now = system::milliseconds();
                if now >= *deadline.get_or_insert(now + configuration.timeout) {
                    return Err(Failure::Exhausted(errno));
                }
                system::pause();
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// Introduces this process on a new connection.
fn greet(
    configuration: &Configuration,
    connection: Connection,
) -> Result<Result<Connection, Errno>, Failure> {
    system::allow_memory_access();
    let mut request = Request::new(Operation::Hello, 0);
    request.a = ptr::from_ref(&PROOF) as u64;
    let mut payload = [0; 8];
    let answer = match connection.exchange(configuration.timeout, &request, &[], &mut payload) {
        Ok(answer) => answer,
        Err(failure) => {
            connection.close();
            return Err(failure);
        }
    };
    match answer.reply {
        Reply { result: 0, value, .. } if answer.payload >= payload.len() => {
            BAR_DEVICE.store(u64::from_le_bytes(payload), Ordering::Relaxed);
            if value == irdma_sim_protocol::Mode::Trap as u64 {
                trap::install();
            }
            Ok(Ok(connection))
        }
        reply => {
            connection.close();
            refused(-reply.result);
            Ok(Err(libc::EIO))
        }
    }
}

/// The device process does not want us.
fn refused(errno: Errno) {
    if REMOVED.swap(true, Ordering::Relaxed) {
        return;
    }
    if errno == libc::EPERM {
        report::line(format_args!(
            "the device process may not read this program's memory (process_vm_readv is refused): \
             run both as the same user, and with kernel.yama.ptrace_scope 0 or 1"
        ));
    } else {
        report::line(format_args!("the device process refuses this program (errno {errno})"));
    }
}
