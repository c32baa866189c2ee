//! Pushed WQEs: taken from the window, late, dropped, and windows full of anything.

mod bed;

use bed::work::{SEND, WRITE, Work};
use bed::{Bed, Buffer, RNR_TIMER, Side};
use irdma_engine::event::{Source, code};
use irdma_engine::push::{Pushed, WINDOW_BYTES};
use irdma_engine::spec::*;
use proptest::prelude::*;

/// A connection whose left side has a push page, on a device that producers wait for, or not.
struct Scene {
    bed: Bed,
    left: Side,
    right: Side,
    near: Buffer,
    far: Buffer,
}

fn scene(doorbell_waits: bool) -> Scene {
    let mut bed = Bed::new(Generation::Gen2);
    bed.memory().doorbell_waits = doorbell_waits;
    let (left, right) = bed.pair();
    bed.engine.enable_push(left.qp.id).expect("a queue pair");
    let (near, far) = (bed.region(4096), bed.region(4096));
    bed.fill(near, 0, &(0..=255).collect::<Vec<u8>>());
    Scene { bed, left, right, near, far }
}

impl Scene {
    fn write(&self, offset: u64) -> Work {
        let near = self.near.sge(offset, 8);
        Work::new(WRITE, &[near]).remote(self.far.address + offset, self.far.key).pushed()
    }

    fn post(&mut self, work: &Work) -> u32 {
        self.bed.post(&mut self.left, work)
    }

    /// A window with what the ring holds from one quantum up to another.
    fn window(&mut self, from: u32, to: u32) -> [u8; WINDOW_BYTES] {
        let mut window = [0; WINDOW_BYTES];
        let ring = self.bed.memory().bytes(self.left.qp.sq.area);
        let (place, length) = (from as usize % 8 * 32, (to - from) as usize * 32);
        window[place..place + length].copy_from_slice(&ring[from as usize * 32..to as usize * 32]);
        window
    }

    fn push(&mut self, from: u32, to: u32) -> Pushed {
        let window = self.window(from, to);
        self.bed.engine.push_sq(self.left.qp.id, from / 8, &window)
    }

    /// Posts a write and pushes it.
    fn post_and_push(&mut self, offset: u64) -> Pushed {
        let work = self.write(offset);
        let index = self.post(&work);
        self.push(index, index + 1)
    }

    fn has_arrived(&mut self, offset: usize) -> bool {
        self.bed.bytes(self.far, offset, 8) == self.bed.bytes(self.near, offset, 8)
    }

    fn ring(&mut self) {
        self.bed.engine.ring_sq(self.left.qp.id);
    }
}

const ONE: Pushed = Pushed::Taken { quanta: 1, differs: false };

#[test]
fn a_push_is_executed_and_nothing_behind_it_is() {
    for waits in [true, false] {
        let mut scene = scene(waits);
        let first = scene.write(8);
        scene.post(&first);
        let behind = scene.write(16);
        scene.post(&behind);
        assert_eq!(scene.push(0, 1), ONE);
        assert!(scene.has_arrived(8) && !scene.has_arrived(16));
        let sent = scene.bed.completion(&mut scene.left);
        assert_eq!((sent.index, sent.push_dropped), (0, false));
        scene.ring();
        assert!(scene.has_arrived(16));
        assert_eq!(scene.bed.completion(&mut scene.left).index, 1);
    }
}

#[test]
fn pushes_go_on_around_the_ring() {
    let mut scene = scene(true);
    for index in 0..1100 {
        assert_eq!(scene.post_and_push(index % 32 * 8), ONE, "push {index}");
        assert_eq!(u64::from(scene.bed.completion(&mut scene.left).index), index % 512);
    }
}

#[test]
fn the_window_counts_not_the_ring() {
    let mut scene = scene(true);
    let (pushed, other) = (scene.write(8), scene.write(16));
    scene.post(&pushed);
    let window = scene.window(0, 1);
    scene.left.qp.sq.position = 0;
    scene.post(&other);
    let outcome = scene.bed.engine.push_sq(scene.left.qp.id, 0, &window);
    assert_eq!(outcome, Pushed::Taken { quanta: 1, differs: true });
    assert!(scene.has_arrived(8) && !scene.has_arrived(16));
}

#[test]
fn a_window_that_may_have_been_filled_anew_is_believed_if_the_ring_agrees() {
    let mut scene = scene(false);
    let (pushed, other) = (scene.write(8), scene.write(16));
    scene.post(&pushed);
    let window = scene.window(0, 1);
    scene.left.qp.sq.position = 0;
    scene.post(&other);
    assert_eq!(scene.bed.engine.push_sq(scene.left.qp.id, 0, &window), Pushed::Dropped);
    scene.ring();
    assert!(scene.has_arrived(16) && !scene.has_arrived(8));
    assert!(scene.bed.completion(&mut scene.left).push_dropped);
}

