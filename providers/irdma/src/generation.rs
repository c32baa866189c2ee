//! Where the hardware generations differ, as constants that code is compiled for.
//!
//! A queue's functions take the generation as a type parameter, so a program
//! runs code in which every one of these questions is already answered.

use core::marker::PhantomData;

mod sealed {
    pub trait Sealed {}
}

/// How WQEs are made. Unless a format says otherwise, as since GEN2.
pub trait WqeFormat: sealed::Sealed + 'static {
    /// Fragments, and quanta of inline data, carry a valid bit.
    const FRAGMENTS_CARRY_VALID: bool = true;
    /// The empty fragment that fills a quantum counts as a fragment; `None`: the queue knows.
    const EMPTY_FRAGMENT_COUNTS: Option<bool>;
    /// The device fetches send quanta in pairs, so the second of a pair must be
    /// told apart from a WQE before it is one.
    const FETCHES_PAIRS: bool = false;
    /// Longest fragment, in bytes.
    const MAX_FRAGMENT_BYTES: u32 = 0x7FFF_FFFF;
    /// A window bind has its two keys exchanged.
    const BIND_KEYS_EXCHANGED: bool = false;
    /// Where inline data goes: 8 bytes, then 31 in each quantum; a WQE has 8 quanta.
    const INLINE: InlineLayout = InlineLayout {
        first_word: 1,
        first_bytes: 8,
        more_bytes: 31,
        max_bytes: 8 + 7 * 31,
        with_immediate: true,
    };
    /// Send queues may have push pages.
    const PUSHES: bool = false;
}

/// A hardware generation.
pub trait Generation: WqeFormat {
    /// Its number: 1, 2 or 3.
    const NUMBER: u8;
    /// What is rare is compiled for this format: once for several generations.
    type General: WqeFormat;
    /// There are atomics.
    const HAS_ATOMICS: bool = false;
    /// There are shared receive queues.
    const SHARES_RECEIVES: bool = false;
    /// When a QP goes into error the device writes one CQE for every outstanding
    /// work request, not one for each queue.
    const FLUSHES_EACH: bool;
    /// The device must not be told that CQEs are consumed up to the end of a page as long as
    /// there are more of them: a fault of the hardware.
    const HOLDS_BACK_PAGE_ENDS: bool = false;
}

/// Where a WQE keeps inline data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlineLayout {
    /// First word in the first quantum.
    pub first_word: usize,
    /// Bytes in the first quantum.
    pub first_bytes: usize,
    /// Bytes in each further quantum; 31 leaves a byte for the valid bit.
    pub more_bytes: usize,
    /// Longest data, in bytes.
    pub max_bytes: usize,
    /// Can go together with an immediate.
    pub with_immediate: bool,
}

impl InlineLayout {
    /// Quanta of a WQE with `bytes` of inline data, at most `max_bytes`.
    #[inline(always)]
    pub const fn quanta(&self, bytes: usize) -> u32 {
        // Rounds up behind the first quantum, which holds less than the others. Divides so few bytes
        // by a constant, wherever this is inlined.
        let rounded_up = bytes as u32 + (self.more_bytes - 1 - self.first_bytes) as u32;
        1 + ((rounded_up * ((1 << 16) / self.more_bytes as u32 + 1)) >> 16)
    }
}

/// X722: iWARP.
#[derive(Clone, Copy, Debug)]
pub struct Gen1;
/// E810 and its family: RoCEv2 and iWARP.
#[derive(Clone, Copy, Debug)]
pub struct Gen2;
/// IPU E2000 and later: RoCEv2, with shared receive queues and atomics.
#[derive(Clone, Copy, Debug)]
pub struct Gen3;

