//! CQEs become completions.

use alloc::vec::Vec;

use super::start_batch;
use crate::format::{CompletionOpcode, Opcode, ReceiveOpcodes, SendHeader, Status};
use crate::generation::{Gen2, Gen3, Generation};
use crate::mock::{CompletionDevice, Pair, Pairs, Taken};
use crate::queue::{
    Completion, CompletionFlags, CompletionQueue, Origin, SendRequest, Service, Sge, Side, Usual,
};

const CONTEXT: u64 = 0x5A5A_0000;
const SEND: u64 = 1 << 62;
const ERROR: u64 = 1 << 55;
const KEY_INVALIDATED: u64 = 1 << 53;
const IMMEDIATE_VALID: u64 = 1 << 62;
/// A CQE's word of the QP's number. The QP has another one, and is believed.
const NUMBER: u64 = 0x42 << 32;
/// The QP's.
const OWN_NUMBER: u32 = 0x1234;

fn send_request(wr_id: u64, opcode: Opcode, signaled: bool) -> SendRequest {
    SendRequest {
        wr_id,
        header: SendHeader::default().with_opcode(opcode as u8).with_signaled(signaled),
        remote: 0,
    }
}

/// A QP with one send of 100 bytes and one receive outstanding.
fn busy<G: Generation>(service: Service, opcodes: ReceiveOpcodes) -> Pairs {
    let pair = Pair::new(CONTEXT, service, opcodes);
    post_send::<G>(&pair, 7, Opcode::Send);
    pair.queues.receive.batch::<G>().place(8, &[]).unwrap();
    Pairs([pair].into())
}

fn post_send<G: Generation>(pair: &Pair, wr_id: u64, opcode: Opcode) {
    let sge = Sge { address: 0x1000, length: 100, key: 1 };
    let mut batch = start_batch::<G>(&pair.queues.send);
    batch.fragments(&send_request(wr_id, opcode, true), &[sge], None).unwrap();
    batch.finish();
}

fn poll<G: Generation>(cq: &mut CompletionQueue, pairs: &Pairs) -> Option<Completion> {
    cq.poll::<G, _>(pairs)
}

#[test]
fn a_send() {
    let pairs = busy::<Gen2>(Service::Connected, ReceiveOpcodes::WIRE);
    let (mut device, mut cq) = CompletionDevice::new(8, 32);
    assert_eq!(poll::<Gen2>(&mut cq, &pairs), None);
    device.complete([0xFFFF_0000_1234, CONTEXT, NUMBER | 0x99, SEND | 3 << 56]);
    let mut taken = Taken::default();
    assert_eq!(cq.take_usual::<Gen2, _, _>(&pairs, &mut taken), Usual::Completed);
    assert_eq!(taken.timestamp, 0xFFFF);
    assert_eq!(
        taken.completion,
        Some(Completion {
            wr_id: 7,
            status: Status::Success,
            opcode: CompletionOpcode::Send,
            vendor_error: 0,
            length: 100,
            origin: Origin {
                data: 0,
                queue_pair: OWN_NUMBER,
                source_queue_pair: OWN_NUMBER,
                flags: CompletionFlags::empty(),
            },
            absent: 0,
        })
    );
    assert_eq!(device.consumer(), 1);
    assert_eq!(poll::<Gen2>(&mut cq, &pairs), None);
    assert!(pairs.0[0].queues.send.is_empty());
}

#[test]
fn every_opcode_of_a_send() {
    for field in 0..64 {
        let pairs = busy::<Gen2>(Service::Connected, ReceiveOpcodes::WIRE);
        let (mut device, mut cq) = CompletionDevice::new(8, 32);
        device.complete([0, CONTEXT, NUMBER, SEND | field << 56]);
        let completion = poll::<Gen2>(&mut cq, &pairs).unwrap();
        match Opcode::decode_completion(field as u8) {
            Some(opcode) => {
                assert_eq!((completion.status, completion.opcode), (Status::Success, opcode));
            }
            None => {
                // Nothing is a success that cannot be named.
                assert_eq!(completion.status, Status::General);
                assert_eq!(completion.opcode, CompletionOpcode::Send);
            }
        }
    }
}

