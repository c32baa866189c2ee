//! Connections to the device process: one per call under way, kept for the next.

use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use irdma_sim_protocol::{Reply, Request};

use crate::configuration::Configuration;
use crate::report;
use crate::system::{self, Errno};

/// Idle connections kept; further ones are closed after use.
const KEPT: usize = 32;
/// Descriptors are moved up to here if they can be, out of the way of
/// programs that expect the lowest numbers or close them all.
const LOWEST_DESCRIPTOR: usize = 512;

/// Idle connections: descriptor in the upper half, inode number of the socket in
/// the lower. 0: none. Taken by swapping in 0, so no two calls share one, not even
/// a signal handler with the code it interrupted.
static IDLE: [AtomicU64; KEPT] = [const { AtomicU64::new(0) }; KEPT];
/// Process that the idle connections belong to. A forked child must not use them:
/// the answers would go to whoever reads first.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Why a call did not get through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The device process has ended.
    Gone,
    /// It did not answer in time.
    Silent,
    /// This process can have no further descriptor.
    Exhausted(Errno),
}

/// What came back.
pub struct Answer {
    /// The reply.
    pub reply: Reply,
    /// Descriptor that came with it.
    pub descriptor: Option<i32>,
    /// Bytes stored in the caller's payload buffer.
    pub payload: usize,
}

/// A connection in use.
pub struct Connection {
    descriptor: i32,
    inode: u32,
}

impl Connection {
    /// An idle connection, or a new one of which `false` says that it has not been greeted.
    pub fn acquire(configuration: &Configuration) -> Result<(Connection, bool), Failure> {
        disown_after_fork();
        for slot in &IDLE {
            let packed = slot.swap(0, Ordering::Relaxed);
            if packed == 0 {
                continue;
            }
            let connection = Connection { descriptor: (packed >> 32) as i32, inode: packed as u32 };
            // A program may have closed all its descriptors, and the number may be another file's now.
            if socket_inode(connection.descriptor) == Some(connection.inode) {
                return Ok((connection, true));
            }
        }
        Ok((Connection::open(configuration)?, false))
    }

    fn open(configuration: &Configuration) -> Result<Connection, Failure> {
        let kind = (libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC) as usize;
        // SAFETY: no pointers.
        let low = unsafe { system::call(libc::SYS_socket, [libc::AF_UNIX as usize, kind, 0, 0, 0, 0]) }
            .map_err(Failure::Exhausted)?;
        let command = libc::F_DUPFD_CLOEXEC as usize;
        // SAFETY: no pointers.
        let high = unsafe { system::call(libc::SYS_fcntl, [low, command, LOWEST_DESCRIPTOR, 0, 0, 0]) };
        let descriptor = match high {
            Ok(high) => {
                system::close(low as i32);
                high as i32
            }
            Err(_) => low as i32,
        };
        let Some(inode) = socket_inode(descriptor) else { return Err(Failure::Gone) };
        let connection = Connection { descriptor, inode };
        connection.limit_waits(configuration.timeout);
        match connection.connect(configuration) {
            Ok(()) => Ok(connection),
            Err(errno) => {
                connection.close();
                Err(if errno == libc::EAGAIN { Failure::Silent } else { Failure::Gone })
            }
        }
    }

