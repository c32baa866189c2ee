//! Pushes: what lies in the page when its doorbell rings, when that is, and when not.

use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::{resume, start_batch};
use crate::format::{Opcode, ReceiveOpcodes, SendHeader};
use crate::generation::{Gen2, Gen3, Generation, WithPush};
use crate::mock::{Bell, CompletionDevice, Memory, Pair, Pairs, SendDevice};
use crate::queue::{Held, HeldBatch, SendQueue, SendQueueParts, SendRequest, Service, Sge};
use crate::ring::PushPage;

/// What the page holds where nothing was pushed.
const UNTOUCHED: u64 = 0x7575_7575_7575_7575;
/// The header bit of a queue with a page.
const PUSH: u64 = 1 << 56;
const NUMBER: u32 = 0x1234;

/// A page of the device with a window somewhere in it.
struct Page {
    memory: Memory,
    offset: usize,
    bell: Bell,
}

impl Page {
    fn new(offset: usize) -> Page {
        let page = Page { memory: Memory::new(4096), offset, bell: Bell::default() };
        page.clear();
        page
    }

    /// Must outlive the queue.
    fn give_to(&self, queue: &SendQueue) -> bool {
        // SAFETY: the caller keeps the page.
        queue.start_pushing(unsafe { PushPage::new(self.memory.at(self.offset), self.bell.doorbell()) })
    }

    fn clear(&self) {
        self.memory.fill(UNTOUCHED);
    }

    /// The words of the window; the rest of the page is untouched.
    fn window(&self) -> Vec<u64> {
        let words: Vec<u64> = (0..512).map(|index| self.memory.word(index).load()).collect();
        let first = self.offset / 8;
        assert!(words[..first].iter().chain(&words[first + 32..]).all(|&word| word == UNTOUCHED));
        words[first..first + 32].to_vec()
    }
}

/// A window that holds `words` from a quantum on, and nothing else.
fn only(quantum: u32, words: &[u64]) -> Vec<u64> {
    let mut window = vec![UNTOUCHED; 32];
    let first = quantum as usize % 8 * 4;
    window[first..first + words.len()].copy_from_slice(words);
    window
}

fn doorbell(index: u32) -> Option<u32> {
    Some((index / 8) << 20 | NUMBER)
}

fn request(wr_id: u64) -> SendRequest {
    SendRequest {
        wr_id,
        header: SendHeader::default()
            .with_opcode(Opcode::RdmaWrite as u8)
            .with_signaled(true)
            .with_remote_key(7),
        remote: 0x4000 + wr_id,
    }
}

/// A write of `quanta` quanta.
fn post<G: Generation>(queue: &SendQueue, wr_id: u64, quanta: u32) {
    let mut batch = start_batch::<WithPush<G>>(queue);
    batch.fragments(&request(wr_id), &list(quanta), None).unwrap();
    assert!(batch.finish());
}

fn list(quanta: u32) -> Vec<Sge> {
    let sge = |index| Sge { address: 0x1000 * u64::from(index), length: 8 + index, key: index };
    (0..2 * quanta - 1).map(sge).collect()
}

fn device(change: impl FnOnce(&mut SendQueueParts)) -> (SendDevice, SendQueue) {
    SendDevice::new(512, |parts| {
        parts.max_fragments = 15;
        change(parts);
    })
}

/// The words that the ring holds from an index on.
fn in_ring(device: &SendDevice, index: u32, quanta: u32) -> Vec<u64> {
    let words = index as usize * 4..(index + quanta) as usize * 4;
    words.map(|word| device.memory().word(word).load()).collect()
}

/// All that was posted completes.
fn retire(queue: &SendQueue, index: u32) {
    let (_, end) = queue.outstanding(index as usize).expect("outstanding");
    queue.retire(end);
}

