//! Queue pairs: what they are, and their end. Creation is in `qp_create`, states in
//! `qp_state`, work requests in `post_send` and `post_recv`.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::mem::offset_of;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

use irdma_hw::queue::{self, Member, SharedReceiveQueue, Side};
use rdma_core_sys::bindings::{ibv_cmd_destroy_qp, ibv_qp, ibv_qp_cap, ibv_qp_state, verbs_context_ops};
use rdma_core_sys::queue_pair::QueuePairHead;

use crate::boundary;
use crate::capabilities::Capabilities;
use crate::context::Context;
use crate::cq::CompletionQueue;
use crate::domain::Domain;
use crate::errno::Errno;
use crate::lock::{Lock, lock_both};
use crate::memory::QueueMemory;
use crate::qp_batch::Builder;
use crate::srq;
use crate::table::Slot;
use crate::{post_recv, post_send, process_barrier, qp_create, qp_state};

/// A queue pair. Libibverbs knows its first field only.
#[repr(C)]
pub struct QueuePair {
    // Libibverbs writes to it while others hold references to the whole.
    pub(crate) head: UnsafeCell<QueuePairHead>,
    /// The hardware's queues.
    pub(crate) queues: queue::QueuePair,
    /// Excludes other posts to the send queue.
    pub(crate) send_lock: Lock,
    /// Work requests that are added one by one; only if the program asked for that.
    pub(crate) builder: Builder,
    /// Excludes other posts to the receive queue.
    pub(crate) receive_lock: Lock,
    /// Bit N: work requests of `enum ibv_wr_opcode` N can be posted.
    pub(crate) postable: u32,
    /// What it can do, as the program was told.
    pub(crate) created: ibv_qp_cap,
    /// Flags of every work request: `IBV_SEND_SIGNALED` or nothing.
    pub(crate) always: u32,
    /// The state with which it may be given a push page, if the device has them and nobody objects.
    pub(crate) push_due_with: Option<ibv_qp_state>,
    /// Builders that it was created with (`IBV_QP_EX_WITH_*`), if it has any.
    pub(crate) operations: Option<u64>,
    /// It has not left the state that it was created in.
    pub(crate) is_fresh: AtomicBool,
    /// Its place in the context's table.
    pub(crate) slot: OnceLock<Slot>,
    /// Where its completions go. They outlive it: the kernel destroys no queue that
    /// one uses.
    pub(crate) send_cq: NonNull<CompletionQueue>,
    pub(crate) recv_cq: NonNull<CompletionQueue>,
    /// Where its receives come from, if not from a queue of its own; outlives it as they do.
    pub(crate) shared: Option<NonNull<srq::SharedReceiveQueue>>,
    /// What it was created in; outlives it as well.
    pub(crate) domain: NonNull<Domain>,
    // Before the memory that it works on.
    pub(crate) kernel: KernelQueuePair,
    pub(crate) _memory: QueueMemory,
}

const _: () = assert!(offset_of!(QueuePair, head) == 0);

/// The kernel's half of a queue pair; destroyed on drop unless the verb has done so.
pub(crate) struct KernelQueuePair(pub(crate) Option<NonNull<ibv_qp>>);

impl Drop for KernelQueuePair {
    fn drop(&mut self) {
        let Some(qp) = self.0 else { return };
        // SAFETY: created in `qp_create` and not destroyed since; the context outlives it.
        unsafe {
            if !Context::of((*qp.as_ptr()).context).is_closing() {
                ibv_cmd_destroy_qp(qp.as_ptr());
            }
        }
    }
}

impl QueuePair {
    /// The queue pair around what a verb was given.
    ///
    /// # Safety
    /// `qp` is one that this provider created and that is not destroyed for as long as
    /// the answer is used.
    #[inline(always)]
    pub unsafe fn of<'a>(qp: *mut ibv_qp) -> &'a QueuePair {
        // SAFETY: as the caller promises; the first field.
        unsafe { &*qp.cast() }
    }

