//! perftest: bandwidth and latency of each operation, and its ways to connect, post and wait.

use super::{Listens, Test};

/// Where they meet.
const PORT: Listens = Listens::Tcp(18515);

macro_rules! perftest {
    ($name:literal, $program:literal, $options:literal) => {
        Test::pair(
            $name,
            PORT,
            concat!($program, " -d $DEV -x $GID -F ", $options),
            concat!($program, " -d $DEV -x $GID -F ", $options, " $SERVER"),
        )
    };
}

/// With the connection manager instead.
macro_rules! connected {
    ($name:literal, $program:literal, $options:literal) => {
        Test::pair(
            $name,
            Listens::Connections(18515),
            concat!($program, " -d $DEV -x $GID -F -R ", $options),
            concat!($program, " -d $DEV -x $GID -F -R ", $options, " $SERVER"),
        )
    };
}

/// The table.
pub fn tests() -> Vec<Test> {
    vec![
        perftest!("write-bw", "ib_write_bw", "-n 200 -s 4096").short(),
        perftest!("write-bw-64k", "ib_write_bw", "-n 100 -s 65536"),
        perftest!("write-bw-all-sizes", "ib_write_bw", "-a -n 20").within(120),
        perftest!("write-bw-both-ways", "ib_write_bw", "-b -n 100 -s 4096"),
        perftest!("write-bw-4-queue-pairs", "ib_write_bw", "-q 4 -n 100 -s 4096"),
        perftest!("write-bw-lists", "ib_write_bw", "-l 8 -n 128 -s 1024"),
        perftest!("write-bw-inline", "ib_write_bw", "-I 64 -n 200 -s 64"),
        perftest!("write-bw-old-post", "ib_write_bw", "--use_old_post_send -n 200 -s 4096"),
        perftest!("write-bw-unsignalled", "ib_write_bw", "-Q 10 -n 200 -s 4096"),
        perftest!("write-lat", "ib_write_lat", "-n 200 -s 8"),
        perftest!("write-lat-4k", "ib_write_lat", "-n 200 -s 4096"),
        perftest!("write-lat-old-post", "ib_write_lat", "--use_old_post_send -n 100 -s 8"),
        perftest!("send-bw", "ib_send_bw", "-n 200 -s 4096"),
        perftest!("send-bw-events", "ib_send_bw", "-e -n 200 -s 4096"),
        perftest!("send-bw-lists", "ib_send_bw", "-l 8 -n 128 -s 1024"),
        perftest!("send-bw-receive-lists", "ib_send_bw", "--recv_post_list 8 -n 128 -s 1024"),
        perftest!("send-bw-datagrams", "ib_send_bw", "-c UD -n 200 -s 1024"),
        perftest!("send-bw-both-ways", "ib_send_bw", "-b -n 200 -s 1024"),
        perftest!("send-bw-shared-receive", "ib_send_bw", "--use-srq -q 4 -n 100 -s 1024").only_on(3),
        perftest!("send-lat", "ib_send_lat", "-n 200 -s 8"),
        perftest!("send-lat-events", "ib_send_lat", "-e -n 100 -s 8"),
        perftest!("send-lat-datagrams", "ib_send_lat", "-c UD -n 200 -s 8"),
        // Its group is an IPv6 address, which cannot be had from an IPv4 one.
        Test::pair(
            "send-lat-multicast",
            PORT,
            "ib_send_lat -d $DEV -x 0 -F -c UD -g -n 100 -s 64",
            "ib_send_lat -d $DEV -x 0 -F -c UD -g -n 100 -s 64 $SERVER",
        ),
        perftest!("read-bw", "ib_read_bw", "-n 200 -s 4096"),
        perftest!("read-bw-64k", "ib_read_bw", "-n 50 -s 65536"),
        perftest!("read-bw-lists", "ib_read_bw", "-l 4 -n 64 -s 4096"),
        perftest!("read-lat", "ib_read_lat", "-n 200 -s 8"),
        perftest!("atomic-bw-add", "ib_atomic_bw", "-A FETCH_AND_ADD -n 200").only_on(3),
        perftest!("atomic-bw-swap", "ib_atomic_bw", "-A CMP_AND_SWAP -n 200").only_on(3),
        perftest!("atomic-lat-add", "ib_atomic_lat", "-A FETCH_AND_ADD -n 100").only_on(3),
        perftest!("atomic-lat-swap", "ib_atomic_lat", "-A CMP_AND_SWAP -n 100").only_on(3),
        connected!("connected-write-bw", "ib_write_bw", "-n 100 -s 4096"),
        connected!("connected-read-lat", "ib_read_lat", "-n 100 -s 64"),
        connected!("connected-send-bw", "ib_send_bw", "-n 100 -s 4096"),
        connected!("connected-send-lat", "ib_send_lat", "-n 100 -s 8"),
        connected!("connected-datagrams", "ib_send_bw", "-c UD -n 100 -s 1024"),
    ]
}
