//! Any bytes at all as CQEs: nothing outside is reached, no success is invented, and
//! others' completions still come.

use std::vec::Vec;

use proptest::prelude::*;

use super::start_batch;
use crate::format::{Opcode, ReceiveOpcodes, SendHeader, Status};
use crate::generation::{Gen1, Gen2, Gen3, Generation};
use crate::mock::{CompletionDevice, Pair, Pairs, Taken};
use crate::queue::{CompletionQueue, SendRequest, Service};

const CONTEXT: u64 = 0x10_0040;

fn busy<G: Generation>(context: u64, service: Service, opcodes: ReceiveOpcodes, work: u64) -> Pair {
    let pair = Pair::new(context, service, opcodes);
    let mut batch = start_batch::<G>(&pair.queues.send);
    for wr_id in 0..work {
        let request = SendRequest {
            wr_id,
            header: SendHeader::default().with_opcode(Opcode::Send as u8).with_signaled(true),
            remote: 0,
        };
        batch.fragments(&request, &[], None).unwrap();
        pair.queues.receive.batch::<G>().place(1000 + wr_id, &[]).unwrap();
    }
    batch.finish();
    pair
}

/// Words that are likely to get somewhere.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), Just(CONTEXT), Just(0), Just(u64::MAX), (0..64u64).prop_map(|bit| 1 << bit)]
}

fn status() -> impl Strategy<Value = u64> {
    let major = prop_oneof![Just(1u64), Just(0xFFFE), Just(0xE123), any::<u16>().prop_map(u64::from)];
    let index = prop_oneof![0..20u64, any::<u16>().prop_map(|index| u64::from(index) & 0x7FFF)];
    (any::<u64>(), major, 0..16u64, index).prop_map(|(bits, major, minor, index)| {
        bits & 0xFFFF_8000_0000_0000 & !(1 << 47) | index << 32 | major << 16 | minor
    })
}

/// The status of a success, without anything besides.
fn success() -> impl Strategy<Value = u64> {
    let opcode = prop_oneof![Just(0u64), Just(3), 0..64u64];
    (any::<bool>(), opcode, 0..14u64)
        .prop_map(|(send, opcode, index)| u64::from(send) << 62 | opcode << 56 | index << 32)
}

fn entry() -> impl Strategy<Value = [u64; 4]> {
    let context = prop_oneof![3 => Just(CONTEXT), 1 => word()];
    let status = prop_oneof![status(), success(), any::<u64>()];
    (word(), context, word(), status).prop_map(|(a, b, c, d)| [a, b, c, d])
}

/// Work, and a queue with such CQEs; behind them, unless `raw`, one that is as it should be.
fn scene<G: Generation>(
    slot_bytes: usize,
    entries: &[([u64; 4], [u64; 4])],
    raw: bool,
) -> (Pairs, CompletionDevice, CompletionQueue) {
    let service = if entries.len().is_multiple_of(2) { Service::Connected } else { Service::Datagram };
    let victim = busy::<G>(CONTEXT, service, ReceiveOpcodes::WIRE, 12);
    let bystander = busy::<G>(CONTEXT + 1, Service::Connected, ReceiveOpcodes::WIRE, 1);
    let pairs = Pairs([victim, bystander].into());
    let (mut device, cq) = CompletionDevice::new(64, slot_bytes);
    for (entry, extension) in entries {
        if raw {
            // No valid bit put right, no place kept.
            let slot = (entry[0] % 64) as u32;
            device.scribble(slot, entry);
            continue;
        }
        if entry[3] >> 50 & 1 == 1 {
            device.complete_extended(*entry, *extension);
        } else {
            device.complete(*entry);
        }
    }
    if !raw {
        device.complete([0, CONTEXT + 1, 0, 1 << 62 | 3 << 56]);
    }
    (pairs, device, cq)
}

/// The same completions come whichever way they are taken: one by one, many in a call, and
/// without the shortcut for those that most are.
fn compare<G: Generation>(
    slot_bytes: usize,
    entries: &[([u64; 4], [u64; 4])],
    raw: bool,
) -> Result<(), TestCaseError> {
    let (pairs, device, mut cq) = scene::<G>(slot_bytes, entries, raw);
    let completions = Vec::from_iter(core::iter::from_fn(|| cq.poll::<G, _>(&pairs)));
    let consumer = device.consumer();
    for count in [1, 3, 100] {
        let (pairs, device, mut cq) = scene::<G>(slot_bytes, entries, raw);
        let mut taken = Vec::new();
        loop {
            let more = cq.poll_many::<G, _>(&pairs, count);
            if more.is_empty() {
                break;
            }
            taken.extend(more);
        }
        prop_assert_eq!(&taken, &completions);
        prop_assert_eq!(device.consumer(), consumer);
    }
    let (pairs, device, mut cq) = scene::<G>(slot_bytes, entries, raw);
    let taken = Vec::from_iter(core::iter::from_fn(|| cq.poll_single::<G, _>(&pairs)));
    prop_assert_eq!(&taken, &completions);
    prop_assert_eq!(device.consumer(), consumer);
    let (pairs, device, mut cq) = scene::<G>(slot_bytes, entries, raw);
    let mut taken = Vec::new();
    let mut sink = Taken::default();
    while cq.put_rare::<G, _, _>(&pairs, &mut sink) {
        taken.extend(sink.completion.take());
    }
    prop_assert_eq!(&taken, &completions);
    prop_assert_eq!(device.consumer(), consumer);
    Ok(())
}