    /// As libibverbs takes it.
    pub fn as_ibv(&self) -> *mut ibv_qp {
        self.head.get().cast()
    }

    /// Whether it is as it was created, for all that is known.
    pub fn is_fresh(&self) -> bool {
        self.is_fresh.load(Ordering::Relaxed)
    }

    /// Notes that it is in the error state.
    pub fn set_in_error(&self) {
        self.queues.set_in_error();
    }

    /// Notes that the program has put it into the error state, so that whatever may be
    /// outstanding is flushed.
    pub fn set_failed(&self) {
        for side in [Side::Send, Side::Receive] {
            if self.queues.abandon(side) {
                self.await_poster(side);
            }
            self.cq(side).note_abandoned();
        }
    }

    /// Where the completions of one of the queues go.
    pub fn cq(&self, side: Side) -> &CompletionQueue {
        let cq = match side {
            Side::Send => &self.send_cq,
            Side::Receive => &self.recv_cq,
        };
        // SAFETY: outlives the queue pair.
        unsafe { cq.as_ref() }
    }

    /// The lock that excludes posts to one of the queues.
    #[inline(always)]
    fn lock(&self, side: Side) -> &Lock {
        match side {
            Side::Send => &self.send_lock,
            Side::Receive => &self.receive_lock,
        }
    }
}

impl Member for QueuePair {
    #[inline(always)]
    fn queues(&self) -> &queue::QueuePair {
        &self.queues
    }

    fn shared(&self) -> Option<&SharedReceiveQueue> {
        // SAFETY: outlives the queue pair.
        self.shared.map(|shared| unsafe { shared.as_ref() }.queue())
    }

    fn await_poster(&self, side: Side) {
        if process_barrier::issue() {
            return;
        }
        // A batch of this very thread needs no waiting for, and would not end.
        if side == Side::Receive || !self.builder.is_mine() {
            drop(self.lock(side).lock());
        }
    }
}

/// Lets pollers find a queue pair, or no more, under the locks of both its CQs.
pub(crate) fn with_both_cqs<T>(
    send_cq: NonNull<CompletionQueue>,
    recv_cq: NonNull<CompletionQueue>,
    action: impl FnOnce() -> T,
) -> T {
    // SAFETY: both outlive the queue pair that the caller has.
    let (send, receive) = unsafe { (send_cq.as_ref(), recv_cq.as_ref()) };
    let _guards = lock_both(send.lock(), receive.lock());
    action()
}

unsafe extern "C" fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: libibverbs calls with what `create_qp` returned.
    unsafe {
        let context = (*qp).context;
        boundary::status(context, "destroy_qp", || {
            let owner = Context::of(context);
            let table = owner.queue_pairs()?;
            Errno::check(ibv_cmd_destroy_qp(qp))?;
            let pair = QueuePair::of(qp);
            if let Some(slot) = pair.slot.get() {
                // CQEs of it that are still to come find nothing in the table and are passed
                // over, wherever they are: in either queue, or in a ring of before a resize.
                with_both_cqs(pair.send_cq, pair.recv_cq, || {
                    table.withdraw(slot);
                    if let Some(shared) = pair.shared() {
                        pair.recv_cq.as_ref().queue().release_shared(slot.completion_context(), shared);
                    }
                });
            }
            owner.push_pages()?.release(pair);
            let mut pair = owner.objects()?.take_back(NonNull::from(pair));
            pair.kernel.0 = None;
            let domain = pair.domain;
            if let Some(slot) = pair.slot.take() {
                table.give_back(slot);
            }
            // Its memory may be the domain's.
            drop(pair);
            domain.as_ref().leave();
            Ok(())
        })
    }
}

/// Fills the operations of this file and of those that work on queue pairs.
pub fn install(operations: &mut verbs_context_ops, capabilities: &Capabilities) {
    operations.destroy_qp = Some(destroy_qp);
    qp_create::install(operations);
    qp_state::install(operations);
    post_send::install(operations, capabilities.limits.generation);
    post_recv::install(operations, capabilities.limits.generation);
}
