//! Shared receive queues (GEN3): creation, limit, receives, end.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::mem::offset_of;
use core::ptr::NonNull;

use irdma_hw::format::SHADOW_BYTES;
use irdma_hw::limits::Features;
use irdma_hw::queue::{self, SharedReceiveQueueParts};
use irdma_hw::ring::{QuantumRing, ShadowArea};
use rdma_core_sys::bindings::{
    ibv_cmd_destroy_srq, ibv_context, ibv_pd, ibv_srq, ibv_srq_attr, ibv_srq_init_attr, verbs_context_ops,
    verbs_srq,
};
use rdma_core_sys::driver_data::{CreateSrqRequest, RegisterMemoryRequest, SHARED_RECEIVE_QUEUE};

use crate::boundary;
use crate::capabilities::Capabilities;
use crate::command;
use crate::context::Context;
use crate::domain::Domain;
use crate::errno::{Errno, Result};
use crate::lock::Lock;
use crate::log;
use crate::memory::QueueMemory;
use crate::post_srq_recv::post_srq_recv;

/// A shared receive queue. Libibverbs knows its first field only.
#[repr(C)]
pub struct SharedReceiveQueue {
    // Libibverbs writes to it while others hold references to the whole.
    verbs: UnsafeCell<verbs_srq>,
    /// Excludes other posts.
    pub(crate) lock: Lock,
    queue: queue::SharedReceiveQueue,
    /// What it can do, as the program was told.
    created: ibv_srq_attr,
    /// What it was created in; outlives it.
    domain: NonNull<Domain>,
    // Before the memory that it works on.
    kernel: KernelSharedReceiveQueue,
    _memory: QueueMemory,
}

const _: () = assert!(offset_of!(SharedReceiveQueue, verbs) == 0);

/// The kernel's half of a queue; destroyed on drop unless the verb has done so.
struct KernelSharedReceiveQueue(Option<NonNull<ibv_srq>>);

impl Drop for KernelSharedReceiveQueue {
    fn drop(&mut self) {
        let Some(srq) = self.0 else { return };
        // SAFETY: created in `create` and not destroyed since; the context outlives it.
        unsafe {
            if !Context::of((*srq.as_ptr()).context).is_closing() {
                ibv_cmd_destroy_srq(srq.as_ptr());
            }
        }
    }
}

impl SharedReceiveQueue {
    /// The queue around what a verb was given.
    ///
    /// # Safety
    /// `srq` is one that this provider created and that is not destroyed for as long as
    /// the answer is used.
    #[inline(always)]
    pub unsafe fn of<'a>(srq: *mut ibv_srq) -> &'a SharedReceiveQueue {
        // SAFETY: as the caller promises; the first field.
        unsafe { &*srq.cast() }
    }

    /// As libibverbs takes it.
    pub fn as_ibv(&self) -> *mut ibv_srq {
        self.verbs.get().cast()
    }

    /// What it can do, as the program was told.
    pub fn created(&self) -> &ibv_srq_attr {
        &self.created
    }

    /// The hardware's queue.
    #[inline(always)]
    pub fn queue(&self) -> &queue::SharedReceiveQueue {
        &self.queue
    }
}

