//! Memory as the guest's driver describes it: physical, or page by page through the page list.

use irdma_engine::MemoryFault;
use irdma_engine::spec::{FunctionId, PageSize, Translation};

use crate::guest::GuestMemory;
use crate::hmc::PrivateMemory;

/// Page list entries of a leaf of a two-level list.
const LEAF: u64 = 512;

/// A range of guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backing {
    /// Whose guest.
    pub function: FunctionId,
    /// How its pages are found.
    pages: Translation,
    page_size: PageSize,
    /// First byte in the first page.
    offset: u64,
    /// Bytes.
    length: u64,
}

impl Backing {
    /// `length` bytes from byte `offset` of the first page on.
    pub fn new(
        function: FunctionId,
        pages: Translation,
        page_size: PageSize,
        offset: u64,
        length: u64,
    ) -> Self {
        Self { function, pages, page_size, offset, length }
    }

    /// `length` bytes from a physical address on.
    pub fn physical(function: FunctionId, address: u64, length: u64) -> Self {
        Self::new(function, Translation::Contiguous(address), PageSize::Small, 0, length)
    }

    /// All there is, at offsets that are physical addresses.
    pub fn everything(function: FunctionId) -> Self {
        Self::physical(function, 0, u64::MAX)
    }

    /// A ring of `length` bytes: at a physical address, or in 4 KiB pages that page list entries
    /// from `first_entry` on name if it is `mapped`.
    pub fn ring(function: FunctionId, mapped: bool, address: u64, first_entry: u32, length: u64) -> Self {
        let pages =
            if mapped { Translation::OneLevel(first_entry) } else { Translation::Contiguous(address) };
        Self::new(function, pages, PageSize::Small, 0, length)
    }

    /// Calls `piece` for each stretch of physical memory (address, bytes done before, bytes)
    /// that `length` bytes from `offset` on consist of.
    ///
    /// # Errors
    /// [`MemoryFault`] beyond the end, or where the page list has no entry; or whatever
    /// `piece` gives.
    pub fn walk(
        &self,
        memory: &GuestMemory,
        private: &PrivateMemory,
        offset: u64,
        length: usize,
        mut piece: impl FnMut(u64, usize, usize) -> Result<(), MemoryFault>,
    ) -> Result<(), MemoryFault> {
        let end = offset.checked_add(length as u64).ok_or(MemoryFault)?;
        if end > self.length {
            return Err(MemoryFault);
        }
        if let Translation::Contiguous(start) = self.pages {
            let at = start.checked_add(self.offset).and_then(|first| first.checked_add(offset));
            return piece(at.ok_or(MemoryFault)?, 0, length);
        }
        let size = self.page_size.bytes();
        let mut done = 0;
        while done < length {
            let at = self.offset.checked_add(offset + done as u64).ok_or(MemoryFault)?;
            let (page, within) = (at / size, at % size);
            let step = (length - done).min(usize::try_from(size - within).unwrap_or(usize::MAX));
            let address = self.page(memory, private, page)?.checked_add(within).ok_or(MemoryFault)?;
            piece(address, done, step)?;
            done += step;
        }
        Ok(())
    }

    /// Physical address of a page.
    fn page(&self, memory: &GuestMemory, private: &PrivateMemory, page: u64) -> Result<u64, MemoryFault> {
        let index = match self.pages {
            Translation::Contiguous(_) => return Err(MemoryFault),
            Translation::OneLevel(first) => u64::from(first) + page,
            Translation::TwoLevels(first) => {
                let root = private.entry(memory, u64::from(first) + page / LEAF)?;
                // A root entry is the byte offset of its leaf in the list.
                root / 8 + page % LEAF
            }
        };
        // The low bits of an entry are the driver's.
        Ok(private.entry(memory, index)? & !0xfff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::tests::memory;
    use crate::hmc::tests::page_list_at;

    const LIST: u64 = 4 << 20;

    fn pieces(backing: &Backing, entries: &[(u64, u64)], offset: u64, length: usize) -> Vec<(u64, usize)> {
        let memory = memory(16 << 20);
        let private = page_list_at(LIST);
        for &(index, value) in entries {
            memory.write(LIST + index * 8, &value.to_le_bytes()).expect("mapped");
        }
        let mut found = Vec::new();
        let walked = backing.walk(&memory, &private, offset, length, |address, _, bytes| {
            found.push((address, bytes));
            Ok(())
        });
        if walked.is_err() {
            found.clear();
        }
        found
    }

    #[test]
    fn contiguous_memory_is_one_piece() {
        let backing = Backing::physical(0, 0x1234_0000, 0x5000);
        assert_eq!(pieces(&backing, &[], 0x10, 0x4000), [(0x1234_0010, 0x4000)]);
        assert_eq!(pieces(&backing, &[], 0x10, 0x5000), [], "one byte more than there is");
        let high = Backing::everything(0);
        assert_eq!(pieces(&high, &[], u64::MAX - 4, 4), [(u64::MAX - 4, 4)]);
        assert_eq!(pieces(&high, &[], u64::MAX, 4), []);
    }

    #[test]
    fn one_level_names_each_page() {
        let backing = Backing::new(0, Translation::OneLevel(10), PageSize::Small, 0xff0, 0x2000);
        let entries = [(10, 0x5_0000), (11, 0x9_0000), (12, 0x3_0001)];
        assert_eq!(
            pieces(&backing, &entries, 0, 0x1020),
            [(0x5_0ff0, 0x10), (0x9_0000, 0x1000), (0x3_0000, 0x10)]
        );
        assert_eq!(pieces(&backing, &entries, 0x800, 8), [(0x9_07f0, 8)]);
    }

    #[test]
    fn two_levels_name_leaves_of_512() {
        let backing = Backing::new(0, Translation::TwoLevels(4), PageSize::Small, 0, 600 * 4096);
        let entries = [(4, 1000 << 3), (5, 3000 << 3), (1511, 0x7_0000), (3000, 0x8_0000)];
        assert_eq!(pieces(&backing, &entries, 511 * 4096 + 4090, 12), [(0x7_0ffa, 6), (0x8_0000, 6)]);
    }

    #[test]
    fn large_pages_are_as_large_as_they_say() {
        let backing = Backing::new(0, Translation::OneLevel(0), PageSize::Large, 100, 4 << 20);
        let entries = [(0, 0x40_0000), (1, 0x100_0000)];
        let seam = (2 << 20) - 100;
        assert_eq!(pieces(&backing, &entries, seam - 4, 8), [(0x5f_fffc, 4), (0x100_0000, 4)]);
        let huge = Backing::new(0, Translation::OneLevel(0), PageSize::Huge, 0, 1 << 30);
        assert_eq!(pieces(&huge, &[(0, 1 << 30)], 0x3000_0000, 8), [(0x7000_0000, 8)]);
    }
}
