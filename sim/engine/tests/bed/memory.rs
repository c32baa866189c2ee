//! The platform of the tests: areas of bytes, a clock, lists of what was reported.

use std::time::Duration;

use irdma_engine::event::AsyncEvent;
use irdma_engine::spec::{CqId, FunctionId, PageSize, Translation};
use irdma_engine::{MemoryFault, Platform};

/// Names a piece of memory.
pub type Area = usize;

/// Memory that can be taken away.
#[derive(Debug, Default)]
pub struct Memory {
    areas: Vec<Option<Vec<u8>>>,
    /// Moved by the test.
    pub now: Duration,
    /// What the engine reported and nobody took yet.
    pub events: Vec<AsyncEvent>,
    pub completion_events: Vec<CqId>,
    /// Calls of read and write, for tests of their number.
    pub calls: usize,
    /// Words that appear (area, offset, value) once something has been read from their area.
    pub late: Vec<(Area, usize, u64)>,
    /// Doorbells are said to stand still.
    pub doorbell_waits: bool,
}

impl Memory {
    pub fn area(&mut self, bytes: usize) -> Area {
        self.areas.push(Some(vec![0; bytes]));
        self.areas.len() - 1
    }

    /// Takes an area away: every access faults from now on.
    pub fn unmap(&mut self, area: Area) {
        self.areas[area] = None;
    }

    pub fn bytes(&mut self, area: Area) -> &mut [u8] {
        self.areas[area].as_deref_mut().expect("mapped")
    }

    pub fn word(&mut self, area: Area, offset: usize) -> u64 {
        u64::from_le_bytes(self.bytes(area)[offset..offset + 8].try_into().expect("eight bytes"))
    }

    pub fn set_word(&mut self, area: Area, offset: usize, word: u64) {
        self.bytes(area)[offset..offset + 8].copy_from_slice(&word.to_le_bytes());
    }

    fn piece(&mut self, area: Area, offset: u64, length: usize) -> Result<&mut [u8], MemoryFault> {
        self.calls += 1;
        let bytes = self.areas.get_mut(area).and_then(Option::as_deref_mut).ok_or(MemoryFault)?;
        let start = usize::try_from(offset).map_err(|_| MemoryFault)?;
        bytes.get_mut(start..).and_then(|rest| rest.get_mut(..length)).ok_or(MemoryFault)
    }
}

impl Platform for Memory {
    type Backing = Area;

    fn read(&mut self, backing: &Area, offset: u64, buffer: &mut [u8]) -> Result<(), MemoryFault> {
        buffer.copy_from_slice(self.piece(*backing, offset, buffer.len())?);
        for (area, offset, word) in std::mem::take(&mut self.late) {
            if area == *backing {
                self.set_word(area, offset, word);
            } else {
                self.late.push((area, offset, word));
            }
        }
        Ok(())
    }

    fn write(&mut self, backing: &Area, offset: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        self.piece(*backing, offset, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    fn doorbell_waits(&self) -> bool {
        self.doorbell_waits
    }

    /// An area's physical address is its number in pages.
    fn fast_memory(
        &mut self,
        _function: FunctionId,
        pages: Translation,
        page_size: PageSize,
        _offset: u64,
        _length: u64,
    ) -> Option<Area> {
        match (pages, page_size) {
            (Translation::Contiguous(address), PageSize::Small) => Some((address >> 12) as Area),
            _ => None,
        }
    }

    fn completion_event(&mut self, cq: CqId) {
        self.completion_events.push(cq);
    }

    fn async_event(&mut self, event: AsyncEvent) {
        self.events.push(event);
    }

    fn now(&self) -> Duration {
        self.now
    }
}
