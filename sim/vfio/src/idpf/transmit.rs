//! Transmit queues: frames out of the guest, and word that they are done.

use irdma_engine::spec::FunctionId;

use crate::field::{u16_at, u64_at};
use crate::host::Host;

/// Bytes of a transmit descriptor, and of a completion.
const DESCRIPTOR: u64 = 16;
const COMPLETION: u64 = 8;
/// Largest frame.
const LARGEST_FRAME: usize = 1 << 16;

/// The type of a data descriptor under flow scheduling; others describe what follows.
const TYPE: u8 = 0x1f;
const DATA: u8 = 12;
const END_OF_FRAME: u8 = 1 << 5;
const REPORT_HEAD: u8 = 1 << 7;
const SIZE: u16 = 0x3fff;

/// Kinds of completions.
const FRAME_DONE: u16 = 2;
const HEAD: u16 = 4;
const MARKER: u16 = 5;
const KIND_SHIFT: u32 = 11;
const GENERATION_SHIFT: u32 = 15;
const QUEUE: u16 = 0x3ff;

/// The ring into which completions of transmit queues are written.
#[derive(Debug)]
pub struct CompletionRing {
    address: u64,
    entries: u32,
    next: u32,
    generation: bool,
}

impl CompletionRing {
    /// A fresh ring; entries of the first lap have generation 1.
    pub fn new(address: u64, entries: u16) -> Self {
        Self { address, entries: entries.into(), next: 0, generation: true }
    }

    fn produce(&mut self, host: &Host, function: FunctionId, kind: u16, queue: u16, tag: u16) {
        let Some(place) = self.address.checked_add(u64::from(self.next) * COMPLETION) else { return };
        if self.next >= self.entries {
            return;
        }
        let first = queue & QUEUE | kind << KIND_SHIFT | u16::from(self.generation) << GENERATION_SHIFT;
        let mut entry = [0; COMPLETION as usize];
        entry[..2].copy_from_slice(&first.to_le_bytes());
        entry[2..4].copy_from_slice(&tag.to_le_bytes());
        // A ring out of reach is the driver's loss.
        let _ = host.write_at(function, place, &entry);
        self.next += 1;
        if self.next == self.entries {
            self.next = 0;
            self.generation = !self.generation;
        }
    }
}

/// A transmit queue.
#[derive(Debug)]
pub struct TransmitQueue {
    address: u64,
    entries: u32,
    head: u32,
    /// Its number among the queues that share a completion ring.
    relative: u16,
    /// The ring of its completions.
    pub completions: u32,
    /// The frame being put together, and whether it is a whole one so far.
    frame: Vec<u8>,
    broken: bool,
}

impl TransmitQueue {
    /// A fresh queue.
    pub fn new(address: u64, entries: u16, relative: u16, completions: u32) -> Self {
        Self {
            address,
            entries: entries.into(),
            head: 0,
            relative,
            completions,
            frame: Vec::new(),
            broken: false,
        }
    }

    /// Sends what is described before `tail`.
    pub fn transmit(
        &mut self,
        host: &Host,
        function: FunctionId,
        tail: u32,
        completions: &mut CompletionRing,
        outgoing: &mut Vec<Vec<u8>>,
    ) {
        while tail < self.entries && self.head != tail {
            let mut descriptor = [0; DESCRIPTOR as usize];
            let place = self.address.checked_add(u64::from(self.head) * DESCRIPTOR);
            let read = place.map(|place| host.read_at(function, place, &mut descriptor));
            if read.is_none_or(|read| read.is_err()) {
                return;
            }
            self.head = (self.head + 1) % self.entries;
            let command = descriptor[8];
            if command & TYPE != DATA {
                continue;
            }
            self.gather(host, function, u64_at(&descriptor, 0), (u16_at(&descriptor, 14) & SIZE).into());
            if command & REPORT_HEAD != 0 {
                completions.produce(host, function, HEAD, self.relative, self.head as u16);
            }
            if command & END_OF_FRAME != 0 {
                let tag = u16_at(&descriptor, 12);
                let frame = std::mem::take(&mut self.frame);
                if !std::mem::take(&mut self.broken) {
                    outgoing.push(frame);
                }
                completions.produce(host, function, FRAME_DONE, self.relative, tag);
            }
        }
    }

