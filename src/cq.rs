//! Completion queues: what they are, sizes, events, their end. Creation is in `cq_create`, polling in
//! `poll_cq` and `cq_ex`.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::mem::offset_of;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use irdma_hw::limits::{CompletionQueueSize, Features};
use irdma_hw::queue;
use irdma_hw::ring::CompletionRing;
use rdma_core_sys::bindings::{
    ibv_cmd_destroy_cq, ibv_context, ibv_cq, ibv_cq_ex, verbs_context_ops, verbs_cq,
};
use rdma_core_sys::driver_data::ResizeCqRequest;

use crate::boundary;
use crate::capabilities::Capabilities;
use crate::command;
use crate::context::Context;
use crate::cq_create::{self, entries_of, ring_memory, size_for};
use crate::cq_ex::Current;
use crate::domain::Domain;
use crate::errno::{Errno, Result};
use crate::holdings::QueuePairs;
use crate::lock::Lock;
use crate::log;
use crate::memory::QueueMemory;
use crate::poll_cq;
use crate::qp::QueuePair;
use crate::table::Finder;

/// A completion queue. Libibverbs knows its first field only.
#[repr(C)]
pub struct CompletionQueue {
    // Libibverbs writes to it while others hold references to the whole.
    pub(crate) verbs: UnsafeCell<verbs_cq>,
    pub(crate) lock: Lock,
    /// Under `lock`.
    pub(crate) queue: UnsafeCell<queue::CompletionQueue>,
    /// What the extended interface reads. Under `lock`.
    pub(crate) current: UnsafeCell<Current>,
    /// A queue pair that completes here may have work that the device does not complete (GEN3).
    pub(crate) has_abandoned: AtomicBool,
    /// Of the context, which outlives the queue.
    pub(crate) queue_pairs: NonNull<QueuePairs>,
    /// Of those.
    pub(crate) finder: Finder<QueuePair, CompletionQueue>,
    // Before the memory that it works on.
    pub(crate) kernel: KernelCompletionQueue,
    pub(crate) rings: Mutex<Rings>,
    /// The parent domain that it was created in, if any; outlives it.
    pub(crate) domain: Option<NonNull<Domain>>,
    /// `None`: the shadow area follows the ring.
    pub(crate) _shadow: Option<QueueMemory>,
}

const _: () = assert!(offset_of!(CompletionQueue, verbs) == 0);

/// The memory of a queue's rings.
pub(crate) struct Rings {
    pub(crate) size: CompletionQueueSize,
    pub(crate) current: QueueMemory,
    /// Of before a resize, oldest first; the device may still write to them.
    pub(crate) old: VecDeque<QueueMemory>,
}

/// The kernel's half of a queue; destroyed on drop unless the verb has done so.
pub(crate) struct KernelCompletionQueue(pub(crate) Option<NonNull<ibv_cq>>);

impl Drop for KernelCompletionQueue {
    fn drop(&mut self) {
        let Some(cq) = self.0 else { return };
        // SAFETY: created in `create` and not destroyed since; the context outlives it.
        unsafe {
            if !Context::of((*cq.as_ptr()).context).is_closing() {
                ibv_cmd_destroy_cq(cq.as_ptr());
            }
        }
    }
}

impl CompletionQueue {
    /// The queue around what a verb was given.
    ///
    /// # Safety
    /// `cq` is one that this provider created and that is not destroyed for as long as
    /// the answer is used.
    #[inline(always)]
    pub unsafe fn of<'a>(cq: *mut ibv_cq) -> &'a CompletionQueue {
        // SAFETY: as the caller promises; the first field.
        unsafe { &*cq.cast() }
    }

    /// The lock of the queue, and of the table's entries of its QPs.
    #[inline(always)]
    pub fn lock(&self) -> &Lock {
        &self.lock
    }

    /// The hardware's queue.
    ///
    /// # Safety
    /// The caller holds the lock, and has no other reference to it.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)] // the lock makes it exclusive
    pub unsafe fn queue(&self) -> &mut queue::CompletionQueue {
        // SAFETY: as the caller promises.
        unsafe { &mut *self.queue.get() }
    }

    /// Where the completion is that the extended interface reads. Under the lock.
    #[inline(always)]
    pub fn current(&self) -> *mut Current {
        self.current.get()
    }

    /// The queue pairs that completions may be about.
    #[inline(always)]
    pub fn queue_pairs(&self) -> &QueuePairs {
        // SAFETY: a field of the context, which outlives the queue.
        unsafe { self.queue_pairs.as_ref() }
    }

    /// Finds them. Under the lock.
    #[inline(always)]
    pub fn finder(&self) -> &Finder<QueuePair, CompletionQueue> {
        &self.finder
    }

    /// Notes that a queue pair may have work here that the device does not complete.
    pub fn note_abandoned(&self) {
        // Release: whoever sees the note (`forget_abandoned`) sees the work.
        self.has_abandoned.store(true, Ordering::Release);
    }

