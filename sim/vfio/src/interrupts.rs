//! Interrupts: MSI-X vectors, each an event descriptor of the virtual machine's.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;

/// Vectors of a function.
pub const VECTORS: usize = 32;

/// The descriptors by which a function's vectors are raised.
#[derive(Debug)]
pub struct Interrupts {
    vectors: [Option<File>; VECTORS],
}

impl Default for Interrupts {
    fn default() -> Self {
        Self { vectors: [const { None }; VECTORS] }
    }
}

impl Interrupts {
    /// Connects vectors from `first` on with these descriptors; what is beyond the last vector
    /// is dropped.
    pub fn connect(&mut self, first: u32, descriptors: Vec<File>) {
        let places = self.vectors.iter_mut().skip(first as usize);
        for (place, file) in places.zip(descriptors) {
            // A full counter is an interrupt that is pending anyway: never wait for room.
            // SAFETY: a system call without pointers, on an open descriptor.
            unsafe {
                let flags = libc::fcntl(file.as_raw_fd(), libc::F_GETFL);
                libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK);
            }
            *place = Some(file);
        }
    }

    /// Disconnects `count` vectors from `first` on.
    pub fn disconnect(&mut self, first: u32, count: u32) {
        self.vectors.iter_mut().skip(first as usize).take(count as usize).for_each(|place| *place = None);
    }

    /// Disconnects all vectors.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Raises a vector; nothing happens if it is not connected.
    pub fn raise(&mut self, vector: u32) {
        if let Some(Some(file)) = self.vectors.get_mut(vector as usize) {
            // Only a full counter is refused, which is as good.
            let _ = file.write(&1_u64.to_ne_bytes());
        }
    }
}
