//! The ways for messages where nothing stands in the way do what the general one does, word by word.

use std::vec::Vec;

use proptest::prelude::*;

use super::start_batch;
use crate::format::{Opcode, SendHeader};
use crate::generation::{Gen1, Gen2, Gen3, Generation, WithPush, WqeFormat};
use crate::mock::SendDevice;
use crate::queue::{
    Atomic, Obstacle, Refusal, SendBatch, SendQueue, SendQueueParts, SendRequest, Sge, Started, Taker,
};

const QUANTA: u32 = 512;

#[derive(Clone, Copy, Debug)]
enum Work {
    Fragments(usize, Option<u32>),
    Inline(u32, Option<u32>),
    Atomic(u64),
}

fn works(most_fragments: usize, most_inline: u32) -> impl Strategy<Value = Vec<Work>> {
    let work = prop_oneof![
        (1..=most_fragments, any::<Option<u32>>()).prop_map(|(count, data)| Work::Fragments(count, data)),
        (0..=most_inline, any::<Option<u32>>()).prop_map(|(length, data)| Work::Inline(length, data)),
        any::<u64>().prop_map(Work::Atomic),
    ];
    prop::collection::vec(work, 1..50)
}

fn request(wr_id: u64) -> SendRequest {
    let header = SendHeader::default().with_opcode(Opcode::Send as u8).with_remote_key(0x1234_5678);
    SendRequest { wr_id, header, remote: 0xABCD_EF08 }
}

fn list(count: usize) -> Vec<Sge> {
    (0..count as u32).map(|n| Sge { address: 7 << 40 | u64::from(n), length: 100 + n, key: 50 + n }).collect()
}

/// What an atomic brings back goes there.
fn word() -> Sge {
    Sge { length: 8, ..list(1)[0] }
}

fn taker(immediate: Option<u32>) -> Taker {
    if immediate.is_some() { Taker::MessageWithImmediate } else { Taker::Message }
}

/// Places what was started. Whether there was padding before it.
fn finish<'queue, G: Generation>(
    mut batch: SendBatch<'queue, G>,
    started: Started<'queue>,
    wr_id: u64,
    has_immediate: bool,
) -> bool {
    let SendRequest { header, remote, .. } = request(wr_id);
    let is_padded = batch.needs_padding(&started);
    batch.pad_before(&started);
    batch.set_remote(&started, remote);
    batch.finish_started(started, wr_id, header.with_immediate(has_immediate));
    assert!(batch.finish());
    is_padded
}

/// Places a message by the short way, if it is open. Whether there was padding before it.
fn try_short<G: Generation>(queue: &SendQueue, bytes: &[u8], wr_id: u64, work: Work) -> Option<bool> {
    let batch = start_batch::<G>(queue);
    match work {
        Work::Fragments(count, immediate) => {
            let started = batch.start_fragments(&list(count), || taker(immediate), immediate).ok()?;
            Some(finish(batch, started, wr_id, immediate.is_some()))
        }
        Work::Inline(length, immediate) => {
            let piece = Sge { address: bytes.as_ptr().expose_provenance() as u64, length, key: 0 };
            // SAFETY: the bytes are there.
            let started = unsafe { batch.start_inline(&piece) }?;
            batch.set_immediate(&started, immediate);
            Some(finish(batch, started, wr_id, immediate.is_some()))
        }
        Work::Atomic(operand) => {
            let started = batch.start_atomic(&word(), || operand, || !operand)?;
            Some(finish(batch, started, wr_id, false))
        }
    }
}

fn place<G: WqeFormat>(queue: &SendQueue, bytes: &[u8], wr_id: u64, work: Work) -> Result<(), Refusal> {
    let mut batch = start_batch::<G>(queue);
    match work {
        Work::Fragments(count, immediate) => batch.fragments(&request(wr_id), &list(count), immediate)?,
        Work::Inline(length, immediate) => {
            let piece = Sge { address: bytes.as_ptr().expose_provenance() as u64, length, key: 0 };
            // SAFETY: the bytes are there.
            unsafe { batch.inline(&request(wr_id), &[piece], immediate)? }
        }
        Work::Atomic(operand) => {
            batch.atomic(&request(wr_id), &[word()], Atomic { operand, compare: !operand })?;
        }
    }
    batch.finish();
    Ok(())
}

fn words(device: &SendDevice) -> Vec<u64> {
    (0..QUANTA as usize * 4).map(|index| device.memory().word(index).load()).collect()
}

