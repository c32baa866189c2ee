//! A QP in error: one flush CQE for a queue, or one for each work request.

use std::vec::Vec;

use super::start_batch;
use crate::format::{CompletionOpcode, Opcode, ReceiveOpcodes, SendHeader, Status};
use crate::generation::{Gen1, Gen2, Gen3, Generation};
use crate::mock::{CompletionDevice, Memory, Pair, Pairs};
use crate::queue::{
    Bind, Completion, CompletionQueue, SendRequest, Service, Sge, SharedReceiveQueue,
    SharedReceiveQueueParts, Side, Taker,
};
use crate::ring::{QuantumRing, ShadowArea};

const CONTEXT: u64 = 0x99_0000;
const SEND: u64 = 1 << 62;
const ERROR: u64 = 1 << 55;
const SHARED: u64 = 1 << 52;

/// A flush CQE with this code.
fn flush(side: u64, code: u64) -> [u64; 4] {
    [0, CONTEXT, 0x42 << 32, side | ERROR | 1 << 16 | code]
}

fn all<G: Generation>(cq: &mut CompletionQueue, pairs: &Pairs) -> Vec<Completion> {
    core::iter::from_fn(|| cq.poll::<G, _>(pairs)).collect()
}

fn request(wr_id: u64, opcode: Opcode, signaled: bool) -> SendRequest {
    SendRequest {
        wr_id,
        header: SendHeader::default().with_opcode(opcode as u8).with_signaled(signaled),
        remote: 0,
    }
}

/// A QP with reads, writes and sends outstanding that need padding between them.
fn mixed<G: Generation>() -> (Pairs, Vec<(u64, CompletionOpcode)>) {
    let pair = Pair::with(CONTEXT, Service::Connected, ReceiveOpcodes::WIRE, |parts| {
        // The last quanta of the ring, so that there is a wrap in between.
        parts.connection_wqes = 512 * 3 - 20;
    });
    let sge = Sge { address: 0, length: 10, key: 0 };
    let operations = [
        (Opcode::RdmaRead, CompletionOpcode::RdmaRead),
        (Opcode::RdmaWrite, CompletionOpcode::RdmaWrite),
        (Opcode::Send, CompletionOpcode::Send),
    ];
    let mut expected = Vec::new();
    let mut batch = start_batch::<G>(&pair.queues.send);
    for wr_id in 0..20u64 {
        let (opcode, completion) = operations[wr_id as usize % 3];
        let list = [sge; 5];
        let count = [5, 1, 3, 4, 2][wr_id as usize % 5];
        batch.fragments(&request(wr_id, opcode, wr_id % 2 == 0), &list[..count], None).unwrap();
        expected.push((wr_id, completion));
    }
    batch.finish();
    (Pairs([pair].into()), expected)
}

fn check_send_flush(completions: &[Completion], expected: &[(u64, CompletionOpcode)], first: Status) {
    let ids: Vec<_> = completions.iter().map(|c| (c.wr_id, c.opcode)).collect();
    assert_eq!(ids, expected);
    assert_eq!(completions[0].status, first);
    for completion in &completions[1..] {
        assert_eq!((completion.status, completion.vendor_error), (Status::Flushed, 0x1_0001));
        assert!(completion.length > 0);
    }
}

#[test]
fn one_cqe_flushes_the_whole_send_queue() {
    let (pairs, expected) = mixed::<Gen2>();
    let (mut device, mut cq) = CompletionDevice::new(8, 32);
    device.complete(flush(SEND, 3));
    let completions = all::<Gen2>(&mut cq, &pairs);
    check_send_flush(&completions, &expected, Status::RemoteAccess);
    assert_eq!(completions[0].vendor_error, 0x1_0003);
    assert_eq!(device.consumer(), 1);
    assert!(pairs.0[0].queues.is_in_error());
    assert!(pairs.0[0].queues.send.is_empty());
}

