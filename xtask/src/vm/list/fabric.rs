//! What stands on verbs: UCX, libfabric, MPI.

use super::{Listens, Test};

macro_rules! ucx {
    ($transport:literal, $test:literal) => {
        Test::pair(
            concat!($transport, " ", $test),
            Listens::Tcp(13337),
            concat!("ucx ", $transport, " -t ", $test),
            concat!("ucx ", $transport, " -t ", $test, " $SERVER"),
        )
        .within(60)
    };
}

macro_rules! fi_pingpong {
    ($name:literal, $options:literal) => {
        Test::pair(
            $name,
            Listens::Tcp(47592),
            concat!("fi_pingpong -c -I 50 -d $DEV", $options),
            concat!("fi_pingpong -c -I 50 -d $DEV", $options, " $SERVER"),
        )
        .within(60)
    };
}

/// `ucx_perftest`; `rc_v` wants shared receive queues.
pub fn ucx() -> Vec<Test> {
    vec![
        ucx!("rc_v", "tag_lat -s 8 -n 200 -w 20").only_on(3),
        ucx!("rc_v", "tag_bw -s 65536 -n 50 -w 5").only_on(3),
        ucx!("rc_v", "ucp_am_lat -s 1024 -n 200 -w 20").only_on(3),
        ucx!("rc_v", "ucp_am_bw -s 65536 -n 50 -w 5").only_on(3),
        ucx!("rc_v", "ucp_put_lat -s 8 -n 200 -w 20").only_on(3),
        ucx!("rc_v", "ucp_put_bw -s 65536 -n 50 -w 5").only_on(3),
        ucx!("rc_v", "ucp_get -s 8 -n 200 -w 20").only_on(3),
        ucx!("rc_v", "ucp_get -s 65536 -n 50 -w 5").only_on(3),
        ucx!("rc_v", "ucp_fadd -s 8 -n 200 -w 20").only_on(3),
        ucx!("ud_v", "tag_lat -s 8 -n 200 -w 20"),
        ucx!("ud_v", "tag_bw -s 65536 -n 50 -w 5"),
        ucx!("ud_v", "ucp_am_lat -s 1024 -n 200 -w 20"),
        ucx!("ud_v", "ucp_put_lat -s 8 -n 200 -w 20"),
        ucx!("ud_v", "ucp_get -s 65536 -n 50 -w 5"),
    ]
}

/// `fi_pingpong`.
pub fn libfabric() -> Vec<Test> {
    vec![
        fi_pingpong!("verbs", " -p verbs -e msg"),
        fi_pingpong!("rxm", " -p 'verbs;ofi_rxm' -e rdm"),
        fi_pingpong!("rxd", "-dgram -p 'verbs;ofi_rxd' -e rdm").within(120),
        fi_pingpong!("datagrams", "-dgram -p verbs -e dgram"),
    ]
}

/// Open MPI over UCX.
pub fn mpi() -> Vec<Test> {
    vec![
        Test::alone("ping-pong", "mpi 2 ping_pong.py").within(120),
        Test::alone("all-to-all", "mpi 4 all_to_all.py").within(180),
    ]
}
