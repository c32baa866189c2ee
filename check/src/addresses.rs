//! IP addresses of this machine's network devices.

use std::ffi::CStr;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ptr::null_mut;

/// Those of the device with that name, in the kernel's order.
pub fn of(interface: &str) -> Vec<String> {
    let mut first = null_mut();
    // SAFETY: gives a list, which is freed below.
    if unsafe { libc::getifaddrs(&mut first) } != 0 {
        return Vec::new();
    }
    let mut addresses = Vec::new();
    let mut at = first;
    // SAFETY: an entry of the list, or its end.
    while let Some(entry) = unsafe { at.as_ref() } {
        at = entry.ifa_next;
        // SAFETY: every entry has a terminated name.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) };
        if name.to_bytes() == interface.as_bytes() {
            // SAFETY: null, or an address of the family that it names.
            addresses.extend(unsafe { text(entry.ifa_addr) });
        }
    }
    // SAFETY: the list of above.
    unsafe { libc::freeifaddrs(first) };
    addresses
}

/// An address of IPv4 or IPv6.
///
/// # Safety
/// Null, or a whole address of its family.
unsafe fn text(address: *const libc::sockaddr) -> Option<String> {
    // SAFETY: as the caller promises, here and below.
    match i32::from(unsafe { address.as_ref() }?.sa_family) {
        libc::AF_INET => {
            // SAFETY: of this family.
            let address = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).to_string())
        }
        libc::AF_INET6 => {
            // SAFETY: of this family.
            let address = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).to_string())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_device_has_no_addresses() {
        assert!(of("irdma-no-such").is_empty());
    }

    #[test]
    fn addresses_are_read_by_their_family() {
        // SAFETY: plain integers, zero is valid.
        let (mut four, mut six): (libc::sockaddr_in, libc::sockaddr_in6) = unsafe { std::mem::zeroed() };
        four.sin_family = libc::AF_INET as u16;
        four.sin_addr.s_addr = u32::from(Ipv4Addr::new(10, 1, 2, 3)).to_be();
        six.sin6_family = libc::AF_INET6 as u16;
        six.sin6_addr.s6_addr = Ipv6Addr::LOCALHOST.octets();
        // SAFETY: whole addresses, and none.
        unsafe {
            assert_eq!(text((&raw const four).cast()).as_deref(), Some("10.1.2.3"));
            assert_eq!(text((&raw const six).cast()).as_deref(), Some("::1"));
            assert_eq!(text(std::ptr::null()), None);
        }
    }
}
