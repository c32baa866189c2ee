//! Work that a GEN3 device leaves behind is completed, once, in order, as flushed.

use std::vec::Vec;

use super::start_batch;
use crate::format::{CompletionOpcode, Opcode, ReceiveOpcodes, SendHeader, Status};
use crate::generation::{Gen2, Gen3, Generation};
use crate::mock::{CompletionDevice, Memory, Pair, Pairs};
use crate::queue::{
    CompletionQueue, SendRequest, Service, SharedReceiveQueue, SharedReceiveQueueParts, Side,
};
use crate::ring::{QuantumRing, ShadowArea};

const CONTEXT: u64 = 0x99_0000;
const SEND: u64 = 1 << 62;
const ERROR: u64 = 1 << 55;
const SHARED: u64 = 1 << 52;

fn pair() -> Pairs {
    Pairs([Pair::new(CONTEXT, Service::Connected, ReceiveOpcodes::WQE)].into())
}

fn post(pairs: &Pairs, ids: core::ops::Range<u64>) {
    let queues = &pairs.0[0].queues;
    for wr_id in ids {
        let request = SendRequest {
            wr_id,
            header: SendHeader::default().with_opcode(Opcode::RdmaRead as u8),
            remote: 0,
        };
        let mut batch = start_batch::<Gen3>(&queues.send);
        batch.fragments(&request, &[], None).unwrap();
        batch.finish();
        queues.receive.batch::<Gen3>().place(100 + wr_id, &[]).unwrap();
    }
}

fn ids<G: Generation>(cq: &mut CompletionQueue, pairs: &Pairs) -> Vec<(u64, Status)> {
    core::iter::from_fn(|| cq.poll::<G, _>(pairs)).map(|c| (c.wr_id, c.status)).collect()
}

#[test]
fn nothing_is_completed_before_the_device_has_spoken() {
    let pairs = pair();
    let (_device, mut cq) = CompletionDevice::new(8, 64);
    post(&pairs, 0..2);
    pairs.0[0].queues.set_in_error();
    assert_eq!(ids::<Gen3>(&mut cq, &pairs), []);
}

#[test]
fn after_its_flush_the_rest_is_completed() {
    let pairs = pair();
    let (mut device, mut cq) = CompletionDevice::new(8, 64);
    post(&pairs, 0..3);
    device.complete([0, CONTEXT, 0x42 << 32, SEND | ERROR | 1 << 16 | 2]);
    let flushed = |wr_id| (wr_id, Status::Flushed);
    assert_eq!(ids::<Gen3>(&mut cq, &pairs), [(0, Status::LocalProtection), flushed(1), flushed(2)]);
    // The receives are the device's until it says something of them.
    device.complete([0, CONTEXT, 0x42 << 32, ERROR | 1 << 16 | 1]);
    assert_eq!(ids::<Gen3>(&mut cq, &pairs), [100, 101, 102].map(flushed));
    // What the device says too late is not said again.
    device.complete([0, CONTEXT, 0x42 << 32, SEND | ERROR | 1 << 16 | 1]);
    assert_eq!(ids::<Gen3>(&mut cq, &pairs), []);
    post(&pairs, 3..5);
    device.complete([0, CONTEXT, 0x42 << 32, ERROR | 1 << 16 | 1]);
    assert_eq!(ids::<Gen3>(&mut cq, &pairs), [103, 3, 4, 104].map(flushed));
}

#[test]
fn a_queue_that_the_program_gave_up_is_completed_in_full() {
    let pairs = pair();
    let (_device, mut cq) = CompletionDevice::new(8, 64);
    post(&pairs, 0..2);
    pairs.0[0].queues.abandon(Side::Send);
    assert!(pairs.0[0].queues.is_in_error());
    let first = cq.poll::<Gen3, _>(&pairs).unwrap();
    assert_eq!((first.wr_id, first.opcode, first.vendor_error), (0, CompletionOpcode::RdmaRead, 0x1_0001));
    assert_eq!(ids::<Gen3>(&mut cq, &pairs), [(1, Status::Flushed)]);
}

#[test]
fn work_that_may_have_caused_the_error_is_the_devices_to_complete() {
    let pairs = pair();
    let queues = &pairs.0[0].queues;
    let (mut device, mut cq) = CompletionDevice::new(8, 64);
    post(&pairs, 0..1);
    queues.set_in_error();
    // As its poster sees it, who was still in the call.
    assert!(!queues.posted_in_error::<Gen3>(Side::Send, 0));
    assert_eq!(ids::<Gen3>(&mut cq, &pairs), []);
    device.complete([0, CONTEXT, 0x42 << 32, SEND | ERROR | 1 << 16 | 2]);
    assert_eq!(ids::<Gen3>(&mut cq, &pairs), [(0, Status::LocalProtection)]);
    // What comes later cannot have.
    post(&pairs, 1..2);
    assert!(!queues.posted_in_error::<Gen3>(Side::Send, 1));
    assert_eq!(ids::<Gen3>(&mut cq, &pairs), [(1, Status::Flushed)]);
    // Nor on the other side, where the device has not spoken: there is work of before.
    assert!(!queues.posted_in_error::<Gen3>(Side::Receive, 1));
    assert_eq!(ids::<Gen3>(&mut cq, &pairs), []);
}

#[test]
fn what_is_posted_first_after_the_error_is_completed() {
    let pairs = pair();
    let (_device, mut cq) = CompletionDevice::new(8, 64);
    pairs.0[0].queues.set_in_error();
    post(&pairs, 0..2);
    for side in [Side::Send, Side::Receive] {
        assert!(!pairs.0[0].queues.posted_in_error::<Gen3>(side, 0));
    }
    let flushed = |wr_id| (wr_id, Status::Flushed);
    assert_eq!(ids::<Gen3>(&mut cq, &pairs), [0, 1, 100, 101].map(flushed));
}

#[test]
fn earlier_generations_are_asked_instead() {
    let pairs = pair();
    let (_device, mut cq) = CompletionDevice::new(8, 32);
    post(&pairs, 0..2);
    pairs.0[0].queues.abandon(Side::Send);
    assert_eq!(ids::<Gen2>(&mut cq, &pairs), []);
}

#[test]
fn completions_that_nobody_reads_go_back_to_the_shared_queue() {
    let (ring, shadow) = (Memory::new(4 * 32), Memory::new(64));
    // SAFETY: the memory lives as long as the queue.
    let shared = unsafe {
        SharedReceiveQueue::new(SharedReceiveQueueParts {
            ring: QuantumRing::new(ring.base(), 4),
            shadow: ShadowArea::new(shadow.base()),
            shift: 0,
            max_fragments: 1,
        })
    };
    let post = |count| {
        let mut batch = shared.batch::<Gen3>();
        let posted = (0..count).take_while(|&wr_id| batch.place(wr_id, &[]).is_ok()).count();
        batch.finish();
        posted
    };
    assert_eq!(post(9), 3);
    let (mut device, mut cq) = CompletionDevice::new(8, 64);
    // Another QP's, and a receive of the program's that happens to have the context as its id.
    device.complete_extended([0, 7, 0, SHARED], [0, CONTEXT + 64, 0, 0]);
    device.complete_extended([0, CONTEXT, 0, SHARED], [0, CONTEXT + 64, 0, 0]);
    device.complete_extended([0, 7, 0, SHARED], [0, CONTEXT, 0, 0]);
    let _old = device.resize(&mut cq, 8);
    device.complete_extended([0, 8, 0, SHARED], [0, CONTEXT, 0, 0]);
    cq.release_shared(CONTEXT, &shared);
    assert_eq!(post(9), 2);
}
