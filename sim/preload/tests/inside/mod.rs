//! What the programs under test do. Run by the tests in `program`, not by hand.

mod doorbells;
mod files;
mod manager;
mod signals;

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

use irdma_sim_protocol::VERBS_IOCTL;

/// Argument of an ioctl: what is wanted, and room for a descriptor's number.
#[repr(C)]
struct Argument(u32, i32);

fn verbs(descriptor: RawFd, argument: &mut Argument) -> io::Result<()> {
    // SAFETY: the argument is ours.
    match unsafe { libc::ioctl(descriptor, VERBS_IOCTL, std::ptr::from_mut(argument)) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn errno(result: io::Result<()>) -> i32 {
    result.expect_err("a failure").raw_os_error().unwrap()
}

fn open_node() -> File {
    File::options().read(true).write(true).open("/dev/infiniband/uverbs0").unwrap()
}

/// An opened node and two of its pages.
struct Bar {
    node: File,
    address: u64,
}

impl Bar {
    fn open() -> Bar {
        let node = open_node();
        // Any ioctl does; this one is refused.
        assert_eq!(errno(verbs(node.as_raw_fd(), &mut Argument(libc::ENOSPC as u32, 0))), libc::ENOSPC);
        let address = map(&node);
        Bar { node, address }
    }

    fn word(&self) -> *mut u32 {
        self.address as *mut u32
    }

    /// The ordinary doorbell.
    fn ring(&self, value: u32) {
        // SAFETY: the page is mapped; the store is caught.
        unsafe { self.word().write_volatile(value) };
    }
}

fn map(node: &File) -> u64 {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping.
    let address =
        unsafe { libc::mmap(std::ptr::null_mut(), 8192, protection, libc::MAP_SHARED, node.as_raw_fd(), 0) };
    assert_ne!(address, libc::MAP_FAILED);
    address as u64
}
