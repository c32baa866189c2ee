//! The ways for shared receives where nothing stands in the way do what the general ones do.

use std::vec::Vec;

use proptest::prelude::*;

use crate::format::ReceiveOpcodes;
use crate::generation::Gen3;
use crate::mock::{CompletionDevice, Memory, Pair, Pairs, Taken};
use crate::queue::{Completion, CompletionQueue, Service, Sge, SharedReceiveQueue, SharedReceiveQueueParts};
use crate::ring::{QuantumRing, ShadowArea};

const CONTEXT: u64 = 0x10_0040;

/// Quanta of the ring.
const QUANTA: u32 = 16;

/// Outstanding receives.
const POSTED: u64 = 10;

/// A shared queue and its memory.
struct Shared {
    queue: SharedReceiveQueue,
    ring: Memory,
    shadow: Memory,
}

impl Shared {
    fn new(shift: u32, max_fragments: u32) -> Shared {
        let (ring, shadow) = (Memory::new(QUANTA as usize * 32), Memory::new(64));
        // SAFETY: the memory lives as long as the queue.
        let queue = unsafe {
            SharedReceiveQueue::new(SharedReceiveQueueParts {
                ring: QuantumRing::new(ring.base(), QUANTA),
                shadow: ShadowArea::new(shadow.base()),
                shift,
                max_fragments,
            })
        };
        Shared { queue, ring, shadow }
    }

    /// The whole ring, and what the device was told.
    fn words(&self) -> Vec<u64> {
        let ring = (0..QUANTA as usize * 4).map(|index| self.ring.word(index).load());
        ring.chain([self.shadow.word(0).load()]).collect()
    }
}

fn sge(n: u64) -> Sge {
    Sge { address: 0x1000 * n, length: 0x7FFF_FFFF - n as u32, key: 0x8000_0000 | n as u32 }
}

#[test]
fn every_way_to_post_writes_the_same() {
    for (shift, most) in [(0, 1), (1, 3), (2, 7)] {
        let queues = [(); 3].map(|()| Shared::new(shift, most));
        let [one, run, batch] = &queues;
        for n in 0..40u64 {
            // Two in, two out, and now and then as many as there is room for.
            let count = if n % 20 == 10 { u64::from(QUANTA) } else { 2 };
            let mut in_run = run.queue.simple_run::<Gen3>();
            let mut in_batch = batch.queue.batch::<Gen3>();
            let mut taken = 0;
            for wr_id in n * 100..n * 100 + count {
                let placed = in_batch.place(wr_id, &[sge(wr_id)]).is_ok();
                assert_eq!(one.queue.post_simple::<Gen3>(wr_id, &sge(wr_id)), placed);
                if !in_run.place(wr_id, &sge(wr_id)) {
                    // What a run does not take, a batch may.
                    in_run.finish();
                    let mut rest = run.queue.batch::<Gen3>();
                    assert_eq!(rest.place(wr_id, &[sge(wr_id)]).is_ok(), placed);
                    rest.finish();
                    in_run = run.queue.simple_run::<Gen3>();
                }
                taken += u64::from(placed);
            }
            in_run.finish();
            in_batch.finish();
            assert_eq!(one.words(), batch.words());
            assert_eq!(run.words(), batch.words());
            for shared in &queues {
                assert!((0..taken).all(|_| shared.queue.retire_one()));
                assert!(!shared.queue.retire_one());
            }
        }
        let long = Sge { length: 1 << 31, ..sge(1) };
        let before = one.words();
        assert!(!one.queue.post_simple::<Gen3>(1, &long) && !run.queue.simple_run::<Gen3>().place(1, &long));
        assert_eq!(one.words(), before);
    }
}

#[test]
fn a_queue_without_fragments_takes_none() {
    let shared = Shared::new(0, 0);
    assert!(!shared.queue.post_simple::<Gen3>(1, &sge(1)));
    assert!(!shared.queue.simple_run::<Gen3>().place(1, &sge(1)));
}

