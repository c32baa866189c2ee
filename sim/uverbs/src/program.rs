//! A program that uses the device: its memory and its descriptors.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use irdma_engine::MemoryFault;

/// Most pieces stored by one system call.
const PIECES: usize = 4;

/// Number of a capability (kernel: linux/capability.h).
const CAP_NET_RAW: u32 = 13;

/// What the device needs of a program; the seam where tests put a made-up one.
pub trait Program: std::fmt::Debug {
    /// Fills `buffer` from `address`; nothing counts unless all of it could be read.
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), MemoryFault>;

    /// Stores `bytes` at `address`, ascending.
    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), MemoryFault>;

    /// Stores several pieces (address, bytes), each visible before the next.
    fn write_pieces(&self, pieces: &[(u64, &[u8])]) -> Result<(), MemoryFault> {
        pieces.iter().try_for_each(|(address, bytes)| self.write(*address, bytes))
    }

    /// Whether all of a range can be read, and written if `writable`.
    fn is_mapped(&self, address: u64, length: u64, writable: bool) -> bool;

    /// What descriptor `number` is, as the kernel names it (`pipe:[1234]`).
    fn descriptor_name(&self, number: i32) -> Option<String>;

    /// Opens the file behind descriptor `number` anew, for reading and writing.
    fn open_descriptor(&self, number: i32) -> io::Result<File>;

    /// Whether it has the capability `CAP_NET_RAW` (kernel: `rdma_uattrs_has_raw_cap`).
    fn may_send_raw(&self) -> bool;
}

/// A process on this machine.
#[derive(Debug)]
pub struct Process {
    pid: i32,
    /// Readable when the process has ended.
    pidfd: OwnedFd,
    /// Set once it has ended, so that a process that got the same number later is not touched.
    ended: Cell<bool>,
}

impl Process {
    /// The process with that number.
    pub fn new(pid: i32) -> io::Result<Process> {
        // SAFETY: a system call without pointers.
        let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given us this descriptor, nobody else owns it.
        let pidfd = unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) };
        Ok(Process { pid, pidfd, ended: Cell::new(false) })
    }

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Becomes readable when the process ends.
    pub fn end_watch(&self) -> RawFd {
        self.pidfd.as_raw_fd()
    }

    /// Says that it has ended: its memory is gone.
    pub fn set_ended(&self) {
        self.ended.set(true);
    }

    /// Whether this process may read the other's memory at `address`; the errno if not.
    pub fn try_read(&self, address: u64, buffer: &mut [u8]) -> io::Result<()> {
        let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: buffer.len() };
        // SAFETY: `local` covers `buffer`, which is ours to write; the kernel checks the remote range.
        let done = unsafe { libc::process_vm_readv(self.pid, &local, 1, &remote, 1, 0) };
        match usize::try_from(done) {
            Ok(bytes) if bytes == buffer.len() => Ok(()),
            Ok(_) => Err(io::Error::from_raw_os_error(libc::EFAULT)),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }
}

