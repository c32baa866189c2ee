//! Event channels: a pipe per channel, records counted exactly.
//!
//! The kernel counts an event for its object when the program reads it, and
//! drops those it has not read when the object is destroyed; the number goes
//! to the program, which waits until it has acknowledged exactly that many.
//! Here a record is in the pipe from the moment it happens. So a channel
//! remembers, in order, whose records it has written and are not read yet; the
//! unread bytes in the pipe say how many of them there are.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

/// Names a channel: the inode of its pipe.
pub type ChannelId = u64;

/// Names an object for the life of the device.
pub type Serial = u64;

/// What a channel is for; records differ in size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelKind {
    /// `struct ib_uverbs_comp_event_desc`.
    Completion,
    /// `struct ib_uverbs_async_event_desc`.
    Asynchronous,
}

impl ChannelKind {
    /// Bytes of a record.
    fn record_size(self) -> usize {
        match self {
            ChannelKind::Completion => 8,
            ChannelKind::Asynchronous => 16,
        }
    }
}

/// The device's end of a channel.
#[derive(Debug)]
pub struct Channel {
    kind: ChannelKind,
    pipe: File,
    /// Owners of the records in the pipe, oldest first; trimmed to what is unread.
    unread: VecDeque<Serial>,
}

impl Channel {
    /// A channel, its name and the program's end.
    pub fn new(kind: ChannelKind) -> io::Result<(ChannelId, Channel, OwnedFd)> {
        let mut ends = [0; 2];
        // SAFETY: the array has room for both descriptors.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: both descriptors are new and ours.
        let (read_end, pipe) = unsafe { (OwnedFd::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) };
        // Only our end: whether the program's blocks is its own affair.
        // SAFETY: a flag of a descriptor that we own.
        if unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let id = pipe.metadata()?.ino();
        Ok((id, Channel { kind, pipe, unread: VecDeque::new() }, read_end))
    }

    /// What it is for.
    pub fn kind(&self) -> ChannelKind {
        self.kind
    }

    /// Reports an error condition when the program has closed its end.
    pub fn close_watch(&self) -> RawFd {
        self.pipe.as_raw_fd()
    }

    /// Bytes that the program has not read.
    fn unread_bytes(&self) -> usize {
        let mut bytes: libc::c_int = 0;
        // SAFETY: FIONREAD stores one int.
        let result = unsafe { libc::ioctl(self.pipe.as_raw_fd(), libc::FIONREAD, &mut bytes) };
        if result < 0 { 0 } else { bytes as usize }
    }

    /// Forgets the owners of records that the program has read.
    fn trim(&mut self) {
        // A program that reads half a record has not read the event yet.
        let records = self.unread_bytes().div_ceil(self.kind.record_size());
        while self.unread.len() > records {
            self.unread.pop_front();
        }
    }

    /// Puts a record into the pipe. `false` if it was lost: the pipe is full or has no reader.
    fn send(&mut self, owner: Serial, record: &[u8]) -> bool {
        self.trim();
        // Records are smaller than PIPE_BUF, so one is written whole or not at all.
        let sent = matches!((&self.pipe).write(record), Ok(bytes) if bytes == record.len());
        if sent {
            self.unread.push_back(owner);
        }
        sent
    }

    /// Reports a completion event of the CQ that the program calls `user_handle`.
    pub fn send_completion(&mut self, owner: Serial, user_handle: u64) -> bool {
        self.kind == ChannelKind::Completion && self.send(owner, &user_handle.to_le_bytes())
    }

    /// Reports an asynchronous event (`enum ib_event_type`) of the object that the program calls `element`.
    pub fn send_event(&mut self, owner: Serial, element: u64, event: u32) -> bool {
        let mut record = [0; 16];
        record[..8].copy_from_slice(&element.to_le_bytes());
        record[8..12].copy_from_slice(&event.to_le_bytes());
        self.kind == ChannelKind::Asynchronous && self.send(owner, &record)
    }

    /// Takes back what the program has not read of an object's records; how many they were.
    pub fn withdraw(&mut self, owner: Serial) -> u32 {
        self.trim();
        if !self.unread.contains(&owner) {
            return 0;
        }
        let size = self.kind.record_size();
        let bytes = self.drain();
        // The program may have read some just now; what we got are the last ones,
        // and an incomplete first one was being read in pieces and counts as read.
        let whole = bytes.len() / size;
        let records = &bytes[bytes.len() - whole * size..];
        while self.unread.len() > whole {
            self.unread.pop_front();
        }
        let owners = std::mem::take(&mut self.unread);
        let mut withdrawn = 0;
        for (record, holder) in records.chunks(size).zip(owners) {
            if holder == owner {
                withdrawn += 1;
            } else {
                self.send(holder, record);
            }
        }
        withdrawn
    }

    /// Everything unread in the pipe.
    fn drain(&self) -> Vec<u8> {
        // The program's end is gone from this process; a reader of our own is opened for the moment.
        let path = format!("/proc/self/fd/{}", self.pipe.as_raw_fd());
        let mut bytes = Vec::new();
        if let Ok(mut reader) = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path) {
            // The end of a drained pipe is EAGAIN; what was read before stays in `bytes`.
            let _ = reader.read_to_end(&mut bytes);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel() -> (Channel, File) {
        let (_, channel, reader) = Channel::new(ChannelKind::Completion).unwrap();
        (channel, File::from(reader))
    }

    fn read_one(reader: &mut File) -> u64 {
        let mut record = [0; 8];
        reader.read_exact(&mut record).unwrap();
        u64::from_le_bytes(record)
    }

    #[test]
    fn unread_records_of_an_object_are_withdrawn_and_the_others_stay() {
        let (mut channel, mut reader) = channel();
        for (owner, handle) in [(1, 10), (2, 20), (1, 10), (3, 30), (1, 10)] {
            assert!(channel.send_completion(owner, handle));
        }
        assert_eq!(read_one(&mut reader), 10);
        assert_eq!(channel.withdraw(1), 2);
        assert_eq!(channel.withdraw(1), 0);
        assert_eq!(read_one(&mut reader), 20);
        assert_eq!(read_one(&mut reader), 30);
        assert_eq!(channel.withdraw(2), 0);
    }

    #[test]
    fn a_full_pipe_loses_the_event_and_does_not_block() {
        let (mut channel, mut reader) = channel();
        let mut sent = 0u32;
        while channel.send_completion(1, 1) {
            sent += 1;
        }
        assert!(sent >= 512);
        assert_eq!(channel.unread.len() as u32, sent);
        assert_eq!(read_one(&mut reader), 1);
        assert_eq!(channel.withdraw(1), sent - 1);
    }

    #[test]
    fn a_closed_channel_takes_no_events() {
        let (mut channel, reader) = channel();
        drop(reader);
        assert!(!channel.send_completion(1, 1));
        assert_eq!(channel.withdraw(1), 0);
    }

    #[test]
    fn kinds_do_not_mix() {
        let (mut channel, _reader) = channel();
        assert!(!channel.send_event(1, 1, 1));
    }
}