/// Creates a queue; on success `attributes` become what it can do.
///
/// # Safety
/// `pd` is alive.
unsafe fn create(pd: NonNull<ibv_pd>, attributes: &mut ibv_srq_attr) -> Result<NonNull<SharedReceiveQueue>> {
    // SAFETY: as the caller promises.
    let context = unsafe { pd.as_ref().context };
    // SAFETY: as above; for the lines, too.
    let (owner, domain) = unsafe { (Context::of(context), Domain::of(pd.as_ptr())) };
    let limits = owner.limits();
    let size = limits.shared_receive_queue(attributes.max_wr, attributes.max_sge).map_err(|exceeded| {
        // SAFETY: as above.
        unsafe { log::exceeded(context, "SRQ", exceeded.quantity.name(), exceeded.asked, exceeded.limit) }
    })?;
    let rq_pages = u16::try_from(size.pages()).map_err(|_| Errno::INVALID)?;
    let kind = RegisterMemoryRequest {
        reg_type: SHARED_RECEIVE_QUEUE,
        rq_pages,
        ..RegisterMemoryRequest::default()
    };
    let memory = QueueMemory::allocate_in(domain, pd, size.bytes() + SHADOW_BYTES, kind)?;
    let ring_base = memory.buffer().base();
    // SAFETY: the memory has that many bytes behind the ring.
    let shadow_base = unsafe { ring_base.add(size.bytes()) };

    let mut srq = Box::<SharedReceiveQueue>::new_uninit();
    let at = srq.as_mut_ptr();
    let mut asked = ibv_srq_init_attr { attr: *attributes, ..ibv_srq_init_attr::default() };
    let addresses = CreateSrqRequest {
        user_srq_buf: memory.buffer().address(),
        user_shadow_area: shadow_base.as_ptr().expose_provenance() as u64,
    };
    // SAFETY: the first field, of which all bytes zero is a value; what the request
    // names is registered.
    let (response, kernel) = unsafe {
        let verbs = (&raw mut (*at).verbs).cast::<verbs_srq>();
        verbs.write_bytes(0, 1);
        let response = command::create_srq(pd.as_ptr(), verbs.cast(), &mut asked, addresses)?;
        (response, KernelSharedReceiveQueue(NonNull::new(verbs.cast())))
    };
    let Some(answered) = size.answered(response.srq_size) else {
        let (answer, most) = (response.srq_size, size.quanta);
        let why = format_args!("SRQ: the kernel answers a size of {answer} in a ring of {most} quanta");
        // SAFETY: as above.
        return Err(unsafe { log::refused(context, Errno::INVALID, why) });
    };

    // SAFETY: the size is within that the memory was laid out for, the shadow area behind
    // it, and the memory lives as long as the queue.
    let parts = unsafe {
        SharedReceiveQueueParts {
            ring: QuantumRing::new(ring_base, answered.quanta),
            shadow: ShadowArea::new(shadow_base),
            shift: answered.shift,
            max_fragments: limits.shared_fragments(answered),
        }
    };
    let single_threaded = domain.is_single_threaded() || owner.is_single_threaded();
    let created =
        ibv_srq_attr { max_wr: answered.usable_entries(), max_sge: asked.attr.max_sge, ..*attributes };
    // SAFETY: the first field was initialised above, each other field is written here, once.
    let srq = unsafe {
        (&raw mut (*at).lock).write(Lock::unless(single_threaded));
        (&raw mut (*at).queue).write(queue::SharedReceiveQueue::new(parts));
        (&raw mut (*at).created).write(created);
        (&raw mut (*at).domain).write(NonNull::from(domain));
        (&raw mut (*at).kernel).write(kernel);
        (&raw mut (*at)._memory).write(memory);
        srq.assume_init()
    };
    let srq = owner.objects()?.adopt(srq)?;
    domain.enter();
    *attributes = created;
    Ok(srq)
}

unsafe extern "C" fn create_srq(pd: *mut ibv_pd, attributes: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    // SAFETY: libibverbs calls with a domain of ours and the program's attributes.
    unsafe {
        let context = (*pd).context;
        boundary::object(context, "create_srq", || {
            let pd = NonNull::new(pd).ok_or(Errno::INVALID)?;
            create(pd, &mut (*attributes).attr).map(NonNull::cast)
        })
    }
}

/// What a queue belongs to; libibverbs has it in the part that programs see.
///
/// # Safety
/// `srq` is alive.
unsafe fn context_of(srq: *mut ibv_srq) -> *mut ibv_context {
    // SAFETY: as the caller promises.
    unsafe { (*srq).context }
}

unsafe extern "C" fn modify_srq(srq: *mut ibv_srq, attributes: *mut ibv_srq_attr, mask: c_int) -> c_int {
    // SAFETY: libibverbs calls with what `create_srq` returned and the program's attributes.
    unsafe { boundary::status(context_of(srq), "modify_srq", || command::modify_srq(srq, attributes, mask)) }
}

unsafe extern "C" fn query_srq(srq: *mut ibv_srq, attributes: *mut ibv_srq_attr) -> c_int {
    // SAFETY: libibverbs calls with what `create_srq` returned and room for attributes.
    unsafe { boundary::status(context_of(srq), "query_srq", || command::query_srq(srq, attributes)) }
}

unsafe extern "C" fn destroy_srq(srq: *mut ibv_srq) -> c_int {
    // SAFETY: libibverbs calls with what `create_srq` returned. Of its queue pairs none is
    // left, the kernel refuses otherwise, so no poller looks at it.
    unsafe {
        let context = context_of(srq);
        boundary::status(context, "destroy_srq", || {
            Errno::check(ibv_cmd_destroy_srq(srq))?;
            let queue = NonNull::from(SharedReceiveQueue::of(srq));
            let mut srq = Context::of(context).objects()?.take_back(queue);
            srq.kernel.0 = None;
            let domain = srq.domain;
            // Its memory may be the domain's.
            drop(srq);
            domain.as_ref().leave();
            Ok(())
        })
    }
}

/// Fills the operations of this file, if the device has such queues; libibverbs refuses
/// them with `EOPNOTSUPP` otherwise.
pub fn install(operations: &mut verbs_context_ops, capabilities: &Capabilities) {
    if !capabilities.limits.features.contains(Features::SHARED_RECEIVE) {
        return;
    }
    operations.create_srq = Some(create_srq);
    operations.modify_srq = Some(modify_srq);
    operations.query_srq = Some(query_srq);
    operations.destroy_srq = Some(destroy_srq);
    operations.post_srq_recv = Some(post_srq_recv);
}
