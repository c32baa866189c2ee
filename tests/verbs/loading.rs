//! How libibverbs comes by the provider: next to another one, and without its configuration.

use std::ffi::{CStr, CString, c_void};
use std::fs;
use std::mem::zeroed;
use std::path::{Path, PathBuf};
use std::ptr;

use irdma_tests::context::Context;
use irdma_tests::fixtures::Pair;
use irdma_tests::runner::{Test, on_c_provider, skip};
use irdma_tests::test;

/// The library that serves a context.
fn provider_of(context: &Context) -> PathBuf {
    // SAFETY: the context is open; the result names a loaded library.
    unsafe {
        let function = (*context.raw()).ops.post_send.expect("a provider posts") as *const c_void;
        let mut about: libc::Dl_info = zeroed();
        assert_ne!(libc::dladdr(function, &mut about), 0);
        PathBuf::from(CStr::from_ptr(about.dli_fname).to_str().expect("plain names"))
    }
}

fn load(library: &Path) {
    let path = CString::new(library.to_str().expect("plain names")).expect("no zero byte");
    // SAFETY: a provider does nothing but register itself.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    assert!(!handle.is_null(), "{library:?} cannot be loaded");
}

/// The plugin that the launcher has announced.
fn announced() -> PathBuf {
    match std::env::var("RDMAV_DRIVERS") {
        Ok(name) => PathBuf::from(format!("{name}-rdmav34.so")),
        Err(_) => skip("the provider is found by the configuration"),
    }
}

fn another_provider_of_the_same_device_stays_out_of_the_way() {
    if on_c_provider() {
        skip("there is only one C provider");
    }
    let first = Context::open();
    let ours = provider_of(&first);
    let other = Path::new("/usr/lib")
        .join(format!("{}-linux-gnu", std::env::consts::ARCH))
        .join("libibverbs/libirdma-rdmav34.so");
    if !other.exists() {
        skip("the distribution's provider is not installed");
    }
    load(&other);
    let pair = Pair::new();
    assert_eq!(provider_of(pair.left.context()), ours);
    pair.check_alive();
    drop(first);
    pair.check_alive();
}

fn of_two_copies_the_first_one_serves() {
    let plugin = announced();
    let folder = std::env::temp_dir().join(format!("irdma-copy-{}", std::process::id()));
    fs::create_dir(&folder).expect("a folder of this process");
    let copy = folder.join(plugin.file_name().expect("a file"));
    fs::copy(&plugin, &copy).expect("the plugin is a file");
    load(&copy);
    // Mapped, so that the file is not needed any more.
    fs::remove_dir_all(&folder).expect("still there");
    let pair = Pair::new();
    assert_eq!(provider_of(pair.left.context()), copy);
    pair.check_alive();
    assert_eq!(provider_of(&Context::open()), copy);
}

fn the_variable_is_enough_without_a_configuration() {
    let plugin = announced();
    let (what, place) = (c"tmpfs".as_ptr(), c"/etc/libibverbs.d".as_ptr());
    // SAFETY: strings are valid; what is mounted is seen by this process alone.
    let hidden = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(
                ptr::null(),
                c"/".as_ptr(),
                ptr::null(),
                libc::MS_REC | libc::MS_PRIVATE,
                ptr::null(),
            ) == 0
            && libc::mount(what, place, what, 0, ptr::null()) == 0
    };
    if !hidden {
        skip("no mount namespace can be made here");
    }
    assert_eq!(fs::read_dir("/etc/libibverbs.d").map(Iterator::count).unwrap_or(0), 0);
    let pair = Pair::new();
    assert_eq!(provider_of(pair.left.context()), plugin);
    pair.check_alive();
}

/// The programs of this file.
pub const TESTS: &[Test] = &[
    test!(another_provider_of_the_same_device_stays_out_of_the_way),
    test!(of_two_copies_the_first_one_serves),
    test!(the_variable_is_enough_without_a_configuration),
];
