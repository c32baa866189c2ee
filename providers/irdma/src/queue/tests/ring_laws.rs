//! Laws that hold over any history of posts and completions.

use std::collections::VecDeque;
use std::vec::Vec;

use proptest::prelude::*;

use super::start_batch;
use crate::format::{Opcode, ReceiveOpcodes, SendHeader};
use crate::generation::{Gen1, Gen2, Gen3, Generation};
use crate::mock::{CompletionDevice, Memory, Pair, Pairs};
use crate::queue::{
    Atomic, Refusal, SendBatch, SendQueueParts, SendRequest, Service, Sge, SharedReceiveQueue,
    SharedReceiveQueueParts,
};
use crate::ring::{QuantumRing, ShadowArea};

const CONTEXT: u64 = 0xC0FFEE;

/// A work request of a history.
#[derive(Clone, Copy, Debug)]
struct Work {
    shape: Shape,
    signaled: bool,
}

#[derive(Clone, Copy, Debug)]
enum Shape {
    Fragments(u32),
    WithImmediate(u32),
    Inline(u32),
    Atomic,
    Invalidate,
}

/// One step of a history.
#[derive(Clone, Debug)]
enum Step {
    Post(Vec<Work>),
    /// The device completes that many WQEs, as far as there are.
    Complete(usize),
    Poll(usize),
}

fn work(most_fragments: u32, most_inline: u32) -> impl Strategy<Value = Work> {
    let shape = prop_oneof![
        4 => (0..=most_fragments).prop_map(Shape::Fragments),
        2 => (0..most_fragments).prop_map(Shape::WithImmediate),
        3 => (0..=most_inline).prop_map(Shape::Inline),
        1 => Just(Shape::Atomic),
        1 => Just(Shape::Invalidate),
    ];
    (shape, any::<bool>()).prop_map(|(shape, signaled)| Work { shape, signaled })
}

fn history(most_fragments: u32, most_inline: u32) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => prop::collection::vec(work(most_fragments, most_inline), 1..24).prop_map(Step::Post),
        3 => (1..40usize).prop_map(Step::Complete),
        3 => (1..40usize).prop_map(Step::Poll),
    ];
    prop::collection::vec(step, 1..120)
}

fn try_single<G: Generation, const HELD: bool>(
    batch: &mut SendBatch<'_, G, HELD>,
    request: &SendRequest,
    sge: &Sge,
) -> bool {
    let Some(single) = batch.start_single(sge) else { return false };
    batch.set_remote(&single, request.remote);
    batch.finish_started(single, request.wr_id, request.header);
    true
}

fn place<G: Generation>(batch: &mut SendBatch<'_, G>, wr_id: u64, work: Work) -> Result<(), Refusal> {
    let bytes = [0x5A; 225];
    let address = bytes.as_ptr().expose_provenance() as u64;
    let sge = Sge { address, length: 8, key: 1 };
    let request = SendRequest {
        wr_id,
        header: SendHeader::default().with_opcode(Opcode::Send as u8).with_signaled(work.signaled),
        remote: 0,
    };
    let list = [sge; 15];
    match work.shape {
        // Some take the short way, if it is open.
        Shape::Fragments(1) if !wr_id.is_multiple_of(3) && try_single(batch, &request, &sge) => Ok(()),
        Shape::Fragments(count) => batch.fragments(&request, &list[..count as usize], None),
        Shape::WithImmediate(count) if G::NUMBER == 1 && count > 2 => {
            batch.fragments(&request, &list[..2], Some(1))
        }
        Shape::WithImmediate(count) => batch.fragments(&request, &list[..count as usize], Some(1)),
        Shape::Inline(length) => {
            // SAFETY: `bytes` is that long.
            unsafe { batch.inline(&request, &[Sge { length, ..sge }], None) }
        }
        Shape::Atomic if G::NUMBER == 3 => {
            let request =
                SendRequest { header: request.header.with_opcode(Opcode::FetchAdd as u8), ..request };
            batch.atomic(&request, &[sge], Atomic { operand: 1, compare: 0 })
        }
        Shape::Atomic => batch.fragments(&request, &list[..1], None),
        Shape::Invalidate => batch.invalidate(
            &SendRequest { header: request.header.with_opcode(Opcode::LocalInvalidate as u8), ..request },
            7,
        ),
    }
}

/// The CQE of a WQE of the send queue.
fn cqe(index: u32, opcode: u64) -> [u64; 4] {
    [0, CONTEXT, 0x42 << 32, 1 << 62 | opcode << 56 | u64::from(index) << 32]
}

