//! An open device: what the kernel offered, the doorbell page, and everything made from it.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::offset_of;
use core::ptr::{NonNull, drop_in_place, null_mut};
use core::sync::atomic::{AtomicBool, Ordering};

use irdma_hw::limits::DeviceLimits;
use rdma_core_sys::bindings::{
    _verbs_init_and_alloc_context, ibv_context, ibv_device, ibv_pd, verbs_context, verbs_context_ops,
    verbs_set_ops, verbs_uninit_context,
};

use crate::boundary;
use crate::capabilities::Capabilities;
use crate::environment;
use crate::errno::{Errno, Result};
use crate::holdings::{Holdings, Lazy, ProtectionDomain, QueuePairs};
use crate::log::{self, Level};
use crate::matching::DRIVER_ID;
use crate::memory::DevicePage;
use crate::negotiation::{self, Opened};
use crate::objects::Objects;
use crate::operations;
use crate::process_barrier;
use crate::push::{PushPages, Wish};

/// An open device. Libibverbs allocates it, and knows its first field only.
///
/// Small, as many programs only open a device and look: what objects need is in [`Holdings`].
#[repr(C)]
pub struct Context {
    // Libibverbs writes to it while others hold references to the whole.
    verbs: UnsafeCell<verbs_context>,
    holdings: Lazy<Holdings>,
    doorbell: DevicePage,
    capabilities: Capabilities,
    closing: AtomicBool,
    single_threaded: bool,
    huge_pages: bool,
    push_wish: Wish,
}

const _: () = assert!(offset_of!(Context, verbs) == 0);

impl Context {
    /// The context around what a verb was given.
    ///
    /// # Safety
    /// `context` is one that this provider opened and that is not closed for as long
    /// as the answer is used.
    pub unsafe fn of<'a>(context: *mut ibv_context) -> &'a Context {
        // SAFETY: as the caller promises.
        unsafe { &*Context::around(context) }
    }

    /// Where the context around libibverbs' part is.
    ///
    /// # Safety
    /// `context` is one that this provider opened.
    unsafe fn around(context: *mut ibv_context) -> *mut Context {
        // SAFETY: libibverbs' context is inside the first field of ours.
        unsafe { context.byte_sub(offset_of!(verbs_context, context)).cast() }
    }

    /// Formats, features and sizes.
    pub fn limits(&self) -> &DeviceLimits {
        &self.capabilities.limits
    }

    /// What else the kernel said.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// The doorbell page; at least as long as a system page.
    pub fn doorbell(&self) -> &DevicePage {
        &self.doorbell
    }

    /// What it has from its first object on. Fails at the first one only.
    fn holdings(&self) -> Result<&Holdings> {
        self.holdings.get_or_make(|| {
            process_barrier::register();
            // SAFETY: the open context that this is.
            let queue_memory_pd = unsafe { ProtectionDomain::new(&raw mut (*self.verbs.get()).context)? };
            Ok(Holdings {
                push_pages: PushPages::default(),
                objects: Objects::default(),
                queue_pairs: QueuePairs::new(self.capabilities.queue_pairs)?,
                queue_memory_pd,
            })
        })
    }

    /// Whether it has had an object, and with it all that objects need.
    pub fn has_had_objects(&self) -> bool {
        self.holdings.is_made()
    }

    /// The protection domain of the memory of queues that have none of their own.
    pub fn queue_memory_pd(&self) -> Result<NonNull<ibv_pd>> {
        self.holdings().map(|holdings| holdings.queue_memory_pd.as_ibv())
    }

    /// The queue pairs that completions may be about.
    pub fn queue_pairs(&self) -> Result<&QueuePairs> {
        self.holdings().map(|holdings| &holdings.queue_pairs)
    }

    /// The objects that the program holds.
    pub fn objects(&self) -> Result<&Objects> {
        self.holdings().map(|holdings| &holdings.objects)
    }

    /// Whether the person who runs the program says that it needs no locks.
    pub fn is_single_threaded(&self) -> bool {
        self.single_threaded
    }

    /// Whether that person wants rings on huge pages.
    pub fn uses_huge_pages(&self) -> bool {
        self.huge_pages
    }

    /// What that person wants of push pages.
    pub fn push_wish(&self) -> Wish {
        self.push_wish
    }

    /// The push pages of its queue pairs.
    pub fn push_pages(&self) -> Result<&PushPages> {
        self.holdings().map(|holdings| &holdings.push_pages)
    }

    /// Whether the kernel has already freed everything of this context, so that
    /// nothing may be asked of it any more.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }
}

/// A context that libibverbs has allocated and whose opening may still fail.
struct Opening(NonNull<Context>);

