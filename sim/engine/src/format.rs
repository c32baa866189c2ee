//! Words of the device's memory formats and their bits.
//!
//! Field positions: kernel, drivers/infiniband/hw/irdma/defs.h (`IRDMAQPSQ_*`,
//! `IRDMA_CQ_*`, `IRDMA_CQ_DBSA_*`).

/// Bytes of a quantum, the unit of WQEs.
pub(crate) const QUANTUM: usize = 32;

/// A bit field of a 64-bit word, `high` and `low` inclusive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    low: u32,
    width: u32,
}

impl Field {
    /// Bits `high` down to `low`.
    pub(crate) const fn new(high: u32, low: u32) -> Self {
        assert!(high >= low && high < 64);
        Self { low, width: high - low + 1 }
    }

    const fn mask(self) -> u64 {
        u64::MAX >> (64 - self.width)
    }

    /// The field's value in `word`.
    pub(crate) const fn get(self, word: u64) -> u64 {
        (word >> self.low) & self.mask()
    }

    /// Whether a one-bit field is set (or a wider one is not zero).
    pub(crate) const fn is_set(self, word: u64) -> bool {
        self.get(word) != 0
    }

    /// `value`, cut to the field's width, in its place.
    pub(crate) const fn put(self, value: u64) -> u64 {
        (value & self.mask()) << self.low
    }
}

/// Word `index` of `bytes`, which must hold it.
pub(crate) fn word(bytes: &[u8], index: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&bytes[index * 8..index * 8 + 8]);
    u64::from_le_bytes(raw)
}

/// Bit 63, by which the producer says that an entry is of the present lap.
pub(crate) const VALID: Field = Field::new(63, 63);

/// The valid bit of a header or fragment word.
pub(crate) fn valid_bit(word: u64) -> bool {
    VALID.is_set(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_cut_and_place() {
        const LENGTH: Field = Field::new(62, 32);
        assert_eq!(LENGTH.put(u64::MAX), 0x7fff_ffff_0000_0000);
        assert_eq!(LENGTH.get(0xffff_ffff_1234_5678), 0x7fff_ffff);
        assert_eq!(Field::new(63, 0).put(u64::MAX), u64::MAX);
        assert!(valid_bit(1 << 63));
    }
}
