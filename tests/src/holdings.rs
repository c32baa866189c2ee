//! What a process and the device hold for each other, to be compared before and after.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::channel::PATIENCE;
use crate::control::object_counts;
use crate::process::{device_mappings, open_descriptors};

/// What this process and the device hold.
#[derive(Debug, PartialEq, Eq)]
pub struct Holdings {
    descriptors: BTreeSet<String>,
    mappings: usize,
    objects: BTreeMap<String, u64>,
}

impl Holdings {
    /// As of now; waits until the device has cleaned up after programs that just ended.
    pub fn now() -> Holdings {
        let take = || Holdings {
            descriptors: open_descriptors(),
            mappings: device_mappings(),
            objects: object_counts(),
        };
        let mut last = take();
        loop {
            std::thread::sleep(Duration::from_millis(5));
            let next = take();
            if next == last {
                return next;
            }
            last = next;
        }
    }

    /// Must be what is held now.
    #[track_caller]
    pub fn check(&self, when: &str) {
        // The device learns of a close from the kernel, a moment later.
        let end = Instant::now() + PATIENCE;
        loop {
            let now = Holdings::now();
            if now == *self {
                return;
            }
            assert!(Instant::now() < end, "{when}: {now:#?}\nbefore: {self:#?}");
        }
    }
}