#[test]
fn the_page_holds_the_bytes_of_the_ring_at_the_same_place() {
    for offset in [0, 256, 4096 - 256] {
        let (page, (device, queue)) = (Page::new(offset), device(|_| {}));
        assert!(page.give_to(&queue));
        let mut index = 0;
        // Every size at every place where it fits, as padding would be pushed where it does not.
        for place in 0..8 {
            for quanta in 1..=8 - place {
                while index % 8 != place {
                    post::<Gen3>(&queue, 0, 1);
                    retire(&queue, index % 512);
                    index += 1;
                }
                page.clear();
                post::<Gen3>(&queue, index.into(), quanta);
                let at = index % 512;
                let words = in_ring(&device, at, quanta);
                assert_eq!(words[2], 0x4000 + u64::from(index));
                assert_eq!(words[3] & PUSH, PUSH);
                assert_eq!(page.window(), only(at, &words), "{quanta} quanta at {place}");
                assert_eq!((page.bell.take(), device.bell().take()), (doorbell(at), Some(NUMBER)));
                retire(&queue, at);
                index += quanta;
            }
        }
    }
}

#[test]
fn pushes_go_on_while_nothing_is_dropped_and_begin_again_when_the_queue_is_idle() {
    let (page, (_device, queue)) = (Page::new(0), device(|_| {}));
    assert!(page.give_to(&queue));
    let mut next = 0;
    let mut post = |expected: bool| {
        post::<Gen2>(&queue, 0, 1);
        assert_eq!(page.bell.take(), doorbell(next).filter(|_| expected), "index {next}");
        next += 1;
    };
    // The first finds the queue idle, the others the one before them pushed.
    post(true);
    post(true);
    queue.note_dropped_push();
    post(false);
    retire(&queue, 1);
    post(false);
    retire(&queue, 2);
    post(false);
    // Everything that a doorbell has rung for.
    retire(&queue, 4);
    post(true);
    post(true);
    queue.note_dropped_push();
    post(false);
}

#[test]
fn every_work_request_of_a_list_is_pushed_in_order() {
    let (page, (device, queue)) = (Page::new(0), device(|_| {}));
    assert!(page.give_to(&queue));
    let mut batch = start_batch::<WithPush<Gen2>>(&queue);
    for wr_id in 0..20 {
        batch.fragments(&request(wr_id), &list(1), None).unwrap();
    }
    assert_eq!(page.bell.take(), None, "nothing before the batch is finished");
    batch.finish();
    // The last chunk has four, over what is left of that before.
    let expected = [in_ring(&device, 16, 4), in_ring(&device, 12, 4)].concat();
    assert_eq!(page.window(), expected);
    assert_eq!((page.bell.take(), device.bell().take()), (doorbell(19), Some(NUMBER)));
}

#[test]
fn padding_is_pushed_in_one_copy_and_does_not_say_so() {
    let (page, (device, queue)) = (Page::new(0), device(|_| {}));
    assert!(page.give_to(&queue));
    for wr_id in 0..5 {
        post::<Gen2>(&queue, wr_id, 1);
    }
    page.clear();
    post::<Gen2>(&queue, 5, 4);
    let padding = in_ring(&device, 5, 3);
    assert!(padding.chunks(4).all(|quantum| quantum[3] & (PUSH | 0x3F << 32) == 0x0c << 32));
    // The WQE lies in the first half of the window, the padding at the end of the second.
    let window = page.window();
    assert_eq!(window[..16], in_ring(&device, 8, 4));
    assert_eq!((&window[16..20], &window[20..]), (&[UNTOUCHED; 4][..], &padding[..]));
    assert_eq!(page.bell.take(), doorbell(8));
}

#[test]
fn the_doorbell_follows_the_ring_around() {
    let (page, (device, queue)) = (Page::new(0), device(|_| {}));
    assert!(page.give_to(&queue));
    for index in 0..1100 {
        page.clear();
        post::<Gen2>(&queue, index.into(), 1);
        assert_eq!(page.bell.take(), doorbell(index % 512));
        assert_eq!(page.window(), only(index, &in_ring(&device, index % 512, 1)));
        retire(&queue, index % 512);
    }
}

