//! An open node: its events, and the pipe by which programs wait for them.
//!
//! A program holds the reading end of a named pipe that has no name any more. It
//! has one byte for each event that waits, so that every way of waiting for a
//! descriptor works; when all reading ends are closed, the node is. Events are
//! fetched by a command, so the bytes are taken out on this side.

use std::collections::VecDeque;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::sync::atomic::{AtomicU64, Ordering};

use irdma_uverbs::Token;

use crate::event::Event;

/// A file system in memory: that of the BAR files, by which programs know our descriptors.
const FOLDER: &str = "/dev/shm";
/// More waiting events than this are lost, as when the kernel has no memory for them.
const MOST_EVENTS: usize = 1 << 16;

/// Makes names different.
static SERIAL: AtomicU64 = AtomicU64::new(0);

/// An open node.
#[derive(Debug)]
pub struct Node {
    /// Name that the pipe had, by which the system still calls the descriptor.
    name: String,
    pipe: File,
    events: VecDeque<Event>,
}

impl Node {
    /// A node, its token and the program's end.
    pub fn new() -> io::Result<(Token, Node, OwnedFd)> {
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = format!("irdma-sim-rdma_cm.{}.{serial}", std::process::id());
        let path = format!("{FOLDER}/{name}");
        let name_for_system = CString::new(path.as_str())?;
        // SAFETY: the path is terminated.
        if unsafe { libc::mkfifo(name_for_system.as_ptr(), 0o600) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let ends = open_ends(&path);
        // The ends stay, the name goes.
        std::fs::remove_file(&path)?;
        let (reader, pipe) = ends?;
        let token = pipe.metadata()?.ino();
        Ok((token, Node { name, pipe, events: VecDeque::new() }, reader.into()))
    }

    /// Reports an error condition when the program has closed its end.
    pub fn close_watch(&self) -> RawFd {
        self.pipe.as_raw_fd()
    }

    /// Whether no program has it open any more.
    pub fn is_closed(&self) -> bool {
        let mut watch = libc::pollfd { fd: self.pipe.as_raw_fd(), events: 0, revents: 0 };
        // SAFETY: one entry, which lives until the call returns; it does not wait.
        let ready = unsafe { libc::poll(&mut watch, 1, 0) };
        ready == 1 && watch.revents & libc::POLLERR != 0
    }

    /// Whether `name` is what the system calls its descriptors.
    pub fn is_called(&self, name: &str) -> bool {
        let name = name.strip_suffix(" (deleted)").unwrap_or(name);
        name.rsplit('/').next() == Some(self.name.as_str())
    }

    /// Adds an event.
    pub fn push(&mut self, event: Event) {
        if self.events.len() < MOST_EVENTS {
            self.events.push_back(event);
            self.announce();
        }
    }

    /// The event that is next.
    pub fn next(&self) -> Option<&Event> {
        self.events.front()
    }

    /// Takes out the event that is next.
    pub fn take_next(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        self.announce();
        event
    }

    /// Takes out all events that `wanted` picks.
    pub fn take(&mut self, wanted: impl Fn(&Event) -> bool) -> Vec<Event> {
        let (taken, kept) = std::mem::take(&mut self.events).into_iter().partition(wanted);
        self.events = kept;
        self.announce();
        taken.into()
    }

    /// Makes the pipe hold one byte for each event, whatever has become of it.
    fn announce(&self) {
        let waiting = self.unread_bytes();
        let wanted = self.events.len();
        if waiting < wanted {
            // A full pipe is readable, too.
            let _ = (&self.pipe).write(&vec![0; wanted - waiting]);
        } else if waiting > wanted {
            // The program's end is not ours; a reader of our own is opened for the moment.
            let path = format!("/proc/self/fd/{}", self.pipe.as_raw_fd());
            if let Ok(mut reader) = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path) {
                // If the program has taken them itself, there is nothing left to take.
                let _ = reader.read(&mut vec![0; waiting - wanted]);
            }
        }
    }

    fn unread_bytes(&self) -> usize {
        let mut bytes: libc::c_int = 0;
        // SAFETY: FIONREAD stores one int.
        let result = unsafe { libc::ioctl(self.pipe.as_raw_fd(), libc::FIONREAD, &mut bytes) };
        if result < 0 { 0 } else { bytes as usize }
    }
}

/// The program's end, which blocks as the program likes, and ours, which never does.
fn open_ends(path: &str) -> io::Result<(File, File)> {
    let reader = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let pipe = File::options().write(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    // SAFETY: a flag of a descriptor that we own.
    if unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_SETFL, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((reader, pipe))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Kind;

    fn readable(end: &OwnedFd) -> bool {
        let mut watch = libc::pollfd { fd: end.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry; it does not wait.
        unsafe { libc::poll(&mut watch, 1, 0) == 1 && watch.revents & libc::POLLIN != 0 }
    }

    #[test]
    fn a_node_is_readable_while_an_event_waits() {
        let (_, mut node, end) = Node::new().unwrap();
        assert!(!readable(&end));
        for owner in [1, 2, 1] {
            node.push(Event::plain(owner, 7, Kind::AddressResolved, 0));
        }
        assert!(readable(&end));
        assert_eq!(node.take(|event| event.owner == 1).len(), 2);
        assert!(readable(&end));
        // Whoever reads what only announces has not fetched the event.
        let mut byte = [0; 8];
        assert_eq!((&File::from(end.try_clone().unwrap())).read(&mut byte).unwrap(), 1);
        node.push(Event::plain(3, 7, Kind::AddressResolved, 0));
        assert!(node.take_next().is_some() && readable(&end));
        assert!(node.take_next().is_some() && !readable(&end));
        assert!(node.take_next().is_none());
    }

    #[test]
    fn a_node_is_closed_with_its_last_descriptor() {
        let (token, mut node, end) = Node::new().unwrap();
        assert_eq!(File::from(end.try_clone().unwrap()).metadata().unwrap().ino(), token);
        let link = std::fs::read_link(format!("/proc/self/fd/{}", end.as_raw_fd())).unwrap();
        assert!(node.is_called(link.to_str().unwrap()));
        assert!(!node.is_called("/dev/shm/other (deleted)"));
        let second = end.try_clone().unwrap();
        drop(end);
        assert!(!node.is_closed());
        drop(second);
        assert!(node.is_closed());
        node.push(Event::plain(1, 7, Kind::AddressResolved, 0));
        assert!(node.is_closed());
    }
}
