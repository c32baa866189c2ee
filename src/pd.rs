//! Protection domains.

use core::ffi::c_int;
use core::ptr::NonNull;

use rdma_core_sys::bindings::{ibv_cmd_dealloc_pd, ibv_context, ibv_pd, verbs_context_ops};

use crate::boundary;
use crate::command;
use crate::context::Context;
use crate::domain::Domain;
use crate::errno::Errno;

unsafe extern "C" fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    // SAFETY: libibverbs calls with an open context of ours.
    unsafe {
        boundary::object(context, "alloc_pd", || {
            // May be the context's first object, and what comes with that may fail.
            let objects = Context::of(context).objects()?;
            let mut domain = Box::<Domain>::default();
            command::alloc_pd(context, &mut domain.pd)?;
            domain.pd.context = context;
            objects.adopt(domain).map(NonNull::cast)
        })
    }
}

/// Frees a protection domain or a parent domain.
unsafe extern "C" fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: libibverbs calls with what `alloc_pd` or `alloc_parent_domain` returned.
    unsafe {
        let context = (*pd).context;
        boundary::status(context, "dealloc_pd", || {
            let domain = Domain::of(pd);
            domain.release()?;
            if !domain.is_parent() {
                Errno::check(ibv_cmd_dealloc_pd(pd))?;
            }
            Context::of(context).objects()?.take_back(NonNull::from(domain));
            Ok(())
        })
    }
}

/// Fills the operations of this file.
pub fn install(operations: &mut verbs_context_ops) {
    operations.alloc_pd = Some(alloc_pd);
    operations.dealloc_pd = Some(dealloc_pd);
}