/// Has two queues place the same: one in the format of what is rare, one by the short ways wherever they
/// are open.
fn compare<G: Generation>(change: fn(&mut SendQueueParts), start: u32, works: &[Work]) -> [u32; 3] {
    let make = || {
        SendDevice::new(QUANTA, |parts| {
            change(parts);
            parts.connection_wqes = start;
        })
    };
    let bytes: Vec<u8> = (1..=225).collect();
    let ((general_device, general), (short_device, short)) = (make(), make());
    let [mut at_once, mut padded, mut others] = [0; 3];
    for (wr_id, &work) in (1..).zip(works) {
        let general_outcome = place::<G::General>(&general, &bytes, wr_id, work);
        if let Some(is_padded) = try_short::<G>(&short, &bytes, wr_id, work) {
            *if is_padded { &mut padded } else { &mut at_once } += 1;
            assert_eq!(general_outcome, Ok(()));
        } else {
            others += 1;
            assert_eq!(place::<G>(&short, &bytes, wr_id, work), general_outcome);
        }
        assert_eq!(words(&short_device), words(&general_device), "after {work:?}");
        assert_eq!(short.free_quanta(), general.free_quanta());
        for position in 0..QUANTA {
            let [one, other] = [&short, &general].map(|queue| queue.tracking.at(position));
            let each = |cell: &crate::queue::slots::Tracking| (cell.wr_id(), cell.length(), cell.end());
            assert_eq!(each(one), each(other), "at {position}");
        }
    }
    [at_once, padded, others]
}

fn gen1(parts: &mut SendQueueParts) {
    (parts.chunk, parts.max_fragments, parts.max_read_fragments, parts.max_inline) = (2, 3, 1, 48);
    parts.empty_fragment_counts = false;
}

fn gen3(parts: &mut SendQueueParts) {
    parts.empty_fragment_counts = false;
}

/// Where queues start: on laps that differ in the valid bit, and before positions begin anew.
fn starts() -> impl Strategy<Value = u32> {
    prop_oneof![3 => (0..3u32).prop_map(|lap| lap * QUANTA + 3), 1 => u32::MAX - 99..u32::MAX]
}

proptest! {
    #[test]
    fn short_ways_write_what_the_general_one_does(works in works(13, 101), start in starts()) {
        compare::<Gen2>(|_| {}, start, &works);
        compare::<Gen3>(gen3, start, &works);
        compare::<WithPush<Gen2>>(|_| {}, start, &works);
        compare::<WithPush<Gen3>>(gen3, start, &works);
    }

    #[test]
    fn so_they_do_on_gen1(works in works(3, 48), start in starts()) {
        // Inline data has no immediate there.
        let works: Vec<_> = works.into_iter().map(|work| match work {
            Work::Inline(length, _) => Work::Inline(length, None),
            Work::Fragments(count, Some(_)) if count > 2 => Work::Fragments(count, None),
            other => other,
        }).collect();
        compare::<Gen1>(gen1, start, &works);
    }
}

#[test]
fn short_ways_are_open_most_of_the_time() {
    let works: Vec<_> = (0..40)
        .map(|index| if index % 2 == 0 { Work::Fragments(4, None) } else { Work::Inline(64, None) })
        .collect();
    let [at_once, padded, others] = compare::<Gen2>(|_| {}, 0, &works);
    assert!(at_once >= 19 && padded >= 17 && others <= 4, "{at_once} {padded} {others}");
}

#[test]
fn what_was_started_in_vain_is_taken_out() {
    // At every place of a chunk: behind padding or not.
    for singles in 1..9 {
        let (device, queue) = SendDevice::new(QUANTA, |_| {});
        for wr_id in 0..singles {
            place::<Gen2>(&queue, &[], wr_id, Work::Fragments(1, None)).unwrap();
        }
        let before = words(&device);
        let mut long = list(5);
        long[4].length = 1 << 31;
        let started = start_batch::<Gen2>(&queue).start_fragments(&long, || Taker::Message, None);
        assert_eq!(started.err(), Some(Obstacle::Written));
        queue.unwrite_started();
        assert_eq!(words(&device), before);
    }
}

#[test]
fn what_cannot_be_is_not_started() {
    let (device, queue) = SendDevice::new(QUANTA, |_| {});
    place::<Gen2>(&queue, &[], 1, Work::Fragments(1, None)).unwrap();
    let before = words(&device);
    let batch = start_batch::<Gen2>(&queue);
    for list in [&list(14)[..], &[]] {
        let started = batch.start_fragments(list, || Taker::Message, None);
        assert_eq!(started.err(), Some(Obstacle::InTheWay), "{} pieces", list.len());
    }
    let piece = Sge { address: before.as_ptr().expose_provenance() as u64, length: 102, key: 0 };
    // SAFETY: the bytes are there.
    assert!(unsafe { batch.start_inline(&piece) }.is_none(), "too many bytes");
    assert_eq!(words(&device), before);
}
