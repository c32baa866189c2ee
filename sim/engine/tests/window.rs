//! Memory windows: bind, use, invalidate.

mod bed;

use bed::work::{READ, SEND, SEND_INVALIDATE, WRITE, Work};
use bed::{Bed, Buffer, FULL, Side};
use irdma_engine::event::{Source, code};
use irdma_engine::spec::*;

/// The owner of the region and the windows is on the right.
fn scene() -> (Bed, Side, Side, Buffer, Buffer) {
    scene_of(Generation::Gen3)
}

fn scene_of(generation: Generation) -> (Bed, Side, Side, Buffer, Buffer) {
    let mut bed = Bed::new(generation);
    let (left, right) = bed.pair();
    let (near, far) = (bed.region(4096), bed.region(4096));
    (bed, left, right, near, far)
}

const READ_WRITE: Access = Access {
    remote_read: true,
    remote_write: true,
    local_write: false,
    remote_atomic: false,
    window_bind: false,
    zero_based: false,
};

fn window(bed: &mut Bed, kind: WindowKind) -> Key {
    let pd = bed.right(bed.pd);
    bed.engine.create_mw(pd, kind, None).expect("a window")
}

#[test]
fn a_type1_window_opens_its_part_of_the_region() {
    for generation in [Generation::Gen2, Generation::Gen3] {
        let (mut bed, mut left, mut right, near, far) = scene_of(generation);
        let old = window(&mut bed, WindowKind::Type1);
        let key = old + 1;
        let address = far.address + 100;
        bed.send(&mut right, &Work::bind(key, far.key, address, 50, READ_WRITE, true));
        let bound = bed.completion(&mut right);
        assert_eq!((bound.opcode, bound.length, bound.error), (0x08, 0, false));
        assert_eq!(bed.engine.destroy_mr(1, far.key), Err(EngineError::Busy));
        bed.fill(near, 0, &[7; 50]);
        bed.send(&mut left, &Work::new(WRITE, &[near.sge(0, 50)]).remote(address, key));
        assert!(!bed.completion(&mut left).error);
        assert_eq!(bed.bytes(far, 100, 50), [7; 50]);
        bed.send(&mut left, &Work::new(WRITE, &[near.sge(0, 8)]).remote(address + 43, key));
        bed.expect_events(&[
            (&right, code::BOUNDS_VIOLATION, Source::InboundRdma),
            (&left, code::REMOTE_ACCESS_ERROR, Source::SendQueue),
        ]);
        bed.engine.destroy_mw(1, key).expect("destroyed while bound");
        bed.engine.destroy_mr(1, far.key).expect("no window left");
    }
}

#[test]
fn gen1_names_window_and_region_the_other_way_round() {
    let (mut bed, mut left, mut right, near, far) = scene_of(Generation::Gen1);
    let key = window(&mut bed, WindowKind::Type1) + 1;
    bed.send(&mut right, &Work::bind(far.key, key, far.address, 50, READ_WRITE, true));
    assert!(!bed.completion(&mut right).error);
    bed.send(&mut left, &Work::new(WRITE, &[near.sge(0, 50)]).remote(far.address, key));
    assert!(!bed.completion(&mut left).error);
    bed.send(&mut right, &Work::local_invalidate(0));
    bed.expect_events(&[(&right, code::BAD_STAG_INDEX, Source::SendQueue)]);
}

#[test]
fn rebinding_changes_the_key_and_length_zero_unbinds() {
    let (mut bed, mut left, mut right, near, far) = scene();
    let key = window(&mut bed, WindowKind::Type1);
    for step in 1..=3 {
        bed.send(&mut right, &Work::bind(key + step, far.key, far.address, 64, READ_WRITE, true));
        assert!(!bed.completion(&mut right).error);
    }
    bed.send(&mut left, &Work::new(READ, &[near.sge(0, 8)]).remote(far.address, key + 3));
    assert!(!bed.completion(&mut left).error);
    bed.send(&mut right, &Work::bind(key + 4, far.key, 0, 0, READ_WRITE, true));
    assert!(!bed.completion(&mut right).error);
    bed.engine.update_mr(far.key, region(&bed, far)).expect("no window is bound any more");
    bed.send(&mut left, &Work::new(READ, &[near.sge(0, 8)]).remote(far.address, key + 4));
    bed.expect_events(&[
        (&right, code::INVALID_STAG, Source::OutboundRead),
        (&left, code::REMOTE_ACCESS_ERROR, Source::SendQueue),
    ]);
}

fn region(bed: &Bed, buffer: Buffer) -> MemoryRegion<usize> {
    let pd = bed.right(bed.pd);
    MemoryRegion { pd, address: buffer.address, length: 4096, access: FULL, backing: buffer.area }
}

