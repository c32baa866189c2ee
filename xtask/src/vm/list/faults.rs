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
        Test::alone("nothing left before the drivers go", "nothing-left"),
        Test::alone("drivers removed", "drivers_removed").within(60),
        Test::alone("driver removed under a program", "removal destroy").within(60),
        Test::alone(
            "driver removed under a program, destruction allowed",
            "RDMAV_ALLOW_DISASSOC_DESTROY=1 removal destroy",
        )
        .within(60),
        Test::alone("driver removed under a program that leaves all", "removal leave").within(60),
        Test::alone("function unbound under traffic", "taken-away unbound").within(90),
        Test::alone("function reset under traffic", "taken-away reset").within(90),
        Test::alone("function removed under traffic", "taken-away removed").within(90),
        Test::alone("nothing left", "nothing-left").within(60),
    ]
}
