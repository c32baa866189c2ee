//! The memory that programs send from and receive into, at the same address in every process.

use std::io;

use rdma_core_sys::bindings::ibv_sge;

/// Where it is. Nothing else ever gets an address there.
pub const ADDRESS: u64 = 0x1000_0000_0000;
/// Bytes.
pub const LENGTH: usize = 1 << 16;
/// A page behind it that is never registered, with an element that a request without
/// elements may point to.
const STALE: u64 = ADDRESS + LENGTH as u64 + 4096;

/// Whether an address is in the arena.
pub fn contains(address: u64) -> bool {
    (ADDRESS..ADDRESS + LENGTH as u64 + 4096).contains(&address)
}

/// Maps it, once per process.
pub fn map() -> io::Result<()> {
    for (address, length) in [(ADDRESS, LENGTH), (STALE, 4096)] {
        // SAFETY: an anonymous mapping at a place where nothing is (MAP_FIXED_NOREPLACE).
        let mapped = unsafe {
            libc::mmap(
                address as *mut libc::c_void,
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
                -1,
                0,
            )
        };
        if mapped as u64 != address {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: mapped above.
    unsafe { stale_element().write(stale()) };
    Ok(())
}

/// An element that is read by mistake: of real memory, with a key that is none.
pub fn stale() -> ibv_sge {
    ibv_sge { addr: ADDRESS + 0x123, length: 7, lkey: 0x7777_7777 }
}

/// Where it is.
pub fn stale_element() -> *mut ibv_sge {
    STALE as *mut ibv_sge
}

/// All bytes. The device writes to them, so only their present values can be had.
fn words() -> impl Iterator<Item = *mut u64> {
    (0..LENGTH / 8).map(|index| (ADDRESS as *mut u64).wrapping_add(index))
}

/// Fills it with bytes that all differ from their neighbours.
pub fn fill() {
    for (index, word) in words().enumerate() {
        let value = (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // SAFETY: mapped by `map`.
        unsafe { word.write_volatile(value) };
    }
}

/// A number that depends on every byte.
pub fn digest() -> u64 {
    words().fold(0, |digest: u64, word| {
        // SAFETY: mapped by `map`.
        let value = unsafe { word.read_volatile() };
        (digest.rotate_left(5) ^ value).wrapping_mul(0x517c_c1b7_2722_0a95)
    })
}
