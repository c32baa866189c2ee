//! Send WQEs of inline data, byte by byte.

use std::vec::Vec;

use super::golden_send::{IMMEDIATE, INLINE, VALID, gen1, gen3, post_on, request};
use crate::format::Opcode;
use crate::generation::{Gen1, Gen2, Gen3, Generation};
use crate::mock::{Memory, Wqe};
use crate::queue::{SendQueueParts, Sge};

/// The bytes of inline data as the device finds them in a WQE.
fn inline_bytes(wqe: &Wqe, generation: u8, length: usize) -> Vec<u8> {
    let bytes: Vec<u8> = wqe.words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut data = Vec::new();
    let (first, more) = if generation == 1 { (0..16, 32) } else { (8..16, 31) };
    data.extend(&bytes[first]);
    for quantum in bytes[32..].chunks(32) {
        data.extend(&quantum[..more]);
    }
    data.truncate(length);
    data
}

fn inline_case<G: Generation>(change: fn(&mut SendQueueParts), pieces: &[usize], immediate: Option<u32>) {
    // The data ends where its memory ends.
    let length: usize = pieces.iter().sum();
    let source = Memory::new(length.next_multiple_of(8));
    let start = length.next_multiple_of(8) - length;
    let data: Vec<u8> = (1..=length as u8).collect();
    for (offset, byte) in (start..).zip(&data) {
        // SAFETY: within the memory.
        unsafe { source.at(offset).write(*byte) };
    }
    let mut from = start;
    let list: Vec<Sge> = pieces
        .iter()
        .map(|&bytes| {
            let address = source.at(from).as_ptr().expose_provenance() as u64;
            from += bytes;
            Sge { address, length: bytes as u32, key: 0xFFFF_FFFF }
        })
        .collect();
    for lap in [0, 1] {
        let wqe = post_on::<G>(lap, change, |batch| {
            // SAFETY: the list lies in `source`.
            unsafe { batch.inline(&request(Opcode::Send), &list, immediate) }
        });
        let valid = if lap == 0 { VALID } else { 0 };
        let flag = if immediate.is_some() { IMMEDIATE } else { 0 };
        let header = valid | INLINE | (length as u64) << 48 | flag | 3 << 32 | 0x1122_3344;
        assert_eq!(wqe[3], header, "{pieces:?}");
        assert_eq!(wqe[2], 0x7000_0000_1000);
        assert_eq!(inline_bytes(&wqe, G::NUMBER, length), data, "{pieces:?}");
        if G::NUMBER > 1 {
            assert_eq!(wqe[0], immediate.unwrap_or(0).into());
            for quantum in 1..wqe.quanta() as usize {
                assert_eq!(wqe[quantum * 4 + 3] & 0xFF << 56, valid, "marker of {pieces:?}");
            }
        }
    }
}

#[test]
fn inline_data_of_every_length() {
    for length in 0..=101 {
        for immediate in [None, Some(0x0102_0304)] {
            inline_case::<Gen2>(|_| {}, &[length], immediate);
        }
    }
    for length in 0..=216 {
        inline_case::<Gen3>(gen3, &[length], None);
    }
    for length in 0..=48 {
        inline_case::<Gen1>(gen1, &[length], None);
    }
}

#[test]
fn inline_data_of_several_pieces() {
    for pieces in [
        &[][..],
        &[0, 0],
        &[1, 7],
        &[7, 1, 0, 31],
        &[8, 31, 31, 31],
        &[9, 9, 9, 9, 9, 9, 9],
        &[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
        &[38, 1, 30, 1, 30, 1],
        &[3, 98],
        &[50, 51],
    ] {
        inline_case::<Gen2>(|_| {}, pieces, None);
        inline_case::<Gen3>(gen3, pieces, Some(1));
    }
    for pieces in [&[16, 32][..], &[1, 47], &[15, 2], &[0, 17, 31]] {
        inline_case::<Gen1>(gen1, pieces, None);
    }
}
