//! Arming, and rings of before a resize.

use std::vec::Vec;

use super::start_batch;
use crate::format::{Opcode, ReceiveOpcodes, SendHeader};
use crate::generation::Gen2;
use crate::mock::{CompletionDevice, Pair, Pairs};
use crate::queue::{CompletionQueue, SendRequest, Service};

const CONTEXT: u64 = 0x40;
const ANY: u64 = 1 << 14;
const SOLICITED: u64 = 1 << 15;

/// A QP with that many sends outstanding.
fn busy(work: u64) -> Pairs {
    let pair = Pair::new(CONTEXT, Service::Connected, ReceiveOpcodes::WIRE);
    let mut batch = start_batch::<Gen2>(&pair.queues.send);
    for wr_id in 0..work {
        let request = SendRequest {
            wr_id,
            header: SendHeader::default().with_opcode(Opcode::Send as u8).with_signaled(true),
            remote: 0,
        };
        batch.fragments(&request, &[], None).unwrap();
    }
    batch.finish();
    Pairs([pair].into())
}

fn sent(index: u64) -> [u64; 4] {
    [0, CONTEXT, 0, 1 << 62 | 3 << 56 | index << 32]
}

fn ids(cq: &mut CompletionQueue, pairs: &Pairs) -> Vec<u64> {
    core::iter::from_fn(|| cq.poll::<Gen2, _>(pairs)).map(|completion| completion.wr_id).collect()
}

#[test]
fn the_strongest_request_since_the_last_event_counts() {
    #[derive(Clone, Copy, PartialEq)]
    enum Step {
        Any,
        Solicited,
        Event,
    }
    use Step::{Any, Event, Solicited};
    // Every sequence of up to five steps.
    for length in 1..=5u32 {
        for number in 0..3u32.pow(length) {
            let steps: Vec<Step> = (0..length)
                .map(|place| [Any, Solicited, Event][(number / 3u32.pow(place) % 3) as usize])
                .collect();
            let (device, mut cq) = CompletionDevice::new(8, 32);
            let mut strongest = 0;
            let mut requests = 0u64;
            for step in &steps {
                match step {
                    Event => {
                        cq.event_delivered();
                        strongest = 0;
                        assert_eq!(device.bell().take(), None, "no request of its own");
                    }
                    Any | Solicited => {
                        cq.arm(*step == Solicited);
                        requests += 1;
                        strongest |= if *step == Any { ANY } else { 0 };
                        let word = device.shadow().word(4).load();
                        assert_eq!(word, (requests % 4) << 16 | SOLICITED | strongest);
                        assert_eq!(device.bell().take(), Some(0x77));
                    }
                }
            }
        }
    }
}

#[test]
fn unpolled_completions_survive_a_resize_in_order() {
    let pairs = busy(20);
    let (mut device, mut cq) = CompletionDevice::new(16, 32);
    (0..8).for_each(|index| device.complete(sent(index)));
    // Smaller than what is in it.
    let mut old = device.resize(&mut cq, 4);
    // The device still has some for the old ring, then goes on.
    old.complete(sent(8));
    device.complete(sent(9));
    device.complete(sent(10));
    assert_eq!(ids(&mut cq, &pairs), (0..11).collect::<Vec<_>>());
    assert_eq!(cq.take_finished(), 1);
    assert_eq!(cq.take_finished(), 0);
}

#[test]
fn an_empty_old_ring_is_not_finished() {
    let pairs = busy(20);
    let (mut device, mut cq) = CompletionDevice::new(16, 32);
    device.complete(sent(0));
    let mut old = device.resize(&mut cq, 32);
    assert_eq!(ids(&mut cq, &pairs), [0]);
    assert_eq!(cq.take_finished(), 0);
    old.complete(sent(1));
    assert_eq!(ids(&mut cq, &pairs), [1]);
    assert_eq!(cq.take_finished(), 0);
    assert_eq!(device.shadow().word(4).load(), 0);
    device.complete(sent(2));
    assert_eq!(ids(&mut cq, &pairs), [2]);
    assert_eq!(device.shadow().word(4).load(), 1, "one finished resize");
    assert_eq!(device.consumer(), 1);
    assert_eq!(cq.take_finished(), 1);
}

#[test]
fn several_resizes_finish_in_order() {
    let pairs = busy(20);
    let (mut device, mut cq) = CompletionDevice::new(16, 32);
    cq.arm(false);
    let first = device.resize(&mut cq, 8);
    let mut second = device.resize(&mut cq, 16);
    let third = device.resize(&mut cq, 8);
    second.complete(sent(0));
    assert_eq!(ids(&mut cq, &pairs), [0]);
    // The first is finished, as the second was written to.
    let armed = 1 << 16 | SOLICITED | ANY;
    assert_eq!(device.shadow().word(4).load(), armed | 1);
    // One of a QP that is gone counts as well.
    device.complete([0, 0xBAD, 0, 1 << 62]);
    assert_eq!(ids(&mut cq, &pairs), []);
    assert_eq!(device.shadow().word(4).load(), armed | 3);
    assert_eq!(cq.take_finished(), 3);
    // Counting and arming do not disturb each other.
    cq.arm(true);
    assert_eq!(device.shadow().word(4).load(), 2 << 16 | SOLICITED | ANY | 3);
    drop((first, second, third));
    device.complete(sent(1));
    assert_eq!(ids(&mut cq, &pairs), [1]);
}

#[test]
fn a_flush_in_an_old_ring_is_drawn_from_there() {
    let pairs = busy(5);
    let (mut device, mut cq) = CompletionDevice::new(16, 32);
    device.complete([0, CONTEXT, 0, 1 << 62 | 1 << 55 | 1 << 16 | 1]);
    let _old = device.resize(&mut cq, 8);
    assert_eq!(ids(&mut cq, &pairs), [0, 1, 2, 3, 4]);
    assert_eq!(cq.take_finished(), 0);
}
