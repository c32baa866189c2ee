//! Send WQEs that move no message, word by word.

use super::golden_send::{FENCE, SIGNALED, VALID, gen1, gen3, post, request};
use super::start_batch;
use crate::format::Opcode;
use crate::generation::{Gen1, Gen2, Gen3};
use crate::mock::SendDevice;
use crate::queue::{Atomic, Bind, Refusal, SendBatch, SendRequest, Sge};

#[test]
fn window_binds() {
    let bind = Bind {
        window_key: 0x111,
        region_key: 0x222,
        address: Some(0x5000),
        length: 0x3000,
        remote_read: true,
        remote_write: false,
        remote_atomic: false,
        type_1: true,
    };
    let place =
        |bind: Bind| move |batch: &mut SendBatch<'_, Gen2>| batch.bind(&request(Opcode::BindWindow), &bind);
    let header = VALID | 8 << 32;
    assert_eq!(
        post(|_| {}, place(bind)).words,
        [0x5000, 0x222 << 32 | 0x111, 0x3000, header | 0b100 << 48 | 1 << 53 | 1 << 54]
    );
    let other = Bind { address: None, remote_read: false, remote_write: true, type_1: false, ..bind };
    assert_eq!(post(|_| {}, place(other)).words, [0, 0x222 << 32 | 0x111, 0x3000, header | 0b1000 << 48]);
    let atomic = Bind { remote_atomic: true, ..bind };
    let wqe = post::<Gen3>(gen3, |batch| batch.bind(&request(Opcode::BindWindow), &atomic));
    assert_eq!(wqe[3], header | 0b100 << 48 | 1 << 53 | 1 << 54 | 1 << 55);
    let wqe = post::<Gen1>(gen1, |batch| batch.bind(&request(Opcode::BindWindow), &bind));
    assert_eq!(wqe[1], 0x111 << 32 | 0x222);
}

#[test]
fn local_invalidates() {
    let request = SendRequest {
        header: request(Opcode::LocalInvalidate).header.with_signaled(true).with_read_fence(true),
        ..request(Opcode::LocalInvalidate)
    };
    let header = VALID | SIGNALED | FENCE | 0xa << 32;
    let wqe = post::<Gen2>(|_| {}, |batch| batch.invalidate(&request, 0xCAFE_0001));
    assert_eq!(wqe.words, [0, 0xCAFE_0001, 0, header]);
    let wqe = post::<Gen1>(gen1, |batch| batch.invalidate(&request, 0xCAFE_0001));
    assert_eq!(wqe.words, [0, 0xCAFE_0001 << 32, 0, header]);
}

#[test]
fn atomics() {
    let local = [Sge { address: 0x9000, length: 8, key: 0x77 }];
    let swap = SendRequest {
        header: request(Opcode::CompareSwap).header.with_signaled(true),
        ..request(Opcode::CompareSwap)
    };
    let wqe =
        post::<Gen3>(gen3, |batch| batch.atomic(&swap, &local, Atomic { operand: 0xAAAA, compare: 0xBBBB }));
    let header = |opcode: u64| VALID | SIGNALED | 1 << 38 | opcode << 32 | 0x1122_3344;
    assert_eq!(wqe.words, [0x9000, 0x77, 0x7000_0000_1000, header(0x11), 0xAAAA, 0xBBBB, 0, VALID]);
    let add = SendRequest { header: swap.header.with_opcode(Opcode::FetchAdd as u8), ..swap };
    let wqe = post::<Gen3>(gen3, |batch| batch.atomic(&add, &local, Atomic { operand: 5, compare: 0 }));
    assert_eq!(wqe.words, [0x9000, 0x77, 0x7000_0000_1000, header(0x0f), 5, 0, 0, VALID]);
}

#[test]
fn impossible_atomics_are_refused() {
    let (mut device, queue) = SendDevice::new(512, gen3);
    let mut batch = start_batch::<Gen3>(&queue);
    let good = Sge { address: 0x9000, length: 8, key: 0x77 };
    let atomic = Atomic { operand: 1, compare: 0 };
    let add = request(Opcode::FetchAdd);
    for list in [&[][..], &[good, good], &[Sge { length: 4, ..good }], &[Sge { length: 16, ..good }]] {
        assert_eq!(batch.atomic(&add, list, atomic), Err(Refusal::Invalid));
    }
    let crooked = SendRequest { remote: 0x1004, ..add };
    assert_eq!(batch.atomic(&crooked, &[good], atomic), Err(Refusal::Invalid));
    assert!(!batch.finish());
    assert_eq!(device.take::<Gen3>(), None);
}
