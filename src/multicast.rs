//! Multicast groups: all of it is the kernel's.

use core::ffi::c_int;

use rdma_core_sys::bindings::{
    ibv_cmd_attach_mcast, ibv_cmd_detach_mcast, ibv_gid, ibv_qp, verbs_context_ops,
};

use crate::boundary;
use crate::errno::Errno;

unsafe extern "C" fn attach_mcast(qp: *mut ibv_qp, group: *const ibv_gid, lid: u16) -> c_int {
    // SAFETY: libibverbs calls with a QP of ours and the program's group.
    unsafe {
        boundary::status((*qp).context, "attach_mcast", || Errno::check(ibv_cmd_attach_mcast(qp, group, lid)))
    }
}

unsafe extern "C" fn detach_mcast(qp: *mut ibv_qp, group: *const ibv_gid, lid: u16) -> c_int {
    // SAFETY: libibverbs calls with a QP of ours and the program's group.
    unsafe {
        boundary::status((*qp).context, "detach_mcast", || Errno::check(ibv_cmd_detach_mcast(qp, group, lid)))
    }
}

/// Fills the operations of this file.
pub fn install(operations: &mut verbs_context_ops) {
    operations.attach_mcast = Some(attach_mcast);
    operations.detach_mcast = Some(detach_mcast);
}
