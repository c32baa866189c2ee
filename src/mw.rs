//! Memory windows.
//!
//! Whether a kernel has them on GEN1 and GEN2 differs between releases; it answers
//! itself when one is asked for.

use core::ffi::c_int;
use core::fmt::Arguments;
use core::mem::offset_of;
use core::ptr::{NonNull, null_mut};

use rdma_core_sys::bindings::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE,
    IBV_ACCESS_ZERO_BASED, IBV_MR_TYPE_MR, IBV_MW_TYPE_1, IBV_MW_TYPE_2, IBV_WR_BIND_MW, ibv_cmd_dealloc_mw,
    ibv_mw, ibv_mw_bind, ibv_mw_type, ibv_pd, ibv_qp, ibv_send_wr, verbs_context_ops, verbs_mr,
};
use rdma_core_sys::inline::{ibv_inc_rkey, ibv_post_send};

use crate::boundary;
use crate::command;
use crate::context::Context;
use crate::domain::Domain;
use crate::errno::{Errno, Result};
use crate::log;

/// What the holder of a window may be allowed to do, and how it addresses it. A local right says
/// nothing of a window, but programs pass those of the region.
const WINDOW_RIGHTS: u32 = IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_ZERO_BASED
    | IBV_ACCESS_LOCAL_WRITE;

unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
    // SAFETY: libibverbs calls with a domain of ours.
    unsafe {
        let context = (*pd).context;
        boundary::object(context, "alloc_mw", || {
            match kind {
                IBV_MW_TYPE_1 => {}
                IBV_MW_TYPE_2 if Context::of(context).capabilities().has_type_2_windows() => {}
                IBV_MW_TYPE_2 => {
                    let why = format_args!("MW: type {kind}: the device has windows of type 1 only");
                    return Err(log::refused(context, Errno::NOT_SUPPORTED, why));
                }
                _ => {
                    let why = format_args!("MW: type {kind} is neither 1 nor 2");
                    return Err(log::refused(context, Errno::INVALID, why));
                }
            }
            let mut window = Box::<ibv_mw>::default();
            command::alloc_mw(pd, kind, &mut *window)?;
            let window = Context::of(context).objects()?.adopt(window)?;
            Domain::of(pd).enter();
            Ok(window)
        })
    }
}

unsafe extern "C" fn dealloc_mw(window: *mut ibv_mw) -> c_int {
    // SAFETY: libibverbs calls with what `alloc_mw` returned.
    unsafe {
        let context = (*window).context;
        boundary::status(context, "dealloc_mw", || {
            let domain = Domain::of((*window).pd);
            Errno::check(ibv_cmd_dealloc_mw(window))?;
            domain.leave();
            Context::of(context).objects()?.take_back(NonNull::new_unchecked(window));
            Ok(())
        })
    }
}

/// Binds a window of type 1: posts the work request and gives the window its next key.
unsafe extern "C" fn bind_mw(qp: *mut ibv_qp, window: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int {
    // SAFETY: libibverbs calls with objects of ours and the program's request.
    unsafe {
        boundary::status((*qp).context, "bind_mw", || {
            check_bind(&*window, &*bind)?;
            let mut request = ibv_send_wr {
                wr_id: (*bind).wr_id,
                send_flags: (*bind).send_flags,
                opcode: IBV_WR_BIND_MW,
                ..ibv_send_wr::default()
            };
            let rkey = ibv_inc_rkey((*window).rkey);
            request.__bindgen_anon_2.bind_mw.mw = window;
            request.__bindgen_anon_2.bind_mw.rkey = rkey;
            request.__bindgen_anon_2.bind_mw.bind_info = (*bind).bind_info;
            let mut refused = null_mut();
            Errno::check(ibv_post_send(qp, &mut request, &mut refused))?;
            (*window).rkey = rkey;
            Ok(())
        })
    }
}

/// Refuses what no device can bind.
///
/// # Safety
/// The region of the request is alive.
unsafe fn check_bind(window: &ibv_mw, bind: &ibv_mw_bind) -> Result<()> {
    const { assert!(offset_of!(verbs_mr, ibv_mr) == 0) };
    // SAFETY: a window's context is open as long as there is the window.
    let refused = |errno, why: Arguments<'_>| Err(unsafe { log::refused(window.context, errno, why) });
    // SAFETY: every region of a program is a verbs_mr, which starts with its public part.
    let Some(region) = (unsafe { bind.bind_info.mr.cast::<verbs_mr>().as_ref() }) else {
        return refused(Errno::INVALID, format_args!("bind: no region"));
    };
    if region.mr_type != IBV_MR_TYPE_MR {
        let kind = region.mr_type;
        return refused(
            Errno::NOT_SUPPORTED,
            format_args!("bind: a region of type {kind}, not {IBV_MR_TYPE_MR}"),
        );
    }
    if region.access & IBV_ACCESS_ZERO_BASED as c_int != 0 {
        return refused(Errno::INVALID, format_args!("bind: the region has IBV_ACCESS_ZERO_BASED"));
    }
    // A parent domain has the kernel's handle of the domain below it.
    // SAFETY: both are alive, as long as what is in them.
    if unsafe { (*region.ibv_mr.pd).handle != (*window.pd).handle } {
        return refused(
            Errno::NOT_PERMITTED,
            format_args!("bind: the region is of another PD than the window"),
        );
    }
    let (rights, length, most) =
        (bind.bind_info.mw_access_flags, bind.bind_info.length, region.ibv_mr.length as u64);
    if rights & !WINDOW_RIGHTS != 0 {
        let why = format_args!("bind: access {rights:#x}, of which {WINDOW_RIGHTS:#x} are a window's");
        return refused(Errno::INVALID, why);
    }
    // Where the range starts is for the device to judge: a region's device addresses need not
    // be those of its memory, and are not kept.
    if length > most {
        return refused(Errno::INVALID, format_args!("bind: {length} bytes exceed the region's {most}"));
    }
    Ok(())
}

/// Fills the operations of this file.
pub fn install(operations: &mut verbs_context_ops) {
    operations.alloc_mw = Some(alloc_mw);
    operations.dealloc_mw = Some(dealloc_mw);
    operations.bind_mw = Some(bind_mw);
}