#[test]
fn an_old_key_of_a_window_opens_nothing() {
    let (mut bed, mut left, mut right, near, far) = scene();
    let key = window(&mut bed, WindowKind::Type1);
    bed.send(&mut right, &Work::bind(key + 1, far.key, far.address, 64, READ_WRITE, true));
    bed.send(&mut left, &Work::new(READ, &[near.sge(0, 8)]).remote(far.address, key));
    bed.expect_events(&[
        (&right, code::BAD_STAG_KEY, Source::OutboundRead),
        (&left, code::REMOTE_ACCESS_ERROR, Source::SendQueue),
    ]);
}

#[test]
fn a_window_grants_no_more_than_it_was_bound_with() {
    let (mut bed, mut left, mut right, near, far) = scene();
    let key = window(&mut bed, WindowKind::Type1) + 1;
    let read = Access { remote_read: true, ..Access::default() };
    bed.send(&mut right, &Work::bind(key, far.key, far.address, 64, read, true));
    bed.send(&mut left, &Work::new(READ, &[near.sge(0, 8)]).remote(far.address, key));
    assert!(!bed.completion(&mut left).error);
    bed.send(&mut left, &Work::new(WRITE, &[near.sge(0, 8)]).remote(far.address, key));
    bed.expect_events(&[
        (&right, code::RIGHTS_VIOLATION, Source::InboundRdma),
        (&left, code::REMOTE_ACCESS_ERROR, Source::SendQueue),
    ]);
}

#[test]
fn a_type2_window_belongs_to_its_queue_pair_until_invalidated() {
    let (mut bed, mut left, mut right, near, far) = scene();
    let (mut stranger, peer) = bed.pair();
    let key = window(&mut bed, WindowKind::Type2) ^ 0x55;
    bed.send(&mut right, &Work::bind(key, far.key, far.address, 64, READ_WRITE, false));
    assert!(!bed.completion(&mut right).error);
    let write = Work::new(WRITE, &[near.sge(0, 8)]).remote(far.address, key);
    bed.send(&mut left, &write);
    assert!(!bed.completion(&mut left).error);
    bed.send(&mut stranger, &write);
    bed.expect_events(&[
        (&peer, code::BAD_QP, Source::InboundRdma),
        (&stranger, code::REMOTE_ACCESS_ERROR, Source::SendQueue),
    ]);
    // The peer invalidates it; then it may be bound again, with another key.
    bed.receive(&mut right, &[]);
    bed.send(&mut left, &Work::new(SEND_INVALIDATE, &[]).invalidates(key));
    let got = bed.completion(&mut right);
    assert_eq!((got.tag, got.invalidated_or_ipv4, got.opcode), (key, true, 4));
    bed.poll(&mut left);
    bed.send(&mut right, &Work::bind(key ^ 1, far.key, far.address, 64, READ_WRITE, false));
    bed.send(&mut right, &Work::local_invalidate(key ^ 1));
    assert_eq!(bed.poll(&mut right).expect("bound").opcode, 0x08);
    assert_eq!(bed.completion(&mut right).opcode, 0x0a);
    bed.engine.destroy_mr(1, far.key).expect("free");
    assert!(bed.events().is_empty());
}

#[test]
fn zero_based_windows_count_from_zero() {
    let (mut bed, mut left, mut right, near, far) = scene();
    let key = window(&mut bed, WindowKind::Type2);
    let access = Access { zero_based: true, ..READ_WRITE };
    bed.send(&mut right, &Work::bind(key, far.key, 0, 64, access, false));
    bed.fill(near, 0, &[3; 8]);
    bed.send(&mut left, &Work::new(WRITE, &[near.sge(0, 8)]).remote(56, key));
    assert!(!bed.completion(&mut left).error);
    assert_eq!(bed.bytes(far, 56, 8), [3; 8]);
}

