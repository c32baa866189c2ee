//! Switches that a person sets in the environment of a program.

use std::ffi::OsString;

/// Queues take no locks: the program uses all of its queues from one thread at a time.
pub const SINGLE_THREADED: &str = "IRDMA_SINGLE_THREADED";

/// Rings of queues are on huge pages, as far as there are any.
pub const HUGE_PAGES: &str = "IRDMA_HUGE_PAGES";

/// Log lines of the provider go to standard error, up to a level: that of `VERBS_LOG_LEVEL`.
pub const DEBUG: &str = "IRDMA_DEBUG";

/// Push pages: `auto` uses what the device offers, `on` says where it offers none, `off` asks for none.
pub const PUSH: &str = "IRDMA_PUSH";

/// Everything that is ever logged.
const HIGHEST_LEVEL: u32 = 4;

/// A switch's value, unless it is empty.
///
/// Programs that run with more rights than whoever started them do not look.
fn value(switch: &str) -> Option<OsString> {
    // SAFETY: has no preconditions.
    let has_more_rights = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    if has_more_rights {
        return None;
    }
    std::env::var_os(switch).filter(|value| !value.is_empty())
}

/// Whether a switch is on: set, to neither nothing nor `0`.
pub fn is_on(switch: &str) -> bool {
    value(switch).is_some_and(|value| value != "0")
}

/// A switch's value as text; what is no text is shown as well as can be.
pub fn text(switch: &str) -> Option<String> {
    value(switch).map(|value| value.to_string_lossy().into_owned())
}

/// A level: 0 if the switch is not set, the highest if it is set to anything but a number.
pub fn level(switch: &str) -> u32 {
    value(switch)
        .map_or(0, |value| value.to_str().and_then(|text| text.parse().ok()).unwrap_or(HIGHEST_LEVEL))
}