/// Runs a history against the mock device and checks every law.
fn send_laws<G: Generation>(change: fn(&mut SendQueueParts), history: &[Step]) -> Result<(), TestCaseError> {
    let pair = Pair::with(CONTEXT, Service::Connected, ReceiveOpcodes::WIRE, change);
    // On an odd lap what was never written must read as not valid too.
    let lap = pair.send_device.position() / 512;
    pair.send_device.memory().fill(if lap.is_multiple_of(2) { 0 } else { u64::MAX });
    let mut pairs = Pairs([pair].into());
    let (mut cq_device, mut cq) = CompletionDevice::new(2048, 32);
    let mut next_id = 0;
    // In the order of posting: (wr_id, signaled), until polled or retired by a later one.
    let mut outstanding: VecDeque<(u64, bool)> = VecDeque::new();
    // What the device has not looked at yet.
    let mut unseen: VecDeque<(u64, bool)> = VecDeque::new();
    // Written completions not polled yet.
    let mut written: VecDeque<u64> = VecDeque::new();
    let mut quanta_taken = 0u64;
    for step in history {
        match step {
            Step::Post(list) => {
                let pair = &mut pairs.0[0];
                let mut batch = start_batch::<G>(&pair.queues.send);
                let mut placed = 0;
                for &work in list {
                    match place(&mut batch, next_id, work) {
                        Ok(()) => {
                            outstanding.push_back((next_id, work.signaled));
                            unseen.push_back((next_id, work.signaled));
                            next_id += 1;
                            placed += 1;
                        }
                        Err(refusal) => {
                            prop_assert_eq!(refusal, Refusal::Full);
                            break;
                        }
                    }
                }
                prop_assert_eq!(batch.finish(), placed > 0);
                // The 257 reserved quanta stay free.
                prop_assert!(pair.queues.send.free_quanta() <= 512 - 257);
                if outstanding.is_empty() {
                    prop_assert!(placed > 0, "an empty queue takes at least one");
                }
            }
            Step::Complete(count) => {
                let device = &mut pairs.0[0].send_device;
                for _ in 0..*count {
                    let Some(wqe) = device.take::<G>() else { break };
                    quanta_taken += u64::from(wqe.quanta());
                    if wqe.opcode() == 0xc {
                        prop_assert_eq!(wqe[3] >> 62 & 1, 0, "padding is unsignaled");
                        continue;
                    }
                    // In order: the next one posted, with its own flags.
                    let (wr_id, signaled) = unseen.pop_front().expect("posted before it is taken");
                    prop_assert_eq!(wqe[3] >> 62 & 1 == 1, signaled);
                    prop_assert!(wqe.index % 8 + wqe.quanta() <= 8, "within a chunk");
                    check_valid_bits::<G>(&wqe)?;
                    if signaled && written.len() < 2000 {
                        cq_device.complete(cqe(wqe.index, wqe.opcode()));
                        written.push_back(wr_id);
                    }
                }
                if unseen.is_empty() {
                    // Padding may be left only before a WQE, so everything was taken.
                    device.assert_nothing_ahead();
                }
            }
            Step::Poll(count) => {
                for _ in 0..*count {
                    let Some(completion) = cq.poll::<G, _>(&pairs) else {
                        prop_assert!(written.is_empty(), "a written completion is found");
                        break;
                    };
                    let wr_id = written.pop_front().expect("written before it is polled");
                    prop_assert_eq!(completion.wr_id, wr_id);
                    while let Some((id, _)) = outstanding.pop_front() {
                        if id == wr_id {
                            break;
                        }
                    }
                }
            }
        }
    }
    prop_assert!(quanta_taken < 1 << 32);
    Ok(())
}

/// Every quantum of a WQE carries the valid bit of its lap where the device looks.
fn check_valid_bits<G: Generation>(wqe: &crate::mock::Wqe) -> Result<(), TestCaseError> {
    if G::NUMBER == 1 {
        return Ok(());
    }
    for quantum in 0..wqe.quanta() as usize {
        let valid = wqe[quantum * 4 + 3] >> 63 == 1;
        prop_assert_eq!(valid, wqe.valid, "quantum {} of {:x?}", quantum, wqe);
    }
    Ok(())
}

fn gen1(parts: &mut SendQueueParts) {
    (parts.chunk, parts.max_fragments, parts.max_read_fragments, parts.max_inline) = (2, 3, 1, 48);
}

fn gen3(parts: &mut SendQueueParts) {
    (parts.max_fragments, parts.max_read_fragments, parts.max_inline) = (14, 14, 216);
}

