//! Words and bit fields of what the guest's drivers write.

/// A bit field of a 64-bit word, `high` and `low` inclusive.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    low: u32,
    width: u32,
}

impl Field {
    /// Bits `high` down to `low`.
    pub const fn new(high: u32, low: u32) -> Self {
        assert!(high >= low && high < 64);
        Self { low, width: high - low + 1 }
    }

    /// Bit `index`.
    pub const fn bit(index: u32) -> Self {
        Self::new(index, index)
    }

    const fn mask(self) -> u64 {
        u64::MAX >> (64 - self.width)
    }

    /// The field's value in `word`.
    pub const fn get(self, word: u64) -> u64 {
        (word >> self.low) & self.mask()
    }

    /// The same, of a field of at most 32 bits.
    pub const fn number(self, word: u64) -> u32 {
        assert!(self.width <= 32);
        self.get(word) as u32
    }

    /// Whether any bit of it is set.
    pub const fn is_set(self, word: u64) -> bool {
        self.get(word) != 0
    }

    /// `value`, cut to the field's width, in its place.
    pub const fn put(self, value: u64) -> u64 {
        (value & self.mask()) << self.low
    }
}

/// `N` bytes at `offset`, zero where `bytes` ends before.
fn piece<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut piece = [0; N];
    let rest = bytes.get(offset..).unwrap_or_default();
    let length = rest.len().min(N);
    piece[..length].copy_from_slice(&rest[..length]);
    piece
}

/// The 16-bit number at `offset`; what is missing is zero.
pub fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes(piece(bytes, offset))
}

/// The 32-bit number at `offset`; what is missing is zero.
pub fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(piece(bytes, offset))
}

/// The 64-bit number at `offset`; what is missing is zero.
pub fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(piece(bytes, offset))
}

/// Puts `value` at `offset`, where there is room for it.
pub fn put_at<const N: usize>(bytes: &mut [u8], offset: usize, value: [u8; N]) {
    if let Some(place) = bytes.get_mut(offset..).and_then(|rest| rest.get_mut(..N)) {
        place.copy_from_slice(&value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_zero() {
        let mut bytes = [1, 2, 3, 4, 5];
        assert_eq!(u16_at(&bytes, 1), 0x0302);
        assert_eq!(u32_at(&bytes, 3), 0x0504);
        assert_eq!(u64_at(&bytes, 9), 0);
        put_at(&mut bytes, 3, 0xffff_u16.to_le_bytes());
        put_at(&mut bytes, 4, 0_u16.to_le_bytes());
        assert_eq!(bytes, [1, 2, 3, 0xff, 0xff]);
    }

    #[test]
    fn fields_cut_and_place() {
        const LENGTH: Field = Field::new(62, 32);
        assert_eq!(LENGTH.put(u64::MAX), 0x7fff_ffff_0000_0000);
        assert_eq!(LENGTH.number(0xffff_ffff_1234_5678), 0x7fff_ffff);
        assert!(Field::bit(63).is_set(1 << 63));
    }
}
