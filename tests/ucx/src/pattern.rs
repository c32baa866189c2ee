//! Bytes that tell where they came from.

use anyhow::{Result, ensure};

/// `length` bytes that no other `seed` has.
pub fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// An error that names the first byte of `found` that is not `expected`.
pub fn compare(what: &str, found: &[u8], expected: &[u8]) -> Result<()> {
    ensure!(found.len() == expected.len(), "{what}: {} bytes of {}", found.len(), expected.len());
    let differs = found.iter().zip(expected).position(|(found, expected)| found != expected);
    ensure!(
        differs.is_none(),
        "{what}: byte {} of {} is not as sent",
        differs.unwrap_or_default(),
        expected.len()
    );
    Ok(())
}
