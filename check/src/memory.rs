//! How much memory a program of this user may lock, which is what regions and rings are.

use serde::Serialize;

use crate::files::Root;

/// Below this, programs that register buffers of a usual size fail.
pub const LEAST: u64 = 64 << 20;

/// `CAP_IPC_LOCK` (linux/include/uapi/linux/capability.h): the limit does not hold.
const IPC_LOCK: u32 = 14;

/// The limit.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct LockedMemory {
    /// In bytes; none: unlimited.
    pub limit: Option<u64>,
    /// This user may lock more.
    pub is_exempt: bool,
}

impl LockedMemory {
    /// That of this process.
    pub fn of_process(root: &Root) -> LockedMemory {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: writes to the structure.
        let failed = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) } != 0;
        let is_limited = !failed && limit.rlim_cur != libc::RLIM_INFINITY;
        let status = root.text("/proc/self/status").unwrap_or_default();
        LockedMemory { limit: is_limited.then_some(limit.rlim_cur), is_exempt: is_exempt(&status) }
    }

    /// Whether programs will fail for it.
    pub fn is_too_low(&self) -> bool {
        !self.is_exempt && self.limit.is_some_and(|limit| limit < LEAST)
    }
}

/// Whether a process with that status has `CAP_IPC_LOCK`.
fn is_exempt(status: &str) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> IPC_LOCK & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_limit_matters_to_those_that_it_holds_for() {
        let of = |limit, is_exempt| LockedMemory { limit, is_exempt }.is_too_low();
        assert!(of(Some(8 << 20), false));
        assert!(!of(Some(8 << 20), true));
        assert!(!of(Some(LEAST), false));
        assert!(!of(None, false));
    }

    #[test]
    fn capabilities_are_bits() {
        assert!(is_exempt("Name:\tx\nCapEff:\t0000000000004000\n"));
        assert!(!is_exempt("CapEff:\t0000000000002000\n"));
        assert!(!is_exempt("CapEff:\tx\n"));
        assert!(!is_exempt(""));
    }
}
