//! Held batches against batches that are the device's at once: the same WQEs, or no trace.

use std::vec::Vec;

use proptest::prelude::*;

use super::{resume, start_batch};
use crate::format::{Opcode, SendHeader};
use crate::generation::{Gen1, Gen2, Gen3, Generation, WqeFormat};
use crate::mock::SendDevice;
use crate::queue::{Atomic, Refusal, SendBatch, SendQueue, SendQueueParts, SendRequest, Sge};

/// A work request of a history.
#[derive(Clone, Copy, Debug)]
enum Work {
    Fragments(u32),
    WithImmediate(u32),
    Inline(u32),
    Atomic,
    Invalidate,
}

fn works() -> impl Strategy<Value = Vec<Work>> {
    let work = prop_oneof![
        4 => (0..=13u32).prop_map(Work::Fragments),
        4 => Just(Work::Fragments(1)),
        2 => (0..13u32).prop_map(Work::WithImmediate),
        3 => (0..=101u32).prop_map(Work::Inline),
        1 => Just(Work::Atomic),
        1 => Just(Work::Invalidate),
    ];
    prop::collection::vec(work, 1..12)
}

fn request(wr_id: u64, opcode: Opcode) -> SendRequest {
    SendRequest {
        wr_id,
        header: SendHeader::default().with_opcode(opcode as u8).with_signaled(true).with_remote_key(7),
        remote: 0x4000,
    }
}

fn try_single<G: WqeFormat, const HELD: bool>(
    batch: &mut SendBatch<'_, G, HELD>,
    request: &SendRequest,
    sge: &Sge,
) -> bool {
    let Some(single) = batch.start_single(sge) else { return false };
    batch.set_remote(&single, request.remote);
    batch.finish_started(single, request.wr_id, request.header);
    true
}

fn place<G: WqeFormat, const HELD: bool>(
    batch: &mut SendBatch<'_, G, HELD>,
    wr_id: u64,
    work: Work,
) -> Result<(), Refusal> {
    let bytes = [0x5A; 101];
    let sge = Sge { address: bytes.as_ptr().expose_provenance() as u64, length: 8, key: 1 };
    let send = request(wr_id, Opcode::Send);
    match work {
        // Every second one takes the short way, if it is open.
        Work::Fragments(1) if wr_id % 2 == 1 && try_single(batch, &send, &sge) => Ok(()),
        Work::Fragments(count) => batch.fragments(&send, &[sge; 13][..count as usize], None),
        Work::WithImmediate(count) => batch.fragments(&send, &[sge; 13][..count as usize], Some(5)),
        // SAFETY: the bytes are there.
        Work::Inline(length) => unsafe { batch.inline(&send, &[Sge { length, ..sge }], None) },
        Work::Atomic => {
            batch.atomic(&request(wr_id, Opcode::FetchAdd), &[sge], Atomic { operand: 1, compare: 0 })
        }
        Work::Invalidate => batch.invalidate(&request(wr_id, Opcode::LocalInvalidate), 9),
    }
}

/// Pauses after every work request. Whether all were taken.
fn held<G: WqeFormat>(queue: &SendQueue, works: &[Work], finish: bool) -> bool {
    let mut held = queue.hold();
    let mut all = true;
    for (index, &work) in works.iter().enumerate() {
        let mut batch = resume::<G>(queue, &held);
        all &= place(&mut batch, index as u64, work).is_ok();
        held = batch.pause();
    }
    let batch = resume::<G>(queue, &held);
    if finish {
        batch.finish();
    } else {
        batch.abandon();
    }
    all
}

