//! The batch that `ibv_wr_*` fill: from `start` to `complete` or `abort`.
//!
//! In between, the send lock is held and a [`Held`] batch grows in the ring. A builder notes
//! what is asked for ([`add`]); the setter that brings the data places it ([`place`]). What
//! is refused, or called out of turn, fails the batch: `complete` then says why and takes
//! all of it back.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

use irdma_hw::generation::{Generation, WqeFormat};
use irdma_hw::queue::{Atomic, Held, HeldBatch, OutOfMemory, Refusal, SendRequest, Side};
use rdma_core_sys::bindings::{ibv_mw, ibv_qp_ex, ibv_wr_opcode};

use crate::lock::{Lock, this_thread};
use crate::qp::QueuePair;
use crate::qp_state::posted_in_error;
use crate::refusal::{self, BatchFailure};
use crate::send_header;

/// The work request added last has no data yet.
pub const NEEDS_DATA: u8 = 1;
/// It has no destination yet.
pub const NEEDS_DESTINATION: u8 = 2;
/// It is not of the common kind: it has an immediate, or is an atomic.
pub const SPECIAL: u8 = 4;
/// There is no batch.
pub const CLOSED: u8 = 8;
/// Nothing more is added: `complete` will fail.
pub const FAILED: u8 = 16;

/// The batch of a queue pair, if it has these functions.
pub struct Builder {
    /// What the work request added last lacks, or why none can be added; 0: ready for the next.
    pub stage: AtomicU8,
    /// The thread that started the batch; 0: none.
    owner: AtomicUsize,
    /// Touched between `start` and `complete` only, under the send lock.
    batch: UnsafeCell<Batch>,
}

/// Work requests on their way.
pub struct Batch {
    pub held: Held,
    /// The one added last.
    pub request: SendRequest,
    pub special: Special,
    /// Why the batch has failed.
    failure: BatchFailure,
    /// Windows bound in this batch; as many as the queue has quanta.
    pub bound: Box<[Option<Bound>]>,
    pub bound_count: usize,
}

/// A window, and the key that it gets when the batch is complete.
#[derive(Clone, Copy)]
pub struct Bound {
    pub window: NonNull<ibv_mw>,
    pub key: u32,
}

/// What a work request of the uncommon kind has besides.
pub enum Special {
    Immediate(u32),
    Atomic(Atomic),
}

impl Builder {
    /// Without a batch. `quanta` of the send queue if windows can be bound, else 0.
    pub fn new(quanta: u32) -> Result<Builder, OutOfMemory> {
        let mut bound = Vec::new();
        bound.try_reserve_exact(quanta as usize).map_err(|_| OutOfMemory)?;
        bound.resize(quanta as usize, None);
        Ok(Builder {
            stage: AtomicU8::new(CLOSED),
            owner: AtomicUsize::new(0),
            batch: UnsafeCell::new(Batch {
                held: Held::default(),
                request: SendRequest::default(),
                special: Special::Immediate(0),
                failure: BatchFailure::Unfinished,
                bound: bound.into_boxed_slice(),
                bound_count: 0,
            }),
        })
    }

    /// The batch.
    ///
    /// # Safety
    /// The caller has found that there is one, so holds the send lock, and has no other
    /// reference to it.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)] // the lock makes it exclusive
    pub unsafe fn batch(&self) -> &mut Batch {
        // SAFETY: as the caller promises.
        unsafe { &mut *self.batch.get() }
    }

    /// Whether this thread has started a batch, and not ended it.
    pub fn is_mine(&self) -> bool {
        self.owner.load(Relaxed) == this_thread()
    }

    /// Ends the batch.
    ///
    /// # Safety
    /// There is one, and the lock is that of the send queue.
    #[inline(always)]
    unsafe fn close(&self, lock: &Lock) {
        self.stage.store(CLOSED, Relaxed);
        self.owner.store(0, Relaxed);
        // SAFETY: held since `start`.
        unsafe { lock.unlock() };
    }

    /// A call out of turn: without a batch, or with the work request before it unfinished.
    #[cold]
    #[inline(never)]
    pub fn misused(&self) {
        let stage = self.stage.load(Relaxed);
        if stage & (CLOSED | FAILED) == 0 {
            // SAFETY: there is a batch.
            unsafe { self.batch() }.failure = BatchFailure::Invalid;
        }
        self.stage.store(stage & CLOSED | FAILED, Relaxed);
    }

    /// Goes on after an attempt to place something: what is still missing, or that it failed.
    #[inline(always)]
    pub fn note(&self, batch: &mut Batch, missing: u8, outcome: Result<(), Refusal>) {
        match outcome {
            Ok(()) => self.stage.store(missing, Relaxed),
            Err(refusal) => {
                batch.failure = refusal.into();
                self.stage.store(FAILED, Relaxed);
            }
        }
    }
}

