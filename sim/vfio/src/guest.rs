//! The guest's memory: what the virtual machine lets the device reach by DMA.
//!
//! The virtual machine hands over its memory as descriptors, in pieces, and takes pieces
//! back. Nothing outside of what is mapped at the moment is ever touched. The guest writes
//! to its memory at any time, so it is only reached through raw copies, never through
//! references.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

use irdma_engine::MemoryFault;

/// Copies up to this size are made of aligned words, each of which appears whole.
const WORDWISE: usize = 256;

/// A piece of guest memory, mapped into this process.
#[derive(Debug)]
struct Piece {
    start: NonNull<u8>,
    length: usize,
    writable: bool,
}

// SAFETY: the mapping belongs to the value, not to a thread; whoever has the value copies
// under the lock that it lies behind.
unsafe impl Send for Piece {}

impl Piece {
    fn map(file: &File, offset: u64, length: usize, writable: bool) -> io::Result<Self> {
        let size = file.metadata()?.len();
        let end = offset.checked_add(length as u64).filter(|&end| end <= size);
        let offset = i64::try_from(offset).ok().filter(|_| length > 0 && end.is_some());
        let offset = offset.ok_or(io::ErrorKind::InvalidInput)?;
        let protection = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        // SAFETY: a new mapping at an address of the kernel's choice; the arguments are checked.
        let address = unsafe {
            libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_SHARED, file.as_raw_fd(), offset)
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, length, writable })
    }

    fn read(&self, offset: usize, buffer: &mut [u8]) {
        debug_assert!(offset + buffer.len() <= self.length);
        // SAFETY: the caller has checked that the bytes lie in the mapping.
        let source = unsafe { self.start.as_ptr().add(offset) };
        let mut done = 0;
        if buffer.len() <= WORDWISE && source.cast::<u64>().is_aligned() {
            while buffer.len() - done >= 8 {
                // SAFETY: an aligned word inside the mapping.
                let word = unsafe { source.add(done).cast::<u64>().read_volatile() };
                buffer[done..done + 8].copy_from_slice(&word.to_ne_bytes());
                done += 8;
            }
        }
        let rest = &mut buffer[done..];
        // SAFETY: inside the mapping, which nothing of this process overlaps.
        unsafe { source.add(done).copy_to_nonoverlapping(rest.as_mut_ptr(), rest.len()) };
        // What is read next is not older than this.
        fence(Ordering::Acquire);
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        debug_assert!(offset + bytes.len() <= self.length && self.writable);
        // What was written before appears before this.
        fence(Ordering::Release);
        // SAFETY: the caller has checked that the bytes lie in the mapping.
        let target = unsafe { self.start.as_ptr().add(offset) };
        let mut done = 0;
        if bytes.len() <= WORDWISE && target.cast::<u64>().is_aligned() {
            while bytes.len() - done >= 8 {
                let mut word = [0; 8];
                word.copy_from_slice(&bytes[done..done + 8]);
                // SAFETY: an aligned word inside the mapping, which may be written.
                unsafe { target.add(done).cast::<u64>().write_volatile(u64::from_ne_bytes(word)) };
                done += 8;
            }
        }
        let rest = &bytes[done..];
        // SAFETY: inside the mapping, which nothing of this process overlaps.
        unsafe { target.add(done).copy_from_nonoverlapping(rest.as_ptr(), rest.len()) };
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and nobody has its address any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// All of the guest's memory that is mapped at the moment, by guest physical address.
#[derive(Debug, Default)]
pub struct GuestMemory {
    pieces: BTreeMap<u64, Piece>,
}

impl GuestMemory {
    /// Maps `length` bytes of `file` from `offset` on at `address`.
    ///
    /// # Errors
    /// A range that is empty, not inside the file or the address space, or overlaps another.
    pub fn map(
        &mut self,
        address: u64,
        length: u64,
        file: &File,
        offset: u64,
        writable: bool,
    ) -> io::Result<()> {
        let end = address.checked_add(length).ok_or(io::ErrorKind::InvalidInput)?;
        let below = self.pieces.range(..end).next_back();
        if below.is_some_and(|(start, piece)| start + piece.length as u64 > address) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let length = usize::try_from(length).map_err(|_| io::ErrorKind::InvalidInput)?;
        let piece = Piece::map(file, offset, length, writable)?;
        self.pieces.insert(address, piece);
        Ok(())
    }

    /// Takes back everything that was mapped inside a range.
    pub fn unmap(&mut self, address: u64, length: u64) {
        let end = address.saturating_add(length);
        self.pieces
            .retain(|&start, piece| start < address || start.saturating_add(piece.length as u64) > end);
    }

    /// Takes back everything.
    pub fn clear(&mut self) {
        self.pieces.clear();
    }

    /// The piece that holds `address`, the offset in it, and the bytes from there to its end.
    fn locate(&self, address: u64) -> Option<(&Piece, usize, usize)> {
        let (start, piece) = self.pieces.range(..=address).next_back()?;
        let offset = usize::try_from(address - start).ok()?;
        let left = piece.length.checked_sub(offset).filter(|&left| left > 0)?;
        Some((piece, offset, left))
    }

    /// Fills `buffer` from `address` on.
    ///
    /// # Errors
    /// [`MemoryFault`] if any of it is not mapped.
    pub fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), MemoryFault> {
        let mut done = 0;
        while done < buffer.len() {
            let at = address.checked_add(done as u64).ok_or(MemoryFault)?;
            let (piece, offset, left) = self.locate(at).ok_or(MemoryFault)?;
            let end = buffer.len().min(done + left);
            piece.read(offset, &mut buffer[done..end]);
            done = end;
        }
        Ok(())
    }

    /// Stores `bytes` from `address` on; aligned words appear whole.
    ///
    /// # Errors
    /// [`MemoryFault`] if any of it is not mapped for writing.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        let mut done = 0;
        while done < bytes.len() {
            let at = address.checked_add(done as u64).ok_or(MemoryFault)?;
            let (piece, offset, left) = self.locate(at).ok_or(MemoryFault)?;
            if !piece.writable {
                return Err(MemoryFault);
            }
            let end = bytes.len().min(done + left);
            piece.write(offset, &bytes[done..end]);
            done = end;
        }
        Ok(())
    }

    /// The 64-bit word at `address`.
    ///
    /// # Errors
    /// [`MemoryFault`] if it is not mapped.
    pub fn word(&self, address: u64) -> Result<u64, MemoryFault> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }
}

