//! Host memory cache: the private memory of the function, of which the device uses the
//! page list (PBLEs), and the segment descriptors by which it finds that in the guest.
//!
//! Formats: kernel, drivers/infiniband/hw/irdma/hmc.h and ctrl.c (`irdma_sc_query_fpm_val`,
//! `irdma_sc_commit_fpm_val`, `irdma_update_sds_noccq`).

use std::collections::BTreeMap;

use irdma_engine::MemoryFault;
use irdma_engine::spec::Generation;

use crate::field::{Field, put_at, u64_at};
use crate::guest::GuestMemory;

/// Bytes of a segment.
const SEGMENT: u64 = 1 << 21;
/// Most segment descriptors, the width of their index.
const MOST_SEGMENTS: u64 = 1 << 12;
/// Page list entries: 256 segments of 8-byte entries.
const PAGE_LIST_ENTRIES: u64 = 1 << 21;
/// Segments that the driver may use.
const SEGMENTS: u64 = 512;
/// Pages of the device's own memory, where GEN3 keeps all but the page list: as many as there
/// are segments, which tells the driver that regions belong there too.
const LOCAL_PAGES: u64 = SEGMENTS;

const SEGMENT_INDEX: Field = Field::new(11, 0);
const SEGMENT_VALID: Field = Field::bit(0);
const SEGMENT_DIRECT: Field = Field::bit(1);
const SEGMENT_ADDRESS: Field = Field::new(63, 12);
const ENTRY_ADDRESS: Field = Field::new(63, 12);
const COUNT: Field = Field::new(31, 0);
const HIGH: Field = Field::new(63, 32);

/// Bytes of the buffer that the driver has the limits written into.
pub const QUERY_BYTES: usize = 200;
/// Bytes of the buffer in which counts are committed and bases answered.
pub const COMMIT_BYTES: usize = 208;

/// A kind of object: where it stands in both buffers, and its size in bytes.
struct Kind {
    commit: usize,
    query: usize,
    most: u64,
    size: u64,
}

const fn kind(commit: usize, query: usize, most: u64, size: u64) -> Kind {
    Kind { commit, query, most, size }
}

/// All kinds but the page list, which comes last in memory.
const KINDS: [Kind; 14] = [
    kind(0, 8, 4096, 512),     // queue pairs
    kind(8, 16, 8192, 64),     // completion queues
    kind(16, 24, 1024, 64),    // shared receive queues
    kind(24, 32, 4096, 64),    // hash entries
    kind(32, 40, 1024, 64),    // ARP entries
    kind(48, 48, 65536, 64),   // memory regions and windows
    kind(56, 56, 65536, 64),   // transmit packets
    kind(72, 72, 1 << 19, 64), // inbound reads
    kind(88, 88, 65536, 64),   // timers
    kind(96, 96, 8192, 64),    // multicast groups
    kind(104, 104, 65536, 64), // address handles
    kind(128, 128, 65536, 64), // read responses
    kind(144, 144, 4096, 64),  // headers
    kind(152, 152, 4096, 64),  // metadata
];
/// Where the free lists stand in both buffers: offset, entries at most.
const FREE_LISTS: [(usize, u64); 3] = [(64, 65536 / BLOCK), (80, (1 << 19) / BLOCK), (136, 65536 / BLOCK)];
/// Entries of a block of those lists, and bytes of a list entry.
const BLOCK: u64 = 64;
const LIST_ENTRY: u64 = 4;
/// Where the page list stands in both buffers.
const PAGE_LIST: usize = 112;

/// What is known of a segment of private memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Segment {
    /// 2 MiB of guest memory.
    Direct(u64),
    /// A guest page of 512 addresses of guest pages.
    Paged(u64),
}

/// The private memory of a function.
#[derive(Debug, Default)]
pub struct PrivateMemory {
    segments: BTreeMap<u64, Segment>,
    page_list: u64,
    page_list_entries: u64,
}

impl PrivateMemory {
    /// Fills the buffer with the limits of a device of that generation.
    pub fn query(generation: Generation) -> [u8; QUERY_BYTES] {
        let mut buffer = [0; QUERY_BYTES];
        let mut put = |offset: usize, value: u64| put_at(&mut buffer, offset, value.to_le_bytes());
        put(0, HIGH.put(SEGMENTS));
        for kind in &KINDS {
            put(kind.query, COUNT.put(kind.most) | HIGH.put(kind.size.ilog2().into()));
        }
        for (offset, entries) in FREE_LISTS {
            put(offset, COUNT.put(entries) | HIGH.put(BLOCK));
        }
        put(PAGE_LIST, PAGE_LIST_ENTRIES);
        // Completion event queues; hash table multiplier; timer bucket.
        put(120, 16 | 1 << 16 | 32 << 32);
        if generation >= Generation::Gen3 {
            put(176, HIGH.put(LOCAL_PAGES));
        }
        buffer
    }

