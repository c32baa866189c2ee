//! libibverbs, loaded at run time: the functions that are called, and nothing if it is not there.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;

use rdma_core_sys::bindings::{
    ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_device_attr, ibv_pd, ibv_qp, ibv_qp_attr,
    ibv_qp_init_attr,
};

/// Declares the functions as fields, found by their names.
macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?,)*) => {
        /// The functions of a loaded libibverbs, in its own names.
        #[allow(missing_docs, reason = "see ibv_open_device(3) and its like")]
        pub struct Verbs {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Verbs {
            /// Loads a library and looks for all of them; the reason in words if that fails.
            pub fn load(name: &OsStr) -> Result<Verbs, String> {
                let library = open(name)?;
                Ok(Verbs {
                    $($name: {
                        let address = library.find(stringify!($name))?;
                        // SAFETY: the function of this name has this signature in every libibverbs.so.1.
                        unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(address)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    ibv_get_device_list: fn(*mut c_int) -> *mut *mut ibv_device,
    ibv_free_device_list: fn(*mut *mut ibv_device),
    ibv_get_device_name: fn(*mut ibv_device) -> *const c_char,
    ibv_open_device: fn(*mut ibv_device) -> *mut ibv_context,
    ibv_close_device: fn(*mut ibv_context) -> c_int,
    ibv_query_device: fn(*mut ibv_context, *mut ibv_device_attr) -> c_int,
    ibv_alloc_pd: fn(*mut ibv_context) -> *mut ibv_pd,
    ibv_dealloc_pd: fn(*mut ibv_pd) -> c_int,
    ibv_create_cq: fn(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq,
    ibv_destroy_cq: fn(*mut ibv_cq) -> c_int,
    ibv_create_qp: fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp,
    ibv_modify_qp: fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int,
    ibv_destroy_qp: fn(*mut ibv_qp) -> c_int,
}

/// A loaded library; it stays.
struct Loaded(*mut c_void);

/// Loads a library as a program that is linked to it does.
fn open(name: &OsStr) -> Result<Loaded, String> {
    let name = CString::new(name.as_bytes()).map_err(|_| "a zero in the name of the library".to_owned())?;
    // SAFETY: a terminated name.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if handle.is_null() { Err(reason()) } else { Ok(Loaded(handle)) }
}

impl Loaded {
    fn find(&self, name: &str) -> Result<*mut c_void, String> {
        let terminated = CString::new(name).map_err(|_| "a zero in a name".to_owned())?;
        // SAFETY: an open library and a terminated name.
        let address = unsafe { libc::dlsym(self.0, terminated.as_ptr()) };
        if address.is_null() { Err(reason()) } else { Ok(address) }
    }
}

/// What the loader says about its last failure.
fn reason() -> String {
    // SAFETY: null, or a terminated text until the next call.
    let text = unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            return "the loader gives no reason".to_owned();
        }
        CStr::from_ptr(text)
    };
    crate::files::shown(&text.to_string_lossy())
}

/// The file that the code at an address was loaded from.
pub fn file_of(address: *const c_void) -> Option<String> {
    let mut found = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: any address will do.
    if unsafe { libc::dladdr(address, &mut found) } == 0 || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's text about a library that stays.
    Some(unsafe { CStr::from_ptr(found.dli_fname) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_said() {
        let error = Verbs::load(OsStr::new("libirdma-no-such.so.1")).err().unwrap();
        assert!(error.contains("No such file"), "{error}");
        // A library, but another.
        let error = Verbs::load(OsStr::new("libc.so.6")).err().unwrap();
        assert!(error.contains("ibv_get_device_list"), "{error}");
    }

    #[test]
    fn code_has_a_file() {
        assert!(file_of(libc::getpid as *const c_void).unwrap().contains("libc.so"));
        assert_eq!(file_of(std::ptr::null()), None);
    }
}
