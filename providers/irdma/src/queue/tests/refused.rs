//! Lists that are found out only while they are written: no trace of them is left.

use super::start_batch;
use crate::generation::{Gen1, Gen2, Gen3, Generation};
use crate::mock::SendDevice;
use crate::queue::{Refusal, SendRequest, Sge};

/// Refuses a list at every place of a ring, over more than two laps of it, and posts a work
/// request of `pieces` pieces to the same place.
fn refuse_everywhere<G: Generation>(chunk: u32, most: u32, list: &[Sge], pieces: usize) {
    let (mut device, queue) = SendDevice::new(512, |parts| {
        (parts.chunk, parts.max_fragments, parts.max_read_fragments) = (chunk, most, 1);
        parts.max_inline = 8;
    });
    let request = SendRequest::default();
    for wr_id in 0..1200 {
        let free = queue.free_quanta();
        let mut batch = start_batch::<G>(&queue);
        for immediate in [None, Some(u32::MAX)].into_iter().filter(|one| list.len() < 3 || one.is_none()) {
            assert_eq!(batch.fragments(&request, list, immediate), Err(Refusal::Invalid), "{wr_id}");
        }
        assert!(batch.is_empty() && queue.free_quanta() == free, "nothing is placed, {wr_id}");
        device.assert_nothing_ahead();
        let request = SendRequest { wr_id, ..request };
        batch.fragments(&request, &[Sge { address: 1, length: 8, key: 1 }; 3][..pieces], None).unwrap();
        assert!(batch.finish());
        let mut taken = 0;
        while let Some(wqe) = device.take::<G>() {
            taken += u64::from(wqe.opcode() == 0);
            if let Some((_, end)) = queue.outstanding(wqe.index as usize) {
                queue.retire(end);
            }
        }
        assert_eq!(taken, 1, "{wr_id}");
        device.assert_nothing_ahead();
    }
}

#[test]
fn what_was_written_of_a_refused_list_is_never_valid() {
    let piece = |length| Sge { address: u64::MAX, length, key: u32::MAX };
    let long = piece(1 << 31);
    let longest = piece(0x7FFF_FFFF);
    for pieces in 1..=3 {
        for list in [&[piece(1), piece(1), piece(1), long][..], &[longest; 5], &[long; 13], &[longest; 12]] {
            refuse_everywhere::<Gen2>(8, 13, list, pieces);
            refuse_everywhere::<Gen3>(8, 13, list, pieces);
        }
        for list in [&[piece(u32::MAX), piece(1), piece(1)][..], &[piece(1 << 31); 2]] {
            refuse_everywhere::<Gen1>(2, 3, list, pieces);
        }
    }
}
