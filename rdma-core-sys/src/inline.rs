//! What `<infiniband/verbs.h>` gives programs as inline functions, in C's names.
//!
//! As in C: hardly anything is checked, and what a device does not offer fails with
//! `EOPNOTSUPP`.

use core::ffi::{c_int, c_void};
use core::mem::offset_of;
use core::ptr::null_mut;

use crate::bindings::*;

/// Sets `errno`.
fn set_errno(error: c_int) {
    // SAFETY: the location is the calling thread's own.
    unsafe { *libc::__errno_location() = error };
}

/// The extended context around `context`; NULL if the library has none.
///
/// # Safety
/// `context` is an open context.
pub unsafe fn verbs_get_ctx(context: *mut ibv_context) -> *mut verbs_context {
    const EXTENDED: *mut c_void = usize::MAX as *mut c_void;
    // SAFETY: an open context; the library says with this value that it is inside a verbs_context.
    unsafe {
        match (*context).abi_compat {
            EXTENDED => context.byte_sub(offset_of!(verbs_context, context)).cast(),
            _ => null_mut(),
        }
    }
}

/// Functions that call an operation of an object, which libibverbs and the
/// provider have always filled.
macro_rules! operations {
    ($($(#[$attribute:meta])* $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? = $operation:expr;)*) => {
        $(
            $(#[$attribute])*
            ///
            /// # Safety
            /// The objects are alive and the pointers valid, as the function's manual page says.
            pub unsafe fn $name($($argument: $type),*) $(-> $result)? {
                // SAFETY: as the caller promises.
                unsafe { $operation.expect("filled when the object was created")($($argument),*) }
            }
        )*
    };
}

operations! {
    /// Posts work requests to a send queue.
    ibv_post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad_wr: *mut *mut ibv_send_wr) -> c_int
        = (*(*qp).context).ops.post_send;
    /// Posts work requests to a receive queue.
    ibv_post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad_wr: *mut *mut ibv_recv_wr) -> c_int
        = (*(*qp).context).ops.post_recv;
    /// Posts work requests to a shared receive queue.
    ibv_post_srq_recv(srq: *mut ibv_srq, wr: *mut ibv_recv_wr, bad_wr: *mut *mut ibv_recv_wr) -> c_int
        = (*(*srq).context).ops.post_srq_recv;
    /// Takes completions.
    ibv_poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int
        = (*(*cq).context).ops.poll_cq;
    /// Asks for an event.
    ibv_req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int
        = (*(*cq).context).ops.req_notify_cq;
    /// Allocates a memory window.
    ibv_alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw
        = (*(*pd).context).ops.alloc_mw;
    /// Frees a memory window.
    ibv_dealloc_mw(mw: *mut ibv_mw) -> c_int
        = (*(*mw).context).ops.dealloc_mw;

    /// Takes the first completion of a batch.
    ibv_start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int = (*cq).start_poll;
    /// Takes the next one.
    ibv_next_poll(cq: *mut ibv_cq_ex) -> c_int = (*cq).next_poll;
    /// Ends the batch.
    ibv_end_poll(cq: *mut ibv_cq_ex) = (*cq).end_poll;
    /// Opcode of the current completion.
    ibv_wc_read_opcode(cq: *mut ibv_cq_ex) -> ibv_wc_opcode = (*cq).read_opcode;
    /// Vendor's error code of the current completion.
    ibv_wc_read_vendor_err(cq: *mut ibv_cq_ex) -> u32 = (*cq).read_vendor_err;
    /// Length of the current completion.
    ibv_wc_read_byte_len(cq: *mut ibv_cq_ex) -> u32 = (*cq).read_byte_len;
    /// Immediate data of the current completion, big-endian.
    ibv_wc_read_imm_data(cq: *mut ibv_cq_ex) -> __be32 = (*cq).read_imm_data;
    /// QP of the current completion.
    ibv_wc_read_qp_num(cq: *mut ibv_cq_ex) -> u32 = (*cq).read_qp_num;
    /// Sender of the current completion.
    ibv_wc_read_src_qp(cq: *mut ibv_cq_ex) -> u32 = (*cq).read_src_qp;
    /// Flags of the current completion.
    ibv_wc_read_wc_flags(cq: *mut ibv_cq_ex) -> u32 = (*cq).read_wc_flags;
    /// Sender's LID of the current completion.
    ibv_wc_read_slid(cq: *mut ibv_cq_ex) -> u32 = (*cq).read_slid;
    /// Service level of the current completion.
    ibv_wc_read_sl(cq: *mut ibv_cq_ex) -> u8 = (*cq).read_sl;
    /// Device's time of the current completion.
    ibv_wc_read_completion_ts(cq: *mut ibv_cq_ex) -> u64 = (*cq).read_completion_ts;

    /// Begins a batch of work requests.
    ibv_wr_start(qp: *mut ibv_qp_ex) = (*qp).wr_start;
    /// Posts the batch.
    ibv_wr_complete(qp: *mut ibv_qp_ex) -> c_int = (*qp).wr_complete;
    /// Drops the batch.
    ibv_wr_abort(qp: *mut ibv_qp_ex) = (*qp).wr_abort;
    /// Adds a compare-and-swap.
    ibv_wr_atomic_cmp_swp(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, compare: u64, swap: u64)
        = (*qp).wr_atomic_cmp_swp;
    /// Adds a fetch-and-add.
    ibv_wr_atomic_fetch_add(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, add: u64)
        = (*qp).wr_atomic_fetch_add;
    /// Adds a bind.
    ibv_wr_bind_mw(qp: *mut ibv_qp_ex, mw: *mut ibv_mw, rkey: u32, bind: *const ibv_mw_bind_info)
        = (*qp).wr_bind_mw;
    /// Adds a local invalidate.
    ibv_wr_local_inv(qp: *mut ibv_qp_ex, invalidate_rkey: u32) = (*qp).wr_local_inv;
    /// Adds an RDMA read.
    ibv_wr_rdma_read(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64) = (*qp).wr_rdma_read;
    /// Adds an RDMA write.
    ibv_wr_rdma_write(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64) = (*qp).wr_rdma_write;
    /// Adds an RDMA write with immediate data.
    ibv_wr_rdma_write_imm(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, imm_data: __be32)
        = (*qp).wr_rdma_write_imm;
    /// Adds a send.
    ibv_wr_send(qp: *mut ibv_qp_ex) = (*qp).wr_send;
    /// Adds a send with immediate data.
    ibv_wr_send_imm(qp: *mut ibv_qp_ex, imm_data: __be32) = (*qp).wr_send_imm;
    /// Adds a send that invalidates a key.
    ibv_wr_send_inv(qp: *mut ibv_qp_ex, invalidate_rkey: u32) = (*qp).wr_send_inv;
    /// Sets the destination of the datagram just added.
    ibv_wr_set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, remote_qpn: u32, remote_qkey: u32)
        = (*qp).wr_set_ud_addr;
    /// Sets inline data of the work request just added.
    ibv_wr_set_inline_data(qp: *mut ibv_qp_ex, address: *mut c_void, length: usize)
        = (*qp).wr_set_inline_data;
    /// Sets inline data of the work request just added from several places.
    ibv_wr_set_inline_data_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_data_buf)
        = (*qp).wr_set_inline_data_list;
    /// Sets the one SGE of the work request just added.
    ibv_wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, address: u64, length: u32) = (*qp).wr_set_sge;
    /// Sets the SGEs of the work request just added.
    ibv_wr_set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) = (*qp).wr_set_sge_list;
}