#[test]
fn what_is_posted_during_a_flush_is_flushed_too() {
    let (pairs, expected) = mixed::<Gen2>();
    let (mut device, mut cq) = CompletionDevice::new(8, 32);
    device.complete(flush(SEND, 1));
    for _ in 0..expected.len() - 1 {
        cq.poll::<Gen2, _>(&pairs).unwrap();
    }
    let mut batch = start_batch::<Gen2>(&pairs.0[0].queues.send);
    batch.fragments(&request(99, Opcode::Send, false), &[], None).unwrap();
    batch.finish();
    let rest = all::<Gen2>(&mut cq, &pairs);
    assert_eq!(rest.iter().map(|c| c.wr_id).collect::<Vec<_>>(), [19, 99]);
    assert_eq!(device.consumer(), 1);
    // And again, after the device was asked to.
    let mut batch = start_batch::<Gen2>(&pairs.0[0].queues.send);
    batch.fragments(&request(100, Opcode::Send, false), &[], None).unwrap();
    batch.finish();
    assert_eq!(cq.poll::<Gen2, _>(&pairs), None);
    device.complete(flush(SEND, 1));
    assert_eq!(cq.poll::<Gen2, _>(&pairs).unwrap().wr_id, 100);
}

/// Posts one send; what the poster is told to do about it if it finds the QP in error.
fn post_and_look<G: Generation>(pair: &Pair, wr_id: u64) -> Option<bool> {
    let mut batch = start_batch::<G>(&pair.queues.send);
    batch.fragments(&request(wr_id, Opcode::Send, false), &[], None).unwrap();
    let start = batch.start();
    batch.finish();
    pair.queues.is_in_error().then(|| pair.queues.posted_in_error::<G>(Side::Send, start))
}

#[test]
fn padding_does_not_count_as_outstanding() {
    let pair = Pair::with(CONTEXT, Service::Connected, ReceiveOpcodes::WIRE, |_| {});
    let sge = Sge { address: 0, length: 10, key: 0 };
    for wr_id in [1, 2] {
        let mut batch = start_batch::<Gen2>(&pair.queues.send);
        batch.fragments(&request(wr_id, Opcode::Send, true), &[sge; 5], None).unwrap();
        batch.finish();
    }
    // The poller comes when there is padding for a third, and no more.
    let mut batch = start_batch::<Gen2>(&pair.queues.send);
    let started = batch.start_fragments(&[sge; 5], || Taker::Message, None).expect("room");
    assert!(batch.needs_padding(&started));
    batch.pad_before(&started);
    pair.queues.send.unwrite_started();
    let pairs = Pairs([pair].into());
    let queues = &pairs.0[0].queues;
    assert!(!queues.send.is_empty());
    let (mut device, mut cq) = CompletionDevice::new(8, 32);
    device.complete(flush(SEND, 1));
    let flushed: Vec<_> = all::<Gen2>(&mut cq, &pairs).iter().map(|completion| completion.wr_id).collect();
    assert_eq!(flushed, [1, 2]);
    // The padding is still there; what is posted behind it is flushed by nobody if nobody asks.
    assert!(queues.send.is_empty());
    assert_eq!(post_and_look::<Gen2>(&pairs.0[0], 3), Some(true));
}

#[test]
fn what_is_posted_just_before_the_last_look_is_flushed_by_the_same_cqe() {
    let (mut pairs, expected) = mixed::<Gen2>();
    pairs.0[0].meanwhile = Some(|pair, _| {
        let position = start_batch::<Gen2>(&pair.queues.send).start();
        if position < 512 * 3 + 200 {
            post_and_look::<Gen2>(pair, position.into());
        }
    });
    let (mut device, mut cq) = CompletionDevice::new(8, 32);
    device.complete(flush(SEND, 1));
    let completions = all::<Gen2>(&mut cq, &pairs);
    assert!(completions.len() > expected.len() + 20);
    assert!(pairs.0[0].queues.send.is_empty());
    assert_eq!(device.consumer(), 1);
}

#[test]
fn the_device_is_asked_about_what_is_posted_after_the_last_look() {
    for posted_before in [0, 2] {
        let (pairs, expected) = mixed::<Gen2>();
        let (mut device, mut cq) = CompletionDevice::new(8, 32);
        device.complete(flush(SEND, 1));
        for _ in 0..expected.len() {
            cq.poll::<Gen2, _>(&pairs).unwrap();
        }
        assert_eq!(device.consumer(), 1);
        // Every poster that finds nothing else outstanding asks; one behind it need not.
        assert_eq!(post_and_look::<Gen2>(&pairs.0[0], 50), Some(true));
        for wr_id in 0..posted_before {
            assert_eq!(post_and_look::<Gen2>(&pairs.0[0], 51 + wr_id), Some(false));
        }
        device.complete(flush(SEND, 1));
        assert_eq!(all::<Gen2>(&mut cq, &pairs).len() as u64, 1 + posted_before);
    }
}

