//! What the launcher left in the environment, copied at the first look.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU32, Ordering};

use irdma_sim_protocol::{DEFAULT_TIMEOUT_MILLISECONDS, ROOT_VARIABLE, SOCKET_VARIABLE, TIMEOUT_VARIABLE};

use crate::system;

/// Longest path, with its terminator, that fits a socket address.
const SOCKET_PATH: usize = 108;
/// Longest root of a redirected tree, with its terminator.
const ROOT_PATH: usize = 512;

/// The launcher's wishes.
pub struct Configuration {
    /// Path of the device process's socket, zero-terminated.
    pub socket: [u8; SOCKET_PATH],
    /// Milliseconds to wait for an answer.
    pub timeout: u64,
    root: [u8; ROOT_PATH],
    root_length: usize,
}

impl Configuration {
    /// Where redirected paths lead; `None` in a private namespace.
    pub fn root(&self) -> Option<&[u8]> {
        (self.root_length > 0).then(|| &self.root[..self.root_length])
    }
}

/// Written once, by whoever moves [`STATE`] from `UNREAD` to `READING`.
struct Shared(UnsafeCell<Configuration>);
// SAFETY: `STATE` keeps the only writer and all readers apart.
unsafe impl Sync for Shared {}

static CONFIGURATION: Shared = Shared(UnsafeCell::new(Configuration {
    socket: [0; SOCKET_PATH],
    timeout: DEFAULT_TIMEOUT_MILLISECONDS,
    root: [0; ROOT_PATH],
    root_length: 0,
}));
static STATE: AtomicU32 = AtomicU32::new(UNREAD);

const UNREAD: u32 = 0;
const READING: u32 = 1;
const ABSENT: u32 = 2;
const PRESENT: u32 = 3;

/// The configuration; `None` if the program does not run on the software device.
pub fn get() -> Option<&'static Configuration> {
    loop {
        // Acquire: pairs with the Release that publishes the configuration below.
        match STATE.load(Ordering::Acquire) {
            // SAFETY: nobody writes any more once the state is PRESENT.
            PRESENT => return Some(unsafe { &*CONFIGURATION.0.get() }),
            ABSENT => return None,
            READING => system::pause(),
            _ => read(),
        }
    }
}

/// Copies the environment, once.
fn read() {
    if STATE.compare_exchange(UNREAD, READING, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        return;
    }
    // SAFETY: this thread alone moved the state to READING; nobody else touches the cell until it moves on.
    let configuration = unsafe { &mut *CONFIGURATION.0.get() };
    let present = copy(SOCKET_VARIABLE, &mut configuration.socket).is_some();
    configuration.root_length = copy(ROOT_VARIABLE, &mut configuration.root).unwrap_or(0);
    let mut digits = [0; 12];
    if let Some(length) = copy(TIMEOUT_VARIABLE, &mut digits)
        && let Some(timeout) = number(&digits[..length])
    {
        configuration.timeout = timeout.max(1);
    }
    STATE.store(if present { PRESENT } else { ABSENT }, Ordering::Release);
}

/// Copies an environment variable and its terminator; `None` if it is unset, empty or too long.
fn copy(name: &CStr, buffer: &mut [u8]) -> Option<usize> {
    // SAFETY: the name is terminated.
    let value: *const c_char = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: environment strings are terminated.
    let value = unsafe { CStr::from_ptr(value) }.to_bytes_with_nul();
    if value.len() < 2 || value.len() > buffer.len() {
        return None;
    }
    buffer[..value.len()].copy_from_slice(value);
    Some(value.len() - 1)
}

/// A decimal number.
pub fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        value.checked_mul(10)?.checked_add(digit.into())
    })
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_decimal_digits_that_fit() {
        assert_eq!(number(b"0"), Some(0));
        assert_eq!(number(b"10000"), Some(10_000));
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        for wrong in [&b""[..], b"-1", b"1s", b" 1", b"18446744073709551616"] {
            assert_eq!(number(wrong), None, "{wrong:?}");
        }
    }
}
