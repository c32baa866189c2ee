//! Completion queues: creation, destruction, events. Polling is in `poll_cq` and `cq_ex`.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::fmt::Arguments;
use core::mem::offset_of;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use irdma_hw::format::{COMPLETION_DOORBELL, SHADOW_BYTES};
use irdma_hw::limits::{CompletionQueueSize, DeviceLimits, Features};
use irdma_hw::queue::{self, CompletionQueueParts};
use irdma_hw::ring::{CompletionRing, Doorbell, ShadowArea};
use rdma_core_sys::bindings::{
    IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CQ_INIT_ATTR_MASK_PD, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN,
    IBV_CREATE_CQ_ATTR_SINGLE_THREADED, ibv_cmd_destroy_cq, ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex,
    ibv_cq_init_attr_ex, verbs_context_ops, verbs_cq,
};
use rdma_core_sys::driver_data::{COMPLETION_QUEUE, CreateCqRequest, RegisterMemoryRequest, ResizeCqRequest};

use crate::boundary;
use crate::capabilities::Capabilities;
use crate::command;
use crate::context::{Context, QueuePairs};
use crate::cq_ex::{self, Current};
use crate::domain::Domain;
use crate::errno::{Errno, Result};
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
    verbs: UnsafeCell<verbs_cq>,
    lock: Lock,
    /// Under `lock`.
    queue: UnsafeCell<queue::CompletionQueue>,
    /// What the extended interface reads. Under `lock`.
    current: UnsafeCell<Current>,
    /// A queue pair that completes here may have work that the device does not complete (GEN3).
    has_abandoned: AtomicBool,
    /// Of the context, which outlives the queue.
    queue_pairs: NonNull<QueuePairs>,
    /// Of those.
    finder: Finder<QueuePair, CompletionQueue>,
    // Before the memory that it works on.
    kernel: KernelCompletionQueue,
    rings: Mutex<Rings>,
    /// The parent domain that it was created in, if any; outlives it.
    domain: Option<NonNull<Domain>>,
    /// `None`: the shadow area follows the ring.
    _shadow: Option<QueueMemory>,
}

const _: () = assert!(offset_of!(CompletionQueue, verbs) == 0);

/// The memory of a queue's rings.
struct Rings {
    size: CompletionQueueSize,
    current: QueueMemory,
    /// Of before a resize, oldest first; the device may still write to them.
    old: VecDeque<QueueMemory>,
}

/// The kernel's half of a queue; destroyed on drop unless the verb has done so.
struct KernelCompletionQueue(Option<NonNull<ibv_cq>>);

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
unsafe fn size_for(
    context: *mut ibv_context,
    limits: &DeviceLimits,
    entries: u32,
) -> Result<CompletionQueueSize> {
    if entries == 0 {
        // SAFETY: as the caller promises.
        let refused = |why: Arguments<'_>| unsafe { log::refused(context, Errno::INVALID, why) };
        return Err(refused(format_args!("CQ: cqe 0 is below the least, 1")));
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
unsafe fn entries_of(context: *mut ibv_context, cqe: c_int) -> Result<u32> {
    u32::try_from(cqe).map_err(|_| {
        let why = format_args!("CQ: cqe {cqe} is below the least, 1");
        // SAFETY: as the caller promises.
        unsafe { log::refused(context, Errno::INVALID, why) }
    })
}

/// Memory of a ring, with room for a shadow area behind it if it is to follow.
fn ring_memory(
    context: &Context,
    domain: Option<&Domain>,
    size: CompletionQueueSize,
    shadow_bytes: usize,
) -> Result<QueueMemory> {
    let cq_pages = u16::try_from(size.pages()).map_err(|_| Errno::INVALID)?;
    let kind =
        RegisterMemoryRequest { reg_type: COMPLETION_QUEUE, cq_pages, ..RegisterMemoryRequest::default() };
    let (pd, bytes) = (context.queue_memory_pd(), size.bytes() + shadow_bytes);
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
        Some(QueueMemory::allocate(owner.queue_memory_pd(), SHADOW_BYTES, kind)?)
    } else {
        None
    };
    let shadow_base = match &shadow {
        Some(shadow) => shadow.buffer().base(),
        // SAFETY: the memory has that many bytes behind the ring.
        None => unsafe { ring.buffer().base().add(size.bytes()) },
    };
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
        (&raw mut (*at).queue_pairs).write(NonNull::from(owner.queue_pairs()));
        (&raw mut (*at).finder).write(owner.queue_pairs().finder());
        (&raw mut (*at).kernel).write(kernel);
        (&raw mut (*at).rings).write(Mutex::new(Rings { size, current: ring, old: VecDeque::new() }));
        (&raw mut (*at).domain).write(domain.map(NonNull::from));
        (&raw mut (*at)._shadow).write(shadow);
        cq.assume_init()
    };
    if request.extended {
        cq_ex::install(&cq, limits, request.attributes.wc_flags);
    }
    let cq = owner.objects().adopt(cq)?;
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

unsafe extern "C" fn destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: libibverbs calls with what `create_cq` returned.
    unsafe {
        let context = (*cq).context;
        boundary::status(context, "destroy_cq", || {
            Errno::check(ibv_cmd_destroy_cq(cq))?;
            let mut cq = Context::of(context).objects().take_back(NonNull::from(CompletionQueue::of(cq)));
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
    if size == rings.size {
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
    let verbs = cq.verbs.get().cast::<ibv_cq>();
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
    // SAFETY: the queue is alive.
    unsafe { (*verbs).cqe = entries as c_int };
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
    operations.create_cq = Some(create_cq);
    operations.create_cq_ex = Some(create_cq_ex);
    operations.destroy_cq = Some(destroy_cq);
    operations.resize_cq = Some(resize_cq);
    operations.req_notify_cq = Some(req_notify_cq);
    operations.cq_event = Some(cq_event);
    poll_cq::install(operations, capabilities.limits.generation);
}
