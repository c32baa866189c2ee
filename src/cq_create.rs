//! Creation of completion queues.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::fmt::Arguments;
use core::ptr::NonNull;
use core::sync::atomic::AtomicBool;
use std::collections::VecDeque;
use std::sync::Mutex;

use irdma_hw::format::{COMPLETION_DOORBELL, SHADOW_BYTES};
use irdma_hw::limits::{CompletionQueueSize, DeviceLimits, Features};
use irdma_hw::queue::{self, CompletionQueueParts};
use irdma_hw::ring::{CompletionRing, Doorbell, ShadowArea};
use rdma_core_sys::bindings::{
    IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CQ_INIT_ATTR_MASK_PD, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN,
    IBV_CREATE_CQ_ATTR_SINGLE_THREADED, ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex,
    ibv_cq_init_attr_ex, verbs_context_ops, verbs_cq,
};
use rdma_core_sys::driver_data::{COMPLETION_QUEUE, CreateCqRequest, RegisterMemoryRequest};

use crate::boundary;
use crate::command;
use crate::context::Context;
use crate::cq::{CompletionQueue, KernelCompletionQueue, Rings};
use crate::cq_ex::{self, Current};
use crate::domain::Domain;
use crate::errno::{Errno, Result};
use crate::lock::Lock;
use crate::log;
use crate::memory::QueueMemory;

/// Flags of a completion queue that mean something here.
const KNOWN_FLAGS: u32 = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;

/// What a program may ask a completion queue for.
struct Request<'a> {
    attributes: &'a ibv_cq_init_attr_ex,
    extended: bool,
}

impl Request<'_> {
    /// The parent domain to create the queue in, if any. Only parent domains have a meaning
    /// for a completion queue.
    ///
    /// # Safety
    /// It is alive.
    unsafe fn domain<'a>(&self, context: *mut ibv_context) -> Result<Option<&'a Domain>> {
        if self.attributes.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD == 0 {
            return Ok(None);
        }
        // SAFETY: as the caller promises.
        let domain = NonNull::new(self.attributes.parent_domain).map(|pd| unsafe { Domain::of(pd.as_ptr()) });
        if let Some(domain) = domain.filter(|domain| domain.pd.context == context && domain.is_parent()) {
            return Ok(Some(domain));
        }
        let why = format_args!("CQ: parent_domain is no parent domain of this context");
        // SAFETY: as the caller promises.
        Err(unsafe { log::refused(context, Errno::INVALID, why) })
    }

    /// The attributes' flags, if they are to be looked at.
    fn flags(&self) -> u32 {
        if self.attributes.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0 { self.attributes.flags } else { 0 }
    }
}

/// Checks the number of entries, and says so if there are too many or none.
///
/// # Safety
/// `context` is open.
pub(crate) unsafe fn size_for(
    context: *mut ibv_context,
    limits: &DeviceLimits,
    entries: u32,
) -> Result<CompletionQueueSize> {
    if entries == 0 {
        // SAFETY: as the caller promises.
        let refused = |why: Arguments<'_>| unsafe { log::refused(context, Errno::INVALID, why) };
        return Err(refused(format_args!("CQ: cqe {entries} is below the least, 1")));
    }
    limits.completion_queue(entries).map_err(|exceeded| {
        // SAFETY: as the caller promises.
        unsafe { log::exceeded(context, "CQ", exceeded.quantity.name(), exceeded.asked, exceeded.limit) }
    })
}

/// A number of entries as the program gives it; says so if it is negative.
///
/// # Safety
/// `context` is open.
pub(crate) unsafe fn entries_of(context: *mut ibv_context, cqe: c_int) -> Result<u32> {
    u32::try_from(cqe).map_err(|_| {
        let why = format_args!("CQ: cqe {cqe} is below the least, 1");
        // SAFETY: as the caller promises.
        unsafe { log::refused(context, Errno::INVALID, why) }
    })
}

/// Memory of a ring, with room for a shadow area behind it if it is to follow.
pub(crate) fn ring_memory(
    context: &Context,
    domain: Option<&Domain>,
    size: CompletionQueueSize,
    shadow_bytes: usize,
) -> Result<QueueMemory> {
    let cq_pages = u16::try_from(size.pages()).map_err(|_| Errno::INVALID)?;
    let kind =
        RegisterMemoryRequest { reg_type: COMPLETION_QUEUE, cq_pages, ..RegisterMemoryRequest::default() };
    let (pd, bytes) = (context.queue_memory_pd()?, size.bytes() + shadow_bytes);
    match domain {
        Some(domain) => QueueMemory::allocate_in(domain, pd, bytes, kind),
        None => QueueMemory::allocate(pd, bytes, kind),
    }
}

