//! BAR files: one per opened device node, an unlinked file in memory.
//!
//! Its inode number names the node. When the last descriptor of it is closed
//! and its last mapping is gone, in whatever process, the kernel reports a
//! close of a writable file; that is the moment at which the kernel's own
//! device nodes are released. Files of `memfd_create` report nothing, so they
//! are made in a file system in memory.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use anyhow::Context;
use irdma_sim_protocol::Mode;
use irdma_uverbs::Token;

use super::doorbell::DoorbellPages;

/// A file system in memory.
const FOLDER: &str = "/dev/shm";

/// Pages of a BAR: the legacy provider maps its doorbells at page 0, others at page 1.
const PAGES: u64 = 2;

/// All BAR files that are open somewhere.
#[derive(Debug)]
pub struct Bars {
    mode: Mode,
    page_size: u64,
    /// `st_dev` of the file system.
    device: u64,
    inotify: File,
    tokens: HashMap<i32, Token>,
    pages: HashMap<Token, DoorbellPages>,
}

impl Bars {
    /// None yet.
    pub fn new(mode: Mode, page_size: u64) -> anyhow::Result<Bars> {
        // SAFETY: a system call without pointers.
        let descriptor = unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error()).context("cannot watch files (inotify)");
        }
        // SAFETY: the descriptor is new and ours.
        let inotify = unsafe { File::from_raw_fd(descriptor) };
        let device = new_file()?.metadata()?.dev();
        Ok(Bars { mode, page_size, device, inotify, tokens: HashMap::new(), pages: HashMap::new() })
    }

    /// `st_dev` of all BAR files.
    pub fn device(&self) -> u64 {
        self.device
    }

    /// Readable when nodes have been closed.
    pub fn watch(&self) -> RawFd {
        self.inotify.as_raw_fd()
    }

    /// A BAR for a node that is being opened.
    pub fn create(&mut self) -> anyhow::Result<(Token, OwnedFd)> {
        let file = new_file()?;
        if self.mode != Mode::Trap {
            file.set_len(PAGES * self.page_size)?;
        }
        let token = file.metadata()?.ino();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        if self.mode != Mode::Trap {
            // Opened anew, so that our own mapping does not keep the program's description open.
            let own = File::options().read(true).write(true).open(&path)?;
            self.pages.insert(token, DoorbellPages::map(&own, (PAGES * self.page_size) as usize)?);
        }
        let path = CString::new(path)?;
        // SAFETY: the path is a string that ends with a zero.
        let watch =
            unsafe { libc::inotify_add_watch(self.inotify.as_raw_fd(), path.as_ptr(), libc::IN_CLOSE_WRITE) };
        if watch < 0 {
            self.pages.remove(&token);
            return Err(io::Error::last_os_error()).context("cannot watch a file (inotify)");
        }
        self.tokens.insert(watch, token);
        Ok((token, file.into()))
    }

    /// Nodes that have been closed since the last call.
    pub fn closed(&mut self) -> Vec<Token> {
        let mut closed = Vec::new();
        // Without names an event is one header.
        let mut buffer = [0u8; 64 * size_of::<libc::inotify_event>()];
        loop {
            // An empty queue is EAGAIN.
            let Ok(length) = io::Read::read(&mut &self.inotify, &mut buffer) else { return closed };
            for event in buffer[..length].chunks_exact(size_of::<libc::inotify_event>()) {
                let watch = i32::from_ne_bytes([event[0], event[1], event[2], event[3]]);
                let Some(token) = self.tokens.remove(&watch) else { continue };
                self.pages.remove(&token);
                // The file is gone with its last user, and usually the watch with it.
                // SAFETY: a system call without pointers.
                unsafe { libc::inotify_rm_watch(self.inotify.as_raw_fd(), watch) };
                closed.push(token);
            }
        }
    }

    /// The doorbell pages that can be looked at (not in trap mode).
    pub fn doorbells(&self) -> impl Iterator<Item = (Token, &DoorbellPages)> {
        self.pages.iter().map(|(token, pages)| (*token, pages))
    }
}

/// An unlinked file in memory.
fn new_file() -> anyhow::Result<File> {
    File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .mode(0o600)
        .open(FOLDER)
        .with_context(|| format!("cannot make a file in {FOLDER}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_closed_with_its_last_descriptor_and_mapping() {
        for mode in [Mode::Trap, Mode::Poll] {
            let mut bars = Bars::new(mode, 4096).unwrap();
            let (token, descriptor) = bars.create().unwrap();
            let (other, _kept) = bars.create().unwrap();
            assert_ne!(token, other);
            let second = descriptor.try_clone().unwrap();
            drop(descriptor);
            assert_eq!(bars.closed(), []);
            let mapping = DoorbellPages::map(&File::from(second), 8192).unwrap();
            assert_eq!(bars.closed(), []);
            drop(mapping);
            assert_eq!(bars.closed(), [token]);
            assert_eq!(bars.closed(), []);
        }
    }
}
