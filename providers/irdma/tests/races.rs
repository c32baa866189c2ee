//! The races of a queue, tried in every order that the memory model allows.
//!
//! Models of the protocol between poster and pollers, with the orderings of the code: `send`
//! and `send_batch` for the reuse of slots, `shared` for what several pollers count. Each comes
//! with one of a wrong order that must be caught, so that a model that sees nothing is found out.

use std::panic::catch_unwind;

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

/// Runs a model in every order; true if it holds in all of them.
fn holds(model: impl Fn() + Sync + Send + std::panic::UnwindSafe + 'static) -> bool {
    catch_unwind(|| Builder::new().check(model)).is_ok()
}

/// A send queue of one slot: what is remembered of the request in it, how far posts and completions go.
///
/// The slot is a plain cell, of which the checker knows who may touch it when. In the code its words
/// are atomic, but as weakly ordered as it gets: what keeps them apart is the tail alone.
struct SendQueue {
    wr_id: UnsafeCell<u64>,
    head: AtomicU32,
    tail: AtomicU32,
}

/// One request of the first lap is outstanding. The poller completes it, the poster waits for room and
/// posts one of the second lap.
fn reuse_a_slot(handing_back: Ordering, taking: Ordering) {
    let queue =
        Arc::new(SendQueue { wr_id: UnsafeCell::new(1), head: AtomicU32::new(1), tail: AtomicU32::new(0) });
    let poller = {
        let queue = Arc::clone(&queue);
        thread::spawn(move || {
            // `SendQueue::outstanding`, then `wr_id`, then `retire`.
            let head = queue.head.load(Ordering::Acquire);
            assert!(head >= 1);
            // SAFETY: checked by the model.
            let wr_id = queue.wr_id.with(|cell| unsafe { *cell });
            queue.tail.store(1, handing_back);
            assert_eq!(wr_id, 1, "the id of the later lap");
        })
    };
    // `SendBatch::require_after_looking`; a full queue is refused, here it is tried once more later.
    if queue.tail.load(taking) == 1 {
        // SAFETY: checked by the model.
        queue.wr_id.with_mut(|cell| unsafe { *cell = 2 });
        queue.head.store(2, Ordering::Release);
    }
    poller.join().unwrap();
}

#[test]
fn a_slot_is_not_used_again_before_its_completion_was_read() {
    assert!(holds(|| reuse_a_slot(Ordering::Release, Ordering::Acquire)));
}

#[test]
fn a_slot_handed_back_without_order_is_caught() {
    assert!(!holds(|| reuse_a_slot(Ordering::Relaxed, Ordering::Acquire)));
    assert!(!holds(|| reuse_a_slot(Ordering::Release, Ordering::Relaxed)));
}

/// The poster writes a slot and moves the head past it; the poller, told by the device, reads it.
fn publish_a_slot(publishing: Ordering, looking: Ordering) {
    let queue =
        Arc::new(SendQueue { wr_id: UnsafeCell::new(0), head: AtomicU32::new(0), tail: AtomicU32::new(0) });
    let poller = {
        let queue = Arc::clone(&queue);
        thread::spawn(move || {
            if queue.head.load(looking) == 1 {
                // SAFETY: checked by the model.
                assert_eq!(queue.wr_id.with(|cell| unsafe { *cell }), 7);
            }
        })
    };
    // SAFETY: checked by the model.
    queue.wr_id.with_mut(|cell| unsafe { *cell = 7 });
    queue.head.store(1, publishing);
    poller.join().unwrap();
}

#[test]
fn a_completion_finds_what_was_remembered_of_its_request() {
    assert!(holds(|| publish_a_slot(Ordering::Release, Ordering::Acquire)));
    assert!(!holds(|| publish_a_slot(Ordering::Relaxed, Ordering::Acquire)));
    assert!(!holds(|| publish_a_slot(Ordering::Release, Ordering::Relaxed)));
}

/// A shared receive queue: how many were posted and completed in all.
struct SharedQueue {
    head: AtomicU32,
    tail: AtomicU32,
}

impl SharedQueue {
    /// `SharedReceiveQueue::retire_one`.
    fn retire_one(&self) -> bool {
        let mut tail = self.tail.load(Ordering::Relaxed);
        loop {
            if tail == self.head.load(Ordering::Acquire) {
                return false;
            }
            match self.tail.compare_exchange_weak(tail, tail + 1, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => tail = now,
            }
        }
    }

    /// The same by a load and a store, under no lock that both pollers share.
    fn retire_one_carelessly(&self) -> bool {
        let tail = self.tail.load(Ordering::Relaxed);
        let outstanding = tail != self.head.load(Ordering::Acquire);
        if outstanding {
            self.tail.store(tail + 1, Ordering::Release);
        }
        outstanding
    }
}

/// Two pollers retire two receives each while more is posted; then all room must be back.
fn retire_from_two_queues(retire: fn(&SharedQueue) -> bool) {
    let queue = Arc::new(SharedQueue { head: AtomicU32::new(3), tail: AtomicU32::new(0) });
    let poller = {
        let queue = Arc::clone(&queue);
        thread::spawn(move || (0..2).filter(|_| retire(&queue)).count())
    };
    queue.head.store(4, Ordering::Release);
    let retired = (0..2).filter(|_| retire(&queue)).count() + poller.join().unwrap();
    // One poller may have looked before the fourth was posted.
    assert!(retired >= 3, "{retired} retired");
    assert_eq!(queue.tail.load(Ordering::Relaxed), retired as u32, "room that never comes back");
}

#[test]
fn two_pollers_of_a_shared_queue_give_all_room_back() {
    assert!(holds(|| retire_from_two_queues(SharedQueue::retire_one)));
}

#[test]
fn a_careless_count_of_two_pollers_is_caught() {
    assert!(!holds(|| retire_from_two_queues(SharedQueue::retire_one_carelessly)));
}