impl sealed::Sealed for Gen1 {}
impl WqeFormat for Gen1 {
    const FRAGMENTS_CARRY_VALID: bool = false;
    const EMPTY_FRAGMENT_COUNTS: Option<bool> = Some(false);
    const FETCHES_PAIRS: bool = true;
    const MAX_FRAGMENT_BYTES: u32 = u32::MAX;
    const BIND_KEYS_EXCHANGED: bool = true;
    const INLINE: InlineLayout =
        InlineLayout { first_word: 0, first_bytes: 16, more_bytes: 32, max_bytes: 48, with_immediate: false };
    const PUSHES: bool = false;
}
impl Generation for Gen1 {
    const NUMBER: u8 = 1;
    type General = Self;
    const FLUSHES_EACH: bool = false;
}

impl sealed::Sealed for Gen2 {}
impl WqeFormat for Gen2 {
    const EMPTY_FRAGMENT_COUNTS: Option<bool> = Some(true);
}
impl Generation for Gen2 {
    const NUMBER: u8 = 2;
    type General = SinceGen2;
    const FLUSHES_EACH: bool = false;
}

impl sealed::Sealed for Gen3 {}
impl WqeFormat for Gen3 {
    const EMPTY_FRAGMENT_COUNTS: Option<bool> = Some(false);
}
impl Generation for Gen3 {
    const NUMBER: u8 = 3;
    type General = SinceGen2;
    const HAS_ATOMICS: bool = true;
    const SHARES_RECEIVES: bool = true;
    const FLUSHES_EACH: bool = true;
    const HOLDS_BACK_PAGE_ENDS: bool = true;
}

/// The same generation, for code that serves send queues with push pages too. GEN1 has none.
#[derive(Clone, Copy, Debug)]
pub struct WithPush<G>(PhantomData<G>);

impl<G> sealed::Sealed for WithPush<G> {}
impl<G: Generation> WqeFormat for WithPush<G> {
    const FRAGMENTS_CARRY_VALID: bool = G::FRAGMENTS_CARRY_VALID;
    const EMPTY_FRAGMENT_COUNTS: Option<bool> = G::EMPTY_FRAGMENT_COUNTS;
    const FETCHES_PAIRS: bool = G::FETCHES_PAIRS;
    const MAX_FRAGMENT_BYTES: u32 = G::MAX_FRAGMENT_BYTES;
    const BIND_KEYS_EXCHANGED: bool = G::BIND_KEYS_EXCHANGED;
    const INLINE: InlineLayout = G::INLINE;
    const PUSHES: bool = true;
}
impl<G: Generation> Generation for WithPush<G> {
    const NUMBER: u8 = G::NUMBER;
    type General = G::General;
    const HAS_ATOMICS: bool = G::HAS_ATOMICS;
    const SHARES_RECEIVES: bool = G::SHARES_RECEIVES;
    const FLUSHES_EACH: bool = G::FLUSHES_EACH;
    const HOLDS_BACK_PAGE_ENDS: bool = G::HOLDS_BACK_PAGE_ENDS;
}

/// Any generation since GEN2, with and without push pages: for what is rare.
#[derive(Clone, Copy, Debug)]
pub struct SinceGen2;

impl sealed::Sealed for SinceGen2 {}
impl WqeFormat for SinceGen2 {
    const EMPTY_FRAGMENT_COUNTS: Option<bool> = None;
    const PUSHES: bool = true;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_quanta() {
        let marked = Gen2::INLINE;
        for (bytes, quanta) in [
            (0, 1),
            (8, 1),
            (9, 2),
            (39, 2),
            (40, 3),
            (70, 3),
            (71, 4),
            (101, 4),
            (102, 5),
            (132, 5),
            (133, 6),
            (163, 6),
            (164, 7),
            (194, 7),
            (195, 8),
            (216, 8),
            (225, 8),
        ] {
            assert_eq!(marked.quanta(bytes), quanta, "{bytes} bytes");
        }
        for bytes in 9..=marked.max_bytes {
            assert_eq!(marked.quanta(bytes), 1 + (bytes - 8).div_ceil(31) as u32, "{bytes} bytes");
        }
        for bytes in 0..=48 {
            assert_eq!(Gen1::INLINE.quanta(bytes), if bytes <= 16 { 1 } else { 2 });
        }
    }
}