#[test]
fn every_opcode_of_a_receive() {
    use CompletionOpcode::{Receive, ReceiveRdmaWithImmediate};
    let writes = [
        (ReceiveOpcodes::WIRE, [0x09, 0x0b], false),
        (ReceiveOpcodes::WQE, [0x00, 0x0d], false),
        (ReceiveOpcodes::IWARP, [0, 0], true),
    ];
    for (opcodes, of_write, by_immediate) in writes {
        for field in 0..64 {
            for immediate in [false, true] {
                let pairs = busy::<Gen3>(Service::Connected, opcodes);
                let (mut device, mut cq) = CompletionDevice::new(8, 64);
                let entry = [55, CONTEXT, NUMBER, field << 56];
                if immediate {
                    device.complete_extended(entry, [0x0102_0304, 0, 0, IMMEDIATE_VALID]);
                } else {
                    device.complete(entry);
                }
                let completion = poll::<Gen3>(&mut cq, &pairs).unwrap();
                let write = if by_immediate { immediate } else { of_write.contains(&field) };
                assert_eq!(
                    completion.opcode,
                    if write { ReceiveRdmaWithImmediate } else { Receive },
                    "{opcodes:?} {field:#x}"
                );
                assert_eq!((completion.wr_id, completion.length), (8, 55));
                assert_eq!(completion.origin.flags.contains(CompletionFlags::IMMEDIATE), immediate);
                if immediate {
                    assert_eq!(completion.origin.data.to_ne_bytes(), [1, 2, 3, 4]);
                }
            }
        }
    }
}

#[test]
fn an_invalidated_key_is_told_as_it_is() {
    let pairs = busy::<Gen2>(Service::Connected, ReceiveOpcodes::WIRE);
    let (mut device, mut cq) = CompletionDevice::new(8, 32);
    device.complete([0, CONTEXT, NUMBER | 0xABCD, 0x17 << 56 | KEY_INVALIDATED]);
    let completion = poll::<Gen2>(&mut cq, &pairs).unwrap();
    assert_eq!((completion.origin.flags, completion.origin.data), (CompletionFlags::INVALIDATED, 0xABCD));
    assert_eq!(
        (completion.opcode, completion.origin.source_queue_pair),
        (CompletionOpcode::Receive, OWN_NUMBER)
    );
}

#[test]
fn a_datagram_has_a_header_and_a_sender() {
    let pairs = busy::<Gen2>(Service::Datagram, ReceiveOpcodes::WIRE);
    let (mut device, mut cq) = CompletionDevice::new(8, 32);
    // The bit of an invalidated key means IPv4 here.
    device.complete_extended(
        [1064, CONTEXT, NUMBER | 0x777, 0x24 << 56 | KEY_INVALIDATED],
        [0x11, 0, 0, IMMEDIATE_VALID],
    );
    let completion = poll::<Gen2>(&mut cq, &pairs).unwrap();
    assert_eq!(completion.origin.flags, CompletionFlags::HEADER | CompletionFlags::IMMEDIATE);
    assert_eq!((completion.origin.source_queue_pair, completion.origin.queue_pair), (0x777, OWN_NUMBER));
    assert_eq!((completion.origin.data, completion.length), (0x11u32.to_be(), 1064));
    // A send of the same QP has no header.
    device.complete([0, CONTEXT, NUMBER, SEND | 3 << 56]);
    let completion = poll::<Gen2>(&mut cq, &pairs).unwrap();
    assert_eq!(completion.origin.flags, CompletionFlags::empty());
}

#[test]
fn an_extension_may_cross_the_end_of_the_ring() {
    let pairs = busy::<Gen2>(Service::Connected, ReceiveOpcodes::WIRE);
    let (mut device, mut cq) = CompletionDevice::new(6, 32);
    for lap in 0..4u32 {
        // Completions of nobody, up to the last slot.
        while device.index() != 5 {
            device.complete([0, 0xBAD, 0, SEND]);
        }
        assert_eq!(poll::<Gen2>(&mut cq, &pairs), None);
        device.complete_first_half([9, CONTEXT, NUMBER, 0]);
        assert_eq!(poll::<Gen2>(&mut cq, &pairs), None, "the second half has not come");
        assert_eq!(device.consumer(), 5);
        device.complete_extended([9, CONTEXT, NUMBER, 0], [lap.into(), 0, 0, IMMEDIATE_VALID]);
        if lap > 0 {
            let slot = pairs.0[0].queues.receive.is_empty();
            assert!(!slot);
        }
        let completion = poll::<Gen2>(&mut cq, &pairs).unwrap();
        assert_eq!((completion.wr_id, completion.origin.data), (8, lap.to_be()));
        assert_eq!(device.consumer(), 1);
        // The WQE of the next lap, at the same index of its ring.
        for _ in 0..16 {
            pairs.0[0].queues.receive.batch::<Gen2>().place(8, &[]).unwrap();
            if pairs.0[0].queues.receive.outstanding(0).is_some() {
                break;
            }
            pairs.0[0].queues.receive.retire(pairs.0[0].queues.receive.oldest().unwrap());
        }
    }
}

