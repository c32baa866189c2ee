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
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

use anyhow::Context;
use irdma_engine::push::WINDOW_BYTES;
use irdma_sim_protocol::Mode;
use irdma_uverbs::Token;
use irdma_uverbs::push::BarLayout;

use super::doorbell::DoorbellPages;

/// A file system in memory.
const FOLDER: &str = "/dev/shm";

/// All BAR files that are open somewhere.
#[derive(Debug)]
pub struct Bars {
    mode: Mode,
    layout: BarLayout,
    /// `st_dev` of the file system.
    device: u64,
    inotify: File,
    tokens: HashMap<i32, Token>,
    pages: HashMap<Token, DoorbellPages>,
    /// Of those with push pages, opened by us.
    files: HashMap<Token, File>,
}

impl Bars {
    /// None yet.
    pub fn new(mode: Mode, layout: BarLayout) -> anyhow::Result<Bars> {
        // SAFETY: a system call without pointers.
        let descriptor = unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error()).context("cannot watch files (inotify)");
        }
        // SAFETY: the descriptor is new and ours.
        let inotify = unsafe { File::from_raw_fd(descriptor) };
        let device = new_file()?.metadata()?.dev();
        Ok(Bars {
            mode,
            layout,
            device,
            inotify,
            tokens: HashMap::new(),
            pages: HashMap::new(),
            files: HashMap::new(),
        })
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
        // What lies behind the end of the file traps.
        file.set_len(match self.mode {
            Mode::Trap => self.layout.plain_bytes(),
            Mode::Poll | Mode::Step => self.layout.bytes(),
        })?;
        let token = file.metadata()?.ino();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        // Opened anew, so that our own use does not keep the program's description open.
        let own = File::options().read(true).write(true).open(&path)?;
        let pages = match self.mode {
            Mode::Trap => None,
            Mode::Poll | Mode::Step => Some(DoorbellPages::map(
                &own,
                self.layout.bytes() as usize,
                self.layout.plain_bytes() as usize,
            )?),
        };
        // Closed before the file is watched, or kept: else it would be us who are seen to close it.
        let own = (self.layout.plain_bytes() > 0).then_some(own);
        let path = CString::new(path)?;
        // SAFETY: the path is a string that ends with a zero.
        let watch =
            unsafe { libc::inotify_add_watch(self.inotify.as_raw_fd(), path.as_ptr(), libc::IN_CLOSE_WRITE) };
        if watch < 0 {
            return Err(io::Error::last_os_error()).context("cannot watch a file (inotify)");
        }
        self.tokens.insert(watch, token);
        self.pages.extend(pages.map(|pages| (token, pages)));
        self.files.extend(own.map(|own| (token, own)));
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
                self.files.remove(&token);
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

    /// What lies in the window at byte `offset` of a node's BAR, which is empty after that.
    ///
    /// By calls and not in a mapping: the program can make its file shorter.
    pub fn take_window(&self, token: Token, offset: u64) -> [u8; WINDOW_BYTES] {
        let mut window = [0; WINDOW_BYTES];
        if let Some(file) = self.files.get(&token)
            && (file.read_exact_at(&mut window, offset).is_err()
                || file.write_all_at(&[0; WINDOW_BYTES], offset).is_err())
        {
            // It has: nothing was pushed.
            window = [0; WINDOW_BYTES];
        }
        window
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
    use irdma_uverbs::Profile;

    use super::*;

    fn layout(push_pages: u32) -> BarLayout {
        BarLayout::of(&Profile { push_pages, page_size: 4096, ..Profile::default() })
    }

    #[test]
    fn a_window_is_taken_once_and_a_file_cut_short_has_none() {
        for mode in [Mode::Trap, Mode::Step] {
            let mut bars = Bars::new(mode, layout(2)).unwrap();
            let (token, descriptor) = bars.create().unwrap();
            let file = File::from(descriptor);
            assert_eq!(file.metadata().unwrap().len(), if mode == Mode::Trap { 8192 } else { 6 * 4096 });
            file.write_all_at(&[7; WINDOW_BYTES], 4096 + 256).unwrap();
            assert_eq!(bars.take_window(token, 4096 + 256), [7; WINDOW_BYTES]);
            assert_eq!(bars.take_window(token, 4096 + 256), [0; WINDOW_BYTES]);
            file.write_all_at(&[7; WINDOW_BYTES], 4096).unwrap();
            file.set_len(4096 + 255).unwrap();
            assert_eq!(bars.take_window(token, 4096), [0; WINDOW_BYTES]);
            assert_eq!(bars.take_window(token + 1, 4096), [0; WINDOW_BYTES]);
            drop(file);
            assert_eq!(bars.closed(), [token]);
        }
    }

    #[test]
    fn a_node_is_closed_with_its_last_descriptor_and_mapping() {
        for mode in [Mode::Trap, Mode::Poll] {
            let mut bars = Bars::new(mode, layout(0)).unwrap();
            let (token, descriptor) = bars.create().unwrap();
            let (other, _kept) = bars.create().unwrap();
            assert_ne!(token, other);
            let second = descriptor.try_clone().unwrap();
            drop(descriptor);
            assert_eq!(bars.closed(), []);
            let mapping = DoorbellPages::map(&File::from(second), 8192, 0).unwrap();
            assert_eq!(bars.closed(), []);
            drop(mapping);
            assert_eq!(bars.closed(), [token]);
            assert_eq!(bars.closed(), []);
        }
    }
}
