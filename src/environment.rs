//! Switches that a person sets in the environment of a program.

/// Queues take no locks: the program uses all of its queues from one thread at a time.
pub const SINGLE_THREADED: &str = "IRDMA_SINGLE_THREADED";

/// Whether a switch is on: set, to neither nothing nor `0`.
///
/// Programs that run with more rights than whoever started them do not look.
pub fn is_on(switch: &str) -> bool {
    // SAFETY: has no preconditions.
    let has_more_rights = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    !has_more_rights && std::env::var_os(switch).is_some_and(|value| !value.is_empty() && value != "0")
}