    /// Bounds connecting, sending and receiving.
    fn limit_waits(&self, milliseconds: u64) {
        let time = libc::timeval {
            tv_sec: (milliseconds / 1000) as libc::time_t,
            tv_usec: (milliseconds % 1000 * 1000) as libc::suseconds_t,
        };
        for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
            let arguments = [
                self.descriptor as usize,
                libc::SOL_SOCKET as usize,
                option as usize,
                ptr::from_ref(&time) as usize,
                size_of::<libc::timeval>(),
                0,
            ];
            // SAFETY: the time is readable. It cannot fail for a socket and a valid time.
            let _ = unsafe { system::call(libc::SYS_setsockopt, arguments) };
        }
    }

    fn connect(&self, configuration: &Configuration) -> Result<(), Errno> {
        // SAFETY: all-zero is a valid value of this plain struct.
        let mut address: libc::sockaddr_un = unsafe { core::mem::zeroed() };
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (to, from) in address.sun_path.iter_mut().zip(configuration.socket) {
            *to = from as libc::c_char;
        }
        let size = size_of::<libc::sockaddr_un>();
        loop {
            let arguments = [self.descriptor as usize, ptr::from_ref(&address) as usize, size, 0, 0, 0];
            // SAFETY: the address is readable for its size.
            match unsafe { system::call(libc::SYS_connect, arguments) } {
                Ok(_) => return Ok(()),
                Err(libc::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Sends a request with its payload and waits for the answer.
    pub fn exchange(
        &self,
        timeout: u64,
        request: &Request,
        payload: &[u8],
        reply_payload: &mut [u8],
    ) -> Result<Answer, Failure> {
        self.send(timeout, request, payload)?;
        self.receive(timeout, reply_payload)
    }

    fn send(&self, timeout: u64, request: &Request, payload: &[u8]) -> Result<(), Failure> {
        let head = request.as_bytes();
        let parts = [
            libc::iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: head.len() },
            libc::iovec { iov_base: payload.as_ptr().cast_mut().cast(), iov_len: payload.len() },
        ];
        // SAFETY: all-zero is a valid value of this plain struct.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        message.msg_iov = parts.as_ptr().cast_mut();
        message.msg_iovlen = parts.len() as _;
        // SAFETY: the message describes memory that lives until the call returns.
        unsafe { self.transfer(libc::SYS_sendmsg, timeout, &mut message, libc::MSG_NOSIGNAL) }.map(|_| ())
    }

    fn receive(&self, timeout: u64, payload: &mut [u8]) -> Result<Answer, Failure> {
        let mut head = [0_u8; size_of::<Reply>()];
        let mut control = Control { bytes: [0; CONTROL_LENGTH] };
        let mut parts = [
            libc::iovec { iov_base: head.as_mut_ptr().cast(), iov_len: head.len() },
            libc::iovec { iov_base: payload.as_mut_ptr().cast(), iov_len: payload.len() },
        ];
        // SAFETY: all-zero is a valid value of this plain struct.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len() as _;
        // SAFETY: both views of the union are plain bytes.
        message.msg_control = unsafe { control.bytes.as_mut_ptr() }.cast();
        message.msg_controllen = CONTROL_LENGTH as _;
        // SAFETY: the message describes memory that lives until the call returns.
        let length =
            unsafe { self.transfer(libc::SYS_recvmsg, timeout, &mut message, libc::MSG_CMSG_CLOEXEC) }?;
        let descriptor = received_descriptor(&message);
        match Reply::parse(&head[..length.min(head.len())]) {
            Some(reply) => Ok(Answer { reply, descriptor, payload: length - head.len() }),
            None => {
                // Nothing, or less than a reply: the other side has closed.
                if let Some(descriptor) = descriptor {
                    system::close(descriptor);
                }
                Err(Failure::Gone)
            }
        }
    }

    /// `sendmsg` or `recvmsg`, through interruptions but not for ever.
    ///
    /// # Safety
    /// `message` must describe memory fit for the call.
    unsafe fn transfer(
        &self,
        number: libc::c_long,
        timeout: u64,
        message: &mut libc::msghdr,
        flags: libc::c_int,
    ) -> Result<usize, Failure> {
        // The socket's own time-out starts anew after every interruption.
        let mut deadline = None;
        let mut flags = flags;
        loop {
            let arguments =
                [self.descriptor as usize, ptr::from_mut(message) as usize, flags as usize, 0, 0, 0];
            // SAFETY: the caller's.
            match unsafe { system::call(number, arguments) } {
                Ok(length) => return Ok(length),
                Err(libc::EINTR) => {
                    let now = system::milliseconds();
                    if now >= *deadline.get_or_insert(now + timeout) {
                        // One last look: this process may have been stopped, not the device.
                        flags |= libc::MSG_DONTWAIT;
                    }
                }
                Err(libc::EAGAIN) => return Err(Failure::Silent),
                Err(_) => return Err(Failure::Gone),
            }
        }
    }

    /// Keeps the connection for the next call.
    pub fn release(self) {
        let packed = (self.descriptor as u64) << 32 | u64::from(self.inode);
        for slot in &IDLE {
            if slot.compare_exchange(0, packed, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return;
            }
        }
        self.close();
    }

    /// Ends the connection.
    pub fn close(self) {
        system::close(self.descriptor);
    }
}

const CONTROL_LENGTH: usize = 64;

/// Room for ancillary data, aligned as its header.
#[repr(C)]
union Control {
    bytes: [u8; CONTROL_LENGTH],
    _header: libc::cmsghdr,
}

/// The descriptor in a received message.
fn received_descriptor(message: &libc::msghdr) -> Option<i32> {
    // SAFETY: the kernel filled the control area that the message describes.
    let header = unsafe { libc::CMSG_FIRSTHDR(message) };
    if header.is_null() {
        return None;
    }
    // SAFETY: CMSG_FIRSTHDR returns a whole header inside the control area.
    let (level, kind) = unsafe { ((*header).cmsg_level, (*header).cmsg_type) };
    if level != libc::SOL_SOCKET || kind != libc::SCM_RIGHTS {
        return None;
    }
    // SAFETY: a rights message holds at least one descriptor.
    Some(unsafe { libc::CMSG_DATA(header).cast::<i32>().read_unaligned() })
}

/// Inode number of a descriptor, if it is a socket. The kernel numbers sockets with 32 bits.
fn socket_inode(descriptor: i32) -> Option<u32> {
    let status = system::status(descriptor).ok()?;
    (status.st_mode & libc::S_IFMT == libc::S_IFSOCK).then_some(status.st_ino as u32)
}

/// In a process that has just been forked, closes what it inherited.
fn disown_after_fork() {
    let process = system::process();
    let owner = OWNER.load(Ordering::Relaxed);
    if owner == process {
        return;
    }
    if owner == 0 {
        // A first connection of this program: let children disown at once, so that
        // the parent's end is seen by the device even if the child never calls.
        // SAFETY: the handler is async-signal-safe.
        unsafe { libc::pthread_atfork(None, None, Some(disown_in_child)) };
    }
    if OWNER.compare_exchange(owner, process, Ordering::Relaxed, Ordering::Relaxed).is_ok() && owner != 0 {
        for slot in &IDLE {
            let packed = slot.swap(0, Ordering::Relaxed);
            let (descriptor, inode) = ((packed >> 32) as i32, packed as u32);
            if packed != 0 && socket_inode(descriptor) == Some(inode) {
                system::close(descriptor);
            }
        }
    }
}

extern "C" fn disown_in_child() {
    disown_after_fork();
}

/// Tells the user, in words, why the device counts as removed.
pub fn explain(failure: Failure, timeout: u64) {
    match failure {
        Failure::Gone => report::line(format_args!("the device process has ended: the device is removed")),
        Failure::Silent => report::line(format_args!(
            "the device process did not answer within {timeout} ms: the device counts as removed"
        )),
        Failure::Exhausted(errno) => report::line(format_args!(
            "no descriptor for a connection to the device process (errno {errno}): the device counts as removed"
        )),
    }
}
