//! Receive queues: frames into buffers of the guest.

use std::collections::BTreeMap;

use irdma_engine::spec::FunctionId;

use crate::field::{put_at, u16_at, u64_at};
use crate::host::Host;

/// Bytes of a descriptor, of buffers and of frames.
const DESCRIPTOR: u64 = 32;
/// Buffers of a frame at most.
const MOST_PIECES: usize = 16;

/// The format of the descriptors: flexible, split queues.
const FORMAT: u8 = 2;
const LENGTH: u16 = 0x3fff;
const GENERATION_SHIFT: u32 = 14;
const SECOND_QUEUE_SHIFT: u32 = 15;
const DONE: u8 = 1;
const END_OF_FRAME: u8 = 2;

/// A ring of buffers that the driver has put at the device's disposal.
#[derive(Debug)]
pub struct BufferQueue {
    address: u64,
    entries: u32,
    head: u32,
    tail: u32,
    size: usize,
}

impl BufferQueue {
    /// A ring without buffers yet; each will have `size` bytes.
    pub fn new(address: u64, entries: u16, size: u32) -> Self {
        Self { address, entries: entries.into(), head: 0, tail: 0, size: (size as usize).min(LENGTH.into()) }
    }

    /// The driver has put buffers before `tail`.
    pub fn set_tail(&mut self, tail: u32) {
        if tail < self.entries {
            self.tail = tail;
        }
    }

    /// Takes a buffer: name and address.
    fn take(&mut self, host: &Host, function: FunctionId) -> Option<(u16, u64)> {
        if self.head == self.tail || self.size == 0 {
            return None;
        }
        let place = self.address.checked_add(u64::from(self.head) * DESCRIPTOR)?;
        let mut descriptor = [0; DESCRIPTOR as usize];
        host.read_at(function, place, &mut descriptor).ok()?;
        self.head = (self.head + 1) % self.entries;
        Some((u16_at(&descriptor, 0), u64_at(&descriptor, 8)))
    }

    fn available(&self) -> usize {
        if self.entries == 0 { 0 } else { ((self.tail + self.entries - self.head) % self.entries) as usize }
    }
}

/// A receive queue.
#[derive(Debug)]
pub struct ReceiveQueue {
    address: u64,
    entries: u32,
    next: u32,
    generation: bool,
    buffers: [Option<u32>; 2],
}

impl ReceiveQueue {
    /// A fresh queue that takes its buffers from these; descriptors of the first lap have
    /// generation 1.
    pub fn new(address: u64, entries: u16, buffers: [Option<u32>; 2]) -> Self {
        Self { address, entries: entries.into(), next: 0, generation: true, buffers }
    }

    /// Delivers a frame; false if there is no room for it.
    pub fn receive(
        &mut self,
        host: &Host,
        function: FunctionId,
        buffers: &mut BTreeMap<u32, BufferQueue>,
        frame: &[u8],
    ) -> bool {
        // All of it comes out of one ring of buffers.
        let fits = |queue: &BufferQueue| {
            let pieces = frame.len().div_ceil(queue.size.max(1));
            queue.size > 0 && pieces <= MOST_PIECES && pieces <= queue.available()
        };
        let chosen = self.buffers.iter().enumerate().find_map(|(place, number)| {
            number.filter(|number| buffers.get(number).is_some_and(fits)).map(|number| (place, number))
        });
        let Some((place, number)) = chosen else { return false };
        let Some(queue) = buffers.get_mut(&number) else { return false };
        let size = queue.size;
        let count = frame.len().div_ceil(size);
        for (index, piece) in frame.chunks(size).enumerate() {
            let Some((name, address)) = queue.take(host, function) else { return false };
            if host.write_at(function, address, piece).is_err() {
                return false;
            }
            self.produce(host, function, name, piece.len() as u16, place == 1, index + 1 == count);
        }
        count > 0
    }

