//! Doorbell pages that programs store to directly (poll and step mode).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Stands in a doorbell word for "nothing rung": no queue has that number.
const QUIET: u32 = u32::MAX;
/// Offset of the send queues' doorbell in its page.
const SQ_DOORBELL: usize = 0;
/// Offset of the CQs' doorbell in its page.
const CQ_DOORBELL: usize = 64;
/// All doorbells, those of pushes too, are at multiples of this.
const DOORBELL_STEP: usize = 64;

/// The pages of a BAR, mapped.
#[derive(Debug)]
pub struct DoorbellPages {
    start: NonNull<u8>,
    length: usize,
}

impl DoorbellPages {
    /// Maps a BAR of `length` bytes, in which from byte `quiet` on there are doorbell pages.
    pub fn map(file: &File, length: usize, quiet: usize) -> io::Result<DoorbellPages> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let Some(start) = NonNull::new(start.cast()) else {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        };
        let pages = DoorbellPages { start, length };
        let size = file.metadata()?.len() as usize;
        // A BAR without bytes cannot be touched.
        for offset in (quiet..size.min(length)).step_by(DOORBELL_STEP) {
            if let Some(word) = pages.word(offset) {
                word.store(QUIET, Ordering::Relaxed);
            }
        }
        Ok(pages)
    }

    fn word(&self, offset: usize) -> Option<&AtomicU32> {
        if offset.checked_add(size_of::<u32>())? > self.length || !offset.is_multiple_of(size_of::<u32>()) {
            return None;
        }
        // SAFETY: inside the mapping, which lives as long as `self`, and aligned; programs change it
        // at any time, which an atomic allows for. Only called where the file has bytes.
        Some(unsafe { &*self.start.as_ptr().add(offset).cast::<AtomicU32>() })
    }

    /// Whether a doorbell of the page at `page` was rung since the last call.
    ///
    /// Which queue it was does not matter: one store hides another, so all queues are looked
    /// at. The exchange comes before that look: what a program wrote before its store, which
    /// we have seen, is then seen too.
    pub fn take(&self, page: u64) -> bool {
        let mut rung = false;
        for offset in [SQ_DOORBELL, CQ_DOORBELL] {
            rung |= self.take_value(page + offset as u64).is_some();
        }
        rung
    }

    /// What was stored last to the doorbell at `offset` since the last call.
    pub fn take_value(&self, offset: u64) -> Option<u32> {
        let word = self.word(offset as usize)?;
        if word.load(Ordering::Relaxed) == QUIET {
            return None;
        }
        Some(word.swap(QUIET, Ordering::AcqRel)).filter(|value| *value != QUIET)
    }
}

impl Drop for DoorbellPages {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_seen_once() {
        // SAFETY: a system call with a constant string.
        let descriptor = unsafe { libc::memfd_create(c"doorbells".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: the descriptor is new and ours.
        let file: File = unsafe { std::os::fd::FromRawFd::from_raw_fd(descriptor) };
        file.set_len(8192).unwrap();
        let (device, program) =
            (DoorbellPages::map(&file, 8192, 0).unwrap(), DoorbellPages::map(&file, 8192, 0).unwrap());
        assert!(!device.take(4096));
        program.word(4096).unwrap().store(3, Ordering::Release);
        program.word(4096 + 64).unwrap().store(0, Ordering::Release);
        assert!(!device.take(0));
        assert!(device.take(4096));
        assert!(!device.take(4096));
        assert!(!device.take(8192));
        program.word(256).unwrap().store(7, Ordering::Release);
        assert_eq!(device.take_value(256), Some(7));
        assert_eq!(
            (device.take_value(256), device.take_value(8192), device.take_value(u64::MAX)),
            (None, None, None)
        );
    }
}
