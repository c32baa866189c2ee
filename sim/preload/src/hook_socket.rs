//! `socket`: RDMA netlink does not exist, so that libibverbs reads sysfs.

use crate::configuration;
use crate::system;

/// Netlink protocol of the RDMA subsystem (`NETLINK_RDMA`). If it can be opened at
/// all, libibverbs believes its list of devices, even an empty one.
const NETLINK_RDMA: libc::c_int = 20;

/// # Safety
/// As `socket(2)`, which takes no pointers.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn socket(
    domain: libc::c_int,
    kind: libc::c_int,
    protocol: libc::c_int,
) -> libc::c_int {
    if domain == libc::AF_NETLINK && protocol == NETLINK_RDMA && configuration::get().is_some() {
        return system::answer(Err(libc::EPROTONOSUPPORT));
    }
    // SAFETY: no pointers.
    system::answer(unsafe {
        system::call(libc::SYS_socket, [domain as usize, kind as usize, protocol as usize, 0, 0, 0])
    })
}