#[test]
fn what_would_cross_the_window_is_not_pushed() {
    // A chunk that no card has, of which a WQE may begin in one window and end in the next.
    let (page, (_device, queue)) = (Page::new(0), device(|parts| parts.chunk = 16));
    assert!(page.give_to(&queue));
    for wr_id in 0..6 {
        post::<Gen2>(&queue, wr_id, 1);
    }
    assert_eq!(page.bell.take(), doorbell(5));
    post::<Gen2>(&queue, 6, 3);
    assert_eq!(page.bell.take(), None);
    post::<Gen2>(&queue, 7, 3);
    assert_eq!(page.bell.take(), doorbell(9));
}

#[test]
fn work_requests_of_before_the_page_are_not_pushed() {
    let (page, (device, queue)) = (Page::new(0), device(|_| {}));
    post::<Gen2>(&queue, 0, 1);
    assert_eq!(in_ring(&device, 0, 1)[3] & PUSH, 0);
    // One half of a batch comes before, the other after.
    let mut held = queue.hold();
    let add = |held: &mut Held| {
        let mut batch: HeldBatch<'_, WithPush<Gen2>> = resume(&queue, held);
        let single = batch.start_single(&Sge { address: 0, length: 8, key: 1 });
        let placed = single.map(|single| {
            batch.set_remote(&single, 0);
            batch.finish_started(single, 1, request(1).header);
        });
        *held = batch.pause();
        placed.is_some()
    };
    assert!(add(&mut held));
    assert!(page.give_to(&queue));
    assert!(add(&mut held));
    let mut batch: HeldBatch<'_, WithPush<Gen2>> = resume(&queue, &held);
    batch.fragments(&request(2), &list(2), None).unwrap();
    retire(&queue, 0);
    batch.finish();
    let headers = [1, 2, 3].map(|index| in_ring(&device, index, 1)[3] & PUSH);
    assert_eq!(headers, [0, PUSH, PUSH]);
    assert_eq!(page.window(), only(2, &in_ring(&device, 2, 3)));
    assert_eq!((page.bell.take(), device.bell().take()), (doorbell(3), Some(NUMBER)));
}

#[test]
fn numbers_beyond_the_doorbell_are_refused() {
    let page = Page::new(0);
    let refused = |quanta, number| {
        let (_device, queue) = SendDevice::new(quanta, |parts| parts.number = number);
        let given = page.give_to(&queue);
        assert_eq!(given, queue.is_pushing());
        !given
    };
    assert!(!refused(512, (1 << 20) - 1));
    assert!(refused(512, 1 << 20));
    assert!(!refused(32768, 1));
    assert!(refused(65536, 1));
    let (_device, queue) = device(|_| {});
    assert!(page.give_to(&queue));
    assert!(!page.give_to(&queue), "one page only");
}

#[test]
fn queues_without_a_page_post_as_ever() {
    let (device, queue) = device(|_| {});
    post::<Gen2>(&queue, 0, 1);
    assert_eq!(in_ring(&device, 0, 1)[3] & PUSH, 0);
    assert_eq!(device.bell().take(), Some(NUMBER));
}

#[test]
fn a_completion_that_tells_of_a_drop_completes_and_ends_the_pushing() {
    const CONTEXT: u64 = 0x77_0000;
    const SEND: u64 = 1 << 62;
    const DROPPED: u64 = 1 << 51;
    let page = Page::new(0);
    let pairs = Pairs([Pair::new(CONTEXT, Service::Connected, ReceiveOpcodes::WIRE)].into());
    let queue = &pairs.0[0].queues.send;
    assert!(page.give_to(queue));
    let (mut device, mut cq) = CompletionDevice::new(8, 32);
    for wr_id in 0..3 {
        post::<Gen2>(queue, wr_id, 1);
    }
    let complete = |index: u64, flags| [0, CONTEXT, u64::from(NUMBER) << 32, SEND | flags | index << 32];
    device.complete(complete(0, 0));
    assert_eq!(cq.poll::<Gen2, _>(&pairs).unwrap().wr_id, 0);
    page.bell.take();
    post::<Gen2>(queue, 3, 1);
    assert_eq!(page.bell.take(), doorbell(3));
    device.complete(complete(1, DROPPED));
    let completion = cq.poll::<Gen2, _>(&pairs).unwrap();
    assert_eq!((completion.wr_id, completion.vendor_error), (1, 0));
    post::<Gen2>(queue, 4, 1);
    assert_eq!(page.bell.take(), None);
    // A flush may tell of one too.
    device.complete(complete(4, DROPPED));
    assert_eq!(cq.poll::<Gen2, _>(&pairs).unwrap().wr_id, 4);
    post::<Gen2>(queue, 5, 1);
    assert_eq!(page.bell.take(), doorbell(5));
    device.complete(complete(0, DROPPED | 1 << 55 | 1 << 16 | 1));
    assert_eq!(cq.poll::<Gen2, _>(&pairs).unwrap().wr_id, 5);
    post::<Gen2>(queue, 6, 1);
    assert_eq!(page.bell.take(), doorbell(6), "idle");
}

