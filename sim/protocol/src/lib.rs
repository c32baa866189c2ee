//! Messages between a program on the software device and the device process.
//!
//! Unix `SOCK_SEQPACKET` connections, each used by one thread of the program at a
//! time (by which one changes from call to call); every request is answered by
//! exactly one reply, so a call is a `send` and a `recv`. A program has as many
//! connections as it has calls under way at once; a forked child makes its own.
//! The program is the peer of the connection (`SO_PEERCRED`). A request is a [`Request`] followed by at most
//! [`MAX_PAYLOAD`] bytes; a reply is a [`Reply`], possibly followed by a
//! payload, and may carry one file descriptor (`SCM_RIGHTS`).
//!
//! An open device node is named by its *token*: the inode number of the BAR
//! file that the device process made for it. The program finds a token with
//! `fstat` of the descriptor or in `/proc/self/maps`, so nothing has to follow
//! `dup`, `close`, `fork` or `munmap`. Tokens are never used twice in the life
//! of a device process.

use core::ffi::CStr;

/// First word of every request; changes with the layout of the messages.
pub const MAGIC: u32 = 0x6972_0001;

/// Most payload bytes behind a [`Request`] or a [`Reply`].
pub const MAX_PAYLOAD: usize = 32768;

/// Environment variable with the path of the device process's socket.
pub const SOCKET_VARIABLE: &CStr = c"IRDMA_SIM_SOCKET";

/// Environment variable with the folder below which a program finds the device's
/// files (`sys/`, `dev/`, `etc/`), where it has no namespace that shows them in place.
pub const ROOT_VARIABLE: &CStr = c"IRDMA_SIM_ROOT";

/// Milliseconds after which a device process that does not answer counts as removed.
pub const TIMEOUT_VARIABLE: &CStr = c"IRDMA_SIM_TIMEOUT";

/// The same if the variable is not set.
pub const DEFAULT_TIMEOUT_MILLISECONDS: u64 = 10_000;

/// `ioctl` request number of every uverbs call (`RDMA_VERBS_IOCTL`).
pub const VERBS_IOCTL: u64 = 0xC018_1B01;

/// How doorbells reach the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Mode {
    /// The BAR file has no bytes: a store faults and becomes a [`Operation::Doorbell`].
    Trap = 0,
    /// The BAR file has bytes; the device process polls them.
    Poll = 1,
    /// The BAR file has bytes; the device works only on [`Operation::Step`].
    Step = 2,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Operation {
    /// First on a connection. `a` is the address of a `u32` in the program that
    /// holds [`MAGIC`]: the device process reads it with `process_vm_readv` and
    /// answers `EPERM` if it may not. Reply `value`: the [`Mode`]; payload: the
    /// `st_dev` of all BAR files, a little-endian `u64`.
    Hello = 1,
    /// Open device node number `a`. Reply: the BAR file's descriptor; `value`: its token.
    Open = 2,
    /// The ioctl on `token` whose argument (`struct ib_uverbs_ioctl_hdr`) is at
    /// address `a` of the program, which the device process reads and writes itself.
    /// A reply with a descriptor says in `patch_address`/`patch_length` where
    /// the program is to store the descriptor's number (little-endian).
    Ioctl = 3,
    /// A store of `value` `b` of width `c` bytes at byte `a` of `token`'s BAR.
    /// Answered when the device has done what can be done at once.
    /// `ESTALE` if the token is no longer open.
    Doorbell = 4,
    /// Let the device work until nothing is left to do (step mode). Reply `value`: doorbells served.
    Step = 5,
    /// The payload is a control command in text (see `irdma-sim ctl`); the reply's payload its answer.
    Control = 6,
    /// Open the connection manager's node. Reply: the descriptor of a pipe that is readable while
    /// an event waits; `value`: its token, the inode number of the pipe.
    OpenManager = 7,
    /// A `write` of `b` bytes at address `a` of the program to the connection manager's node
    /// `token`, which the device process reads itself. Reply `value`: bytes taken. `EAGAIN` if
    /// the program asks for an event and none waits: waiting is the program's side's.
    /// `EBADF` if the token is none.
    Manage = 8,
}

impl Operation {
    /// The operation with that number.
    pub fn from_number(number: u32) -> Option<Operation> {
        Some(match number {
            1 => Operation::Hello,
            2 => Operation::Open,
            3 => Operation::Ioctl,
            4 => Operation::Doorbell,
            5 => Operation::Step,
            6 => Operation::Control,
            7 => Operation::OpenManager,
            8 => Operation::Manage,
            _ => return None,
        })
    }
}

/// A request, as it goes over the socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Request {
    /// [`MAGIC`].
    pub magic: u32,
    /// An [`Operation`].
    pub operation: u32,
    /// The open device node it is about, 0 if none.
    pub token: u64,
    /// Operands, by operation.
    pub a: u64,
    /// Second operand.
    pub b: u64,
    /// Third operand.
    pub c: u64,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Reply {
    /// 0, or a negative errno.
    pub result: i32,
    /// Bytes to store at `patch_address`: 0, 4 or 8.
    pub patch_length: u32,
    /// Where the number of the received descriptor is to be stored.
    pub patch_address: u64,
    /// Result, by operation.
    pub value: u64,
}

/// Bytes of a plain struct of this crate.
///
/// Only for [`Request`] and [`Reply`], which have no padding.
fn bytes_of<T>(value: &T) -> &[u8] {
    // SAFETY: both structs consist of integers without padding, so all their bytes are initialised.
    unsafe { core::slice::from_raw_parts(core::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// Reads a plain struct from the start of `bytes`.
fn from_bytes<T: Copy>(bytes: &[u8]) -> Option<T> {
    if bytes.len() < size_of::<T>() {
        return None;
    }
    // SAFETY: enough bytes are there, and every bit pattern is a valid value of either struct.
    Some(unsafe { core::ptr::read_unaligned(bytes.as_ptr().cast()) })
}

const _: () = assert!(size_of::<Request>() == 40 && size_of::<Reply>() == 24);

impl Request {
    /// A request for `operation` on `token`.
    pub fn new(operation: Operation, token: u64) -> Request {
        Request { magic: MAGIC, operation: operation as u32, token, ..Request::default() }
    }

    /// As sent.
    pub fn as_bytes(&self) -> &[u8] {
        bytes_of(self)
    }

    /// A received request; `None` if it is too short or of another layout.
    pub fn parse(bytes: &[u8]) -> Option<Request> {
        from_bytes::<Request>(bytes).filter(|request| request.magic == MAGIC)
    }
}

impl Reply {
    /// A failure with that (positive) errno.
    pub fn error(errno: i32) -> Reply {
        Reply { result: -errno, ..Reply::default() }
    }

    /// As sent.
    pub fn as_bytes(&self) -> &[u8] {
        bytes_of(self)
    }

    /// A received reply.
    pub fn parse(bytes: &[u8]) -> Option<Reply> {
        from_bytes(bytes)
    }
}
