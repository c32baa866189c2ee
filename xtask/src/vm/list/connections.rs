//! Pairs that connect through rdma_cm, data checked where the program can.

use super::{Listens, Test};

/// The table.
pub fn tests() -> Vec<Test> {
    let at = Listens::Connections;
    vec![
        Test::pair("rping", at(7174), "rping -s -a $SERVER -v -C 5 -V", "rping -c -a $SERVER -v -C 5 -V")
            .short(),
        Test::pair(
            "rping-large",
            at(7174),
            "rping -s -a $SERVER -C 5 -S 65000 -V",
            "rping -c -a $SERVER -C 5 -S 65000 -V",
        ),
        Test::pair("rping-ipv6", at(7174), "rping -s -a $SERVER6 -C 5 -V", "rping -c -a $SERVER6 -C 5 -V"),
        Test::pair(
            "rping-persistent",
            at(7174),
            "timeout 20 rping -s -P -a $SERVER || [ $? = 124 ]",
            "rping -c -a $SERVER -C 2 -V && rping -c -a $SERVER -C 2 -V && rping -c -a $SERVER -C 2 -V",
        )
        .within(60),
        Test::pair("ucmatose", at(7471), "ucmatose -b $SERVER", "ucmatose -s $SERVER"),
        Test::pair(
            "ucmatose-many",
            at(7471),
            "ucmatose -b $SERVER -c 20 -C 50 -S 1000",
            "ucmatose -s $SERVER -c 20 -C 50 -S 1000",
        )
        .within(60),
        Test::pair("ucmatose-migrate", at(7471), "ucmatose -b $SERVER -m", "ucmatose -s $SERVER -m"),
        Test::pair("udaddy", at(7174), "udaddy -b $SERVER", "udaddy -s $SERVER"),
        Test::pair("udaddy-many", at(7174), "udaddy -b $SERVER -c 8 -C 20", "udaddy -s $SERVER -c 8 -C 20"),
        Test::pair(
            "mckey",
            Listens::Nowhere,
            "mckey -m 239.1.1.1 -b $SERVER -C 10",
            "sleep 1; mckey -m 239.1.1.1 -b $ADDRESS -s -C 10",
        )
        .within(45),
        Test::pair("rstream", at(7471), "rstream -b $SERVER -T v -I 20", "rstream -s $SERVER -T v -I 20")
            .within(120),
        Test::pair("rdma_client", at(7471), "rdma_server", "rdma_client -s $SERVER"),
    ]
}
