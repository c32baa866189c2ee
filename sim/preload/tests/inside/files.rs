//! Nodes, paths and sockets, and the entries for test harnesses.

use std::ffi::{CStr, c_char, c_long};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use super::{Argument, Bar, errno, open_node, verbs};

#[test]
#[ignore = "run by the tests in program"]
fn node() {
    let file = open_node();
    assert!(file.metadata().unwrap().file_type().is_char_device());
    let descriptor = file.as_raw_fd();
    assert_eq!(errno(verbs(descriptor, &mut Argument(libc::ENOSPC as u32, 0))), libc::ENOSPC);
    // A BAR now, though fstat still says what libibverbs wants to hear.
    // SAFETY: all-zero is a valid value of this plain struct; fstat fills it.
    let status = unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        assert_eq!(libc::fstat(descriptor, &mut status), 0);
        status
    };
    assert_eq!((status.st_mode & libc::S_IFMT, status.st_rdev), (libc::S_IFCHR, libc::makedev(1, 3)));
    let link = std::fs::read_link(format!("/proc/self/fd/{descriptor}")).unwrap();
    assert!(link.to_string_lossy().contains("memfd:bar"), "{link:?}");
    // Close-on-exec as before the exchange.
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::fcntl(descriptor, libc::F_GETFD) }, libc::FD_CLOEXEC);
    // A duplicate is the same node.
    let twin = file.try_clone().unwrap();
    assert_eq!(errno(verbs(twin.as_raw_fd(), &mut Argument(libc::EBUSY as u32, 0))), libc::EBUSY);
    // Other files are nobody's.
    let other = File::open("/dev/zero").unwrap();
    assert_eq!(errno(verbs(other.as_raw_fd(), &mut Argument(0, 0))), libc::ENOTTY);
    assert_eq!(errno(verbs(-1, &mut Argument(0, 0))), libc::EBADF);
}

#[test]
#[ignore = "run by the tests in program"]
fn errors() {
    let bar = Bar::open();
    let node = bar.node.as_raw_fd();
    let mut argument = Argument(1, -1);
    verbs(node, &mut argument).unwrap();
    let link = std::fs::read_link(format!("/proc/self/fd/{}", argument.1)).unwrap();
    assert_eq!(link.to_str(), Some("/dev/zero"));
    let before = std::fs::read_dir("/proc/self/fd").unwrap().count();
    assert_eq!(errno(verbs(node, &mut Argument(2, 0))), libc::EFAULT);
    assert_eq!(std::fs::read_dir("/proc/self/fd").unwrap().count(), before);
    // RDMA netlink is not there, other netlink is.
    // SAFETY: no pointers.
    unsafe {
        assert_eq!(libc::socket(libc::AF_NETLINK, libc::SOCK_RAW, 20), -1);
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::EPROTONOSUPPORT));
        assert!(libc::socket(libc::AF_NETLINK, libc::SOCK_RAW, 0) >= 0);
    }
    // A doorbell leaves errno alone.
    // SAFETY: the C library's thread-local.
    unsafe { *libc::__errno_location() = 77 };
    bar.ring(1);
    assert_eq!(io::Error::last_os_error().raw_os_error(), Some(77));
}

#[test]
#[ignore = "run by the tests in program"]
fn harness() {
    type Step = extern "C" fn() -> c_long;
    type Control = unsafe extern "C" fn(*const c_char, *mut c_char, usize) -> c_long;
    let find = |name: &CStr| {
        // SAFETY: the name is terminated.
        let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        assert!(!address.is_null());
        address
    };
    // SAFETY: the library exports them with these signatures.
    let (step, control): (Step, Control) = unsafe {
        (
            std::mem::transmute::<*mut libc::c_void, Step>(find(c"irdma_sim_step")),
            std::mem::transmute::<*mut libc::c_void, Control>(find(c"irdma_sim_control")),
        )
    };
    assert_eq!(step(), 42);
    let mut reply = [1_u8; 64];
    // SAFETY: a terminated text and a buffer of that length.
    let mut say = |text: &CStr, length| unsafe {
        let result = control(text.as_ptr(), reply.as_mut_ptr().cast(), length);
        (result, CStr::from_bytes_until_nul(&reply).unwrap().to_str().unwrap().to_owned())
    };
    assert_eq!(say(c"this", 64), (8, "did this".into()));
    assert_eq!(say(c"this", 4), (3, "did".into()));
    assert_eq!(say(c"bad", 64), (-c_long::from(libc::EINVAL), "no such command".into()));
    assert_eq!(say(c"this", 0).0, -c_long::from(libc::EINVAL));
}

#[test]
#[ignore = "run by the tests in program"]
fn refused() {
    let node = open_node();
    assert_eq!(errno(verbs(node.as_raw_fd(), &mut Argument(1, 0))), libc::EIO);
    assert_eq!(errno(verbs(node.as_raw_fd(), &mut Argument(1, 0))), libc::EIO);
}

#[test]
#[ignore = "run by the tests in program"]
fn paths() {
    let device = "/sys/class/infiniband/irdma0";
    assert_eq!(std::fs::read_to_string(format!("{device}/node_type")).unwrap(), "1: CA\n");
    assert!(std::fs::metadata(device).unwrap().is_dir());
    let names: Vec<_> = std::fs::read_dir(device).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["node_type"]);
    assert!(std::fs::canonicalize(device).unwrap().ends_with("sys/class/infiniband/irdma0"));
    assert_eq!(std::fs::read_link("/dev/infiniband/uverbs0").unwrap().to_str(), Some("/dev/null"));
    let missing = std::fs::metadata("/sys/class/infiniband/mlx5_0").unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    // What is not the device's is where it was.
    assert_eq!(std::fs::metadata("/dev/null").unwrap().rdev(), libc::makedev(1, 3));
    assert!(std::fs::metadata("/sys/class/net/lo").is_ok());
}
