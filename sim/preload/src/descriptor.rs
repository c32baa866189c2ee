//! Which descriptors are device nodes.
//!
//! An opened node first is a character device, as libibverbs wants to see it (in
//! truth `/dev/null`). The first verbs ioctl puts the BAR file of the device process in its
//! place, under the same number; from then on the kernel itself looks after
//! `mmap`, `dup`, `fork` and `close`, and the file's inode number is the token.

use irdma_sim_protocol::{Operation, Request};

use crate::configuration;
use crate::device;
use crate::system::{self, Errno};

/// Device number of `/dev/null`, which stands for a node until its first ioctl.
pub const NULL_DEVICE: libc::dev_t = libc::makedev(1, 3);

/// Where nodes are.
const NODE_PREFIX: &[u8] = b"/dev/infiniband/uverbs";

/// What a descriptor is to us.
pub enum Kind {
    /// Not ours.
    Foreign,
    /// A node, with its token.
    Node(u64),
}

/// Finds out, and turns a freshly opened node into a BAR file.
pub fn classify(descriptor: i32) -> Result<Kind, Errno> {
    let status = system::status(descriptor)?;
    match status.st_mode & libc::S_IFMT {
        libc::S_IFREG if Some(status.st_dev) == device::bar_device() => Ok(Kind::Node(status.st_ino)),
        libc::S_IFCHR if status.st_rdev == NULL_DEVICE => match node_number(descriptor) {
            Some(number) => open(descriptor, number).map(Kind::Node),
            None => Ok(Kind::Foreign),
        },
        _ => Ok(Kind::Foreign),
    }
}

/// Number of the node that was opened; `None` if it is the real `/dev/null`.
fn node_number(descriptor: i32) -> Option<u64> {
    let mut link = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0\0";
    let mut digits = [0; 10];
    let mut at = digits.len();
    let mut rest = descriptor;
    while rest > 0 || at == digits.len() {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    link[14..14 + digits.len() - at].copy_from_slice(&digits[at..]);
    let mut target = [0_u8; 64];
    let arguments =
        [libc::AT_FDCWD as usize, link.as_ptr() as usize, target.as_mut_ptr() as usize, target.len(), 0, 0];
    // SAFETY: the path is terminated, the buffer ours.
    let length = unsafe { system::call(libc::SYS_readlinkat, arguments) }.ok()?;
    let target = &target[..length];
    match target.strip_prefix(NODE_PREFIX) {
        Some(number) => configuration::number(number),
        // Without a namespace the node's path is redirected to a link to /dev/null.
        None => (target == b"/dev/null" && configuration::get()?.root().is_some()).then_some(0),
    }
}

/// Opens the node at the device process and puts its BAR file under `descriptor`.
///
/// libibverbs makes the first ioctl before anybody else can know the descriptor,
/// so nothing else happens to it meanwhile.
fn open(descriptor: i32, number: u64) -> Result<u64, Errno> {
    let mut request = Request::new(Operation::Open, 0);
    request.a = number;
    let answer = device::call(&request, &[], &mut [])?;
    let bar = answer.descriptor.ok_or(libc::EMFILE)?;
    let placed = place(bar, descriptor);
    system::close(bar);
    placed?;
    Ok(answer.reply.value)
}

/// Puts `bar`, which stands for a node, under `descriptor`, keeping its close-on-exec flag.
pub fn place(bar: i32, descriptor: i32) -> Result<(), Errno> {
    // SAFETY: no pointers.
    let flags =
        unsafe { system::call(libc::SYS_fcntl, [descriptor as usize, libc::F_GETFD as usize, 0, 0, 0, 0]) }?;
    let close_on_exec = if flags & libc::FD_CLOEXEC as usize != 0 { libc::O_CLOEXEC as usize } else { 0 };
    // SAFETY: no pointers.
    unsafe { system::call(libc::SYS_dup3, [bar as usize, descriptor as usize, close_on_exec, 0, 0, 0]) }?;
    Ok(())
}
