//! What goes wrong on purpose: each is a program of its own in `vm/tests`.

use super::Test;

/// The table. Those that take the device away stand last.
pub fn tests() -> Vec<Test> {
    vec![
        Test::alone("client killed", "killed client").within(60),
        Test::alone("server killed", "killed server").within(60),
        Test::alone("2000 queue pairs", "many_queue_pairs.py").within(120),
        Test::alone("memory limit", "memory_limit"),
        Test::alone("region unmapped", "unmapped_region.py"),
        Test::alone("memory windows refused", "windows_refused.py").only_on(2),
        Test::alone("dmabuf", "dmabuf_region.py"),
        Test::alone("fork", "forks.py"),
        Test::alone("drivers removed", "drivers_removed"),
        Test::alone("driver removed under a program", "removal destroy").within(60),
        Test::alone("driver removed, destruction allowed", "removal allow").within(60),
        Test::alone("function unbound under traffic", "unbound").within(90),
    ]
}