#[test]
fn wide_slots_hold_their_extension() {
    let pairs = busy::<Gen3>(Service::Connected, ReceiveOpcodes::WQE);
    let (mut device, mut cq) = CompletionDevice::new(4, 64);
    // The extension bit, but an extension of before.
    device.complete_first_half([9, CONTEXT, NUMBER, 0]);
    assert_eq!(poll::<Gen3>(&mut cq, &pairs), None);
    device.complete_extended([9, CONTEXT, NUMBER, 0], [3, 0, 0, IMMEDIATE_VALID]);
    assert_eq!(poll::<Gen3>(&mut cq, &pairs).unwrap().origin.data, 3u32.to_be());
    assert_eq!(device.consumer(), 1);
}

#[test]
fn unsignaled_work_is_retired_by_what_follows() {
    let pair = Pair::new(CONTEXT, Service::Connected, ReceiveOpcodes::WIRE);
    let mut batch = start_batch::<Gen2>(&pair.queues.send);
    for wr_id in 0..10 {
        batch.fragments(&send_request(wr_id, Opcode::Send, wr_id == 9), &[], None).unwrap();
    }
    batch.finish();
    let pairs = Pairs([pair].into());
    let (mut device, mut cq) = CompletionDevice::new(8, 32);
    device.complete([0, CONTEXT, NUMBER, SEND | 3 << 56 | 9 << 32]);
    assert_eq!(poll::<Gen2>(&mut cq, &pairs).unwrap().wr_id, 9);
    assert!(pairs.0[0].queues.send.is_empty());
}

#[test]
fn notes_about_datagrams_are_no_errors() {
    let note = |signaled, service, major: u64| {
        let pair = Pair::new(CONTEXT, service, ReceiveOpcodes::WIRE);
        let mut batch = start_batch::<Gen3>(&pair.queues.send);
        let sge = Sge { address: 0, length: 64, key: 1 };
        batch.fragments(&send_request(5, Opcode::Send, signaled), &[sge], None).unwrap();
        batch.finish();
        let pairs = Pairs([pair].into());
        let (mut device, mut cq) = CompletionDevice::new(8, 64);
        device.complete([0, CONTEXT, NUMBER, SEND | 3 << 56 | ERROR | major << 16 | 9]);
        let completion = poll::<Gen3>(&mut cq, &pairs);
        assert_eq!(device.consumer(), 1);
        (completion, pairs)
    };
    let (completion, _) = note(true, Service::Datagram, 0xE123);
    let completion = completion.unwrap();
    assert_eq!((completion.status, completion.vendor_error), (Status::Success, 0));
    assert_eq!(completion.length, 64);
    let (completion, pairs) = note(false, Service::Datagram, 0xE123);
    assert_eq!(completion, None);
    assert!(!pairs.0[0].queues.send.is_empty(), "it is still outstanding");
    let (completion, _) = note(true, Service::Connected, 0xE123);
    let completion = completion.unwrap();
    assert_eq!((completion.status, completion.vendor_error), (Status::General, 0xE123_0009));
    assert_eq!((completion.length, completion.wr_id), (0, 5));
    assert_eq!(note(true, Service::Datagram, 0x0123).0.unwrap().status, Status::General);
}

#[test]
fn completions_of_a_destroyed_queue_pair_are_passed_over() {
    let mut pairs = busy::<Gen2>(Service::Connected, ReceiveOpcodes::WIRE);
    let gone = pairs.0.pop().unwrap();
    let mut other = Pair::new(CONTEXT + 1, Service::Connected, ReceiveOpcodes::WIRE);
    other.sides = [Side::Send].into();
    post_send::<Gen2>(&other, 70, Opcode::Send);
    pairs.0.push(other);
    let (mut device, mut cq) = CompletionDevice::new(8, 32);
    device.complete([0, CONTEXT, NUMBER, SEND | 3 << 56]);
    device.complete([0, CONTEXT, NUMBER, SEND | ERROR | 0x1234 << 16]);
    device.complete([0, CONTEXT, NUMBER, 0]);
    device.complete([0, CONTEXT + 1, NUMBER, SEND | 3 << 56]);
    assert_eq!(poll::<Gen2>(&mut cq, &pairs).unwrap().wr_id, 70);
    assert_eq!(device.consumer(), 4);
    drop(gone);
}

