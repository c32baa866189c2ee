//! Memory regions: ordinary ones, and those of dma-buf.
//!
//! From layout 59 on there is `ibv_reg_mr_ex`, a name for both: see mr/extended.rs.
//!
//! What a region allows is kept in `verbs_mr.access` and nowhere else; libibverbs'
//! fork accounting looks there too.

use core::ffi::{c_int, c_void};
use core::ptr::{NonNull, null_mut};

use rdma_core_sys::bindings::{
    IBV_ACCESS_ON_DEMAND, IBV_REREG_MR_CHANGE_ACCESS, IBV_REREG_MR_CHANGE_PD, ibv_cmd_dereg_mr,
    ibv_cmd_reg_dmabuf_mr, ibv_mr, ibv_pd, verbs_context_ops, verbs_mr,
};
use rdma_core_sys::driver_data::RegisterMemoryRequest;

use crate::boundary;
use crate::command;
use crate::context::Context;
use crate::domain::Domain;
use crate::errno::{Errno, Result};
use crate::log;

#[cfg(layout_since = "59")]
mod extended;

/// Hands a registered region to the program.
///
/// # Safety
/// `pd` is alive, `region` registered in it.
unsafe fn hand_out(pd: *mut ibv_pd, mut region: Box<verbs_mr>, access: c_int) -> Result<NonNull<ibv_mr>> {
    // Not every release of libibverbs sets it for every kind of region.
    region.access = access;
    // SAFETY: as the caller promises; the public part comes first.
    unsafe {
        let region = Context::of((*pd).context).objects()?.adopt(region)?;
        Domain::of(pd).enter();
        Ok(region.cast())
    }
}

unsafe extern "C" fn reg_mr(
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    device_address: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: libibverbs calls with a domain of ours; the kernel checks the memory.
    unsafe {
        boundary::object((*pd).context, "reg_mr", || {
            let mut region = Box::<verbs_mr>::default();
            let kind = RegisterMemoryRequest::default();
            command::register_memory(pd, address, length, device_address, access, &mut *region, kind)?;
            hand_out(pd, region, access)
        })
    }
}

unsafe extern "C" fn reg_dmabuf_mr(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    device_address: u64,
    descriptor: c_int,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: libibverbs calls with a domain of ours; the kernel checks the rest.
    unsafe {
        boundary::object((*pd).context, "reg_dmabuf_mr", || {
            let mut region = Box::<verbs_mr>::default();
            Errno::check(ibv_cmd_reg_dmabuf_mr(
                pd,
                offset,
                length,
                device_address,
                descriptor,
                access,
                &mut *region,
                null_mut(),
            ))?;
            hand_out(pd, region, access)
        })
    }
}

unsafe extern "C" fn rereg_mr(
    region: *mut verbs_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    // SAFETY: libibverbs calls with what `reg_mr` returned; the kernel checks the memory.
    unsafe {
        boundary::status((*region).ibv_mr.context, "rereg_mr", || {
            if pd.is_null() && flags as u32 & IBV_REREG_MR_CHANGE_PD != 0 {
                let why = format_args!("MR: IBV_REREG_MR_CHANGE_PD without a PD");
                return Err(log::refused((*region).ibv_mr.context, Errno::INVALID, why));
            }
            command::reregister_memory(region, flags as u32, pd, address, length, access)?;
            if flags as u32 & IBV_REREG_MR_CHANGE_PD != 0 {
                Domain::of((*region).ibv_mr.pd).leave();
                Domain::of(pd).enter();
            }
            if flags as u32 & IBV_REREG_MR_CHANGE_ACCESS != 0 {
                // Whether fork protection was asked for is settled when the region is made.
                let on_demand = IBV_ACCESS_ON_DEMAND as c_int;
                (*region).access = (access & !on_demand) | ((*region).access & on_demand);
            }
            Ok(())
        })
    }
}

unsafe extern "C" fn dereg_mr(region: *mut verbs_mr) -> c_int {
    // SAFETY: libibverbs calls with what `reg_mr` or `reg_dmabuf_mr` returned.
    unsafe {
        let context = (*region).ibv_mr.context;
        boundary::status(context, "dereg_mr", || {
            let domain = Domain::of((*region).ibv_mr.pd);
            Errno::check(ibv_cmd_dereg_mr(region))?;
            domain.leave();
            Context::of(context).objects()?.take_back(NonNull::new_unchecked(region));
            Ok(())
        })
    }
}

/// Fills the operations of this file.
pub fn install(operations: &mut verbs_context_ops) {
    operations.reg_mr = Some(reg_mr);
    operations.reg_dmabuf_mr = Some(reg_dmabuf_mr);
    operations.rereg_mr = Some(rereg_mr);
    operations.dereg_mr = Some(dereg_mr);
    #[cfg(layout_since = "59")]
    {
        operations.reg_mr_ex = Some(extended::reg_mr_ex);
    }
}
