//! Without a private namespace, the paths of a device lead to the launcher's folder.
//!
//! libibverbs itself can be told another `/sys` (`SYSFS_PATH`), but not another
//! `/dev`, and UCX, perftest and scripts have `/sys` built in. Only paths below
//! [`REDIRECTED`] are touched, only as a program writes them: no `..`, no links.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::configuration;
use crate::manager;
use crate::system;

/// What is redirected: these, what is below them, and neighbours that start the
/// same (`/sys/class/infiniband_verbs`).
const REDIRECTED: [&[u8]; 4] =
    [b"/sys/class/infiniband", b"/sys/class/misc/rdma_cm", b"/dev/infiniband", b"/etc/libibverbs.d"];
/// Longest redirected path, with its terminator; longer ones are left alone.
const LONGEST: usize = 1024;

/// `root` followed by `path`, if that path is redirected.
fn redirected<'a>(root: &[u8], path: &[u8], buffer: &'a mut [u8; LONGEST]) -> Option<&'a [u8]> {
    if !REDIRECTED.iter().any(|prefix| path.starts_with(prefix)) {
        return None;
    }
    let length = root.len() + path.len();
    let whole = buffer.get_mut(..length + 1)?;
    whole[..root.len()].copy_from_slice(root);
    whole[root.len()..length].copy_from_slice(path);
    whole[length] = 0;
    Some(whole)
}

/// Calls `run` with the path to use instead of `path`.
///
/// # Safety
/// `path` must be null or terminated.
unsafe fn with_path<R>(path: *const c_char, run: impl FnOnce(*const c_char) -> R) -> R {
    let root = configuration::get().and_then(|configuration| configuration.root());
    let (Some(root), false) = (root, path.is_null()) else { return run(path) };
    // SAFETY: the caller's.
    let bytes = unsafe { core::ffi::CStr::from_ptr(path) }.to_bytes();
    let mut buffer = [0; LONGEST];
    match redirected(root, bytes, &mut buffer) {
        Some(other) => run(other.as_ptr().cast()),
        None => run(path),
    }
}

/// The function that a hook stands in front of.
pub struct Original {
    name: &'static core::ffi::CStr,
    address: AtomicUsize,
}

impl Original {
    /// That of a name, not looked for yet.
    pub const fn new(name: &'static core::ffi::CStr) -> Original {
        Original { name, address: AtomicUsize::new(0) }
    }

    /// Its address, 0 if this C library has none.
    pub fn find(&self) -> usize {
        let known = self.address.load(Ordering::Relaxed);
        if known != 0 {
            return known;
        }
        // SAFETY: the name is terminated.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) } as usize;
        self.address.store(address, Ordering::Relaxed);
        address
    }
}

/// What a hook returns if there is nothing behind it.
trait Missing {
    /// The value that means failure.
    const VALUE: Self;
}

impl Missing for c_int {
    const VALUE: c_int = -1;
}

impl Missing for isize {
    const VALUE: isize = -1;
}

impl<T> Missing for *mut T {
    const VALUE: *mut T = core::ptr::null_mut();
}

/// Declares hooks: `name(arguments before the path; arguments after it) -> result`, and what is
/// done with a result.
macro_rules! hooks {
    ($($name:ident($($before:ident: $before_type:ty),*; $($after:ident: $after_type:ty),*) -> $result:ty
        $(, then $then:path)?;)*) => {
        $(
            /// # Safety
            /// As the function of the C library.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C" fn $name(
                $($before: $before_type,)* path: *const c_char, $($after: $after_type),*
            ) -> $result {
                type Signature = unsafe extern "C" fn(
                    $($before_type,)* *const c_char, $($after_type),*
                ) -> $result;
                let address = originals::$name.find();
                if address == 0 {
                    system::set_errno(libc::ENOSYS);
                    return Missing::VALUE;
                }
                // SAFETY: the C library's function of this name has this signature. `open` takes its
                // mode as a variable argument, which is passed like a fixed one.
                let original: Signature = unsafe { core::mem::transmute(address) };
                // SAFETY: the caller's; the path in use is terminated.
                let result = unsafe { with_path(path, |path| original($($before,)* path, $($after),*)) };
                $(
                    // SAFETY: the caller's path; the descriptor is the one just opened.
                    let result = unsafe { $then(path, result) };
                )?
                result
            }
        )*

        /// What the hooks stand in front of.
        #[allow(non_upper_case_globals)]
        mod originals {
            use super::Original;
            $(
                pub static $name: Original = {
                    const NAME: &str = concat!(stringify!($name), "\0");
                    // The terminator is the one just added.
                    Original::new(match core::ffi::CStr::from_bytes_with_nul(NAME.as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!("a name contains no zero"),
                    })
                };
            )*
        }

        /// Finds all originals, so that hooks called in signal handlers need not.
        pub fn resolve_all() {
            $(originals::$name.find();)*
        }
    };
}

