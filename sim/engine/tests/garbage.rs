//! Rings full of anything at all: no panic, no endless work, and only the owner suffers.

mod bed;

use bed::work::{WRITE, Work};
use bed::{Bed, Shape};
use irdma_engine::spec::*;
use proptest::prelude::*;

/// Words as hostile programs would choose them: noise, and fields that mean something.
fn word() -> impl Strategy<Value = u64> {
    let header = (0..64_u64, 0..16_u64, any::<bool>(), 0..=255_u64, any::<u32>(), any::<[bool; 4]>())
        .prop_map(|(opcode, more, inline, length, low, [valid, signaled, immediate, _])| {
            u64::from(low)
                | opcode << 32
                | more << 38
                | u64::from(immediate) << 47
                | length << 48
                | u64::from(inline) << 57
                | u64::from(signaled) << 62
                | u64::from(valid) << 63
        });
    prop_oneof![any::<u64>(), header, Just(0), Just(u64::MAX), (0..4096_u64), Just(1 << 63)]
}

fn generation() -> impl Strategy<Value = Generation> {
    prop_oneof![Just(Generation::Gen1), Just(Generation::Gen2), Just(Generation::Gen3)]
}

/// What happens to the device between looks at the garbage.
#[derive(Clone, Debug)]
enum Step {
    Ring(usize),
    Arm,
    Scan,
    Pass(u64),
    Flush(usize),
    State(usize, u8),
    Resize(u32),
    Shadow(usize, u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3_usize).prop_map(Step::Ring),
        1 => Just(Step::Arm),
        1 => Just(Step::Scan),
        1 => (0..100_000_000_u64).prop_map(Step::Pass),
        1 => (0..3_usize).prop_map(Step::Flush),
        2 => (0..3_usize, 0..6_u8).prop_map(|(qp, state)| Step::State(qp, state)),
        1 => (0..9_u32).prop_map(Step::Resize),
        1 => (0..8_usize, any::<u64>()).prop_map(|(index, word)| Step::Shadow(index, word)),
    ]
}

const STATES: [QpState; 6] = [
    QpState::Reset,
    QpState::Init,
    QpState::ReadyToReceive,
    QpState::ReadyToSend,
    QpState::SendQueueDrained,
    QpState::Error,
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_in_a_ring_harms_the_device(
        generation in generation(),
        words in proptest::collection::vec(word(), 32 * 4),
        keys in any::<bool>(),
        steps in proptest::collection::vec(step(), 1..40),
    ) {
        let mut bed = Bed::new(generation);
        let (mut witness, _peer) = bed.pair();
        let region = bed.region(4096);
        let shape = Shape { sq_quanta: 32, rq_quanta: 32, rq_wqe_quanta: 2, ..bed.shape() };
        let (left, right) = bed.pair_of(shape);
        let datagram = bed.datagram(0, 1);
        let sides = [left, right, datagram];
        for side in &sides {
            for queue in [&side.qp.sq, &side.qp.rq] {
                for (index, &word) in words.iter().enumerate() {
                    // Some words name real memory, so that some garbage succeeds.
                    let word = match (keys, index % 4) {
                        (true, 0) => region.address + word % 4096,
                        (true, 1) => 1 << 63 | (word & 0x3ff) << 32 | u64::from(region.key),
                        _ => word,
                    };
                    bed.memory().set_word(queue.area, index * 8, word);
                }
            }
        }
        let cq = sides[0].cq.clone();
        for step in steps {
            match step {
                Step::Ring(side) => bed.engine.ring_sq(sides[side].qp.id),
                Step::Arm => bed.engine.arm_cq(cq.id),
                Step::Scan => drop(bed.engine.scan()),
                Step::Pass(nanoseconds) => bed.pass(std::time::Duration::from_nanos(nanoseconds)),
                Step::Flush(side) => bed.engine.flush_qp(sides[side].qp.id, Some(1), Some(1)).expect("known"),
                Step::State(side, state) => {
                    let state = Some(STATES[usize::from(state)]);
                    let change = QpChange { state, ..QpChange::default() };
                    bed.engine.modify_qp(sides[side].qp.id, &change).expect("known");
                }
                Step::Resize(entries) => {
                    let ring = bed.area(entries as usize * 64);
                    let ring = CqRing { ring: Span { backing: ring, offset: 0 }, entries };
                    prop_assert_eq!(bed.engine.resize_cq(cq.id, ring).is_ok(), entries >= 2);
                }
                Step::Shadow(index, word) => bed.memory().set_word(cq.shadow, index * 8, word),
            }
        }
        // Somebody else's queue pair still works.
        bed.send(&mut witness, &Work::new(WRITE, &[]).remote(0, 0));
        prop_assert!(!bed.completion(&mut witness).error);
    }
}

#[test]
fn a_ring_that_is_always_full_gets_its_turn_and_no_more() {
    let mut bed = Bed::new(Generation::Gen2);
    let shape = Shape { sq_quanta: 64, ..bed.shape() };
    let (mut left, _right) = bed.pair_of(shape);
    // A whole lap of work, and the next lap's valid bits never come.
    for _ in 0..64 {
        bed.post(&mut left, &Work::new(WRITE, &[]).remote(0, 0).unsignaled());
    }
    assert_eq!((left.qp.sq.position, left.qp.sq.polarity), (0, false));
    bed.engine.ring_sq(left.qp.id);
    assert_eq!(bed.engine.next_deadline(), None, "all done");
    assert!(bed.events().is_empty());
}

#[test]
fn a_burst_beyond_one_turn_goes_on_when_it_is_due() {
    let mut bed = Bed::new(Generation::Gen2);
    let (mut left, _right) = bed.pair();
    let region = bed.region(32 << 20);
    let work = Work::new(WRITE, &[region.sge(0, 32 << 20)]).remote(region.address, region.key);
    for _ in 0..5 {
        bed.post(&mut left, &work);
    }
    bed.engine.ring_sq(left.qp.id);
    let done = |bed: &mut Bed, left: &mut bed::Side| std::iter::from_fn(|| bed.poll(left)).count();
    assert_eq!(done(&mut bed, &mut left), 2);
    assert!(bed.engine.next_deadline().is_some_and(|time| time <= bed.engine.platform().now));
    bed.engine.ring_sq(left.qp.id);
    assert_eq!(done(&mut bed, &mut left), 0, "it is others' turn");
    bed.pass(std::time::Duration::ZERO);
    assert_eq!(done(&mut bed, &mut left), 2);
    bed.pass(std::time::Duration::ZERO);
    assert_eq!(done(&mut bed, &mut left), 1);
    assert_eq!(bed.engine.next_deadline(), None);
}