#[test]
fn what_the_ring_has_brought_is_late() {
    let mut scene = scene(true);
    let work = scene.write(8);
    scene.post(&work);
    scene.ring();
    assert_eq!(scene.push(0, 1), Pushed::Late);
    let sent = scene.bed.completion(&mut scene.left);
    assert!(!sent.push_dropped, "one completion, which is no drop");
}

#[test]
fn a_push_behind_work_is_dropped_and_the_next_completion_says_so() {
    let mut scene = scene(true);
    let send = Work::new(SEND, &[scene.near.sge(0, 8)]).pushed();
    scene.post(&send);
    assert_eq!(scene.push(0, 1), ONE, "taken, though the receiver is not ready");
    assert_eq!(scene.post_and_push(8), Pushed::Dropped, "the queue waits");
    let far = scene.far;
    scene.bed.receive(&mut scene.right, &[far.sge(64, 8)]);
    scene.bed.pass(RNR_TIMER);
    let sent = scene.bed.poll(&mut scene.left).expect("the send that was pushed");
    assert!(sent.push_dropped);
    scene.ring();
    assert!(scene.has_arrived(8));
    assert!(!scene.bed.completion(&mut scene.left).push_dropped, "said once");
    assert_eq!(scene.post_and_push(16), ONE);
}

#[test]
fn a_drop_can_be_made_up() {
    let mut scene = scene(true);
    let work = scene.write(8);
    scene.post(&work);
    scene.bed.engine.drop_push(scene.left.qp.id);
    scene.ring();
    assert!(scene.bed.completion(&mut scene.left).push_dropped);
}

#[test]
fn padding_and_what_follows_it_go_in_windows_of_their_own() {
    let mut scene = scene(true);
    for offset in 0..7 {
        assert_eq!(scene.post_and_push(8 * offset), ONE);
        scene.bed.completion(&mut scene.left);
    }
    let near = scene.near;
    let wide =
        Work::new(WRITE, &[near.sge(0, 100), near.sge(100, 100)]).remote(scene.far.address, scene.far.key);
    assert_eq!(scene.post(&wide.pushed()), 8, "behind one quantum of padding");
    assert_eq!(scene.push(7, 8), ONE);
    assert_eq!(scene.push(8, 10), Pushed::Taken { quanta: 2, differs: false });
    assert_eq!(scene.bed.completion(&mut scene.left).length, 200);
    assert_eq!(scene.bed.bytes(scene.far, 0, 200), scene.bed.bytes(scene.near, 0, 200));
}

#[test]
fn an_empty_window_is_a_drop_where_nobody_can_have_emptied_it() {
    for (waits, expected) in [(true, Pushed::Dropped), (false, Pushed::Late)] {
        let mut scene = scene(waits);
        let window = [0; WINDOW_BYTES];
        assert_eq!(scene.bed.engine.push_sq(scene.left.qp.id, 0, &window), expected);
    }
}

#[test]
fn only_a_queue_pair_with_a_page_is_pushed_to() {
    let mut scene = scene(true);
    let work = Work::new(WRITE, &[]).remote(scene.near.address, scene.near.key).pushed();
    scene.bed.send(&mut scene.right, &work);
    let right = scene.right.clone();
    scene.bed.expect_events(&[(&right, code::WQE_INVALID_PARAMETER, Source::SendQueue)]);
    let window = [0xff; WINDOW_BYTES];
    assert_eq!(scene.bed.engine.push_sq(right.qp.id, 0, &window), Pushed::Late);
    let nobody = scene.bed.left(12345);
    assert_eq!(scene.bed.engine.push_sq(nobody, 0, &window), Pushed::Late);
}

proptest! {
    #[test]
    fn windows_full_of_anything_harm_nobody(
        waits: bool,
        pushes in prop::collection::vec((any::<[u64; 32]>(), any::<u32>(), any::<bool>()), 1..20),
    ) {
        let mut scene = scene(waits);
        for (words, chunk, near) in pushes {
            let mut window = [0; WINDOW_BYTES];
            for (bytes, word) in window.chunks_exact_mut(8).zip(words) {
                bytes.copy_from_slice(&word.to_le_bytes());
            }
            let chunk = if near { chunk % 2 } else { chunk };
            scene.bed.engine.push_sq(scene.left.qp.id, chunk, &window);
            scene.ring();
        }
    }
}