#[test]
fn one_cqe_for_each_on_gen3() {
    let (pairs, expected) = mixed::<Gen3>();
    let (mut device, mut cq) = CompletionDevice::new(32, 64);
    for _ in &expected {
        device.complete(flush(SEND, 1));
    }
    // One more than there is work.
    device.complete(flush(SEND, 1));
    let completions = all::<Gen3>(&mut cq, &pairs);
    check_send_flush(&completions, &expected, Status::Flushed);
    assert_eq!(device.consumer(), expected.len() as u64 + 1);
}

#[test]
fn a_flushed_receive_is_a_receive() {
    // Opcode 0 of a receive's CQE is a write on GEN3, if there was a message.
    let pair = Pair::new(CONTEXT, Service::Connected, ReceiveOpcodes::WQE);
    pair.queues.receive.batch::<Gen3>().place(1, &[]).unwrap();
    let pairs = Pairs([pair].into());
    let (mut device, mut cq) = CompletionDevice::new(4, 64);
    device.complete(flush(0, 1));
    assert_eq!(all::<Gen3>(&mut cq, &pairs)[0].opcode, CompletionOpcode::Receive);
}

#[test]
fn one_cqe_flushes_the_whole_receive_queue() {
    for gen1 in [false, true] {
        let pair = Pair::new(CONTEXT, Service::Connected, ReceiveOpcodes::WIRE);
        for wr_id in 0..15 {
            pair.queues.receive.batch::<Gen2>().place(wr_id, &[]).unwrap();
        }
        let pairs = Pairs([pair].into());
        let (mut device, mut cq) = CompletionDevice::new(4, 32);
        device.complete(flush(0, 2));
        let completions = if gen1 { all::<Gen1>(&mut cq, &pairs) } else { all::<Gen2>(&mut cq, &pairs) };
        assert_eq!(completions.iter().map(|c| c.wr_id).collect::<Vec<_>>(), (0..15).collect::<Vec<_>>());
        assert_eq!(completions[0].status, Status::LocalProtection);
        assert!(completions[1..].iter().all(|c| c.status == Status::Flushed));
        assert!(completions.iter().all(|c| c.opcode == CompletionOpcode::Receive));
        assert_eq!(device.consumer(), 1);
    }
}

#[test]
fn a_flush_of_nothing_does_not_hide_what_follows() {
    let idle = Pair::new(CONTEXT, Service::Connected, ReceiveOpcodes::WIRE);
    let busy = Pair::new(CONTEXT + 1, Service::Connected, ReceiveOpcodes::WIRE);
    let mut batch = start_batch::<Gen2>(&busy.queues.send);
    batch.fragments(&request(1, Opcode::Send, true), &[], None).unwrap();
    batch.finish();
    let pairs = Pairs([idle, busy].into());
    let (mut device, mut cq) = CompletionDevice::new(8, 32);
    device.complete(flush(SEND, 1));
    device.complete(flush(0, 1));
    // An error that is no flush, for a receive queue without work.
    device.complete([0, CONTEXT, 0, ERROR | 0x1234 << 16]);
    device.complete([0, CONTEXT + 1, 0x43 << 32, SEND | 3 << 56]);
    assert_eq!(cq.poll::<Gen2, _>(&pairs).unwrap().wr_id, 1);
    assert_eq!(device.consumer(), 4);
}

#[test]
fn a_bind_that_is_not_allowed() {
    let bind = Bind {
        window_key: 1,
        region_key: 2,
        address: None,
        length: 1,
        remote_read: true,
        remote_write: false,
        remote_atomic: false,
        type_1: true,
    };
    let pair = Pair::new(CONTEXT, Service::Connected, ReceiveOpcodes::WIRE);
    let mut batch = start_batch::<Gen2>(&pair.queues.send);
    batch.bind(&request(1, Opcode::BindWindow, true), &bind).unwrap();
    batch.fragments(&request(2, Opcode::Send, true), &[], None).unwrap();
    batch.finish();
    let pairs = Pairs([pair].into());
    let (mut device, mut cq) = CompletionDevice::new(8, 32);
    device.complete(flush(SEND, 2));
    let completions = all::<Gen2>(&mut cq, &pairs);
    assert_eq!(completions[0].status, Status::WindowBind);
    assert_eq!(completions[0].opcode, CompletionOpcode::BindWindow);
    assert_eq!(completions[1].status, Status::Flushed);
}

