//! Errors as a program sees them.

use irdma_engine::spec::EngineError;

/// A positive errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// What a command gives: a value or an errno.
pub type Result<T> = core::result::Result<T, Errno>;

macro_rules! errnos {
    ($($name:ident)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "`.")]
            pub const $name: Errno = Errno(libc::$name);
        )*

        /// The errno of that name.
        pub fn by_name(name: &str) -> Option<Errno> {
            match name {
                $(stringify!($name) => Some($name),)*
                _ => None,
            }
        }
    };
}

errnos! {
    EPERM ENOENT EINTR EIO ENXIO EBADF EAGAIN ENOMEM EACCES EFAULT EBUSY EEXIST ENODEV EINVAL EMFILE
    ENOSPC ENOSYS ENODATA EPROTO EOVERFLOW EOPNOTSUPP EPROTONOSUPPORT ETIMEDOUT ESTALE
}

impl From<EngineError> for Errno {
    fn from(error: EngineError) -> Errno {
        match error {
            EngineError::NotFound | EngineError::Invalid => EINVAL,
            EngineError::Busy => EBUSY,
            EngineError::Taken => EEXIST,
            EngineError::Fault => EFAULT,
            // What the kernel driver answers when an index space is used up (irdma_alloc_rsrc).
            EngineError::Exhausted => EOVERFLOW,
        }
    }
}
