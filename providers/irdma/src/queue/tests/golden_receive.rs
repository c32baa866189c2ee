//! Receive WQEs, own and shared, word by word.

use std::vec::Vec;

use crate::generation::{Gen1, Gen2, Gen3, Generation};
use crate::mock::{Memory, ReceiveDevice};
use crate::queue::{Refusal, Sge, SharedReceiveQueue, SharedReceiveQueueParts};
use crate::ring::{QuantumRing, ShadowArea};

const VALID: u64 = 1 << 63;

fn list(count: u32) -> Vec<Sge> {
    (0..count)
        .map(|n| Sge { address: 0x1000 * (u64::from(n) + 1), length: 0x100 + n, key: 0xAA00 + n })
        .collect()
}

fn expected<G: Generation>(count: u32, word_2: u64) -> Vec<u64> {
    let mut slots: Vec<[u64; 2]> = list(count)
        .iter()
        .map(|sge| {
            let (length, key) = (u64::from(sge.length), u64::from(sge.key));
            if G::NUMBER == 1 {
                [sge.address, key << 32 | length]
            } else {
                [sge.address, VALID | length << 32 | key]
            }
        })
        .collect();
    let mut more = u64::from(count).saturating_sub(1);
    if G::NUMBER > 1 && count.is_multiple_of(2) {
        slots.push([0, VALID]);
        more += u64::from(G::NUMBER == 2 && count > 0);
    }
    if slots.is_empty() {
        slots.push([0, 0]);
    }
    let mut words = Vec::from([slots[0][0], slots[0][1], word_2, VALID | more << 38]);
    words.extend(slots[1..].iter().flatten());
    words
}

fn every_count<G: Generation>(shift: u32, most: u32) {
    for count in 0..=most {
        let (mut device, queue) = ReceiveDevice::new(4, shift, most);
        queue.batch::<G>().place(9, &list(count)).unwrap();
        let wqe = device.take().expect("a valid WQE");
        let expected = expected::<G>(count, 0);
        assert_eq!(wqe.words[..expected.len()], expected, "{count} on GEN{}", G::NUMBER);
        assert!(wqe.words[expected.len()..].iter().all(|&word| word == 0));
        assert_eq!(device.take(), None);
    }
}

#[test]
fn every_number_of_fragments() {
    every_count::<Gen1>(2, 3);
    for (shift, most) in [(0, 1), (1, 3), (2, 7), (3, 13)] {
        every_count::<Gen2>(shift, most);
    }
    every_count::<Gen3>(3, 14);
}

#[test]
fn one_wqe_stays_free() {
    let (mut device, queue) = ReceiveDevice::new(8, 1, 2);
    let mut batch = queue.batch::<Gen2>();
    for wr_id in 0..7 {
        assert_eq!(batch.place(wr_id, &list(2)), Ok(()));
    }
    assert_eq!(batch.place(7, &list(2)), Err(Refusal::Full));
    assert_eq!(core::iter::from_fn(|| device.take()).count(), 7);
}

#[test]
fn receives_beyond_the_limits_are_refused() {
    let (mut device, queue) = ReceiveDevice::new(8, 1, 2);
    let mut batch = queue.batch::<Gen2>();
    assert_eq!(batch.place(0, &list(3)), Err(Refusal::Invalid));
    let long = Sge { address: 0, length: 1 << 31, key: 0 };
    assert_eq!(batch.place(0, &[long]), Err(Refusal::Invalid));
    assert_eq!(device.take(), None);
    assert!(queue.is_empty());
}

#[test]
fn buffers_may_be_larger_than_any_message() {
    let (mut device, queue) = ReceiveDevice::new(8, 2, 4);
    let longest = Sge { address: 0, length: 0x7FFF_FFFF, key: 0 };
    assert_eq!(queue.batch::<Gen2>().place(0, &[longest; 4]), Ok(()));
    assert!(device.take().is_some());
}

#[test]
fn polarity_flips_at_index_zero() {
    let (mut device, queue) = ReceiveDevice::new(4, 0, 1);
    for n in 0..20 {
        queue.batch::<Gen2>().place(n, &list(1)).unwrap();
        let wqe = device.take().expect("a valid WQE");
        assert_eq!(wqe.index, n as u32 % 4);
        assert_eq!(wqe.words[3] & VALID != 0, n / 4 % 2 == 0);
        assert_eq!(wqe.words[1] & VALID, wqe.words[3] & VALID);
        assert_eq!(device.take(), None);
        queue.retire(queue.oldest().unwrap());
    }
}

