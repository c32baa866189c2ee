//! The engine's view of the guests: their memory, and where its reports go.

use std::time::{Duration, Instant};

use irdma_engine::event::AsyncEvent;
use irdma_engine::spec::{CqId, FunctionId, PageSize, Translation};
use irdma_engine::{MemoryFault, Platform};

use crate::backing::Backing;
use crate::guest::GuestMemory;
use crate::hmc::PrivateMemory;

/// What a function reaches.
#[derive(Debug, Default)]
pub struct Reach {
    /// Its guest's memory.
    pub memory: GuestMemory,
    /// Its private memory.
    pub private: PrivateMemory,
}

/// Memory and reports of all functions.
#[derive(Debug)]
pub struct Host {
    start: Instant,
    reaches: Vec<Reach>,
    /// CQs that owe their driver an event, one entry per event.
    pub completions: Vec<CqId>,
    /// Asynchronous events in order.
    pub events: Vec<AsyncEvent>,
}

impl Host {
    /// For that many functions, none of which has memory yet.
    pub fn new(functions: usize) -> Self {
        Self {
            start: Instant::now(),
            reaches: std::iter::repeat_with(Reach::default).take(functions).collect(),
            completions: Vec::new(),
            events: Vec::new(),
        }
    }

    /// What a function reaches; `None` if there is no such function.
    pub fn reach(&mut self, function: FunctionId) -> Option<&mut Reach> {
        self.reaches.get_mut(function as usize)
    }

    /// Reads guest memory at a physical address.
    ///
    /// # Errors
    /// [`MemoryFault`] if any of it is not mapped.
    pub fn read_at(&self, function: FunctionId, address: u64, buffer: &mut [u8]) -> Result<(), MemoryFault> {
        self.reaches.get(function as usize).ok_or(MemoryFault)?.memory.read(address, buffer)
    }

    /// Writes guest memory at a physical address.
    ///
    /// # Errors
    /// [`MemoryFault`] if any of it is not mapped for writing.
    pub fn write_at(&self, function: FunctionId, address: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        self.reaches.get(function as usize).ok_or(MemoryFault)?.memory.write(address, bytes)
    }
}

impl Platform for Host {
    type Backing = Backing;

    fn read(&mut self, backing: &Backing, offset: u64, buffer: &mut [u8]) -> Result<(), MemoryFault> {
        let reach = self.reaches.get(backing.function as usize).ok_or(MemoryFault)?;
        backing.walk(&reach.memory, &reach.private, offset, buffer.len(), |address, done, bytes| {
            reach.memory.read(address, &mut buffer[done..done + bytes])
        })
    }

    fn write(&mut self, backing: &Backing, offset: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        let reach = self.reaches.get(backing.function as usize).ok_or(MemoryFault)?;
        backing.walk(&reach.memory, &reach.private, offset, bytes.len(), |address, done, length| {
            reach.memory.write(address, &bytes[done..done + length])
        })
    }

    fn fast_memory(
        &mut self,
        function: FunctionId,
        pages: Translation,
        page_size: PageSize,
        offset: u64,
        length: u64,
    ) -> Option<Backing> {
        Some(Backing::new(function, pages, page_size, offset, length))
    }

    fn completion_event(&mut self, cq: CqId) {
        self.completions.push(cq);
    }

    fn async_event(&mut self, event: AsyncEvent) {
        self.events.push(event);
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::guest::tests::memory;

    /// One function whose guest has that many bytes from address 0 on.
    pub fn host(bytes: u64) -> Host {
        let mut host = Host::new(1);
        host.reaches[0].memory = memory(bytes);
        host
    }
}