/// Creates a queue.
///
/// # Safety
/// `context` is open, and what the attributes point to valid.
unsafe fn create(context: *mut ibv_context, request: Request<'_>) -> Result<NonNull<CompletionQueue>> {
    // SAFETY: as the caller promises.
    let owner = unsafe { Context::of(context) };
    // SAFETY: as the caller promises.
    let refused = |errno, why: Arguments<'_>| unsafe { log::refused(context, errno, why) };
    let limits = owner.limits();
    if request.extended {
        let (asked, readable) = (request.attributes.wc_flags, cq_ex::readable(limits));
        if readable.is_none_or(|readable| asked & !readable != 0) {
            let readable = readable.unwrap_or(0);
            let why = format_args!("CQ: extended, wc_flags {asked:#x}, of which {readable:#x} are possible");
            return Err(refused(Errno::NOT_SUPPORTED, why));
        }
    }
    let flags = request.flags();
    if flags & !KNOWN_FLAGS != 0 {
        let why = format_args!("CQ: flags {flags:#x}, of which {KNOWN_FLAGS:#x} are known");
        return Err(refused(Errno::NOT_SUPPORTED, why));
    }
    let entries = request.attributes.cqe;
    // SAFETY: as the caller promises.
    let size = unsafe { size_for(context, limits, entries)? };

    let separate_shadow = limits.features.contains(Features::CQ_RESIZE);
    // SAFETY: as the caller promises.
    let domain = unsafe { request.domain(context)? };
    let ring = ring_memory(owner, domain, size, if separate_shadow { 0 } else { SHADOW_BYTES })?;
    let shadow = if separate_shadow {
        let kind = RegisterMemoryRequest { reg_type: COMPLETION_QUEUE, cq_pages: 1, ..Default::default() };
        Some(QueueMemory::allocate(owner.queue_memory_pd()?, SHADOW_BYTES, kind)?)
    } else {
        None
    };
    let shadow_base = match &shadow {
        Some(shadow) => shadow.buffer().base(),
        // SAFETY: the memory has that many bytes behind the ring.
        None => unsafe { ring.buffer().base().add(size.bytes()) },
    };
    let queue_pairs = owner.queue_pairs()?;
    let doorbell = owner.doorbell().at(COMPLETION_DOORBELL, size_of::<u32>()).ok_or(Errno::INTERNAL)?;

    let mut cq = Box::<CompletionQueue>::new_uninit();
    let at = cq.as_mut_ptr();
    let asked = ibv_cq_init_attr_ex { cqe: size.slots, ..*request.attributes };
    let addresses = CreateCqRequest {
        user_cq_buf: ring.buffer().address(),
        user_shadow_area: shadow_base.as_ptr().expose_provenance() as u64,
    };
    // SAFETY: the first field, of which all bytes zero is a value; what the request
    // names is registered.
    let (response, kernel) = unsafe {
        let verbs = (&raw mut (*at).verbs).cast::<verbs_cq>();
        verbs.write_bytes(0, 1);
        let response = command::create_cq(context, &asked, verbs, 0, addresses)?;
        (response, KernelCompletionQueue(NonNull::new(verbs.cast())))
    };
    if response.cq_size > size.slots || response.cq_size < 2 {
        let (answer, most) = (response.cq_size, size.slots);
        let why = format_args!("CQ: the kernel answers {answer} slots for a ring of {most}");
        return Err(refused(Errno::INVALID, why));
    }

    // SAFETY: the ring, the shadow area and the doorbell page live as long as the queue
    // does, and nobody else uses them.
    let parts = unsafe {
        CompletionQueueParts {
            ring: CompletionRing::new(
                ring.buffer().base(),
                CompletionQueueSize { slots: response.cq_size, ..size },
            ),
            shadow: ShadowArea::new(shadow_base),
            doorbell: Doorbell::new(doorbell),
            number: response.cq_id,
        }
    };
    let single_threaded = flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0
        || domain.is_some_and(Domain::is_single_threaded)
        || owner.is_single_threaded();
    // SAFETY: the first field was initialised above, each other field is written here, once.
    let cq = unsafe {
        (*(&raw mut (*at).verbs).cast::<ibv_cq>()).cqe = entries as c_int;
        (&raw mut (*at).lock).write(Lock::unless(single_threaded));
        (&raw mut (*at).queue).write(UnsafeCell::new(queue::CompletionQueue::new(parts)));
        (&raw mut (*at).current).write(UnsafeCell::new(Current::NONE));
        (&raw mut (*at).has_abandoned).write(AtomicBool::new(false));
        (&raw mut (*at).queue_pairs).write(NonNull::from(queue_pairs));
        (&raw mut (*at).finder).write(queue_pairs.finder());
        (&raw mut (*at).kernel).write(kernel);
        (&raw mut (*at).rings).write(Mutex::new(Rings { size, current: ring, old: VecDeque::new() }));
        (&raw mut (*at).domain).write(domain.map(NonNull::from));
        (&raw mut (*at)._shadow).write(shadow);
        cq.assume_init()
    };
    if request.extended {
        cq_ex::install(&cq, limits, request.attributes.wc_flags);
    }
    let cq = owner.objects()?.adopt(cq)?;
    if let Some(domain) = domain {
        domain.enter();
    }
    Ok(cq)
}

unsafe extern "C" fn create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    // SAFETY: libibverbs calls with an open context of ours.
    unsafe {
        boundary::object(context, "create_cq", || {
            let attributes = ibv_cq_init_attr_ex {
                cqe: entries_of(context, cqe)?,
                channel,
                comp_vector: comp_vector as u32,
                ..ibv_cq_init_attr_ex::default()
            };
            create(context, Request { attributes: &attributes, extended: false }).map(NonNull::cast)
        })
    }
}

unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attributes: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    // SAFETY: libibverbs calls with an open context of ours and the program's attributes.
    unsafe {
        boundary::object(context, "create_cq_ex", || {
            create(context, Request { attributes: &*attributes, extended: true }).map(NonNull::cast)
        })
    }
}

/// Fills the operations of this file.
pub fn install(operations: &mut verbs_context_ops) {
    operations.create_cq = Some(create_cq);
    operations.create_cq_ex = Some(create_cq_ex);
}