#[test]
fn shared_receives_carry_their_id_and_announce_themselves() {
    let (ring, shadow) = (Memory::new(8 * 32), Memory::new(64));
    // SAFETY: the memory lives as long as the queue.
    let queue = unsafe {
        SharedReceiveQueue::new(SharedReceiveQueueParts {
            ring: QuantumRing::new(ring.base(), 8),
            shadow: ShadowArea::new(shadow.base()),
            shift: 1,
            max_fragments: 3,
        })
    };
    let mut batch = queue.batch::<Gen3>();
    for count in [0, 1, 2] {
        let wr_id = 0xABCD_0000_0000 + u64::from(count);
        assert_eq!(batch.place(wr_id, &list(count)), Ok(()));
        let expected = expected::<Gen3>(count, wr_id);
        let words: Vec<u64> =
            (0..expected.len()).map(|word| ring.word(count as usize * 8 + word).load()).collect();
        assert_eq!(words, expected);
    }
    // One WQE stays free.
    assert_eq!(batch.place(0, &[]), Err(Refusal::Full));
    assert_eq!(shadow.word(0).load(), 0);
    batch.finish();
    assert_eq!(shadow.word(0).load(), 3);

    // Whatever completes, its slot is the oldest one again.
    assert!(queue.retire_one() && queue.retire_one());
    let mut batch = queue.batch::<Gen3>();
    assert_eq!(batch.place(1, &list(4)), Err(Refusal::Invalid));
    assert_eq!(batch.place(1, &list(1)), Ok(()));
    assert_eq!(batch.place(2, &list(1)), Ok(()));
    assert_eq!(batch.place(3, &list(1)), Err(Refusal::Full));
    batch.finish();
    assert_eq!(shadow.word(0).load(), 1);
    // The second lap.
    assert_eq!(ring.word(3).load() & VALID, 0);
    assert_eq!(ring.word(24 + 3).load() & VALID, VALID);
    assert!(queue.retire_one() && queue.retire_one() && queue.retire_one());
    assert!(!queue.retire_one(), "nothing is outstanding");
}

/// Every way to post a receive of one fragment writes the same, takes as many, and refuses the same.
fn ways_agree<G: Generation>(shift: u32, most: u32) {
    let sge = |n: u32| Sge { address: 0x1000 * u64::from(n), length: 0x7FFF_FFFF - n, key: 0x8000_0000 | n };
    let devices = || ReceiveDevice::new(8, shift, most);
    let [(mut one, by_one), (mut run, by_run), (mut any, by_batch)] = [devices(), devices(), devices()];
    for n in 0..60 {
        // Three in, three out, and now and then as many as there is room for.
        let count = if n % 20 == 10 { 9 } else { 3 };
        let mut simple = by_run.simple_run::<G>();
        for at in 0..count {
            let (wr_id, sge) = (u64::from(n * 10 + at), sge(n * 10 + at));
            let taken = by_batch.batch::<G>().place(wr_id, &[sge]).is_ok();
            let position = by_one.place_simple::<G>(wr_id, &sge);
            assert_eq!(position.is_some(), taken, "{n} {at}");
            if !simple.place(wr_id, &sge) {
                // What a run does not take, a batch may.
                assert_eq!(by_run.batch::<G>().place(wr_id, &[sge]).is_ok(), taken, "{n} {at}");
                simple = by_run.simple_run::<G>();
            }
        }
        loop {
            let wqe = any.take();
            assert_eq!((one.take(), run.take()), (wqe.clone(), wqe.clone()), "{n}");
            if wqe.is_none() {
                break;
            }
            for queue in [&by_one, &by_run, &by_batch] {
                queue.retire(queue.oldest().unwrap());
            }
        }
    }
    for n in 0..8 {
        assert_eq!(by_one.wr_id(n), by_batch.wr_id(n));
        assert_eq!(by_run.wr_id(n), by_batch.wr_id(n));
    }
    let long = Sge { address: 0, length: 1 << 31, key: 0 };
    let fits = by_batch.batch::<G>().place(0, &[long]).is_ok();
    assert_eq!(fits, G::NUMBER == 1);
    assert_eq!(by_one.place_simple::<G>(0, &long).is_some(), fits);
    assert_eq!(by_run.simple_run::<G>().place(0, &long), fits);
}

#[test]
fn ways_to_post_one_fragment_agree() {
    for (shift, most) in [(0, 1), (1, 3), (2, 7)] {
        ways_agree::<Gen1>(shift, most);
        ways_agree::<Gen2>(shift, most);
        ways_agree::<Gen3>(shift, most);
    }
}

#[test]
fn a_queue_without_fragments_takes_none() {
    let (_device, queue) = ReceiveDevice::new(8, 0, 0);
    let sge = Sge { address: 0, length: 1, key: 0 };
    assert_eq!(queue.place_simple::<Gen2>(0, &sge), None);
    assert!(!queue.simple_run::<Gen2>().place(0, &sge));
    queue.batch::<Gen2>().place(0, &[]).unwrap();
}
