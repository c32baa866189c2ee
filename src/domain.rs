//! Thread domains and parent domains: which queues need no lock, and whose memory they take.
//!
//! Neither exists for the kernel. A parent domain is a protection domain to whoever gets
//! one: it has the kernel's handle of the domain below it.

use core::ffi::{c_int, c_void};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicUsize, Ordering};

use rdma_core_sys::bindings::{
    IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS, IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT, ibv_context,
    ibv_parent_domain_init_attr, ibv_pd, ibv_td, ibv_td_init_attr, verbs_context_ops,
};

use crate::boundary;
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::log;
use crate::matching::DRIVER_ID;

/// How many objects are made from something, which must not go before them.
#[derive(Default)]
struct Users(AtomicUsize);

impl Users {
    fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn remove(&self) {
        // Release: what the user did is done before whoever finds none left frees it.
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// Refuses while there is one.
    ///
    /// # Safety
    /// `context` is open.
    unsafe fn none_left(&self, context: *mut ibv_context, object: &str) -> Result<()> {
        // Acquire: see `remove`.
        let left = self.0.load(Ordering::Acquire);
        if left == 0 {
            return Ok(());
        }
        let why = format_args!("{object}: {left} that were made with it are not destroyed yet");
        // SAFETY: as the caller promises.
        Err(unsafe { log::refused(context, Errno::BUSY, why) })
    }
}

/// A protection domain or a parent domain. Libibverbs knows its first field only.
#[derive(Default)]
#[repr(C)]
pub struct Domain {
    pub(crate) pd: ibv_pd,
    /// Parent domains on it, and if it is one itself, the objects in it. The kernel knows
    /// those of a protection domain.
    users: Users,
    parent: Option<Parent>,
}

/// What a parent domain has besides.
struct Parent {
    below: NonNull<Domain>,
    threads: Option<NonNull<ThreadDomain>>,
    allocator: Option<Allocator>,
}

/// A promise that one thread at a time uses what is made in it. Libibverbs knows its first field only.
#[derive(Default)]
#[repr(C)]
struct ThreadDomain {
    td: ibv_td,
    /// Parent domains with it.
    users: Users,
}

type Allocate = unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, usize, u64) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut ibv_pd, *mut c_void, *mut c_void, u64);

/// A program's functions for the memory of queues.
#[derive(Clone, Copy)]
struct Allocator {
    allocate: Allocate,
    free: Free,
    context: *mut c_void,
}

impl Domain {
    /// The domain around what a verb was given.
    ///
    /// # Safety
    /// `pd` is one that this provider handed out and that is not freed for as long as
    /// the answer is used.
    pub unsafe fn of<'a>(pd: *mut ibv_pd) -> &'a Domain {
        // SAFETY: as the caller promises; the first field.
        unsafe { &*pd.cast() }
    }

    /// Whether one thread at a time uses what is made in it.
    pub fn is_single_threaded(&self) -> bool {
        self.parent.as_ref().is_some_and(|parent| parent.threads.is_some())
    }

    /// Whether it is a parent domain.
    pub fn is_parent(&self) -> bool {
        self.parent.is_some()
    }

    /// Counts an object that is made in it.
    pub fn enter(&self) {
        if self.is_parent() {
            self.users.add();
        }
    }

    /// Counts an object less.
    pub fn leave(&self) {
        if self.is_parent() {
            self.users.remove();
        }
    }

    /// Refuses while something needs it; a parent domain lets go of what it joins.
    pub fn release(&self) -> Result<()> {
        let object = if self.is_parent() { "parent domain" } else { "PD" };
        // SAFETY: a domain's context is open.
        unsafe { self.users.none_left(self.pd.context, object)? };
        if let Some(parent) = &self.parent {
            // SAFETY: both are kept by the counts that go down here.
            unsafe {
                parent.below.as_ref().users.remove();
                if let Some(threads) = parent.threads {
                    threads.as_ref().users.remove();
                }
            }
        }
        Ok(())
    }

    /// Memory of the program's for a queue of the kind `resource`: `length` zeroed bytes, aligned
    /// to `alignment`. `None` if the program leaves it to the provider.
    pub fn allocate(&self, length: usize, alignment: usize, resource: u16) -> Result<Option<Lent>> {
        /// `IBV_ALLOCATOR_USE_DEFAULT`
        const USE_DEFAULT: usize = usize::MAX;
        let Some(allocator) = self.parent.as_ref().and_then(|parent| parent.allocator) else {
            return Ok(None);
        };
        let pd = (&raw const self.pd).cast_mut();
        let resource = u64::from(DRIVER_ID) << 32 | u64::from(resource);
        // SAFETY: the program's function, called as the manual page says.
        let base = unsafe { (allocator.allocate)(pd, allocator.context, length, alignment, resource) };
        if base.addr() == USE_DEFAULT {
            return Ok(None);
        }
        let Some(base) = NonNull::new(base.cast::<u8>()) else {
            let why = format_args!("parent domain: its allocator gives no memory of {length} bytes");
            // SAFETY: the domain's context is open.
            return Err(unsafe { log::refused(self.pd.context, Errno::NO_MEMORY, why) });
        };
        let lent = Lent { base, context: self.pd.context, pd, allocator, resource };
        if !base.addr().get().is_multiple_of(alignment) {
            let why = format_args!("parent domain: its allocator gives {base:p}, not aligned to {alignment}");
            // SAFETY: the domain's context is open.
            return Err(unsafe { log::refused(self.pd.context, Errno::INVALID, why) });
        }
        // The program should have done so, but a device would take what is left in it for work.
        // SAFETY: the program has given that many bytes.
        unsafe { base.write_bytes(0, length) };
        Ok(Some(lent))
    }
}

