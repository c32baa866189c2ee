//! What the engine needs from whoever runs it: memory and a place to report to.

use std::time::Duration;

use crate::event::AsyncEvent;
use crate::spec::CqId;

/// The memory could not be reached: unmapped, gone, or not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryFault;

/// Memory access and notification, the seam between the two test beds.
pub trait Platform {
    /// A span of memory that the device was given: process and address in the
    /// software device, a list of guest pages in the virtual machine.
    type Backing: Clone + std::fmt::Debug;

    /// Fills `buffer` from byte `offset` of `backing`.
    fn read(&mut self, backing: &Self::Backing, offset: u64, buffer: &mut [u8]) -> Result<(), MemoryFault>;

    /// Stores `bytes` at byte `offset` of `backing`, in ascending order where aligned
    /// words are concerned; two calls are never reordered.
    fn write(&mut self, backing: &Self::Backing, offset: u64, bytes: &[u8]) -> Result<(), MemoryFault>;

    /// An armed CQ got a completion: one call per request.
    fn completion_event(&mut self, cq: CqId);

    /// Something asynchronous happened. The kernel's part acts on it (program's
    /// event, flush); called when the engine's own state is consistent.
    fn async_event(&mut self, event: AsyncEvent);

    /// Time since any fixed point; never goes back.
    fn now(&self) -> Duration;
}