    fn gather(&mut self, host: &Host, function: FunctionId, address: u64, length: usize) {
        let start = self.frame.len();
        if start + length > LARGEST_FRAME {
            self.broken = true;
            return;
        }
        self.frame.resize(start + length, 0);
        self.broken |= host.read_at(function, address, &mut self.frame[start..]).is_err();
    }

    /// Tells the driver that nothing is left to be done.
    pub fn mark(&self, host: &Host, function: FunctionId, completions: &mut CompletionRing) {
        completions.produce(host, function, MARKER, self.relative, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::put_at;
    use crate::host::tests::host;

    fn describe(host: &Host, index: u64, address: u64, length: u16, command: u8, tag: u16) {
        let mut descriptor = [0; DESCRIPTOR as usize];
        put_at(&mut descriptor, 0, address.to_le_bytes());
        put_at(&mut descriptor, 8, [command]);
        put_at(&mut descriptor, 12, tag.to_le_bytes());
        put_at(&mut descriptor, 14, length.to_le_bytes());
        host.write_at(0, 0x1000 + index * DESCRIPTOR, &descriptor).expect("mapped");
    }

    fn completion(host: &Host, index: u64) -> (u16, u16) {
        let mut entry = [0; 4];
        host.read_at(0, 0x2000 + index * COMPLETION, &mut entry).expect("mapped");
        (u16_at(&entry, 0), u16_at(&entry, 2))
    }

    #[test]
    fn frames_are_put_together_and_completed() {
        let host = host(0x1_0000);
        let mut queue = TransmitQueue::new(0x1000, 4, 3, 0);
        let mut ring = CompletionRing::new(0x2000, 2);
        let mut outgoing = Vec::new();
        host.write_at(0, 0x4000, &[1, 2, 3, 4]).expect("mapped");
        describe(&host, 0, 0, 0, 5, 0);
        describe(&host, 1, 0x4000, 3, DATA, 77);
        describe(&host, 2, 0x4002, 2, DATA | END_OF_FRAME | REPORT_HEAD, 77);
        queue.transmit(&host, 0, 2, &mut ring, &mut outgoing);
        assert!(outgoing.is_empty());
        queue.transmit(&host, 0, 3, &mut ring, &mut outgoing);
        assert_eq!(outgoing, [[1, 2, 3, 3, 4]]);
        assert_eq!(completion(&host, 0), (3 | HEAD << 11 | 1 << 15, 3));
        assert_eq!(completion(&host, 1), (3 | FRAME_DONE << 11 | 1 << 15, 77));
        queue.mark(&host, 0, &mut ring);
        assert_eq!(completion(&host, 0), (3 | MARKER << 11, 0), "second lap");
    }

    #[test]
    fn what_cannot_be_read_is_completed_and_not_sent() {
        let host = host(0x1_0000);
        let mut queue = TransmitQueue::new(0x1000, 4, 0, 0);
        let mut ring = CompletionRing::new(0x2000, 8);
        let mut outgoing = Vec::new();
        describe(&host, 0, 0xffff_0000, 64, DATA | END_OF_FRAME, 5);
        describe(&host, 1, 0x4000, 4, DATA | END_OF_FRAME, 6);
        queue.transmit(&host, 0, 2, &mut ring, &mut outgoing);
        assert_eq!(outgoing.len(), 1);
        assert_eq!(completion(&host, 0).1, 5);
        queue.transmit(&host, 0, 9, &mut ring, &mut outgoing);
        TransmitQueue::new(u64::MAX - 8, 4, 0, 0).transmit(&host, 0, 1, &mut ring, &mut outgoing);
        TransmitQueue::new(0, 0, 0, 0).transmit(&host, 0, 0, &mut ring, &mut outgoing);
        CompletionRing::new(0, 0).produce(&host, 0, HEAD, 0, 0);
        assert_eq!(outgoing.len(), 1);
    }
}