/// The queue pair around what the program has.
///
/// # Safety
/// As for [`QueuePair::of`].
#[inline(always)]
pub unsafe fn pair_of<'a>(qp: *mut ibv_qp_ex) -> &'a QueuePair {
    // SAFETY: as the caller promises; the plain queue pair comes first.
    unsafe { QueuePair::of(qp.cast()) }
}

pub unsafe extern "C" fn start(qp: *mut ibv_qp_ex) {
    // SAFETY: of ours.
    let pair = unsafe { pair_of(qp) };
    let thread = this_thread();
    match pair.send_lock.try_lock() {
        Some(guard) => guard.keep(),
        // A thread that waited for itself would wait for ever.
        None if pair.builder.is_mine() => return pair.builder.misused(),
        None => pair.send_lock.lock().keep(),
    }
    if pair.builder.stage.load(Relaxed) & CLOSED == 0 {
        // Started twice, without a lock.
        return pair.builder.misused();
    }
    pair.builder.owner.store(thread, Relaxed);
    // SAFETY: under the lock.
    let batch = unsafe { pair.builder.batch() };
    batch.held = pair.queues.send.hold();
    batch.bound_count = 0;
    pair.builder.stage.store(0, Relaxed);
}

pub unsafe extern "C" fn complete<G: Generation>(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: of ours; the lock is held if there is a batch.
    unsafe {
        let pair = pair_of(qp);
        if pair.builder.stage.load(Relaxed) != 0 {
            let failure = take_back::<G::General>(pair);
            return refusal::batch(pair, (*qp).wr_id, failure);
        }
        let batch = pair.builder.batch();
        let held = pair.queues.send.resume::<G>(&batch.held);
        let start = held.start();
        let placed = held.finish();
        for bound in batch.bound.iter().take(batch.bound_count).flatten() {
            (*bound.window.as_ptr()).rkey = bound.key;
        }
        pair.builder.close(&pair.send_lock);
        if placed && pair.queues.is_in_error() {
            posted_in_error::<G>(pair, Side::Send, start);
        }
        0
    }
}

/// Takes a batch back; says why it could not be completed.
///
/// # Safety
/// The lock is held if there is a batch.
#[cold]
#[inline(never)]
unsafe fn take_back<F: WqeFormat>(pair: &QueuePair) -> BatchFailure {
    let stage = pair.builder.stage.load(Relaxed);
    if stage & CLOSED != 0 {
        pair.builder.stage.store(CLOSED, Relaxed);
        return BatchFailure::NotStarted;
    }
    // SAFETY: there is a batch, as the caller promises under the lock.
    unsafe {
        let batch = pair.builder.batch();
        pair.queues.send.resume::<F>(&batch.held).abandon();
        let failure = if stage & FAILED != 0 { batch.failure } else { BatchFailure::Unfinished };
        pair.builder.close(&pair.send_lock);
        failure
    }
}

pub unsafe extern "C" fn abort<F: WqeFormat>(qp: *mut ibv_qp_ex) {
    // SAFETY: of ours; the lock is held if there is a batch.
    unsafe { take_back::<F>(pair_of(qp)) };
}

/// Notes a work request, of which `needs` is to come.
///
/// # Safety
/// `qp` is of ours.
#[inline(always)]
pub unsafe fn add(
    qp: *mut ibv_qp_ex,
    needs: u8,
    operation: ibv_wr_opcode,
    remote_key: u32,
    remote: u64,
) -> Option<(&'static QueuePair, &'static mut Batch)> {
    // SAFETY: as the caller promises; with a batch the lock is held.
    unsafe {
        let pair = pair_of(qp);
        if pair.builder.stage.load(Relaxed) != 0 {
            pair.builder.misused();
            return None;
        }
        let header = send_header::of(operation, (*qp).wr_flags | pair.always);
        let batch = pair.builder.batch();
        batch.request =
            SendRequest { wr_id: (*qp).wr_id, header: send_header::with_key(header, remote_key), remote };
        pair.builder.stage.store(needs, Relaxed);
        Some((pair, batch))
    }
}

/// Places the work request added last, of which `missing` is still to come.
///
/// `action` gets the batch, the request, and whether one more window can be noted.
///
/// # Safety
/// The caller holds the send lock.
#[inline(always)]
pub unsafe fn place<F: WqeFormat>(
    pair: &QueuePair,
    batch: &mut Batch,
    missing: u8,
    action: impl FnOnce(&mut HeldBatch<'_, F>, &SendRequest, bool) -> Result<(), Refusal>,
) {
    // SAFETY: as the caller promises.
    let mut held = unsafe { pair.queues.send.resume::<F>(&batch.held) };
    let outcome = action(&mut held, &batch.request, batch.bound_count < batch.bound.len());
    batch.held = held.pause();
    pair.builder.note(batch, missing, outcome);
}