impl Opening {
    /// Takes over `descriptor`, also in failure.
    ///
    /// # Safety
    /// `device` is one of this provider.
    unsafe fn begin(device: *mut ibv_device, descriptor: c_int) -> Result<Opening> {
        let offset = null_mut::<verbs_context>().with_addr(offset_of!(Context, verbs));
        // SAFETY: the size has room for a verbs_context at that offset.
        let context = unsafe {
            _verbs_init_and_alloc_context(device, descriptor, size_of::<Context>(), offset, DRIVER_ID)
        };
        NonNull::new(context.cast()).map(Opening).ok_or_else(Errno::last)
    }

    fn verbs(&self) -> *mut verbs_context {
        // The first field.
        self.0.as_ptr().cast()
    }

    fn ibv(&self) -> *mut ibv_context {
        // SAFETY: initialised by libibverbs.
        unsafe { &raw mut (*self.verbs()).context }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        // SAFETY: initialised by libibverbs and not handed out; closes the descriptor.
        unsafe {
            verbs_uninit_context(self.verbs());
            libc::free(self.0.as_ptr().cast());
        }
    }
}

/// Opens a device.
///
/// # Safety
/// `device` is one of this provider.
unsafe fn open(device: *mut ibv_device, descriptor: c_int) -> Result<NonNull<Context>> {
    log::configure();
    // SAFETY: as the caller promises.
    let opening = unsafe { Opening::begin(device, descriptor)? };
    let (verbs, ibv) = (opening.verbs(), opening.ibv());
    // SAFETY: set by libibverbs to the size it knows.
    let known = unsafe { (*verbs).sz };
    if known != size_of::<verbs_context>() {
        let built = size_of::<verbs_context>();
        // SAFETY: being opened.
        unsafe {
            log::line(
                ibv,
                Level::Error,
                format_args!("open: libibverbs has contexts of {known} bytes, built for {built}"),
            );
        }
        return Err(Errno::NOT_SUPPORTED);
    }
    process_barrier::register_early();
    // SAFETY: being opened.
    let Opened { capabilities, doorbell_key } = unsafe { negotiation::open(verbs)? };
    let doorbell = DevicePage::map(descriptor, doorbell_key)?;

    let context = opening.0;
    let at = context.as_ptr();
    // SAFETY: allocated for a Context, of which libibverbs initialised the first field;
    // the others are written here, each once.
    unsafe {
        (&raw mut (*at).holdings).write(Lazy::new());
        (&raw mut (*at).doorbell).write(doorbell);
        (&raw mut (*at).capabilities).write(capabilities);
        (&raw mut (*at).closing).write(AtomicBool::new(false));
        (&raw mut (*at).single_threaded).write(environment::is_on(environment::SINGLE_THREADED));
        (&raw mut (*at).huge_pages).write(environment::is_on(environment::HUGE_PAGES));
        (&raw mut (*at).push_wish).write(Wish::look_up(ibv));
        verbs_set_ops(verbs, &operations::table(&capabilities));
    }
    core::mem::forget(opening);
    Ok(context)
}

/// Opens a device for libibverbs; NULL and `errno` if that fails. The descriptor is ours from here on.
///
/// # Safety
/// Called by libibverbs with a device of this provider.
pub unsafe extern "C" fn alloc_context(
    device: *mut ibv_device,
    descriptor: c_int,
    _private_data: *mut c_void,
) -> *mut verbs_context {
    // SAFETY: as the caller promises.
    match boundary::caught(|| unsafe { open(device, descriptor) }) {
        Some(Ok(context)) => context.as_ptr().cast(),
        failed => {
            failed.and_then(Result::err).unwrap_or(Errno::INTERNAL).set();
            null_mut()
        }
    }
}

/// Closes a device and drops what the program has left.
///
/// # Safety
/// Called by libibverbs; nothing of the context is used any more.
pub unsafe extern "C" fn free_context(context: *mut ibv_context) {
    // SAFETY: of this provider.
    let context = unsafe { Context::around(context) };
    // The pages of the device first: the kernel holds the context open as long as one is mapped.
    // Then the descriptor, with which the kernel destroys every object, and only then the
    // memory that the device was working on.
    // SAFETY: each field is dropped once, and nobody else uses the context.
    unsafe {
        if let Some(holdings) = (*context).holdings.get_mut() {
            holdings.push_pages.unmap();
        }
        drop_in_place(&raw mut (*context).doorbell);
        (*context).closing.store(true, Ordering::Relaxed);
        verbs_uninit_context(context.cast());
        drop_in_place(&raw mut (*context).holdings);
        libc::free(context.cast());
    }
}

/// Fills the operations of this file.
pub fn install(operations: &mut verbs_context_ops) {
    operations.free_context = Some(free_context);
}
