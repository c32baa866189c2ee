//! What shows the device and its objects.

use super::Test;

/// The table.
pub fn tests() -> Vec<Test> {
    vec![
        Test::alone("devinfo", "ibv_devinfo -v -d $DEV").short(),
        Test::alone("devices", "ibv_devices | grep $DEV"),
        Test::alone(
            "rdma-link",
            "rdma link show $DEV/1 | grep 'state ACTIVE physical_state LINK_UP netdev '",
        ),
        Test::alone("rdma-resource", "resources.py"),
        Test::alone("rdma-statistic", "statistics"),
        Test::alone("asyncwatch", "port-events").within(60),
        Test::alone("irdma-check", "check-machine").within(60).short(),
        Test::alone("ucx_info", "ucx_info -d | grep -A3 \"Device: $DEV:1\""),
        Test::alone("fi_info", "fi_info -p verbs | grep \"domain: $DEV\""),
    ]
}
