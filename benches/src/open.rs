//! What it takes to load a provider and to open a device with it, in a program of its own.

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
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
    // Apart from the heap, all of it there already.
    let mut room = vec![1; 1 << 20];
    let before = Usage::now(&mut room);
    let start = Instant::now();
    // SAFETY: of the list.
    let context = unsafe { ibv_open_device(device) };
    let opening = start.elapsed();
    assert!(!context.is_null(), "the device cannot be opened");
    let after = Usage::now(&mut room);
    println!("load\t{}", loading.as_nanos());
    println!("open\t{}", opening.as_nanos());
    println!("heap\t{}", after.heap - before.heap);
    println!("mapped\t{}", after.mapped - before.mapped);
    println!("own\t{}", after.own.saturating_sub(before.own));
    println!("file\t{}", after.file.saturating_sub(before.file));
}

/// Memory of the program, in bytes.
struct Usage {
    /// Handed out by the C library.
    heap: usize,
    /// Mapped.
    mapped: usize,
    /// Of the mapped, what there is memory for that no other process shares.
    own: usize,
    /// Of the plugin's file, what there is memory for.
    file: usize,
}

impl Usage {
    /// As of now; `room` is for what the kernel tells.
    fn now(room: &mut [u8]) -> Usage {
        // SAFETY: has no preconditions.
        let heap = unsafe { libc::mallinfo2() };
        let mut maps = File::open("/proc/self/smaps").expect("the kernel tells sizes");
        let mut length = 0;
        loop {
            match maps.read(&mut room[length..]).expect("the kernel tells sizes") {
                0 => break,
                bytes => length += bytes,
            }
        }
        assert!(length < room.len(), "there is more room than mappings");
        let maps = str::from_utf8(&room[..length]).expect("text");
        let mut usage = Usage { heap: heap.uordblks + heap.hblkhd, mapped: 0, own: 0, file: 0 };
        let mut is_plugin = false;
        for line in maps.lines() {
            let mut words = line.split_whitespace();
            let name = words.next().unwrap_or_default();
            let mut bytes = || 1024 * words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
            match name {
                "Size:" => usage.mapped += bytes(),
                "Anonymous:" => usage.own += bytes(),
                "Rss:" if is_plugin => usage.file += bytes(),
                _ if name.ends_with(':') => {}
                // The first line of another mapping, which ends with its file.
                _ => is_plugin = line.contains("/libirdma-rdmav"),
            }
        }
        usage
    }
}