#[test]
fn a_receive_error_of_unknown_kind_takes_the_oldest() {
    let pair = Pair::new(CONTEXT, Service::Connected, ReceiveOpcodes::WIRE);
    for wr_id in 0..3 {
        pair.queues.receive.batch::<Gen2>().place(wr_id, &[]).unwrap();
    }
    let pairs = Pairs([pair].into());
    let (mut device, mut cq) = CompletionDevice::new(8, 32);
    device.complete([0, CONTEXT, 0, ERROR | 0x0205 << 16 | 2 << 32]);
    let completions = all::<Gen2>(&mut cq, &pairs);
    assert_eq!(completions.len(), 1);
    assert_eq!((completions[0].wr_id, completions[0].status), (0, Status::General));
    assert_eq!(completions[0].vendor_error, 0x0205_0000);
}

#[test]
fn shared_receives_complete_and_flush() {
    let (ring, shadow) = (Memory::new(16 * 32), Memory::new(64));
    // SAFETY: the memory lives as long as the queue.
    let shared = unsafe {
        SharedReceiveQueue::new(SharedReceiveQueueParts {
            ring: QuantumRing::new(ring.base(), 16),
            shadow: ShadowArea::new(shadow.base()),
            shift: 0,
            max_fragments: 1,
        })
    };
    let mut batch = shared.batch::<Gen3>();
    for wr_id in 0..5 {
        batch.place(wr_id, &[]).unwrap();
    }
    batch.finish();
    let mut pair = Pair::new(CONTEXT, Service::Connected, ReceiveOpcodes::WQE);
    pair.shared = Some(shared);
    let pairs = Pairs([pair].into());
    let (mut device, mut cq) = CompletionDevice::new(16, 64);
    // In any order; the word of the QP's context holds the program's id.
    device.complete_extended([11, 3, 0x42 << 32, SHARED | 3 << 56], [0, CONTEXT, 0, 0]);
    // The QP's context stands there without the extension bit too.
    let words = [12, 1, 0x42 << 32, 1 << 63 | SHARED | 3 << 56, 0, CONTEXT, 0, 0];
    device.scribble(1, &words);
    let completions = all::<Gen3>(&mut cq, &pairs);
    let seen: Vec<_> = completions.iter().map(|c| (c.wr_id, c.length, c.status)).collect();
    assert_eq!(seen, [(3, 11, Status::Success), (1, 12, Status::Success)]);
    assert!(completions.iter().all(|c| c.opcode == CompletionOpcode::Receive));

    // A flush names an event: here a bad STag.
    device
        .scribble(2, &[0, 4, 0x42 << 32, 1 << 63 | SHARED | ERROR | 0xFFFE << 16 | 0x103, 0, CONTEXT, 0, 0]);
    device.scribble(3, &[0, 2, 0x42 << 32, 1 << 63 | SHARED | ERROR | 1 << 16 | 1, 0, CONTEXT, 0, 0]);
    device
        .scribble(4, &[0, 0, 0x42 << 32, 1 << 63 | SHARED | ERROR | 0xFFFE << 16 | 0x999, 0, CONTEXT, 0, 0]);
    // Nothing is outstanding any more.
    device.scribble(5, &[0, 9, 0x42 << 32, 1 << 63 | SHARED, 0, CONTEXT, 0, 0]);
    let completions = all::<Gen3>(&mut cq, &pairs);
    let seen: Vec<_> = completions.iter().map(|c| (c.wr_id, c.status, c.vendor_error)).collect();
    assert_eq!(
        seen,
        [
            (4, Status::LocalProtection, 0xFFFE_0002),
            (2, Status::Flushed, 0x1_0001),
            (0, Status::Flushed, 0xFFFE_0001)
        ]
    );
    assert_eq!(device.consumer(), 6);
}