#[test]
fn binds_that_make_no_sense_fail_their_queue() {
    type Make = fn(&mut Bed, Buffer) -> Work;
    fn bind(bed: &mut Bed, parent: Key, address: u64, length: u64) -> Work {
        let key = window(bed, WindowKind::Type1);
        Work::bind(key, parent, address, length, READ_WRITE, true)
    }
    fn region_with(bed: &mut Bed, change: impl FnOnce(&mut Access)) -> Buffer {
        let mut access = FULL;
        change(&mut access);
        let pd = bed.pd;
        bed.region_of(64, access, pd)
    }
    let cases: [(Make, u16); 13] = [
        (|bed, far| bind(bed, far.key ^ 0x8000_0000, far.address, 8), code::BIND_INVALID_PARENT),
        (|bed, far| bind(bed, far.key ^ 1, far.address, 8), code::BIND_INVALID_PARENT),
        (|bed, far| bind(bed, far.key, far.address + 4090, 8), code::BIND_INVALID_BOUNDS),
        (|bed, far| bind(bed, far.key, u64::MAX, 8), code::BIND_INVALID_BOUNDS),
        (
            |bed, _| {
                let other = window(bed, WindowKind::Type1);
                bind(bed, other, 0, 8)
            },
            code::BIND_TO_WINDOW_STAG,
        ),
        (
            |bed, _| {
                let region = region_with(bed, |access| access.window_bind = false);
                bind(bed, region.key, region.address, 8)
            },
            code::BIND_DISABLED,
        ),
        (
            |bed, _| {
                let region = region_with(bed, |access| access.zero_based = true);
                bind(bed, region.key, 0, 8)
            },
            code::BIND_TO_ZERO_BASED,
        ),
        (
            |bed, _| {
                let region = region_with(bed, |access| access.local_write = false);
                bind(bed, region.key, region.address, 8)
            },
            code::BIND_INVALID_RIGHTS,
        ),
        (
            |bed, _| {
                let pd = bed.domain();
                let region = bed.region_of(64, FULL, pd);
                bind(bed, region.key, region.address, 8)
            },
            code::BAD_PD,
        ),
        (
            |bed, far| {
                let key = window(bed, WindowKind::Type2);
                Work::bind(key, far.key, far.address, 8, READ_WRITE, true)
            },
            code::BIND_WRONG_TYPE,
        ),
        (|_, far| Work::bind(far.key, far.key, far.address, 8, READ_WRITE, true), code::BIND_OF_REGION_STAG),
        (|_, far| Work::bind(0, far.key, far.address, 8, READ_WRITE, true), code::BAD_STAG_INDEX),
        (
            |bed, far| {
                let key = window(bed, WindowKind::Type1);
                let access = Access { zero_based: true, ..READ_WRITE };
                Work::bind(key, far.key, 0, 8, access, true)
            },
            code::BIND_ZERO_BASED_TYPE1,
        ),
    ];
    for (number, (make, expected)) in cases.into_iter().enumerate() {
        let (mut bed, _left, mut right, _, far) = scene();
        let work = make(&mut bed, far);
        bed.send(&mut right, &work);
        let found = bed.events();
        assert_eq!(found.len(), 1, "case {number}");
        assert_eq!((found[0].code, found[0].source), (expected, Source::SendQueue), "case {number}");
        assert_eq!(bed.engine.destroy_mr(1, far.key), Ok(()), "case {number} left nothing bound");
    }
}

#[test]
fn invalidations_that_are_not_allowed_fail_their_queue() {
    let (mut bed, _left, mut right, _, far) = scene();
    let key = window(&mut bed, WindowKind::Type2);
    let bind = Work::bind(key, far.key, far.address, 8, READ_WRITE, false);
    bed.send(&mut right, &bind);
    bed.send(&mut right, &bind);
    bed.expect_events(&[(&right, code::BIND_VALID_STAG, Source::SendQueue)]);

    let (mut bed, _left, mut right, _, far) = scene();
    let key = window(&mut bed, WindowKind::Type2);
    bed.send(&mut right, &Work::bind(key, far.key, far.address, 8, READ_WRITE, false));
    bed.send(&mut right, &Work::local_invalidate(far.key));
    bed.expect_events(&[(&right, code::INVALIDATE_REGION_WITH_WINDOWS, Source::SendQueue)]);

    let (mut bed, _left, mut right, _, far) = scene();
    let key = window(&mut bed, WindowKind::Type1);
    bed.send(&mut right, &Work::bind(key, far.key, far.address, 8, READ_WRITE, true));
    bed.send(&mut right, &Work::local_invalidate(key));
    bed.expect_events(&[(&right, code::INVALIDATE_TYPE1_WINDOW, Source::SendQueue)]);
}

#[test]
fn an_invalidated_region_is_closed_until_registered_again() {
    let (mut bed, _left, mut right, near, far) = scene();
    bed.send(&mut right, &Work::local_invalidate(near.key));
    assert_eq!(bed.completion(&mut right).opcode, 0x0a);
    let again = region(&bed, near);
    bed.engine.update_mr(near.key, again).expect("registered again");
    bed.send(&mut right, &Work::new(READ, &[near.sge(0, 8)]).remote(far.address, far.key));
    assert!(!bed.completion(&mut right).error);
    bed.send(&mut right, &Work::local_invalidate(near.key));
    bed.send(&mut right, &Work::new(SEND, &[near.sge(0, 8)]));
    bed.expect_events(&[(&right, code::INVALID_STAG, Source::SendQueue)]);
}
