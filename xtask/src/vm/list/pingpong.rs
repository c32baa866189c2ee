//! The examples of libibverbs, with all their options.

use super::{Listens, Test};

/// Where they meet.
const PORT: Listens = Listens::Tcp(18515);

macro_rules! pingpong {
    ($name:literal, $program:literal, $options:literal) => {
        Test::pair(
            $name,
            PORT,
            concat!($program, " -d $DEV -g $GID ", $options),
            concat!($program, " -d $DEV -g $GID ", $options, " $SERVER"),
        )
    };
}

/// The table.
pub fn tests() -> Vec<Test> {
    vec![
        pingpong!("rc", "ibv_rc_pingpong", "-n 200 -c").short(),
        pingpong!("rc-small", "ibv_rc_pingpong", "-n 200 -s 1 -c"),
        pingpong!("rc-64k", "ibv_rc_pingpong", "-n 50 -s 65536 -c"),
        pingpong!("rc-4m", "ibv_rc_pingpong", "-n 5 -s 4194304 -c").within(60),
        pingpong!("rc-mtu-4096", "ibv_rc_pingpong", "-n 100 -m 4096 -c"),
        pingpong!("rc-events", "ibv_rc_pingpong", "-n 100 -e -c"),
        pingpong!("rc-new-send", "ibv_rc_pingpong", "-n 100 -N -c").c_fails("it has no ibv_wr_*"),
        pingpong!("rc-few-receives", "ibv_rc_pingpong", "-n 100 -r 2 -c"),
        pingpong!("rc-service-level", "ibv_rc_pingpong", "-n 100 -l 3 -c"),
        pingpong!("ud", "ibv_ud_pingpong", "-n 200 -s 1024 -c").short(),
        pingpong!("ud-small", "ibv_ud_pingpong", "-n 100 -s 1 -c"),
        pingpong!("ud-events", "ibv_ud_pingpong", "-n 100 -s 1024 -e -c"),
        pingpong!("ud-few-receives", "ibv_ud_pingpong", "-n 100 -s 512 -r 2 -c"),
        pingpong!("srq", "ibv_srq_pingpong", "-n 200 -c").only_on(3),
        pingpong!("srq-many", "ibv_srq_pingpong", "-n 200 -q 16 -c").only_on(3),
        pingpong!("srq-events", "ibv_srq_pingpong", "-n 100 -e -c").only_on(3),
        pingpong!("srq-large", "ibv_srq_pingpong", "-n 50 -s 65536 -c").only_on(3),
    ]
}
