//! How libibverbs gets to know this provider: a constructor that registers it.

use core::ptr::null_mut;

use rdma_core_sys::bindings::{verbs_device, verbs_device_ops, verbs_register_driver, verbs_sysfs_dev};
use rdma_core_sys::queue_pair::CompMaskOffset;
use rdma_core_sys::{LAYOUT, driver_data, loaded_library_matches};

use crate::context::alloc_context;
use crate::log;
use crate::matching::MATCH_TABLE;

/// What is registered.
struct Provider(verbs_device_ops);

// SAFETY: constant, with pointers to constants.
unsafe impl Sync for Provider {}

static PROVIDER: Provider = Provider(verbs_device_ops {
    name: c"irdma".as_ptr(),
    match_min_abi_version: 0,
    match_max_abi_version: driver_data::ABI_VERSION as u32,
    match_table: MATCH_TABLE.as_ptr(),
    static_providers: null_mut(),
    match_device: None,
    alloc_context: Some(alloc_context),
    import_context: None,
    alloc_device: Some(alloc_device),
    uninit_device: Some(uninit_device),
});

/// Run by the dynamic loader when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static REGISTER: extern "C" fn() = register;

extern "C" fn register() {
    if !loaded_library_matches() || CompMaskOffset::probe().is_none() {
        let (first, last) = (LAYOUT.first, LAYOUT.last);
        log::standard_error(format_args!(
            "not registered: built for libibverbs of rdma-core {first} to {last}, and this is another"
        ));
        return;
    }
    // SAFETY: lives as long as the process: libibverbs never unloads a provider.
    unsafe { verbs_register_driver(&PROVIDER.0) };
}

/// Makes the device that libibverbs has found; it initialises what is in it.
unsafe extern "C" fn alloc_device(_found: *mut verbs_sysfs_dev) -> *mut verbs_device {
    Box::into_raw(Box::<verbs_device>::default())
}

/// Frees a device that nobody uses any more.
unsafe extern "C" fn uninit_device(device: *mut verbs_device) {
    // SAFETY: libibverbs calls with what `alloc_device` returned, once.
    drop(unsafe { Box::from_raw(device) });
}