/// What is placed by a step, and what happens afterwards.
#[derive(Clone, Debug)]
struct Step {
    /// Quanta of each work request of the batch.
    batch: Vec<u32>,
    /// All that is outstanding completes.
    completes: bool,
    /// The device reports a drop.
    drops: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let batch =
        prop_oneof![4 => prop::collection::vec(1..=8u32, 1), 1 => prop::collection::vec(1..=8u32, 1..4)];
    (batch, prop::bool::weighted(0.7), prop::bool::weighted(0.1)).prop_map(|(batch, completes, drops)| Step {
        batch,
        completes,
        drops,
    })
}

proptest! {
    /// The short ways to announce a work request do what the general one does, wherever they are open.
    #[test]
    fn a_single_work_request_is_pushed_as_any(steps in prop::collection::vec(step(), 1..80), late in 0..4usize) {
        let sides = [(); 2].map(|()| (Page::new(256), device(|_| {})));
        for (number, step) in steps.iter().enumerate() {
            for (side, (page, (_, queue))) in sides.iter().enumerate() {
                if number == late {
                    prop_assert!(page.give_to(queue));
                }
                page.clear();
                let mut batch = start_batch::<WithPush<Gen2>>(queue);
                for &quanta in &step.batch {
                    let outcome = batch.fragments(&request(number as u64), &list(quanta), None);
                    prop_assert!(outcome.is_ok() || !step.completes);
                }
                if batch.is_empty() {
                    continue;
                }
                let is_short = side == 1 && (batch.announce_one::<false>() || batch.announce_one::<true>());
                if !is_short {
                    batch.announce();
                } else {
                    prop_assert!(step.batch.len() == 1 && number >= late);
                }
            }
            let [(page, (device, queue)), (other_page, (other_device, other_queue))] = &sides;
            prop_assert_eq!(page.window(), other_page.window());
            prop_assert_eq!(page.bell.take(), other_page.bell.take());
            prop_assert_eq!(device.bell().take(), other_device.bell().take());
            prop_assert_eq!(in_ring(device, 0, 512), in_ring(other_device, 0, 512));
            for queue in [queue, other_queue] {
                if step.drops {
                    queue.note_dropped_push();
                }
                if step.completes {
                    queue.retire(start_batch::<WithPush<Gen2>>(queue).start());
                }
            }
        }
    }
}

#[test]
fn short_ways_to_announce_are_open_for_one_work_request() {
    let (page, (_device, queue)) = (Page::new(0), device(|_| {}));
    let place = |quanta: &[u32]| {
        let mut batch = start_batch::<WithPush<Gen3>>(&queue);
        for &quanta in quanta {
            batch.fragments(&request(0), &list(quanta), None).unwrap();
        }
        batch
    };
    assert!(!place(&[3]).announce_one::<false>(), "no page");
    assert!(page.give_to(&queue));
    assert!(place(&[3]).announce_one::<false>());
    let padded = place(&[4]);
    assert!(!padded.announce_one::<false>() && padded.announce_one::<true>());
    let two = place(&[1, 1]);
    assert!(!two.announce_one::<false>() && !two.announce_one::<true>());
}
