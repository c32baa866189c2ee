//! Thread domains, parent domains, and memory that the program lends to queues.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use crate::context::{Context, Pd, check_destroyed};
use crate::sys::*;
use crate::{Errno, clear_errno, last_errno};

/// A thread domain.
pub struct ThreadDomain {
    raw: *mut ibv_td,
    _context: Arc<Context>,
}

// SAFETY: libibverbs objects may be used from any thread.
unsafe impl Send for ThreadDomain {}
// SAFETY: as above.
unsafe impl Sync for ThreadDomain {}

impl ThreadDomain {
    /// Allocates one.
    pub fn try_new(context: &Arc<Context>, comp_mask: u32) -> Result<Arc<ThreadDomain>, Errno> {
        let mut attributes = ibv_td_init_attr { comp_mask };
        clear_errno();
        // SAFETY: the context is alive, the attributes valid for the call.
        let raw = unsafe { ibv_alloc_td(context.raw(), &mut attributes) };
        if raw.is_null() {
            return Err(last_errno());
        }
        Ok(Arc::new(ThreadDomain { raw, _context: Arc::clone(context) }))
    }

    /// Allocates one, which must succeed.
    pub fn new(context: &Arc<Context>) -> Arc<ThreadDomain> {
        ThreadDomain::try_new(context, 0).unwrap_or_else(|errno| panic!("alloc_td: errno {errno}"))
    }

    /// The library's object.
    pub fn raw(&self) -> *mut ibv_td {
        self.raw
    }

    /// Tries to free it while something needs it: must be refused with the returned error number.
    pub fn refused_dealloc(&self) -> Errno {
        // SAFETY: the domain is alive; a refused call leaves it so, a success ends the program.
        let result = unsafe { ibv_dealloc_td(self.raw) };
        assert_ne!(result, 0, "dealloc_td of a domain in use");
        result
    }
}

impl Drop for ThreadDomain {
    fn drop(&mut self) {
        // SAFETY: every parent domain with it holds a reference to it, so all are gone.
        let result = unsafe { ibv_dealloc_td(self.raw) };
        check_destroyed("dealloc_td", result);
    }
}

/// Attributes of a parent domain.
pub fn attributes(below: &Arc<Pd>, threads: Option<&Arc<ThreadDomain>>) -> ibv_parent_domain_init_attr {
    ibv_parent_domain_init_attr {
        pd: below.raw(),
        td: threads.map_or(std::ptr::null_mut(), |threads| threads.raw()),
        ..ibv_parent_domain_init_attr::default()
    }
}

/// Allocates a parent domain with attributes that may be wrong.
pub fn try_parent(
    below: &Arc<Pd>,
    threads: Option<&Arc<ThreadDomain>>,
    attributes: &mut ibv_parent_domain_init_attr,
) -> Result<Arc<Pd>, Errno> {
    clear_errno();
    // SAFETY: the context is alive, the attributes valid for the call.
    let raw = unsafe { ibv_alloc_parent_domain(below.context().raw(), attributes) };
    if raw.is_null() { Err(last_errno()) } else { Ok(Pd::own_parent(raw, below, threads)) }
}

/// Allocates a parent domain, which must succeed.
pub fn parent(below: &Arc<Pd>, threads: Option<&Arc<ThreadDomain>>) -> Arc<Pd> {
    try_parent(below, threads, &mut attributes(below, threads))
        .unwrap_or_else(|errno| panic!("alloc_parent_domain: errno {errno}"))
}

/// What a [`Lender`] answers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Memory full of ones, as asked for.
    Memory,
    /// Memory that is not aligned.
    Misaligned,
    /// None.
    Nothing,
    /// That the provider has to see for itself.
    Default,
}

/// Memory that is lent.
#[derive(Clone, Copy)]
pub struct Loan {
    /// First byte.
    pub base: *mut u8,
    /// Bytes.
    pub length: usize,
    /// Alignment that was asked for.
    pub alignment: usize,
    /// What it is for.
    pub resource: u64,
}

/// Lends memory to the queues of a parent domain.
pub struct Lender {
    answer: Answer,
    /// Loans not given back.
    loans: Mutex<Vec<Loan>>,
    calls: Mutex<usize>,
}

// SAFETY: plain memory and counters under their mutexes.
unsafe impl Send for Lender {}
// SAFETY: as above.
unsafe impl Sync for Lender {}

const PAGE: usize = 4096;

impl Lender {
    /// One that always answers so; it lives as long as the program.
    pub fn new(answer: Answer) -> &'static Lender {
        Box::leak(Box::new(Lender { answer, loans: Mutex::default(), calls: Mutex::default() }))
    }

    /// Parent domain attributes with it.
    pub fn attributes(&'static self, below: &Arc<Pd>) -> ibv_parent_domain_init_attr {
        ibv_parent_domain_init_attr {
            comp_mask: IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
            alloc: Some(lend),
            free: Some(take_back),
            pd_context: std::ptr::from_ref(self).cast_mut().cast(),
            ..attributes(below, None)
        }
    }

    /// A parent domain with it.
    pub fn parent(&'static self, below: &Arc<Pd>) -> Arc<Pd> {
        try_parent(below, None, &mut self.attributes(below))
            .unwrap_or_else(|errno| panic!("alloc_parent_domain: errno {errno}"))
    }

    /// Loans not given back.
    pub fn loans(&self) -> Vec<Loan> {
        self.loans.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often memory was asked for.
    pub fn calls(&self) -> usize {
        *self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

unsafe extern "C" fn lend(
    _pd: *mut ibv_pd,
    context: *mut c_void,
    length: usize,
    alignment: usize,
    resource: u64,
) -> *mut c_void {
    // SAFETY: the context that was given.
    let lender = unsafe { &*context.cast::<Lender>() };
    *lender.calls.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    match lender.answer {
        Answer::Nothing => return std::ptr::null_mut(),
        Answer::Default => return usize::MAX as *mut c_void,
        Answer::Memory | Answer::Misaligned => {}
    }
    // SAFETY: a new anonymous mapping touches nothing that exists.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length + PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(base, libc::MAP_FAILED);
    // SAFETY: within the mapping.
    let base = unsafe {
        base.cast::<u8>().write_bytes(0xff, length);
        base.cast::<u8>().add(if lender.answer == Answer::Misaligned { 64 } else { 0 })
    };
    let loan = Loan { base, length, alignment, resource };
    lender.loans.lock().unwrap_or_else(PoisonError::into_inner).push(loan);
    base.cast()
}

unsafe extern "C" fn take_back(_pd: *mut ibv_pd, context: *mut c_void, base: *mut c_void, resource: u64) {
    // SAFETY: the context that was given.
    let lender = unsafe { &*context.cast::<Lender>() };
    let mut loans = lender.loans.lock().unwrap_or_else(PoisonError::into_inner);
    let index = loans.iter().position(|loan| loan.base.cast() == base && loan.resource == resource);
    let loan = loans.swap_remove(index.expect("given back as it was lent, once"));
    let start = loan.base.addr() & !(PAGE - 1);
    // SAFETY: exactly the mapping made in `lend`.
    unsafe { libc::munmap(start as *mut c_void, loan.length + PAGE) };
}