/// Functions that call an operation of the extended context; without it they
/// set `errno` to `EOPNOTSUPP` and return the given value.
macro_rules! extended_operations {
    ($($(#[$attribute:meta])* $name:ident($($argument:ident: $type:ty),*) -> $result:ty
        = $context:expr => $operation:ident, or $missing:expr;)*) => {
        $(
            $(#[$attribute])*
            ///
            /// # Safety
            /// The objects are alive and the pointers valid, as the function's manual page says.
            pub unsafe fn $name($($argument: $type),*) -> $result {
                // SAFETY: as the caller promises.
                unsafe {
                    match verbs_get_ctx($context).as_ref().and_then(|context| context.$operation) {
                        Some(operation) => operation($($argument),*),
                        None => {
                            set_errno(libc::EOPNOTSUPP);
                            $missing
                        }
                    }
                }
            }
        )*
    };
}

extended_operations! {
    /// Creates a completion queue with the extended polling interface.
    ibv_create_cq_ex(context: *mut ibv_context, attr: *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex
        = context => create_cq_ex, or null_mut();
    /// Creates a queue pair with extended attributes.
    ibv_create_qp_ex(context: *mut ibv_context, attr: *mut ibv_qp_init_attr_ex) -> *mut ibv_qp
        = context => create_qp_ex, or null_mut();
    /// Creates a shared receive queue with extended attributes.
    ibv_create_srq_ex(context: *mut ibv_context, attr: *mut ibv_srq_init_attr_ex) -> *mut ibv_srq
        = context => create_srq_ex, or null_mut();
    /// The number of a shared receive queue.
    ibv_get_srq_num(srq: *mut ibv_srq, number: *mut u32) -> c_int
        = (*srq).context => get_srq_num, or libc::EOPNOTSUPP;
    /// Allocates a thread domain.
    ibv_alloc_td(context: *mut ibv_context, attr: *mut ibv_td_init_attr) -> *mut ibv_td
        = context => alloc_td, or null_mut();
    /// Frees a thread domain.
    ibv_dealloc_td(td: *mut ibv_td) -> c_int
        = (*td).context => dealloc_td, or libc::EOPNOTSUPP;
    /// Allocates a parent domain.
    ibv_alloc_parent_domain(context: *mut ibv_context, attr: *mut ibv_parent_domain_init_attr) -> *mut ibv_pd
        = context => alloc_parent_domain, or null_mut();
}

/// What the device can do.
///
/// # Safety
/// `context` is an open context, `input` NULL or valid, `attr` writable.
pub unsafe fn ibv_query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        match verbs_get_ctx(context).as_ref().and_then(|context| context.query_device_ex) {
            Some(operation) => operation(context, input, attr, size_of::<ibv_device_attr_ex>()),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// State of a port. What the library does not fill is zero.
///
/// # Safety
/// `context` is an open context, `attr` writable.
pub unsafe fn ibv_query_port_attr(context: *mut ibv_context, port: u8, attr: *mut ibv_port_attr) -> c_int {
    // SAFETY: as the caller promises; all bytes zero is a port of no properties.
    unsafe {
        attr.write_bytes(0, 1);
        match verbs_get_ctx(context).as_ref().and_then(|context| context.query_port) {
            Some(operation) => operation(context, port, attr, size_of::<ibv_port_attr>()),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// The plain view of an extended completion queue.
pub fn ibv_cq_ex_to_cq(cq: *mut ibv_cq_ex) -> *mut ibv_cq {
    cq.cast()
}

/// Key invalidated by the message of the current completion.
///
/// # Safety
/// `cq` is in a batch, its current completion says that it invalidated a key.
pub unsafe fn ibv_wc_read_invalidated_rkey(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: as the caller promises. The one accessor serves both.
    unsafe { ibv_wc_read_imm_data(cq) }
}

/// The key that follows `rkey` when a window is bound anew: its low byte counts up.
pub fn ibv_inc_rkey(rkey: u32) -> u32 {
    (rkey & !0xff) | (rkey.wrapping_add(1) & 0xff)
}

/// Binds a type 1 memory window. What C refuses here is refused before any provider is asked:
/// another type, a range of no region, a region of another protection domain.
///
/// # Safety
/// The objects are alive, `bind` is valid.
pub unsafe fn ibv_bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        let ibv_mw_bind_info { mr, addr, length, .. } = (*bind).bind_info;
        if (*mw).type_ != IBV_MW_TYPE_1 || mr.is_null() && (addr != 0 || length != 0) {
            return libc::EINVAL;
        }
        if !mr.is_null() && (*mr).pd != (*mw).pd {
            return libc::EPERM;
        }
        (*(*mw).context).ops.bind_mw.expect("filled when the context was opened")(qp, mw, bind)
    }
}