/// A CQE: word 0, program's id, word 2, status; context in the second half, its other words.
type Cqe = ([u64; 4], [u64; 4]);

/// Bits of a status that make a difference to a shared receive.
fn status() -> impl Strategy<Value = u64> {
    const SHARED: u64 = 1 << 52;
    let extra = prop_oneof![
        6 => Just(0),
        1 => Just(1 << 50),
        1 => Just(1 << 51),
        1 => Just(1 << 53),
        1 => Just(1 << 54),
        1 => Just(1 << 55 | 0xFFFE << 16 | 0x103),
        1 => Just(1 << 62),
        1 => any::<u64>(),
    ];
    let opcode = prop_oneof![Just(3u64), 0..64u64];
    (extra, opcode, 0..16u64, prop::bool::weighted(0.9)).prop_map(|(extra, opcode, index, shared)| {
        extra | opcode << 56 | index << 32 | if shared { SHARED } else { 0 }
    })
}

fn cqe() -> impl Strategy<Value = Cqe> {
    let context = prop_oneof![8 => Just(CONTEXT), 1 => Just(CONTEXT + 1), 1 => any::<u64>()];
    (any::<[u64; 3]>(), status(), context, any::<[u64; 3]>())
        .prop_map(|(a, status, context, b)| ([a[0], a[1], a[2], status], [b[0], context, b[1], b[2]]))
}

/// What came of them: completions, where the device may write to, receives left.
type Outcome = (Vec<Completion>, u64, usize);

fn taken(
    cqes: &[Cqe],
    service: Service,
    mut take: impl FnMut(&mut CompletionQueue, &Pairs) -> Vec<Completion>,
) -> Outcome {
    let Shared { queue, ring: _ring, shadow: _shadow } = Shared::new(0, 1);
    for wr_id in 0..POSTED {
        assert!(queue.post_simple::<Gen3>(wr_id, &sge(wr_id)));
    }
    // A queue pair that has it, and one that has not.
    let mut pair = Pair::new(CONTEXT, service, ReceiveOpcodes::WQE);
    pair.shared = Some(queue);
    let pairs = Pairs([pair, Pair::new(CONTEXT + 1, service, ReceiveOpcodes::WQE)].into());
    let (mut device, mut cq) = CompletionDevice::new(64, 64);
    for (entry, second_half) in cqes {
        if entry[3] >> 50 & 1 == 1 {
            device.complete_extended(*entry, *second_half);
        } else {
            device.complete_wide(*entry, *second_half);
        }
    }
    let mut all = Vec::new();
    loop {
        let more = take(&mut cq, &pairs);
        if more.is_empty() {
            break;
        }
        all.extend(more);
    }
    let shared = pairs.0[0].shared.as_ref().unwrap();
    let left = core::iter::from_fn(|| shared.retire_one().then_some(())).count();
    (all, device.consumer(), left)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    /// The same completions come whichever way they are taken.
    #[test]
    fn every_way_to_poll_takes_the_same(cqes in prop::collection::vec(cqe(), 0..20), datagrams: bool) {
        let service = if datagrams { Service::Datagram } else { Service::Connected };
        let slowly = taken(&cqes, service, |cq, pairs| {
            let mut sink = Taken::default();
            cq.put_rare::<Gen3, _, _>(pairs, &mut sink);
            sink.completion.take().into_iter().collect()
        });
        for count in [1, 3, 100] {
            let many = taken(&cqes, service, |cq, pairs| cq.poll_many::<Gen3, _>(pairs, count));
            prop_assert_eq!(&many, &slowly, "{} in a call", count);
        }
        let one = taken(&cqes, service, |cq, pairs| cq.poll::<Gen3, _>(pairs).into_iter().collect());
        prop_assert_eq!(&one, &slowly);
        let single = taken(&cqes, service, |cq, pairs| cq.poll_single::<Gen3, _>(pairs).into_iter().collect());
        prop_assert_eq!(&single, &slowly);
    }
}
