//! What the device process waits for.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// A reason to wake up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A program wants to connect.
    Listener,
    /// Nobody waits for the device any more.
    Lifeline,
    /// SIGTERM or SIGINT.
    Signal,
    /// A device node was closed.
    Closed,
    /// A program closed an event channel.
    Channel,
    /// A request, on the connection with that descriptor.
    Connection(RawFd),
    /// The process with that number ended.
    Process(i32),
    /// A node of the connection manager was closed.
    ManagerClosed,
}

impl Source {
    fn to_word(self) -> u64 {
        let (kind, number) = match self {
            Source::Listener => (0, 0),
            Source::Lifeline => (1, 0),
            Source::Signal => (2, 0),
            Source::Closed => (3, 0),
            Source::Channel => (4, 0),
            Source::Connection(descriptor) => (5, descriptor),
            Source::Process(pid) => (6, pid),
            Source::ManagerClosed => (7, 0),
        };
        kind << 32 | u64::from(number as u32)
    }

    fn from_word(word: u64) -> Source {
        let number = word as u32 as i32;
        match word >> 32 {
            0 => Source::Listener,
            1 => Source::Lifeline,
            2 => Source::Signal,
            3 => Source::Closed,
            4 => Source::Channel,
            5 => Source::Connection(number),
            7 => Source::ManagerClosed,
            _ => Source::Process(number),
        }
    }
}

/// An epoll instance.
#[derive(Debug)]
pub struct Waiting {
    epoll: OwnedFd,
}

impl Waiting {
    /// Waits for nothing yet.
    pub fn new() -> io::Result<Waiting> {
        // SAFETY: a system call without pointers.
        let descriptor = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and ours.
        Ok(Waiting { epoll: unsafe { OwnedFd::from_raw_fd(descriptor) } })
    }

    /// Waits for a descriptor to become readable too. It is forgotten when the descriptor is closed.
    pub fn add(&self, descriptor: RawFd, source: Source) -> io::Result<()> {
        let mut interest = libc::epoll_event { events: libc::EPOLLIN as u32, u64: source.to_word() };
        // SAFETY: `interest` is a valid event for the length of the call.
        let result = unsafe {
            libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, descriptor, &mut interest)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Waits no longer for a descriptor.
    pub fn remove(&self, descriptor: RawFd) {
        // SAFETY: no event is needed to delete.
        unsafe {
            libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_DEL, descriptor, std::ptr::null_mut())
        };
    }

    /// What has happened; waits for it at most `time`, for ever if `None`.
    pub fn wait(&self, time: Option<Duration>) -> Vec<Source> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 16];
        let limit = time.map(|time| libc::timespec {
            tv_sec: time.as_secs() as libc::time_t,
            tv_nsec: time.subsec_nanos().into(),
        });
        let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let room = events.len() as libc::c_int;
        // SAFETY: room for that many events, and a time that lives until the call returns, or none.
        let count = unsafe {
            libc::epoll_pwait2(self.epoll.as_raw_fd(), events.as_mut_ptr(), room, limit, std::ptr::null())
        };
        // Interrupted counts as nothing.
        let count = usize::try_from(count).unwrap_or(0);
        events[..count].iter().map(|event| Source::from_word(event.u64)).collect()
    }
}

/// A descriptor that becomes readable on SIGTERM and SIGINT, which then do nothing else.
pub fn stop_signals() -> io::Result<OwnedFd> {
    // SAFETY: an all-zero set is valid to be initialised.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is ours.
    let descriptor = unsafe {
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGTERM);
        libc::sigaddset(&mut set, libc::SIGINT);
        libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_survive_being_packed() {
        let sources = [
            Source::Listener,
            Source::Channel,
            Source::Connection(7),
            Source::Process(1 << 21),
            Source::ManagerClosed,
        ];
        for source in sources {
            assert_eq!(Source::from_word(source.to_word()), source);
        }
    }
}
