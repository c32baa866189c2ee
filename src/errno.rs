//! The one error type: an errno.

use core::ffi::c_int;
use core::fmt::{self, Display};

/// A positive errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(c_int);

/// What can fail with an errno.
pub type Result<T> = core::result::Result<T, Errno>;

impl Errno {
    /// A value is not possible.
    pub const INVALID: Errno = Errno(libc::EINVAL);
    /// No room.
    pub const NO_MEMORY: Errno = Errno(libc::ENOMEM);
    /// Something still needs it.
    pub const BUSY: Errno = Errno(libc::EBUSY);
    /// Not for this object.
    pub const NOT_PERMITTED: Errno = Errno(libc::EPERM);
    /// The device or the kernel does not offer it.
    pub const NOT_SUPPORTED: Errno = Errno(libc::EOPNOTSUPP);
    /// The kernel or the device says something impossible.
    pub const PROTOCOL: Errno = Errno(libc::EPROTO);
    /// The provider itself is at fault.
    pub const INTERNAL: Errno = Errno(libc::ENOTRECOVERABLE);

    /// The number.
    pub fn number(self) -> c_int {
        self.0
    }

    /// The calling thread's `errno`; [`Errno::PROTOCOL`] if a call failed without setting it.
    pub fn last() -> Errno {
        // SAFETY: the location is the calling thread's own.
        let number = unsafe { *libc::__errno_location() };
        if number > 0 { Errno(number) } else { Errno::PROTOCOL }
    }

    /// Makes it the calling thread's `errno`.
    pub fn set(self) {
        // SAFETY: the location is the calling thread's own.
        unsafe { *libc::__errno_location() = self.0 };
    }

    /// The result of a library call: 0, an errno, or negative with `errno` set.
    pub fn check(code: c_int) -> Result<()> {
        match code {
            0 => Ok(()),
            ..0 => Err(Errno::last()),
            number => Err(Errno(number)),
        }
    }
}

impl Display for Errno {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text of an I/O error is the C library's, and ends with the number.
        Display::fmt(&std::io::Error::from_raw_os_error(self.0), formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_convention_gives_a_positive_number() {
        assert_eq!(Errno::check(0), Ok(()));
        assert_eq!(Errno::check(libc::EBUSY), Err(Errno(libc::EBUSY)));
        Errno(libc::ENODEV).set();
        assert_eq!(Errno::check(-1), Err(Errno(libc::ENODEV)));
        Errno(0).set();
        assert_eq!(Errno::check(-1), Err(Errno::PROTOCOL));
    }
}