    fn produce(
        &mut self,
        host: &Host,
        function: FunctionId,
        buffer: u16,
        length: u16,
        second: bool,
        last: bool,
    ) {
        let Some(place) = self.address.checked_add(u64::from(self.next) * DESCRIPTOR) else { return };
        if self.next >= self.entries {
            return;
        }
        let mut descriptor = [0; DESCRIPTOR as usize];
        let status = DONE | if last { END_OF_FRAME } else { 0 };
        let word = length & LENGTH
            | u16::from(self.generation) << GENERATION_SHIFT
            | u16::from(second) << SECOND_QUEUE_SHIFT;
        put_at(&mut descriptor, 0, [FORMAT]);
        put_at(&mut descriptor, 4, word.to_le_bytes());
        put_at(&mut descriptor, 8, [status]);
        put_at(&mut descriptor, 12, buffer.to_le_bytes());
        // The driver looks at the generation first, in the first word. A ring out of reach is
        // its loss.
        let _ = host.write_at(function, place + 8, &descriptor[8..]);
        let _ = host.write_at(function, place, &descriptor[..8]);
        self.next += 1;
        if self.next == self.entries {
            self.next = 0;
            self.generation = !self.generation;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::tests::host;

    fn scene() -> (Host, ReceiveQueue, BTreeMap<u32, BufferQueue>) {
        let host = host(0x2_0000);
        for (ring, base) in [(0x1000_u64, 0x8000_u64), (0x2000, 0x1_0000)] {
            for index in 0..4_u64 {
                let mut descriptor = [0; DESCRIPTOR as usize];
                put_at(&mut descriptor, 0, (100 + index as u16).to_le_bytes());
                put_at(&mut descriptor, 8, (base + index * 0x1000).to_le_bytes());
                host.write_at(0, ring + index * DESCRIPTOR, &descriptor).expect("mapped");
            }
        }
        let queue = ReceiveQueue::new(0x3000, 3, [Some(0), Some(1)]);
        let buffers = [(0, BufferQueue::new(0x1000, 4, 64)), (1, BufferQueue::new(0x2000, 4, 64))];
        (host, queue, buffers.into())
    }

    fn descriptor(host: &Host, index: u64) -> (u16, u8, u16) {
        let mut bytes = [0; DESCRIPTOR as usize];
        host.read_at(0, 0x3000 + index * DESCRIPTOR, &mut bytes).expect("mapped");
        (u16_at(&bytes, 4), bytes[8], u16_at(&bytes, 12))
    }

    #[test]
    fn long_frames_take_several_buffers() {
        let (host, mut queue, mut buffers) = scene();
        let frame: Vec<u8> = (0..100).collect();
        assert!(!queue.receive(&host, 0, &mut buffers, &frame), "no buffers yet");
        buffers.get_mut(&0).expect("a ring").set_tail(3);
        assert!(queue.receive(&host, 0, &mut buffers, &frame));
        assert_eq!(descriptor(&host, 0), (64 | 1 << 14, DONE, 100));
        assert_eq!(descriptor(&host, 1), (36 | 1 << 14, DONE | END_OF_FRAME, 101));
        let mut bytes = [0; 36];
        host.read_at(0, 0x9000, &mut bytes).expect("mapped");
        assert_eq!(bytes[..], frame[64..]);
        assert!(!queue.receive(&host, 0, &mut buffers, &frame), "one buffer is not enough");
        buffers.get_mut(&1).expect("a ring").set_tail(2);
        assert!(queue.receive(&host, 0, &mut buffers, &frame), "the other ring has two");
        assert_eq!(descriptor(&host, 2).0, 64 | 1 << 14 | 1 << 15);
        assert_eq!(descriptor(&host, 0).0, 36 | 1 << 15, "second lap");
    }

    #[test]
    fn rings_that_make_no_sense_take_nothing() {
        let (host, mut queue, mut buffers) = scene();
        for broken in [
            BufferQueue::new(0x1000, 0, 64),
            BufferQueue::new(0x1000, 4, 0),
            BufferQueue::new(u64::MAX, 4, 64),
        ] {
            buffers.insert(0, broken);
            buffers.get_mut(&0).expect("a ring").set_tail(1);
            assert!(!queue.receive(&host, 0, &mut buffers, &[1; 10]));
        }
        assert!(!queue.receive(&host, 0, &mut buffers, &[]));
        ReceiveQueue::new(0, 0, [None, None]).produce(&host, 0, 0, 1, false, true);
    }
}
