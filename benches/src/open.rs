//! What it takes to load a provider and to open a device with it, in a program of its own.

use std::ffi::CString;
use std::time::Instant;

use rdma_core_sys::bindings::{ibv_get_device_list, ibv_open_device};

/// Loads the plugin in a file, before libibverbs loads any, opens the first device with it, and prints lines
/// `NAME TAB FIGURE`: nanoseconds, and bytes of the open device.
pub fn measure(plugin: &str) {
    let path = CString::new(plugin).expect("a path without NUL");
    let start = Instant::now();
    // SAFETY: loading a plugin of libibverbs has it register there, and does nothing else.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    let loading = start.elapsed();
    assert!(!handle.is_null(), "{plugin} does not load");
    // SAFETY: the list lives as long as the program.
    let device = unsafe { *ibv_get_device_list(std::ptr::null_mut()) };
    assert!(!device.is_null(), "no device");
    let before = Usage::now();
    let start = Instant::now();
    // SAFETY: of the list.
    let context = unsafe { ibv_open_device(device) };
    let opening = start.elapsed();
    assert!(!context.is_null(), "the device cannot be opened");
    let after = Usage::now();
    println!("load\t{}", loading.as_nanos());
    println!("open\t{}", opening.as_nanos());
    println!("heap\t{}", after.heap - before.heap);
    println!("mapped\t{}", after.mapped - before.mapped);
    println!("resident\t{}", after.resident.saturating_sub(before.resident));
}

/// Memory of the program, in bytes.
struct Usage {
    /// Handed out by the C library.
    heap: usize,
    /// Mapped.
    mapped: usize,
    /// Of the mapped, what there is memory for.
    resident: usize,
}

impl Usage {
    fn now() -> Usage {
        // SAFETY: has no preconditions.
        let heap = unsafe { libc::mallinfo2() };
        let sizes = std::fs::read_to_string("/proc/self/statm").expect("the kernel tells sizes");
        let mut pages = sizes.split(' ').map(|word| word.parse::<usize>().expect("a number of pages") * 4096);
        let mut next = || pages.next().expect("sizes");
        Usage { heap: heap.uordblks + heap.hblkhd, mapped: next(), resident: next() }
    }
}
