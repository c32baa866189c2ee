//! The ways for messages where nothing stands in the way do what the general one does, word by word.

use std::vec::Vec;

use proptest::prelude::*;

use super::start_batch;
use crate::format::{Opcode, SendHeader};
use crate::generation::{Gen1, Gen2, Gen3, Generation, WithPush};
use crate::mock::SendDevice;
use crate::queue::{Obstacle, Refusal, SendBatch, SendQueue, SendQueueParts, SendRequest, Sge, Taker};

const QUANTA: u32 = 512;

#[derive(Clone, Copy, Debug)]
enum Work {
    Fragments(usize, Option<u32>),
    Inline(u32, Option<u32>),
}

fn works(most_fragments: usize, most_inline: u32) -> impl Strategy<Value = Vec<Work>> {
    let work = prop_oneof![
        (1..=most_fragments, any::<Option<u32>>()).prop_map(|(count, data)| Work::Fragments(count, data)),
        (0..=most_inline, any::<Option<u32>>()).prop_map(|(length, data)| Work::Inline(length, data)),
    ];
    prop::collection::vec(work, 1..50)
}

fn request(wr_id: u64) -> SendRequest {
    let header = SendHeader::default().with_opcode(Opcode::Send as u8).with_remote_key(0x1234_5678);
    SendRequest { wr_id, header, remote: 0xABCD_EF01 }
}

fn list(count: usize) -> Vec<Sge> {
    (0..count as u32).map(|n| Sge { address: 7 << 40 | u64::from(n), length: 100 + n, key: 50 + n }).collect()
}

fn taker(immediate: Option<u32>) -> Taker {
    if immediate.is_some() { Taker::MessageWithImmediate } else { Taker::Message }
}

fn finish<'queue, G: Generation>(
    batch: &mut SendBatch<'queue, G>,
    started: crate::queue::Started<'queue>,
    wr_id: u64,
    has_immediate: bool,
) {
    let SendRequest { header, remote, .. } = request(wr_id);
    batch.set_remote(&started, remote);
    batch.finish_started(started, wr_id, header.with_immediate(has_immediate));
}

/// Places a message by the short way, if it is open. Whether it was.
fn try_short<G: Generation>(queue: &SendQueue, bytes: &[u8], wr_id: u64, work: Work) -> bool {
    let mut batch = start_batch::<G>(queue);
    match work {
        Work::Fragments(count, immediate) => {
            let Ok(started) = batch.start_fragments(&list(count), taker(immediate), immediate) else {
                return false;
            };
            finish(&mut batch, started, wr_id, immediate.is_some());
        }
        Work::Inline(length, immediate) => {
            let piece = Sge { address: bytes.as_ptr().expose_provenance() as u64, length, key: 0 };
            // SAFETY: the bytes are there.
            let Some(started) = (unsafe { batch.start_inline(&piece) }) else { return false };
            batch.set_immediate(&started, immediate);
            finish(&mut batch, started, wr_id, immediate.is_some());
        }
    }
    batch.finish()
}

fn pad<G: Generation>(queue: &SendQueue, work: Work) -> bool {
    let batch = start_batch::<G>(queue);
    match work {
        Work::Fragments(count, immediate) => batch.pad_for_fragments(&list(count), taker(immediate)),
        Work::Inline(length, _) => batch.pad_for_inline(length),
    }
}

fn place<G: Generation>(queue: &SendQueue, bytes: &[u8], wr_id: u64, work: Work) -> Result<(), Refusal> {
    let mut batch = start_batch::<G>(queue);
    match work {
        Work::Fragments(count, immediate) => batch.fragments(&request(wr_id), &list(count), immediate)?,
        Work::Inline(length, immediate) => {
            let piece = Sge { address: bytes.as_ptr().expose_provenance() as u64, length, key: 0 };
            // SAFETY: the bytes are there.
            unsafe { batch.inline(&request(wr_id), &[piece], immediate)? }
        }
    }
    batch.finish();
    Ok(())
}

fn words(device: &SendDevice) -> Vec<u64> {
    (0..QUANTA as usize * 4).map(|index| device.memory().word(index).load()).collect()
}