    /// Lays out private memory for the counts in `buffer` and answers with the bases.
    pub fn commit(&mut self, buffer: &mut [u8; COMMIT_BYTES]) {
        let mut base = 0;
        let mut lay = |buffer: &mut [u8; COMMIT_BYTES], offset: usize, size: u64, alignment: u64| {
            let count = COUNT.get(u64_at(buffer, offset));
            let start = u64::next_multiple_of(base, alignment);
            put_at(buffer, offset, (count | HIGH.put(start / 512)).to_le_bytes());
            base = start + count * size;
            (start, count)
        };
        for kind in &KINDS {
            lay(buffer, kind.commit, kind.size, 512);
        }
        for (offset, _) in FREE_LISTS {
            lay(buffer, offset, LIST_ENTRY, 512);
        }
        (self.page_list, self.page_list_entries) = lay(buffer, PAGE_LIST, 8, SEGMENT);
    }

    /// A segment descriptor: the words of a command's entry.
    pub fn set_segment(&mut self, command: u64, descriptor: u64) {
        let index = SEGMENT_INDEX.get(command);
        let address = SEGMENT_ADDRESS.get(descriptor) << 12;
        if !SEGMENT_VALID.is_set(descriptor) {
            self.segments.remove(&index);
        } else if SEGMENT_DIRECT.is_set(descriptor) {
            self.segments.insert(index, Segment::Direct(address));
        } else {
            self.segments.insert(index, Segment::Paged(address));
        }
    }

    /// Page list entry `index`.
    ///
    /// # Errors
    /// There is no such entry, or it has no memory.
    pub fn entry(&self, memory: &GuestMemory, index: u64) -> Result<u64, MemoryFault> {
        if index >= self.page_list_entries {
            return Err(MemoryFault);
        }
        let place = self.page_list + index * 8;
        let number = place / SEGMENT;
        if number >= MOST_SEGMENTS {
            return Err(MemoryFault);
        }
        let within = place % SEGMENT;
        match *self.segments.get(&number).ok_or(MemoryFault)? {
            Segment::Direct(start) => memory.word(start.checked_add(within).ok_or(MemoryFault)?),
            Segment::Paged(table) => {
                let slot = table.checked_add(within / 4096 * 8).ok_or(MemoryFault)?;
                let page = ENTRY_ADDRESS.get(memory.word(slot)?) << 12;
                memory.word(page.checked_add(within % 4096).ok_or(MemoryFault)?)
            }
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::guest::tests::memory;

    /// Private memory with nothing but a page list of 512 * 512 entries in its first segment.
    pub fn page_list_at(address: u64) -> PrivateMemory {
        let mut private = PrivateMemory::default();
        let mut buffer = [0; COMMIT_BYTES];
        put_at(&mut buffer, PAGE_LIST, (1_u64 << 18).to_le_bytes());
        private.commit(&mut buffer);
        private.set_segment(1 << 15, address | 0b11);
        private
    }

    #[test]
    fn objects_lie_one_behind_the_other() {
        let mut private = PrivateMemory::default();
        let mut buffer = [0; COMMIT_BYTES];
        put_at(&mut buffer, 0, 3_u64.to_le_bytes());
        put_at(&mut buffer, 8, 1_u64.to_le_bytes());
        put_at(&mut buffer, 16, (1_u64 << 63 | 1).to_le_bytes());
        put_at(&mut buffer, PAGE_LIST, 100_u64.to_le_bytes());
        private.commit(&mut buffer);
        assert_eq!(u64_at(&buffer, 0), 3);
        assert_eq!(u64_at(&buffer, 8), 1 | 3 << 32);
        assert_eq!(u64_at(&buffer, 16), 1 | 4 << 32);
        assert_eq!(u64_at(&buffer, PAGE_LIST), 100 | (SEGMENT / 512) << 32);
    }

    #[test]
    fn entries_are_found_through_both_kinds_of_segment() {
        let memory = memory(16 << 20);
        let mut private = page_list_at(4 << 20);
        memory.write((4 << 20) + 8 * 77, &0xabcd_e000_u64.to_le_bytes()).expect("mapped");
        assert_eq!(private.entry(&memory, 77), Ok(0xabcd_e000));
        private.set_segment(1 << 15, 0x1000 | 0b01);
        assert_eq!(private.entry(&memory, 77), Ok(0), "the page at address 0");
        memory.write(0x1000 + 8 * 2, &0x9001_u64.to_le_bytes()).expect("mapped");
        memory.write(0x9000 + 8 * 3, &5_u64.to_le_bytes()).expect("mapped");
        assert_eq!(private.entry(&memory, 2 * 512 + 3), Ok(5));
        private.set_segment(1 << 15, 0);
        assert_eq!(private.entry(&memory, 77), Err(MemoryFault));
        assert_eq!(private.entry(&memory, 1 << 18), Err(MemoryFault), "beyond the list");
        private.set_segment(1 << 15, u64::MAX);
        assert_eq!(private.entry(&memory, 0x3_ffff), Err(MemoryFault), "beyond the address space");
    }

    #[test]
    fn counts_of_any_size_harm_nothing() {
        let mut private = PrivateMemory::default();
        let mut buffer = [0xff; COMMIT_BYTES];
        private.commit(&mut buffer);
        let memory = memory(4096);
        for index in [0, 1 << 18, u64::from(u32::MAX), u64::MAX] {
            assert_eq!(private.entry(&memory, index), Err(MemoryFault));
        }
    }
}
