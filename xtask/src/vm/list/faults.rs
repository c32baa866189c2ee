//! What goes wrong on purpose: each is a program of its own in `vm/tests`.

use super::Test;

/// Once its function is reset, irdma of Linux 7.2 refuses all that would be commands with EBUSY, the end of a region
/// too, of the kernel's own as well; who holds a region is surprised.
const RESET: &[&str] = &["uverbs_destroy_ufile_hw", "ib_dealloc_pd_user", "rdma_restrack_clean"];

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
        Test::alone("nothing left before the drivers go", "nothing-left"),
        Test::alone("drivers removed", "drivers_removed").within(60),
        Test::alone("driver removed under a program", "removal unload destroy").within(60),
        Test::alone(
            "driver removed, destruction allowed",
            "RDMAV_ALLOW_DISASSOC_DESTROY=1 removal unload destroy",
        )
        .within(60),
        Test::alone("driver removed, nothing destroyed", "removal unload leave").within(60),
        Test::alone("function reset under a program", "removal reset destroy").within(60).warns(RESET),
        Test::alone("function reset, nothing destroyed", "removal reset leave").within(60).warns(RESET),
        Test::alone("function unbound under traffic", "taken-away unbound").within(90),
        Test::alone("function removed under traffic", "taken-away removed").within(90),
        Test::alone("nothing left", "nothing-left").within(60),
    ]
}