fn attack<G: Generation>(
    slot_bytes: usize,
    entries: &[([u64; 4], [u64; 4])],
    raw: bool,
) -> Result<(), TestCaseError> {
    compare::<G>(slot_bytes, entries, raw)?;
    let (pairs, _device, mut cq) = scene::<G>(slot_bytes, entries, raw);
    let mut completions = Vec::new();
    while let Some(completion) = cq.poll::<G, _>(&pairs) {
        completions.push(completion);
        prop_assert!(completions.len() <= 26, "more completions than work");
    }
    // Each work request completes at most once.
    let mut ids: Vec<_> = completions.iter().map(|c| (c.wr_id, c.opcode as u32 >= 128)).collect();
    if !raw {
        // Behind it come only those that the device has abandoned.
        let last = completions.iter().rposition(|c| c.status == Status::Success);
        let of_bystander = last.filter(|&last| completions[last].wr_id == 0);
        prop_assert!(of_bystander.is_some(), "the bystander's completion came");
        ids.remove(last.unwrap_or(0));
    }
    let mut unique = ids.clone();
    unique.sort_unstable();
    unique.dedup();
    prop_assert_eq!(unique.len(), ids.len(), "{:?}", ids);
    for (wr_id, receive) in ids {
        let known = if receive { 1000..1012 } else { 0..12 };
        prop_assert!(known.contains(&wr_id), "{} was posted", wr_id);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_cqes_gen1(entries in prop::collection::vec((entry(), entry()), 0..20)) {
        attack::<Gen1>(32, &entries, false)?;
    }

    #[test]
    fn any_cqes_gen2(entries in prop::collection::vec((entry(), entry()), 0..20)) {
        attack::<Gen2>(32, &entries, false)?;
    }

    #[test]
    fn any_cqes_gen3(entries in prop::collection::vec((entry(), entry()), 0..20)) {
        attack::<Gen3>(64, &entries, false)?;
    }

    #[test]
    fn any_bytes_in_the_ring(entries in prop::collection::vec((entry(), entry()), 0..64), wide: bool) {
        attack::<Gen2>(if wide { 64 } else { 32 }, &entries, true)?;
    }
}

#[test]
fn a_quantum_inside_of_a_wqe_is_no_wqe() {
    // On the first lap a cell was never set, on later ones it is of an earlier lap.
    for laps in [0, 1, 5] {
        let pair = Pair::with(CONTEXT, Service::Connected, ReceiveOpcodes::WIRE, |parts| {
            parts.max_inline = 39;
        });
        let pairs = Pairs([pair].into());
        let (mut device, mut cq) = CompletionDevice::new(8, 32);
        let request = |wr_id| SendRequest {
            wr_id,
            header: SendHeader::default().with_opcode(Opcode::Send as u8).with_signaled(true),
            remote: 0,
        };
        let send = &pairs.0[0].queues.send;
        for n in 0..laps * 512 {
            let mut batch = start_batch::<Gen2>(send);
            batch.fragments(&request(n), &[], None).unwrap();
            batch.finish();
            device.complete([0, CONTEXT, 0, 1 << 62 | 3 << 56 | (n % 512) << 32]);
            assert_eq!(cq.poll::<Gen2, _>(&pairs).unwrap().wr_id, n);
        }
        let sge = crate::queue::Sge { address: 0, length: 1, key: 0 };
        let mut batch = start_batch::<Gen2>(send);
        batch.fragments(&request(77), &[sge; 3], None).unwrap();
        batch.finish();
        device.complete([0, CONTEXT, 0, 1 << 62 | 3 << 56 | 1 << 32]);
        assert_eq!(cq.poll::<Gen2, _>(&pairs), None, "after {laps} laps");
        device.complete([0, CONTEXT, 0, 1 << 62 | 3 << 56]);
        assert_eq!(cq.poll::<Gen2, _>(&pairs).unwrap().wr_id, 77);
    }
}

#[test]
fn padding_has_no_completion() {
    let pair = Pair::new(CONTEXT, Service::Connected, ReceiveOpcodes::WIRE);
    let request = SendRequest {
        wr_id: 1,
        header: SendHeader::default().with_opcode(Opcode::Send as u8).with_signaled(true),
        remote: 0,
    };
    let sge = crate::queue::Sge { address: 0, length: 1, key: 0 };
    let mut batch = start_batch::<Gen2>(&pair.queues.send);
    batch.fragments(&request, &[sge; 11], None).unwrap();
    batch.fragments(&request, &[sge; 11], None).unwrap();
    batch.finish();
    let pairs = Pairs([pair].into());
    let (mut device, mut cq) = CompletionDevice::new(8, 32);
    // Quanta 6 and 7 are padding.
    device.complete([0, CONTEXT, 0, 1 << 62 | 3 << 56 | 6 << 32]);
    assert_eq!(cq.poll::<Gen2, _>(&pairs), None);
    assert!(!pairs.0[0].queues.send.is_empty());
}
