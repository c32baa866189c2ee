//! What the engine needs from whoever runs it: memory and a place to report to.

use std::time::Duration;

use crate::event::AsyncEvent;
use crate::spec::{CqId, FunctionId, PageSize, Translation};

/// The memory could not be reached: unmapped, gone, or not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryFault;

/// Which end of a copy could not be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyFault {
    /// The memory read from.
    Source,
    /// The memory written to.
    Destination,
}

/// Memory access and notification, the seam between the two test beds.
pub trait Platform {
    /// A span of memory that the device was given: process and address in the
    /// software device, a list of guest pages in the virtual machine.
    type Backing: Clone + std::fmt::Debug;

    /// Fills `buffer` from byte `offset` of `backing`.
    ///
    /// # Errors
    /// [`MemoryFault`] if any byte cannot be reached; what is in `buffer` then means nothing.
    fn read(&mut self, backing: &Self::Backing, offset: u64, buffer: &mut [u8]) -> Result<(), MemoryFault>;

    /// Stores `bytes` at byte `offset` of `backing`; aligned words of eight bytes appear
    /// whole, and two calls are never reordered.
    ///
    /// # Errors
    /// [`MemoryFault`] if any byte cannot be reached; some may have been written.
    fn write(&mut self, backing: &Self::Backing, offset: u64, bytes: &[u8]) -> Result<(), MemoryFault>;

    /// Stores several pieces (byte offset, bytes), each visible before the next.
    /// To be replaced where one call can do it cheaper than several.
    ///
    /// # Errors
    /// [`MemoryFault`] if any byte cannot be reached; pieces before it may have been written.
    fn write_pieces(&mut self, backing: &Self::Backing, pieces: &[(u64, &[u8])]) -> Result<(), MemoryFault> {
        pieces.iter().try_for_each(|&(offset, bytes)| self.write(backing, offset, bytes))
    }

    /// Copies `length` bytes from `offset` of `from` to `to_offset` of `to`, through
    /// `buffer` (never empty) or without it where both ends can be reached directly.
    ///
    /// # Errors
    /// [`CopyFault`] names the end that could not be reached; some bytes may have been written.
    fn copy(
        &mut self,
        from: &Self::Backing,
        offset: u64,
        to: &Self::Backing,
        to_offset: u64,
        length: u64,
        buffer: &mut [u8],
    ) -> Result<(), CopyFault> {
        let mut done = 0;
        while done < length {
            let piece = (length - done).min(buffer.len() as u64);
            let chunk = &mut buffer[..piece as usize];
            self.read(from, offset + done, chunk).map_err(|MemoryFault| CopyFault::Source)?;
            self.write(to, to_offset + done, chunk).map_err(|MemoryFault| CopyFault::Destination)?;
            done += piece;
        }
        Ok(())
    }

    /// Whether whoever rings a send queue's doorbell stands still, with that queue
    /// locked, until [`crate::Engine::ring_sq`] returns. If so, a WQE seen valid in
    /// there is complete; if not, the engine reads it once more after its valid bit.
    fn doorbell_waits(&self) -> bool {
        false
    }

    /// The memory that a registration posted as work speaks of: `length` bytes from byte
    /// `offset` of its first page on; `None` if there can be no such memory.
    fn fast_memory(
        &mut self,
        _function: FunctionId,
        _pages: Translation,
        _page_size: PageSize,
        _offset: u64,
        _length: u64,
    ) -> Option<Self::Backing> {
        None
    }

    /// An armed CQ got a completion: one call per request.
    fn completion_event(&mut self, cq: CqId);

    /// Something asynchronous happened. The kernel's part acts on it (program's
    /// event, flush) once the engine's call that reported it has returned.
    fn async_event(&mut self, event: AsyncEvent);

    /// Time since any fixed point; never goes back.
    fn now(&self) -> Duration;
}
