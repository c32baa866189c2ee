//! The engine's view of the outside: memory that programs registered, and where its reports go.

use std::cmp::min;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use irdma_engine::event::AsyncEvent;
use irdma_engine::spec::CqId;
use irdma_engine::{MemoryFault, Platform};

use crate::program::Program;

/// A range of memory that a program gave to the device.
#[derive(Clone, Debug)]
pub struct Memory {
    source: Source,
    start: u64,
    length: u64,
}

/// Whose memory it is.
#[derive(Clone, Debug)]
enum Source {
    /// The address space of a program.
    Program(Rc<dyn Program>),
    /// A memory file, standing in for a dma-buf.
    File(Rc<File>),
}

impl Memory {
    /// `length` bytes at address `start` of a program.
    pub fn of_program(program: Rc<dyn Program>, start: u64, length: u64) -> Memory {
        Memory { source: Source::Program(program), start, length }
    }

    /// `length` bytes at offset `start` of a file.
    pub fn of_file(file: File, start: u64, length: u64) -> Memory {
        Memory { source: Source::File(Rc::new(file)), start, length }
    }

    /// Part of it: at most `length` bytes from `offset` on, nothing beyond its own end.
    pub fn part(&self, offset: u64, length: u64) -> Memory {
        let offset = min(offset, self.length);
        Memory {
            source: self.source.clone(),
            start: self.start.wrapping_add(offset),
            length: min(length, self.length - offset),
        }
    }

    /// Where `bytes` bytes at `offset` are; a fault if they are not all inside.
    fn locate(&self, offset: u64, bytes: usize) -> Result<u64, MemoryFault> {
        let end = offset.checked_add(bytes as u64).ok_or(MemoryFault)?;
        if end > self.length {
            return Err(MemoryFault);
        }
        self.start.checked_add(offset).ok_or(MemoryFault)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MemoryFault> {
        let place = self.locate(offset, buffer.len())?;
        match &self.source {
            Source::Program(program) => program.read(place, buffer),
            Source::File(file) => file.read_exact_at(buffer, place).map_err(|_| MemoryFault),
        }
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        let place = self.locate(offset, bytes.len())?;
        match &self.source {
            Source::Program(program) => program.write(place, bytes),
            Source::File(file) => file.write_all_at(bytes, place).map_err(|_| MemoryFault),
        }
    }

    fn write_pieces(&self, pieces: &[(u64, &[u8])]) -> Result<(), MemoryFault> {
        let Source::Program(program) = &self.source else {
            return pieces.iter().try_for_each(|(offset, bytes)| self.write(*offset, bytes));
        };
        let mut placed = Vec::with_capacity(pieces.len());
        for (offset, bytes) in pieces {
            placed.push((self.locate(*offset, bytes.len())?, *bytes));
        }
        program.write_pieces(&placed)
    }
}

/// How the device's time passes.
#[derive(Debug)]
enum Clock {
    /// With the machine's, since then.
    Running(Instant),
    /// When told to; so long has passed.
    Stepped(Duration),
}

/// Collects what the engine reports until the kernel's part looks at it.
#[derive(Debug)]
pub struct Reports {
    clock: Clock,
    /// CQs that owe their program an event, one entry per event.
    pub completions: Vec<CqId>,
    /// Asynchronous events in order.
    pub events: Vec<AsyncEvent>,
    /// Programs stand still while their doorbells are served.
    pub doorbells_wait: bool,
}

impl Reports {
    /// Nothing reported yet.
    pub fn new() -> Reports {
        Reports {
            clock: Clock::Running(Instant::now()),
            completions: Vec::new(),
            events: Vec::new(),
            doorbells_wait: false,
        }
    }

    /// Lets `time` pass; from the first call on it passes no more by itself.
    pub fn pass(&mut self, time: Duration) {
        let passed = match self.clock {
            Clock::Running(_) => Duration::ZERO,
            Clock::Stepped(passed) => passed,
        };
        self.clock = Clock::Stepped(passed.saturating_add(time));
    }
}

impl Platform for Reports {
    type Backing = Memory;

    fn read(&mut self, backing: &Memory, offset: u64, buffer: &mut [u8]) -> Result<(), MemoryFault> {
        backing.read(offset, buffer)
    }

    fn write(&mut self, backing: &Memory, offset: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        backing.write(offset, bytes)
    }

    fn write_pieces(&mut self, backing: &Memory, pieces: &[(u64, &[u8])]) -> Result<(), MemoryFault> {
        backing.write_pieces(pieces)
    }

    fn doorbell_waits(&self) -> bool {
        self.doorbells_wait
    }

    fn completion_event(&mut self, cq: CqId) {
        self.completions.push(cq);
    }

    fn async_event(&mut self, event: AsyncEvent) {
        self.events.push(event);
    }

    fn now(&self) -> Duration {
        match self.clock {
            Clock::Running(start) => start.elapsed(),
            Clock::Stepped(passed) => passed,
        }
    }
}