/// Has two queues place the same, one by the short ways wherever they are open.
fn compare<G: Generation>(change: fn(&mut SendQueueParts), lap: u32, works: &[Work]) -> [u32; 3] {
    let make = || {
        SendDevice::new(QUANTA, |parts| {
            change(parts);
            parts.connection_wqes = lap * QUANTA + 3;
        })
    };
    let bytes: Vec<u8> = (1..=225).collect();
    let ((general_device, general), (short_device, short)) = (make(), make());
    let [mut at_once, mut padded, mut others] = [0; 3];
    for (wr_id, &work) in (1..).zip(works) {
        let general_outcome = place::<G>(&general, &bytes, wr_id, work);
        if try_short::<G>(&short, &bytes, wr_id, work) {
            at_once += 1;
            assert_eq!(general_outcome, Ok(()));
        } else if general_outcome.is_ok() && pad::<G>(&short, work) {
            padded += 1;
            assert!(try_short::<G>(&short, &bytes, wr_id, work), "there is room after padding");
        } else {
            others += 1;
            assert_eq!(place::<G>(&short, &bytes, wr_id, work), general_outcome);
        }
        assert_eq!(words(&short_device), words(&general_device), "after {work:?}");
        assert_eq!(short.free_quanta(), general.free_quanta());
        for position in lap * QUANTA..(lap + 1) * QUANTA {
            let [one, other] = [&short, &general].map(|queue| queue.tracking.at(position));
            let each = |cell: &crate::queue::slots::Tracking| (cell.wr_id(), cell.length(), cell.end());
            assert_eq!(each(one), each(other), "at {position}");
        }
    }
    [at_once, padded, others]
}

fn gen1(parts: &mut SendQueueParts) {
    (parts.chunk, parts.max_fragments, parts.max_read_fragments, parts.max_inline) = (2, 3, 1, 48);
}

proptest! {
    #[test]
    fn short_ways_write_what_the_general_one_does(works in works(13, 101), lap in 0..3u32) {
        compare::<Gen2>(|_| {}, lap, &works);
        compare::<Gen3>(|_| {}, lap, &works);
        compare::<WithPush<Gen2>>(|_| {}, lap, &works);
    }

    #[test]
    fn so_they_do_on_gen1(works in works(3, 48), lap in 0..3u32) {
        // Inline data has no immediate there.
        let works: Vec<_> = works.into_iter().map(|work| match work {
            Work::Inline(length, _) => Work::Inline(length, None),
            Work::Fragments(count, Some(_)) if count > 2 => Work::Fragments(count, None),
            other => other,
        }).collect();
        compare::<Gen1>(gen1, lap, &works);
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
fn what_cannot_be_is_not_padded_for() {
    let (device, queue) = SendDevice::new(QUANTA, |_| {});
    while start_batch::<Gen2>(&queue).start() % 8 != 7 {
        place::<Gen2>(&queue, &[], 1, Work::Fragments(1, None)).unwrap();
    }
    let before = words(&device);
    let batch = || start_batch::<Gen2>(&queue);
    assert!(!batch().pad_for_fragments(&list(14), Taker::Message), "too many");
    let mut long = list(3);
    long[1].length = 1 << 31;
    assert!(!batch().pad_for_fragments(&long, Taker::Message), "too long");
    assert!(!batch().pad_for_inline(102), "too many bytes");
    assert!(
        !start_batch::<WithPush<Gen2>>(&queue).pad_for_fragments(&list(3), Taker::Message),
        "to be pushed"
    );
    assert_eq!(words(&device), before);
}

#[test]
fn what_was_started_in_vain_is_taken_out() {
    let (device, queue) = SendDevice::new(QUANTA, |_| {});
    place::<Gen2>(&queue, &[], 1, Work::Fragments(1, None)).unwrap();
    let before = words(&device);
    let mut long = list(5);
    long[4].length = 1 << 31;
    let started = start_batch::<Gen2>(&queue).start_fragments(&long, Taker::Message, None);
    assert_eq!(started.err(), Some(Obstacle::Written));
    queue.unwrite_started();
    assert_eq!(words(&device), before);
}
