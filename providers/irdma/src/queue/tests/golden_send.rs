//! Send WQEs, word by word, for each shape and generation.

use std::vec::Vec;

use super::start_batch;
use crate::format::{DatagramDestination, Opcode, SendHeader};
use crate::generation::{Gen1, Gen2, Gen3, Generation};
use crate::mock::{SendDevice, Wqe};
use crate::queue::{Atomic, Bind, Refusal, SendBatch, SendQueueParts, SendRequest, Sge};

pub(super) const VALID: u64 = 1 << 63;
pub(super) const SIGNALED: u64 = 1 << 62;
pub(super) const FENCE: u64 = 1 << 60;
pub(super) const INLINE: u64 = 1 << 57;
pub(super) const IMMEDIATE: u64 = 1 << 47;

pub(super) fn request(opcode: Opcode) -> SendRequest {
    SendRequest {
        wr_id: 0xABCD,
        header: SendHeader::default().with_opcode(opcode as u8).with_remote_key(0x1122_3344),
        remote: 0x7000_0000_1000,
    }
}

/// `count` pieces, each of its own address, length and key.
pub(super) fn list(count: u32) -> Vec<Sge> {
    (0..count)
        .map(|n| Sge { address: 0x1000 * (u64::from(n) + 1), length: 0x100 + n, key: 0xAA00 + n })
        .collect()
}

/// The two words of a piece of `list` on GEN2 and GEN3.
pub(super) fn fragment(n: u64, valid: u64) -> [u64; 2] {
    [0x1000 * (n + 1), valid | (0x100 + n) << 32 | (0xAA00 + n)]
}

fn gen1_fragment(n: u64) -> [u64; 2] {
    [0x1000 * (n + 1), (0xAA00 + n) << 32 | (0x100 + n)]
}

pub(super) fn gen1(parts: &mut SendQueueParts) {
    (parts.chunk, parts.max_fragments, parts.max_read_fragments, parts.max_inline) = (2, 3, 1, 48);
    parts.empty_fragment_counts = false;
}

pub(super) fn gen3(parts: &mut SendQueueParts) {
    (parts.max_fragments, parts.max_read_fragments, parts.max_inline) = (14, 14, 216);
    parts.empty_fragment_counts = false;
}