/// Memory of the program's, given back on drop.
pub struct Lent {
    base: NonNull<u8>,
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    allocator: Allocator,
    resource: u64,
}

impl Lent {
    /// Its first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // SAFETY: the context outlives what is made through it. The domain is there as long as an
        // object in it, unless the context is being closed: then it may be gone, and what it lent
        // stays with the program.
        unsafe {
            if Context::of(self.context).is_closing() {
                return;
            }
            (self.allocator.free)(self.pd, self.allocator.context, self.base.as_ptr().cast(), self.resource)
        };
    }
}

// SAFETY: memory belongs to the process; the program's functions may be called from any thread.
unsafe impl Send for Lent {}
// SAFETY: never changed.
unsafe impl Sync for Lent {}

/// The program's functions, if it has given any.
///
/// # Safety
/// `context` is open.
unsafe fn allocator_of(
    context: *mut ibv_context,
    attributes: &ibv_parent_domain_init_attr,
) -> Result<Option<Allocator>> {
    let has = |mask| attributes.comp_mask & mask != 0;
    if !has(IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) {
        return Ok(None);
    }
    let (Some(allocate), Some(free)) = (attributes.alloc, attributes.free) else {
        let why = format_args!("parent domain: an allocator takes both functions, alloc and free");
        // SAFETY: as the caller promises.
        return Err(unsafe { log::refused(context, Errno::INVALID, why) });
    };
    let own = if has(IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT) { attributes.pd_context } else { null_mut() };
    Ok(Some(Allocator { allocate, free, context: own }))
}

unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attributes: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    const KNOWN: u32 = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    // SAFETY: libibverbs calls with an open context of ours and the program's attributes.
    unsafe {
        boundary::object(context, "alloc_parent_domain", || {
            let attributes = attributes.as_ref();
            let below = attributes.and_then(|given| NonNull::new(given.pd.cast::<Domain>()));
            let Some((attributes, below)) = attributes.zip(below) else {
                let why = format_args!("parent domain: no attributes, or no PD in them");
                return Err(log::refused(context, Errno::INVALID, why));
            };
            let threads = NonNull::new(attributes.td.cast::<ThreadDomain>());
            let is_ours = below.as_ref().pd.context == context
                && threads.is_none_or(|threads| threads.as_ref().td.context == context);
            if attributes.comp_mask & !KNOWN != 0 {
                let mask = attributes.comp_mask;
                let why = format_args!("parent domain: comp_mask {mask:#x}, of which {KNOWN:#x} are known");
                return Err(log::refused(context, Errno::NOT_SUPPORTED, why));
            }
            if !is_ours {
                let why = format_args!("parent domain: a domain of another context");
                return Err(log::refused(context, Errno::INVALID, why));
            }
            let parent = Parent { below, threads, allocator: allocator_of(context, attributes)? };
            let pd = ibv_pd { context, handle: below.as_ref().pd.handle };
            let domain = Box::new(Domain { pd, parent: Some(parent), ..Domain::default() });
            let domain = Context::of(context).objects()?.adopt(domain)?;
            below.as_ref().users.add();
            if let Some(threads) = threads {
                threads.as_ref().users.add();
            }
            Ok(domain.cast())
        })
    }
}

unsafe extern "C" fn alloc_td(context: *mut ibv_context, attributes: *mut ibv_td_init_attr) -> *mut ibv_td {
    // SAFETY: libibverbs calls with an open context of ours and the program's attributes.
    unsafe {
        boundary::object(context, "alloc_td", || {
            if attributes.as_ref().is_none_or(|attributes| attributes.comp_mask != 0) {
                let why = format_args!("thread domain: no attributes, or a comp_mask that is not 0");
                return Err(log::refused(context, Errno::INVALID, why));
            }
            let threads = Box::new(ThreadDomain { td: ibv_td { context }, ..ThreadDomain::default() });
            Context::of(context).objects()?.adopt(threads).map(NonNull::cast)
        })
    }
}

unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    // SAFETY: libibverbs calls with what `alloc_td` returned.
    unsafe {
        let context = (*td).context;
        boundary::status(context, "dealloc_td", || {
            let threads = NonNull::new_unchecked(td.cast::<ThreadDomain>());
            threads.as_ref().users.none_left(context, "thread domain")?;
            Context::of(context).objects()?.take_back(threads);
            Ok(())
        })
    }
}

/// Fills the operations of this file.
pub fn install(operations: &mut verbs_context_ops) {
    operations.alloc_td = Some(alloc_td);
    operations.dealloc_td = Some(dealloc_td);
    operations.alloc_parent_domain = Some(alloc_parent_domain);
}