impl Program for Process {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), MemoryFault> {
        if buffer.is_empty() {
            return Ok(());
        }
        if self.ended.get() {
            return Err(MemoryFault);
        }
        self.try_read(address, buffer).map_err(|_| MemoryFault)
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.ended.get() {
            return Err(MemoryFault);
        }
        let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: bytes.len() };
        // SAFETY: `local` covers `bytes`, which the call only reads; the kernel checks the remote range.
        let done = unsafe { libc::process_vm_writev(self.pid, &local, 1, &remote, 1, 0) };
        if usize::try_from(done) == Ok(bytes.len()) { Ok(()) } else { Err(MemoryFault) }
    }

    fn write_pieces(&self, pieces: &[(u64, &[u8])]) -> Result<(), MemoryFault> {
        // One call copies in order, and x86 shows stores in order. Elsewhere the calls are kept apart.
        if !cfg!(target_arch = "x86_64") || pieces.len() > PIECES {
            return pieces.iter().try_for_each(|(address, bytes)| self.write(*address, bytes));
        }
        if self.ended.get() {
            return Err(MemoryFault);
        }
        const NONE: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let (mut local, mut remote) = ([NONE; PIECES], [NONE; PIECES]);
        let mut total = 0;
        for (index, (address, bytes)) in pieces.iter().enumerate() {
            local[index] = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
            remote[index] = libc::iovec { iov_base: *address as *mut libc::c_void, iov_len: bytes.len() };
            total += bytes.len();
        }
        let count = pieces.len() as libc::c_ulong;
        // SAFETY: the local vectors cover the pieces, which the call only reads; the kernel checks
        // the remote ranges.
        let done =
            unsafe { libc::process_vm_writev(self.pid, local.as_ptr(), count, remote.as_ptr(), count, 0) };
        if usize::try_from(done) == Ok(total) { Ok(()) } else { Err(MemoryFault) }
    }

    fn is_mapped(&self, address: u64, length: u64, writable: bool) -> bool {
        let Some(end) = address.checked_add(length) else { return false };
        if self.ended.get() {
            return false;
        }
        let Ok(maps) = File::open(format!("/proc/{}/maps", self.pid)) else { return false };
        // The lines are in ascending order of their addresses.
        let mut covered = address;
        for line in BufReader::new(maps).lines() {
            let Ok(line) = line else { return false };
            let Some((from, to, allows_read, allows_write)) = parse_mapping(&line) else { continue };
            if to <= covered {
                continue;
            }
            if from > covered || !allows_read || (writable && !allows_write) {
                return false;
            }
            covered = to;
            if covered >= end {
                return true;
            }
        }
        false
    }

    fn descriptor_name(&self, number: i32) -> Option<String> {
        if self.ended.get() {
            return None;
        }
        let target = std::fs::read_link(format!("/proc/{}/fd/{number}", self.pid)).ok()?;
        target.into_os_string().into_string().ok()
    }

    fn open_descriptor(&self, number: i32) -> io::Result<File> {
        File::options().read(true).write(true).open(format!("/proc/{}/fd/{number}", self.pid))
    }

    fn may_send_raw(&self) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        !self.ended.get() && effective_capabilities(&status).is_some_and(|all| all >> CAP_NET_RAW & 1 != 0)
    }
}

/// The effective capabilities in the text of `/proc/PID/status`.
fn effective_capabilities(status: &str) -> Option<u64> {
    let digits = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(digits.trim(), 16).ok()
}

/// Start, end, readable, writable of a line of `/proc/PID/maps`.
fn parse_mapping(line: &str) -> Option<(u64, u64, bool, bool)> {
    let (range, rest) = line.split_once(' ')?;
    let (from, to) = range.split_once('-')?;
    let rights = rest.as_bytes();
    Some((
        u64::from_str_radix(from, 16).ok()?,
        u64::from_str_radix(to, 16).ok()?,
        rights.first() == Some(&b'r'),
        rights.get(1) == Some(&b'w'),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn this_process() -> Process {
        Process::new(std::process::id() as i32).unwrap()
    }

    #[test]
    fn reads_and_writes_memory_of_a_process() {
        let process = this_process();
        let mut target = [1u8, 2, 3];
        let mut seen = [0; 3];
        let address = target.as_mut_ptr() as u64;
        process.read(address, &mut seen).unwrap();
        assert_eq!(seen, [1, 2, 3]);
        process.write(address, &[9, 8, 7]).unwrap();
        assert_eq!(target, [9, 8, 7]);
        process.write_pieces(&[(address, &[4]), (address + 2, &[6])]).unwrap();
        assert_eq!(target, [4, 8, 6]);
        assert_eq!(process.write_pieces(&[(address, &[5]), (8, &[6])]), Err(MemoryFault));
        assert_eq!(process.read(8, &mut seen), Err(MemoryFault));
        process.set_ended();
        assert_eq!(process.read(address, &mut seen), Err(MemoryFault));
    }

    #[test]
    fn capabilities_are_read_from_the_status() {
        let status = "Name:\tx\nCapPrm:\t0000000000000000\nCapEff:\t0000000000002000\nSeccomp:\t0\n";
        assert_eq!(effective_capabilities(status), Some(1 << CAP_NET_RAW));
        assert_eq!(effective_capabilities("CapEff:\tx\n"), None);
        let process = this_process();
        // As the kernel says when asked for its own answer.
        let of_this = std::fs::read_to_string("/proc/self/status").unwrap();
        assert_eq!(process.may_send_raw(), effective_capabilities(&of_this).unwrap() & 1 << CAP_NET_RAW != 0);
        process.set_ended();
        assert!(!process.may_send_raw());
    }

    #[test]
    fn knows_what_is_mapped_and_how() {
        let process = this_process();
        let stack = [0u8; 16];
        let address = stack.as_ptr() as u64;
        assert!(process.is_mapped(address, 16, true));
        let code = knows_what_is_mapped_and_how as *const () as u64;
        assert!(process.is_mapped(code, 1, false));
        assert!(!process.is_mapped(code, 1, true));
        assert!(!process.is_mapped(8, 8, false));
        assert!(!process.is_mapped(address, u64::MAX, false));
    }
}