#[test]
fn connection_wqes_complete_in_silence() {
    for (count, skipped) in [(1, &[0][..]), (3, &[0, 1, 2]), (3, &[2])] {
        let pair = Pair::with(CONTEXT, Service::Connected, ReceiveOpcodes::IWARP, |parts| {
            parts.connection_wqes = count;
        });
        let pairs = Pairs([pair].into());
        let (mut device, mut cq) = CompletionDevice::new(4, 32);
        for index in skipped {
            device.complete([0, CONTEXT, NUMBER, SEND | 3 << 56 | index << 32]);
        }
        assert_eq!(poll::<Gen2>(&mut cq, &pairs), None);
        assert_eq!(device.consumer(), skipped.len() as u64);
        // Flushed without anything of the program's, they are nobody's either.
        device.complete([0, CONTEXT, NUMBER, SEND | ERROR | 1 << 16 | 1 | 3 << 56]);
        assert_eq!(poll::<Gen2>(&mut cq, &pairs), None);
        // The program's first WQE comes behind them, valid with 1.
        post_send::<Gen2>(&pairs.0[0], 1, Opcode::Send);
        let wqe = pairs.0[0].send_device.memory().word(count as usize * 4 + 3).load();
        assert_eq!(wqe >> 63, 1);
        device.complete([0, CONTEXT, NUMBER, SEND | 3 << 56 | u64::from(count) << 32]);
        assert_eq!(poll::<Gen2>(&mut cq, &pairs).unwrap().wr_id, 1);
    }
}

#[test]
fn a_send_completion_lets_post_again() {
    let pair = Pair::new(CONTEXT, Service::Connected, ReceiveOpcodes::WIRE);
    let pairs = Pairs([pair].into());
    let (mut device, mut cq) = CompletionDevice::new(16, 32);
    let send = &pairs.0[0].queues.send;
    // Many laps of the ring, one at a time.
    for n in 0..4000u64 {
        post_send::<Gen2>(&pairs.0[0], n, Opcode::RdmaWrite);
        device.complete([0, CONTEXT, NUMBER, SEND | (n % 512) << 32]);
        assert_eq!(poll::<Gen2>(&mut cq, &pairs).unwrap().wr_id, n);
        assert!(send.is_empty());
    }
}

/// What the device is told while so many completions are polled, of which `ahead` more have always come.
fn told<G: Generation>(slots: u32, ahead: u32, poll: fn(&mut CompletionQueue, &Pairs) -> usize) -> Vec<u64> {
    let slot_bytes = if G::NUMBER == 3 { 64 } else { 32 };
    let (mut device, mut cq) = CompletionDevice::new(slots, slot_bytes);
    let pairs = Pairs([Pair::new(CONTEXT, Service::Connected, ReceiveOpcodes::WQE)].into());
    let mut told = Vec::new();
    for index in 0..ahead + 3 * slots {
        post_send::<G>(&pairs.0[0], index.into(), Opcode::Send);
        device.complete([0, CONTEXT, NUMBER, SEND | 3 << 56 | u64::from(index % 512) << 32]);
        if index >= ahead {
            assert_eq!(poll(&mut cq, &pairs), 1);
            told.push(device.consumer());
        }
    }
    told
}

#[test]
fn the_third_generation_is_not_told_of_the_end_of_a_page_before_the_end_of_what_there_is() {
    type Poll = fn(&mut CompletionQueue, &Pairs) -> usize;
    fn ways<G: Generation>() -> [Poll; 4] {
        [
            |cq, pairs| cq.poll::<G, _>(pairs).into_iter().count(),
            |cq, pairs| cq.poll_single::<G, _>(pairs).into_iter().count(),
            |cq, pairs| cq.poll_many::<G, _>(pairs, 1).len(),
            |cq, pairs| usize::from(cq.put_rare::<G, _, _>(pairs, &mut Taken::default())),
        ]
    }
    const SLOTS: u32 = 130;
    let all = |held_back: bool| -> Vec<u64> {
        let index = |number: u32| u64::from(number % SLOTS);
        let told =
            |number| if held_back && index(number) % 64 == 0 { index(number - 1) } else { index(number) };
        (1..=3 * SLOTS).map(told).collect()
    };
    for poll in ways::<Gen3>() {
        assert_eq!(told::<Gen3>(SLOTS, 0, poll), all(false), "nothing more has come");
        for ahead in [1, 2] {
            assert_eq!(told::<Gen3>(SLOTS, ahead, poll), all(true), "{ahead} more have come");
        }
    }
    for poll in ways::<Gen2>() {
        assert_eq!(told::<Gen2>(SLOTS, 1, poll), all(false), "no other generation has the fault");
    }
}
