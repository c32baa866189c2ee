//! Preloaded into a program: makes it see the software device.
//!
//! Thin on purpose. It forwards the verbs `ioctl` of a device node and the
//! stores to its doorbell page to the device process, which holds all state;
//! it presents the node's file descriptor, refuses RDMA netlink so that
//! libibverbs reads sysfs, and, where the launcher has no private namespace,
//! redirects the few paths that lead to a device.
//!
//! Its functions may be called before its constructor ran (by constructors of
//! other libraries), from signal handlers, from any thread and after `fork`:
//! so no allocation, no locks, no thread-local storage on the way to the device
//! process.
//!
//! Two functions are there for test programs, to be found with `dlsym`:
//! `irdma_sim_step` and `irdma_sim_control` (see `harness`).

// Most is reached through the exported names, which a test program must not have (they would
// hook it), or needed in trap mode only, which not every machine has.
#![cfg_attr(any(test, not(target_arch = "x86_64")), allow(dead_code))]

mod configuration;
mod connection;
mod descriptor;
mod device;
mod harness;
mod manager;
mod mappings;
mod report;
mod system;

#[cfg(target_arch = "x86_64")]
mod decode;
#[cfg(target_arch = "x86_64")]
mod trap;
#[cfg(not(target_arch = "x86_64"))]
#[path = "trap_unsupported.rs"]
mod trap;

mod hook_ioctl;
mod hook_paths;
mod hook_signals;
mod hook_socket;
mod hook_unmap;
mod hook_write;

/// Runs when the library is loaded, mostly: nothing depends on it.
#[cfg(not(test))]
#[used]
// SAFETY: the section holds pointers to functions that the loader calls with C's convention.
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = {
    extern "C" fn construct() {
        if configuration::get().is_some() {
            system::allow_memory_access();
            hook_signals::unblock_bus_error();
        }
        hook_paths::resolve_all();
        hook_unmap::resolve();
        hook_write::resolve();
    }
    construct
};