/// The WQE that `post` places in a ring full of `stale`, on the first lap or the second.
pub(super) fn post_on<G: Generation>(
    lap: u32,
    change: impl FnOnce(&mut SendQueueParts),
    post: impl FnOnce(&mut SendBatch<'_, G>) -> Result<(), Refusal>,
) -> Wqe {
    let (mut device, queue) = SendDevice::new(512, |parts| {
        change(parts);
        parts.connection_wqes = lap * 512;
    });
    // What the device would find before the queue gets there.
    device.memory().fill(if lap.is_multiple_of(2) { 0 } else { u64::MAX });
    let mut batch = start_batch::<G>(&queue);
    post(&mut batch).expect("placed");
    assert!(batch.finish());
    assert_eq!(device.bell().take(), Some(0x1234));
    let wqe = device.take::<G>().expect("a valid WQE");
    device.assert_nothing_ahead();
    wqe
}

pub(super) fn post<G: Generation>(
    change: impl FnOnce(&mut SendQueueParts),
    place: impl FnOnce(&mut SendBatch<'_, G>) -> Result<(), Refusal>,
) -> Wqe {
    post_on(0, change, place)
}

#[test]
fn one_fragment() {
    let place = |signaled| {
        move |batch: &mut SendBatch<'_, Gen2>| {
            let request = SendRequest {
                header: request(Opcode::RdmaWrite).header.with_signaled(signaled).with_read_fence(true),
                ..request(Opcode::RdmaWrite)
            };
            batch.fragments(&request, &list(1), None)
        }
    };
    let [address, descriptor] = fragment(0, VALID);
    let header = VALID | FENCE | 0x1122_3344;
    assert_eq!(post(|_| {}, place(false)).words, [address, descriptor, 0x7000_0000_1000, header]);
    assert_eq!(post(|_| {}, place(true)).words, [address, descriptor, 0x7000_0000_1000, header | SIGNALED]);
}

#[test]
fn on_the_second_lap_valid_is_zero() {
    let wqe = post_on::<Gen2>(1, |_| {}, |batch| batch.fragments(&request(Opcode::Send), &list(2), None));
    let ([a0, d0], [a1, d1]) = (fragment(0, 0), fragment(1, 0));
    let header = 2 << 38 | 3 << 32 | 0x1122_3344;
    assert_eq!(wqe.words, [a0, d0, 0x7000_0000_1000, header, a1, d1, 0, 0]);
}

#[test]
fn opcodes_are_the_devices() {
    for (opcode, number) in [
        (Opcode::RdmaWrite, 0x00),
        (Opcode::RdmaRead, 0x01),
        (Opcode::Send, 0x03),
        (Opcode::SendInvalidate, 0x04),
        (Opcode::SendSolicited, 0x05),
        (Opcode::SendSolicitedInvalidate, 0x06),
        (Opcode::RdmaWriteSolicited, 0x0d),
    ] {
        let wqe = post::<Gen2>(|_| {}, |batch| batch.fragments(&request(opcode), &list(1), None));
        assert_eq!(wqe.opcode(), number);
        assert_eq!(wqe[3] & 0xFFFF_FFFF, 0x1122_3344);
        assert_eq!(wqe[2], 0x7000_0000_1000);
    }
}

/// What a WQE of `count` pieces must hold on GEN2 or GEN3.
fn expected_fragments(count: u32, immediate: Option<u32>, generation: u8) -> Vec<u64> {
    let mut slots: Vec<[u64; 2]> = Vec::new();
    slots.extend(immediate.map(|immediate| [u64::from(immediate), 0]));
    slots.extend((0..count).map(|n| fragment(n.into(), VALID)));
    let used = slots.len();
    let mut more = used.saturating_sub(1) as u64;
    if slots.is_empty() {
        slots.push([0, VALID]);
    } else if used.is_multiple_of(2) {
        slots.push([0, VALID]);
        more += u64::from(generation == 2);
    }
    let flag = if immediate.is_some() { IMMEDIATE } else { 0 };
    let header = VALID | more << 38 | 3 << 32 | flag | 0x1122_3344;
    let mut words = Vec::from([slots[0][0], slots[0][1], 0x7000_0000_1000, header]);
    words.extend(slots[1..].iter().flatten());
    words
}

#[test]
fn every_number_of_fragments() {
    for count in 0..=13 {
        for immediate in [None, Some(0xDEAD_BEEF)] {
            let wqe = post::<Gen2>(
                |_| {},
                |batch| batch.fragments(&request(Opcode::Send), &list(count), immediate),
            );
            assert_eq!(wqe.words, expected_fragments(count, immediate, 2), "{count} on GEN2");
        }
    }
    for count in 0..=14 {
        for immediate in [None, Some(7)] {
            let wqe =
                post::<Gen3>(gen3, |batch| batch.fragments(&request(Opcode::Send), &list(count), immediate));
            assert_eq!(wqe.words, expected_fragments(count, immediate, 3), "{count} on GEN3");
        }
    }
}

#[test]
fn sizes_in_quanta() {
    for (count, quanta) in [(0, 1), (1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (12, 7), (13, 7)] {
        let wqe = post::<Gen2>(|_| {}, |batch| batch.fragments(&request(Opcode::Send), &list(count), None));
        assert_eq!(wqe.quanta(), quanta, "{count} fragments");
    }
}

#[test]
fn gen1_fragments() {
    let send = |count, immediate| {
        post::<Gen1>(gen1, move |batch| batch.fragments(&request(Opcode::Send), &list(count), immediate))
    };
    let [f0, f1, f2] = [gen1_fragment(0), gen1_fragment(1), gen1_fragment(2)];
    let header = |more: u64| VALID | more << 38 | 3 << 32 | 0x1122_3344;
    let remote = 0x7000_0000_1000;
    assert_eq!(send(0, None).words, [0, 0, remote, header(0)]);
    assert_eq!(send(1, None).words, [f0[0], f0[1], remote, header(0)]);
    assert_eq!(send(2, None).words, [f0[0], f0[1], remote, header(1), f1[0], f1[1], 0, 0]);
    assert_eq!(send(3, None).words, [f0[0], f0[1], remote, header(2), f1[0], f1[1], f2[0], f2[1]]);
    let with_immediate = |more| header(more) | IMMEDIATE;
    assert_eq!(send(2, Some(9)).words, [9, 0, remote, with_immediate(2), f0[0], f0[1], f1[0], f1[1]]);
}

#[test]
fn gen1_takes_lengths_of_32_bits() {
    let sge = Sge { address: 8, length: u32::MAX, key: 1 };
    let wqe = post::<Gen1>(gen1, |batch| batch.fragments(&request(Opcode::Send), &[sge], None));
    assert_eq!(wqe[1], 1 << 32 | 0xFFFF_FFFF);
}

#[test]
fn gen1_marks_the_second_of_a_pair_as_not_valid() {
    for (lap, marked) in [(0, 0), (1, VALID)] {
        let (device, queue) = SendDevice::new(512, |parts| {
            gen1(parts);
            parts.connection_wqes = lap * 512;
        });
        device.memory().fill(0x5555_5555_5555_5555);
        let mut batch = start_batch::<Gen1>(&queue);
        batch.fragments(&request(Opcode::Send), &list(1), None).unwrap();
        assert_eq!(device.memory().word(7).load(), marked, "after quantum 0");
        let before = device.memory().word(11).load();
        batch.fragments(&request(Opcode::Send), &list(1), None).unwrap();
        assert_eq!(device.memory().word(11).load(), before, "quantum 2 begins a pair");
        batch.fragments(&request(Opcode::Send), &list(1), None).unwrap();
        assert_eq!(device.memory().word(15).load(), marked, "after quantum 2");
        batch.finish();
    }
}

#[test]
fn datagrams_name_their_destination() {
    let remote = DatagramDestination::default().with_q_key(0x8001_0002).with_queue_pair(0xABCDEF).bits();
    assert_eq!(remote, 0xAB_CDEF_8001_0002);
    let request = SendRequest {
        header: request(Opcode::Send).header.with_remote_key(0x1FF_FFFF),
        remote,
        ..request(Opcode::Send)
    };
    let wqe = post::<Gen2>(|_| {}, |batch| batch.fragments(&request, &list(1), None));
    assert_eq!(wqe[2], remote);
    // The whole number of the address handle.
    assert_eq!(wqe[3], VALID | 3 << 32 | 0x1FF_FFFF);
}

#[test]
fn requests_beyond_the_limits_are_refused() {
    let (mut device, queue) = SendDevice::new(512, |parts| {
        (parts.max_fragments, parts.max_read_fragments, parts.max_inline) = (4, 2, 20);
    });
    let mut batch = start_batch::<Gen2>(&queue);
    let send = request(Opcode::Send);
    assert_eq!(batch.fragments(&send, &list(5), None), Err(Refusal::Invalid));
    assert_eq!(batch.fragments(&request(Opcode::RdmaRead), &list(3), None), Err(Refusal::Invalid));
    let long = Sge { address: 0, length: 1 << 31, key: 0 };
    assert_eq!(batch.fragments(&send, &[long], None), Err(Refusal::Invalid));
    // Each fits, all together have no 32-bit length.
    let together = [Sge { length: (1 << 31) - 1, ..long }; 3];
    assert_eq!(batch.fragments(&send, &together, None), Err(Refusal::Invalid));
    let bytes = [0u8; 21];
    let address = bytes.as_ptr().expose_provenance() as u64;
    // SAFETY: the lists lie in `bytes`.
    unsafe {
        let sge = Sge { address, length: 21, key: 0 };
        assert_eq!(batch.inline(&send, &[sge], None), Err(Refusal::Invalid));
        let none = [Sge { length: 0, ..sge }; 5];
        assert_eq!(batch.inline(&send, &none, None), Err(Refusal::Invalid));
    }
    assert!(!batch.finish());
    assert_eq!(device.bell().take(), None);
    assert_eq!(device.take::<Gen2>(), None);
    assert!(queue.is_empty());
}

#[test]
fn gen1_has_no_room_for_some() {
    let (mut device, queue) = SendDevice::new(512, gen1);
    let mut batch = start_batch::<Gen1>(&queue);
    let send = request(Opcode::Send);
    assert_eq!(batch.fragments(&send, &list(3), Some(1)), Err(Refusal::Invalid));
    // SAFETY: no bytes.
    assert_eq!(unsafe { batch.inline(&send, &[], Some(1)) }, Err(Refusal::Invalid));
    assert!(!batch.finish());
    assert_eq!(device.take::<Gen1>(), None);
}

#[test]
fn a_wqe_that_does_not_fit_its_chunk_is_padded_for() {
    let (mut device, queue) = SendDevice::new(512, |_| {});
    device.memory().fill(0x1111_1111_1111_1111);
    let mut batch = start_batch::<Gen2>(&queue);
    let send = request(Opcode::Send);
    batch.fragments(&send, &list(9), None).unwrap();
    batch.fragments(&send, &list(9), None).unwrap();
    batch.finish();
    assert_eq!(device.take::<Gen2>().unwrap().quanta(), 5);
    for index in 5..8 {
        let nop = device.take::<Gen2>().unwrap();
        assert_eq!((nop.index, &nop.words[..]), (index, &[0, 0, 0, VALID | 0xc << 32][..]));
    }
    let second = device.take::<Gen2>().unwrap();
    assert_eq!((second.index, second.quanta()), (8, 5));
}

#[test]
fn what_is_ahead_is_cleared_by_every_shape() {
    let local = [Sge { address: 0x9000, length: 8, key: 0x77 }];
    type Place = fn(&mut SendBatch<'_, Gen3>, &[Sge]) -> Result<(), Refusal>;
    let shapes: [Place; 5] = [
        |batch, _| batch.fragments(&request(Opcode::Send), &[], None),
        // SAFETY: no bytes.
        |batch, _| unsafe { batch.inline(&request(Opcode::Send), &[], None) },
        |batch, local| batch.atomic(&request(Opcode::FetchAdd), local, Atomic { operand: 1, compare: 0 }),
        |batch, _| batch.invalidate(&request(Opcode::LocalInvalidate), 1),
        |batch, _| {
            let bind = Bind {
                window_key: 1,
                region_key: 2,
                address: None,
                length: 0,
                remote_read: false,
                remote_write: false,
                remote_atomic: false,
                type_1: false,
            };
            batch.bind(&request(Opcode::BindWindow), &bind)
        },
    ];
    for place in shapes {
        for (start, byte, cleared) in
            [(0, 0x00, 128), (128, 0x00, 256), (384, 0xFF, 0), (512, 0xFF, 128), (512 + 384, 0x00, 0)]
        {
            let (device, queue) = SendDevice::new(512, |parts| {
                gen3(parts);
                parts.connection_wqes = start;
            });
            device.memory().fill(0x3333_3333_3333_3333);
            let mut batch = start_batch::<Gen3>(&queue);
            place(&mut batch, &local).unwrap();
            batch.finish();
            for quantum in 0..512 {
                let word = device.memory().word(quantum * 4 + 3).load();
                if (cleared..cleared + 128).contains(&quantum) {
                    assert_eq!(word.to_le_bytes(), [byte; 8], "quantum {quantum} from {start}");
                } else if !(start as usize % 512..start as usize % 512 + 2).contains(&quantum) {
                    assert_eq!(word, 0x3333_3333_3333_3333, "quantum {quantum} from {start}");
                }
            }
        }
    }
}