#[cfg(test)]
pub mod tests {
    use std::os::fd::FromRawFd;

    use super::*;

    /// A memory file of that size.
    pub fn memory_file(bytes: u64) -> File {
        // SAFETY: the name is a string; a descriptor that is not one is noticed below.
        let descriptor = unsafe { libc::memfd_create(c"guest".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(descriptor >= 0);
        // SAFETY: the descriptor is new and ours.
        let file = unsafe { File::from_raw_fd(descriptor) };
        file.set_len(bytes).expect("a size");
        file
    }

    /// Guest memory of that many bytes from address 0 on.
    pub fn memory(bytes: u64) -> GuestMemory {
        let mut memory = GuestMemory::default();
        memory.map(0, bytes, &memory_file(bytes), 0, true).expect("mapped");
        memory
    }

    #[test]
    fn only_what_is_mapped_is_reached() {
        let file = memory_file(0x3000);
        let mut memory = GuestMemory::default();
        memory.map(0x1000, 0x1000, &file, 0x2000, true).expect("mapped");
        memory.map(0x2000, 0x1000, &file, 0, true).expect("beside it");
        let bytes: Vec<u8> = (0..100).collect();
        memory.write(0x2000 - 50, &bytes).expect("over the seam");
        let mut back = vec![0; 100];
        memory.read(0x2000 - 50, &mut back).expect("over the seam");
        assert_eq!(back, bytes);
        assert_eq!(memory.read(0x2fff, &mut [0; 2]), Err(MemoryFault));
        assert_eq!(memory.read(0xfff, &mut [0; 2]), Err(MemoryFault));
        assert_eq!(memory.write(u64::MAX, &[0; 2]), Err(MemoryFault));
        memory.unmap(0x1000, 0x1000);
        assert_eq!(memory.word(0x1ff8), Err(MemoryFault));
        assert!(memory.word(0x2000).is_ok());
    }

    #[test]
    fn impossible_maps_are_refused() {
        let file = memory_file(0x2000);
        let mut memory = GuestMemory::default();
        assert!(memory.map(0, 0x3000, &file, 0, true).is_err(), "longer than the file");
        assert!(memory.map(0, 0, &file, 0, true).is_err(), "nothing");
        assert!(memory.map(u64::MAX, 0x1000, &file, 0, true).is_err(), "over the end");
        memory.map(0x1000, 0x1000, &file, 0, false).expect("mapped");
        assert!(memory.map(0x1800, 0x1000, &file, 0, true).is_err(), "overlapping");
        assert!(memory.map(0x800, 0x1000, &file, 0, true).is_err(), "overlapping");
        assert_eq!(memory.write(0x1000, &[1]), Err(MemoryFault), "for reading only");
    }
}
