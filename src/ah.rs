//! Address handles.

use core::ffi::c_int;
use core::mem::offset_of;
use core::ptr::NonNull;

use rdma_core_sys::bindings::{ibv_ah, ibv_ah_attr, ibv_cmd_destroy_ah, ibv_pd, verbs_context_ops};

use crate::boundary;
use crate::command;
use crate::context::Context;
use crate::domain::Domain;
use crate::errno::Errno;
use crate::log;

/// Numbers that a work request has room for.
const NUMBERS: u32 = 1 << 25;

/// The destination of a datagram.
#[derive(Default)]
#[repr(C)]
pub struct AddressHandle {
    ah: ibv_ah,
    number: u32,
}

const _: () = assert!(offset_of!(AddressHandle, ah) == 0);

impl AddressHandle {
    /// The number by which a work request names the handle; 25 bits.
    ///
    /// # Safety
    /// `ah` is alive and of this provider.
    #[inline]
    pub unsafe fn number_of(ah: *const ibv_ah) -> u32 {
        // SAFETY: as the caller promises.
        unsafe { (*ah.cast::<AddressHandle>()).number }
    }
}

unsafe extern "C" fn create_ah(pd: *mut ibv_pd, attributes: *mut ibv_ah_attr) -> *mut ibv_ah {
    // SAFETY: libibverbs calls with a domain of ours and the program's attributes.
    unsafe {
        let context = (*pd).context;
        boundary::object(context, "create_ah", || {
            let mut handle = Box::<AddressHandle>::default();
            handle.number = command::create_ah(pd, &mut handle.ah, attributes)?.ah_id;
            if handle.number >= NUMBERS {
                ibv_cmd_destroy_ah(&mut handle.ah);
                let number = handle.number;
                let why =
                    format_args!("AH: the kernel answers number {number}, of {NUMBERS} that there can be");
                return Err(log::refused(context, Errno::PROTOCOL, why));
            }
            let handle = Context::of(context).objects()?.adopt(handle)?;
            Domain::of(pd).enter();
            Ok(handle.cast())
        })
    }
}

unsafe extern "C" fn destroy_ah(ah: *mut ibv_ah) -> c_int {
    // SAFETY: libibverbs calls with what `create_ah` returned.
    unsafe {
        let context = (*ah).context;
        boundary::status(context, "destroy_ah", || {
            let domain = Domain::of((*ah).pd);
            Errno::check(ibv_cmd_destroy_ah(ah))?;
            domain.leave();
            Context::of(context).objects()?.take_back(NonNull::new_unchecked(ah.cast::<AddressHandle>()));
            Ok(())
        })
    }
}

/// Fills the operations of this file.
pub fn install(operations: &mut verbs_context_ops) {
    operations.create_ah = Some(create_ah);
    operations.destroy_ah = Some(destroy_ah);
}
