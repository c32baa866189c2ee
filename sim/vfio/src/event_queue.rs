//! Event queues: rings in the guest in which the device reports, with a valid bit that flips
//! at each lap.

use irdma_engine::event::{AsyncEvent, Subject};
use irdma_engine::spec::Generation;
use irdma_engine::{MemoryFault, Platform};

use crate::backing::Backing;
use crate::field::Field;
use crate::host::Host;

const VALID: Field = Field::bit(63);
/// Most entries of an event queue (the width of the size field of the larger kind).
pub const MOST_ENTRIES: u32 = 1 << 21;

// Entry of the asynchronous event queue (kernel: `IRDMA_AEQE_*`, defs.h).
const GEN2_NUMBER_LOW: Field = Field::new(17, 0);
const GEN2_INDEX: Field = Field::new(32, 18);
const GEN2_CODE: Field = Field::new(45, 34);
const GEN2_NUMBER_HIGH: Field = Field::bit(46);
const GEN2_SOURCE: Field = Field::new(53, 50);
const GEN2_STATE: Field = Field::new(56, 54);
const GEN3_NUMBER: Field = Field::new(24, 0);
const GEN3_SOURCE: Field = Field::new(28, 25);
const GEN3_STATE: Field = Field::new(31, 29);
const GEN3_INDEX: Field = Field::new(49, 32);
const GEN3_CODE: Field = Field::new(61, 50);

/// A ring of events.
#[derive(Debug)]
pub struct EventQueue {
    ring: Backing,
    entries: u32,
    next: u32,
    polarity: bool,
}

impl EventQueue {
    /// A fresh queue; the first lap's valid bits are 1.
    pub fn new(ring: Backing, entries: u32) -> Self {
        Self { ring, entries, next: 0, polarity: true }
    }

    /// Writes an entry, whose last word has a valid bit.
    ///
    /// # Errors
    /// The ring's memory is gone.
    pub fn produce(&mut self, host: &mut Host, words: &[u64]) -> Result<(), MemoryFault> {
        let (&last, before) = words.split_last().ok_or(MemoryFault)?;
        let mut offset = u64::from(self.next) * 8 * words.len() as u64;
        for word in before {
            host.write(&self.ring, offset, &word.to_le_bytes())?;
            offset += 8;
        }
        let last = last & !VALID.put(1) | VALID.put(self.polarity.into());
        host.write(&self.ring, offset, &last.to_le_bytes())?;
        self.next += 1;
        if self.next >= self.entries {
            self.next = 0;
            self.polarity = !self.polarity;
        }
        Ok(())
    }
}

/// An entry of the asynchronous event queue: `context` is what the driver gave at the creation
/// of the object, `state` the state that its queue pair is in now.
pub fn asynchronous_entry(generation: Generation, event: &AsyncEvent, context: u64, state: u64) -> [u64; 2] {
    let (Subject::Qp(id) | Subject::Cq(id) | Subject::Srq(id)) = event.subject;
    let number = u64::from(id.number);
    let index = event.wqe_index.unwrap_or(0).into();
    let (code, source) = (event.code.into(), event.source as u64);
    if generation >= Generation::Gen3 {
        // The context's low six bits are other fields' (and zero).
        let word = GEN3_NUMBER.put(number)
            | GEN3_SOURCE.put(source)
            | GEN3_STATE.put(state)
            | GEN3_INDEX.put(index)
            | GEN3_CODE.put(code);
        return [context & !0x3f, word];
    }
    let word = GEN2_NUMBER_LOW.put(number)
        | GEN2_NUMBER_HIGH.put(number >> 18)
        | GEN2_SOURCE.put(source)
        | GEN2_STATE.put(state)
        | GEN2_INDEX.put(index)
        | GEN2_CODE.put(code);
    [context, word]
}

#[cfg(test)]
mod tests {
    use irdma_engine::event::Source;
    use irdma_engine::spec::Id;

    use super::*;
    use crate::host::tests::host;

    #[test]
    fn laps_alternate() {
        let mut host = host(0x1_0000);
        let mut queue = EventQueue::new(Backing::physical(0, 0x1000, 4096), 3);
        for number in 0..4 {
            queue.produce(&mut host, &[number, number]).expect("mapped");
        }
        let word = |address| {
            let mut bytes = [0; 8];
            host.read_at(0, address, &mut bytes).expect("mapped");
            u64::from_le_bytes(bytes)
        };
        assert_eq!(word(0x1000), 3);
        assert_eq!(word(0x1008), 3, "second lap");
        assert_eq!(word(0x1018), 1 << 63 | 1);
        let mut nowhere = EventQueue::new(Backing::physical(0, 0x100_0000, 4096), 3);
        assert_eq!(nowhere.produce(&mut host, &[0]), Err(MemoryFault));
    }

    #[test]
    fn entries_name_object_code_and_source() {
        let event = AsyncEvent {
            subject: Subject::Qp(Id { function: 0, number: 0x4_0005 }),
            code: 0x050a,
            source: Source::SendQueue,
            wqe_index: Some(0x77),
        };
        let [context, word] = asynchronous_entry(Generation::Gen3, &event, 0xffff_8880_0000_1040, 6);
        assert_eq!(context, 0xffff_8880_0000_1040);
        assert_eq!(word, 0x4_0005 | 5 << 25 | 6 << 29 | 0x77 << 32 | 0x50a << 50);
        let [_, word] = asynchronous_entry(Generation::Gen2, &event, 0, 6);
        assert_eq!(word, 5 | 1 << 46 | 0x77 << 18 | 0x50a << 34 | 5 << 50 | 6 << 54);
    }
}