/// Comparison and filter functions of `scandir`, which we only hand through.
type Callback = *const c_void;

hooks! {
    open(; flags: c_int, mode: c_uint) -> c_int, then manager::present;
    open64(; flags: c_int, mode: c_uint) -> c_int, then manager::present;
    openat(directory: c_int; flags: c_int, mode: c_uint) -> c_int, then manager::present;
    openat64(directory: c_int; flags: c_int, mode: c_uint) -> c_int, then manager::present;
    __open_2(; flags: c_int) -> c_int, then manager::present;
    __open64_2(; flags: c_int) -> c_int, then manager::present;
    __openat_2(directory: c_int; flags: c_int) -> c_int, then manager::present;
    __openat64_2(directory: c_int; flags: c_int) -> c_int, then manager::present;
    fopen(; mode: *const c_char) -> *mut libc::FILE;
    fopen64(; mode: *const c_char) -> *mut libc::FILE;
    opendir(;) -> *mut libc::DIR;
    scandir(; list: *mut c_void, filter: Callback, compare: Callback) -> c_int;
    scandir64(; list: *mut c_void, filter: Callback, compare: Callback) -> c_int;
    stat(; buffer: *mut libc::stat) -> c_int;
    stat64(; buffer: *mut libc::stat) -> c_int;
    lstat(; buffer: *mut libc::stat) -> c_int;
    lstat64(; buffer: *mut libc::stat) -> c_int;
    fstatat(directory: c_int; buffer: *mut libc::stat, flags: c_int) -> c_int;
    fstatat64(directory: c_int; buffer: *mut libc::stat, flags: c_int) -> c_int;
    __xstat(version: c_int; buffer: *mut libc::stat) -> c_int;
    __xstat64(version: c_int; buffer: *mut libc::stat) -> c_int;
    __lxstat(version: c_int; buffer: *mut libc::stat) -> c_int;
    __lxstat64(version: c_int; buffer: *mut libc::stat) -> c_int;
    statx(directory: c_int; flags: c_int, mask: c_uint, buffer: *mut c_void) -> c_int;
    access(; mode: c_int) -> c_int;
    getxattr(; name: *const c_char, value: *mut c_void, length: usize) -> isize;
    lgetxattr(; name: *const c_char, value: *mut c_void, length: usize) -> isize;
    faccessat(directory: c_int; mode: c_int, flags: c_int) -> c_int;
    readlink(; buffer: *mut c_char, length: usize) -> isize;
    readlinkat(directory: c_int; buffer: *mut c_char, length: usize) -> isize;
    __readlink_chk(; buffer: *mut c_char, length: usize, room: usize) -> isize;
    realpath(; resolved: *mut c_char) -> *mut c_char;
    __realpath_chk(; resolved: *mut c_char, room: usize) -> *mut c_char;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redirect(path: &str) -> Option<String> {
        let mut buffer = [0; LONGEST];
        redirected(b"/run/x", path.as_bytes(), &mut buffer)
            .map(|whole| String::from_utf8(whole.strip_suffix(b"\0").unwrap().to_vec()).unwrap())
    }

    #[test]
    fn device_paths_are_redirected_and_no_others() {
        assert_eq!(redirect("/dev/infiniband/uverbs0").unwrap(), "/run/x/dev/infiniband/uverbs0");
        assert_eq!(redirect("/sys/class/infiniband").unwrap(), "/run/x/sys/class/infiniband");
        assert_eq!(
            redirect("/sys/class/infiniband_verbs/abi_version").unwrap(),
            "/run/x/sys/class/infiniband_verbs/abi_version"
        );
        assert_eq!(
            redirect("/etc/libibverbs.d/irdma.driver").unwrap(),
            "/run/x/etc/libibverbs.d/irdma.driver"
        );
        assert_eq!(
            redirect("/sys/class/misc/rdma_cm/abi_version").unwrap(),
            "/run/x/sys/class/misc/rdma_cm/abi_version"
        );
        for other in [
            "",
            "/",
            "/dev/null",
            "/sys/class/misc/fuse",
            "/sys/class/net",
            "dev/infiniband/uverbs0",
            "/etc/passwd",
        ] {
            assert_eq!(redirect(other), None, "{other}");
        }
    }

    #[test]
    fn paths_that_do_not_fit_are_left_alone() {
        let long = format!("/dev/infiniband/{}", "x".repeat(LONGEST));
        assert_eq!(redirect(&long), None);
        let fits = format!("/dev/infiniband/{}", "x".repeat(LONGEST - 1 - 6 - 16));
        assert_eq!(redirect(&fits).unwrap().len(), LONGEST - 1);
    }
}