    /// Whether that was noted.
    #[inline(always)]
    pub fn may_have_abandoned(&self) -> bool {
        self.has_abandoned.load(Ordering::Relaxed)
    }

    /// Takes the note away, to look for such work.
    pub fn forget_abandoned(&self) {
        // Acquire: as in `note_abandoned`.
        self.has_abandoned.swap(false, Ordering::Acquire);
    }

    /// The part that the extended interface is in.
    pub fn as_extended(&self) -> *mut ibv_cq_ex {
        self.verbs.get().cast()
    }
}

unsafe extern "C" fn destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: libibverbs calls with what `create_cq` returned.
    unsafe {
        let context = (*cq).context;
        boundary::status(context, "destroy_cq", || {
            Errno::check(ibv_cmd_destroy_cq(cq))?;
            let mut cq = Context::of(context).objects()?.take_back(NonNull::from(CompletionQueue::of(cq)));
            cq.kernel.0 = None;
            let domain = cq.domain;
            // Its memory may be the domain's.
            drop(cq);
            if let Some(domain) = domain {
                domain.as_ref().leave();
            }
            Ok(())
        })
    }
}

/// Moves a queue to a ring of another size.
///
/// # Safety
/// `context` is that of the queue.
unsafe fn resize(context: *mut ibv_context, cq: &CompletionQueue, entries: c_int) -> Result<()> {
    // SAFETY: as the caller promises.
    let owner = unsafe { Context::of(context) };
    if !owner.limits().features.contains(Features::CQ_RESIZE) {
        let why = format_args!("CQ: resize to {entries} entries: the device cannot");
        // SAFETY: as the caller promises.
        return Err(unsafe { log::refused(context, Errno::NOT_SUPPORTED, why) });
    }
    // SAFETY: as the caller promises.
    let (entries, size) = unsafe {
        let entries = entries_of(context, entries)?;
        (entries, size_for(context, owner.limits(), entries)?)
    };
    // One resize at a time. Polling goes on meanwhile: the lock is not held while the
    // kernel is asked.
    let mut rings = cq.rings.lock().unwrap_or_else(PoisonError::into_inner);
    let verbs = cq.verbs.get().cast::<ibv_cq>();
    // SAFETY: the queue is alive.
    let promise = || unsafe { (*verbs).cqe = entries as c_int };
    if size == rings.size {
        promise();
        return Ok(());
    }
    // SAFETY: outlives the queue.
    let domain = cq.domain.map(|domain| unsafe { domain.as_ref() });
    let memory = ring_memory(owner, domain, size, 0)?;
    rings.old.try_reserve(1).map_err(|_| Errno::NO_MEMORY)?;
    {
        let _guard = cq.lock.lock();
        // SAFETY: under the lock.
        unsafe { cq.queue() }.prepare_resize().map_err(|_| Errno::NO_MEMORY)?;
    }
    let request = ResizeCqRequest { user_cq_buffer: memory.buffer().address() };
    // SAFETY: the queue is alive, the memory registered.
    unsafe { command::resize_cq(verbs, size.slots as c_int, request)? };
    // SAFETY: the ring lives until the queue no longer reads it, see below.
    let ring = unsafe { CompletionRing::new(memory.buffer().base(), size) };
    let finished = {
        let _guard = cq.lock.lock();
        // SAFETY: under the lock.
        let queue = unsafe { cq.queue() };
        queue.resize(ring);
        queue.take_finished()
    };
    let before = core::mem::replace(&mut rings.current, memory);
    rings.old.push_back(before);
    rings.size = size;
    // Neither the device nor the queue looks at those any more.
    rings.old.drain(..finished);
    promise();
    Ok(())
}

unsafe extern "C" fn resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    // SAFETY: libibverbs calls with what `create_cq` returned.
    unsafe {
        let context = (*cq).context;
        boundary::status(context, "resize_cq", || resize(context, CompletionQueue::of(cq), cqe))
    }
}

unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: libibverbs calls with what `create_cq` returned; the queue is used under its lock.
    unsafe {
        let cq = CompletionQueue::of(cq);
        let _guard = cq.lock.lock();
        cq.queue().arm(solicited_only != 0);
    }
    0
}

unsafe extern "C" fn cq_event(cq: *mut ibv_cq) {
    // SAFETY: libibverbs calls with what `create_cq` returned; the queue is used under its lock.
    unsafe {
        let cq = CompletionQueue::of(cq);
        let _guard = cq.lock.lock();
        cq.queue().event_delivered();
    }
}

/// Fills the operations of this file and of polling.
pub fn install(operations: &mut verbs_context_ops, capabilities: &Capabilities) {
    cq_create::install(operations);
    operations.destroy_cq = Some(destroy_cq);
    operations.resize_cq = Some(resize_cq);
    operations.req_notify_cq = Some(req_notify_cq);
    operations.cq_event = Some(cq_event);
    poll_cq::install(operations, capabilities.limits.generation);
}