/// The index wraps around in the middle of the history.
fn late(parts: &mut SendQueueParts) {
    parts.connection_wqes = u32::MAX - 511;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn send_queue_gen1(history in history(3, 48)) {
        send_laws::<Gen1>(gen1, &history)?;
    }

    #[test]
    fn send_queue_gen2(history in history(13, 101)) {
        send_laws::<Gen2>(|_| {}, &history)?;
    }

    #[test]
    fn send_queue_gen3(history in history(14, 216)) {
        send_laws::<Gen3>(gen3, &history)?;
    }

    #[test]
    fn send_queue_over_the_end_of_positions(history in history(13, 101)) {
        send_laws::<Gen2>(late, &history)?;
    }

    /// As many as a program is told fit, at any mix of sizes up to what it asked for,
    /// from any place in the ring.
    #[test]
    fn what_is_promised_fits(
        start in 0..512u32,
        shift in 0..4u32,
        seed in prop::collection::vec(any::<u32>(), 256),
    ) {
        let (fragments, inline) = [(1, 8), (3, 39), (7, 101), (13, 101)][shift as usize];
        let pair = Pair::with(CONTEXT, Service::Connected, ReceiveOpcodes::WIRE, |parts| {
            parts.connection_wqes = start;
            (parts.max_fragments, parts.max_inline) = (fragments, inline);
        });
        let promised = (512u64 - 258) >> shift;
        let mut batch = start_batch::<Gen2>(&pair.queues.send);
        for n in 0..promised {
            let choice = seed[n as usize];
            let shape = if choice % 2 == 0 {
                Shape::Fragments(choice / 2 % (fragments + 1))
            } else {
                Shape::Inline(choice / 2 % (inline + 1))
            };
            let work = Work { shape, signaled: n + 1 == promised };
            prop_assert_eq!(place(&mut batch, n, work), Ok(()), "{} of {}", n, promised);
        }
        batch.finish();
    }

    /// Receives complete in order, each once, and as many fit as the ring has less one.
    #[test]
    fn receive_queue(steps in prop::collection::vec((0..30usize, 0..30usize, 0..30usize), 1..60)) {
        let mut pairs = Pairs([Pair::new(CONTEXT, Service::Connected, ReceiveOpcodes::WIRE)].into());
        let (mut cq_device, mut cq) = CompletionDevice::new(64, 32);
        let (mut posted, mut completed, mut polled) = (0u64, 0, 0);
        for (posts, completions, polls) in steps {
            let mut batch = pairs.0[0].queues.receive.batch::<Gen2>();
            for _ in 0..posts {
                let sge = Sge { address: posted, length: 1, key: 2 };
                match batch.place(posted, &[sge]) {
                    Ok(()) => posted += 1,
                    Err(refusal) => {
                        prop_assert_eq!(refusal, Refusal::Full);
                        prop_assert_eq!(posted - polled, 15);
                        break;
                    }
                }
            }
            for _ in 0..completions {
                let Some(wqe) = pairs.0[0].receive_device.take() else {
                    prop_assert_eq!(completed, posted);
                    break;
                };
                prop_assert_eq!(wqe[0], completed);
                cq_device.complete([completed, CONTEXT, 0, u64::from(wqe.index) << 32]);
                completed += 1;
            }
            for _ in 0..polls {
                let Some(completion) = cq.poll::<Gen2, _>(&pairs) else {
                    prop_assert_eq!(polled, completed);
                    break;
                };
                prop_assert_eq!((completion.wr_id, u64::from(completion.length)), (polled, polled));
                polled += 1;
            }
        }
    }

    /// Shared receives complete in any order, and never are more outstanding than fit.
    #[test]
    fn shared_receive_queue(steps in prop::collection::vec((0..20usize, 0..20usize), 1..60)) {
        let (ring, shadow) = (Memory::new(16 * 32), Memory::new(64));
        // SAFETY: the memory lives as long as the queue.
        let queue = unsafe {
            SharedReceiveQueue::new(SharedReceiveQueueParts {
                ring: QuantumRing::new(ring.base(), 16),
                shadow: ShadowArea::new(shadow.base()),
                shift: 0,
                max_fragments: 1,
            })
        };
        let (mut posted, mut retired) = (0usize, 0);
        for (posts, retires) in steps {
            let mut batch = queue.batch::<Gen3>();
            for _ in 0..posts {
                match batch.place(posted as u64, &[]) {
                    Ok(()) => posted += 1,
                    Err(refusal) => {
                        prop_assert_eq!((refusal, posted - retired), (Refusal::Full, 15));
                        break;
                    }
                }
            }
            batch.finish();
            prop_assert_eq!(shadow.word(0).load() as usize, posted % 16);
            for _ in 0..retires {
                prop_assert_eq!(queue.retire_one(), posted > retired);
                retired = posted.min(retired + 1);
            }
        }
    }
}