/// Both queues see the same history, one in the format of what is rare, with further batches that are
/// abandoned.
fn equal<G: Generation>(
    change: impl Fn(&mut SendQueueParts),
    history: &[(Vec<Work>, Vec<Work>)],
) -> Result<(), TestCaseError> {
    let (mut device, queue) = SendDevice::new(512, &change);
    let (mut twin, twin_queue) = SendDevice::new(512, &change);
    for (dropped, posted) in history {
        let before = queue.free_quanta();
        held::<G>(&queue, dropped, false);
        prop_assert_eq!(queue.free_quanta(), before);
        prop_assert!(device.bell().take().is_none(), "a doorbell for nothing");
        device.assert_nothing_ahead();
        for index in 0..512 {
            let position = device.position().wrapping_add(index);
            prop_assert!(
                queue.outstanding(position as usize % 512).is_none(),
                "a work request that was dropped"
            );
        }

        held::<G::General>(&queue, posted, true);
        let mut batch = start_batch::<G>(&twin_queue);
        for (index, &work) in posted.iter().enumerate() {
            let _ = place(&mut batch, index as u64, work);
        }
        batch.finish();
        prop_assert_eq!(device.bell().take(), twin.bell().take());
        loop {
            let (wqe, expected) = (device.take::<G>(), twin.take::<G>());
            let Some(wqe) = wqe else {
                prop_assert_eq!(expected, None);
                break;
            };
            for queue in [&queue, &twin_queue] {
                if let Some((_, end)) = queue.outstanding(wqe.index as usize) {
                    queue.retire(end);
                }
            }
            // Inline data of a stack's other place: the same bytes, so the same words; addresses differ.
            let mask = |words: &[u64]| -> Vec<u64> {
                let is_address = |at: usize| wqe.words[3] >> 57 & 1 == 0 && at.is_multiple_of(2);
                words.iter().enumerate().map(|(at, word)| if is_address(at) { 0 } else { *word }).collect()
            };
            let expected = expected.map(|twin| (twin.index, twin.valid, mask(&twin.words)));
            prop_assert_eq!(expected, Some((wqe.index, wqe.valid, mask(&wqe.words))));
        }
        prop_assert_eq!(queue.free_quanta(), twin_queue.free_quanta());
        device.assert_nothing_ahead();
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_finished_batch_is_a_post_and_an_abandoned_one_is_nothing(
        history in prop::collection::vec((works(), works()), 1..60)
    ) {
        let gen1 = |parts: &mut SendQueueParts| {
            (parts.chunk, parts.max_fragments, parts.max_read_fragments, parts.max_inline) = (2, 3, 1, 48);
            parts.empty_fragment_counts = false;
        };
        equal::<Gen1>(gen1, &history)?;
        equal::<Gen2>(|_| (), &history)?;
        equal::<Gen3>(|parts| parts.empty_fragment_counts = false, &history)?;
    }
}

#[test]
fn nothing_is_seen_before_the_batch_is_finished() {
    let (mut device, queue) = SendDevice::new(512, |_| ());
    let mut batch = resume::<Gen2>(&queue, &queue.hold());
    for wr_id in 0..3 {
        place(&mut batch, wr_id, Work::Fragments(4)).unwrap();
        assert_eq!(device.take::<Gen2>(), None);
        assert!(queue.is_empty() && device.bell().take().is_none());
    }
    assert!(batch.finish());
    assert_eq!(device.bell().take(), Some(0x1234));
    // Padding at the end of a chunk counts as well.
    assert_eq!(core::iter::from_fn(|| device.take::<Gen2>()).filter(|wqe| wqe.opcode() == 3).count(), 3);
}

#[test]
fn a_batch_that_starts_with_padding_is_not_seen_either() {
    let (mut device, queue) = SendDevice::new(512, |_| ());
    let mut batch = start_batch::<Gen2>(&queue);
    (0..7).for_each(|wr_id| place(&mut batch, wr_id, Work::Fragments(1)).unwrap());
    batch.finish();
    while device.take::<Gen2>().is_some() {}
    let mut batch = resume::<Gen2>(&queue, &queue.hold());
    place(&mut batch, 7, Work::Fragments(4)).unwrap();
    assert_eq!(device.take::<Gen2>(), None);
    assert!(batch.finish());
    assert_eq!(device.take::<Gen2>().unwrap().opcode(), 0x0c);
    assert_eq!(device.take::<Gen2>().unwrap().opcode(), 3);
}

#[test]
fn a_destination_comes_after_the_data() {
    for first in [true, false] {
        let (mut device, queue) = SendDevice::new(512, |_| ());
        let held = queue.hold();
        let mut batch = resume::<Gen2>(&queue, &held);
        if !first {
            place(&mut batch, 0, Work::Fragments(1)).unwrap();
        }
        let mut nowhere = SendRequest { remote: 0, ..request(1, Opcode::Send) };
        nowhere.header = nowhere.header.with_remote_key(0);
        batch.fragments(&nowhere, &[Sge::default()], None).unwrap();
        batch.redirect(0x1FF_FFFF, 0xAB_CDEF_0123);
        let held = batch.pause();
        let mut batch = resume::<Gen2>(&queue, &held);
        place(&mut batch, 2, Work::Fragments(1)).unwrap();
        batch.finish();
        if !first {
            assert_eq!(device.take::<Gen2>().unwrap()[2], 0x4000);
        }
        let wqe = device.take::<Gen2>().unwrap();
        assert_eq!((wqe[2], wqe[3] & 0xFFFF_FFFF), (0xAB_CDEF_0123, 0x1FF_FFFF));
        assert_eq!(device.take::<Gen2>().unwrap()[2], 0x4000);
    }
}
