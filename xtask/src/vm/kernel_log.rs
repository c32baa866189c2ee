//! What in a guest's kernel log is a fault of the kernel's, or of the device it talks to.

use super::guest::Line;

/// What the kernel writes when it has found itself in a state that it must not be in.
const TROUBLE: &[&str] = &[
    "BUG:",
    "Call Trace:",
    "INFO: rcu",
    "INFO: task",
    "Kernel panic",
    "NETDEV WATCHDOG",
    "Oops:",
    "UBSAN:",
    "WARNING:",
    "general protection fault",
    "list_add corruption",
    "list_del corruption",
    "refcount_t:",
    "unable to handle",
];

/// The first line that is trouble.
pub fn trouble(lines: &[Line]) -> Option<&str> {
    let is_trouble = |line: &&Line| TROUBLE.iter().any(|text| line.text.contains(text));
    lines.iter().find(is_trouble).map(|line| line.text.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_and_oopses_are_found_among_the_rest() {
        let log = |text: &str| {
            let line = |text: &str| Line { text: text.to_owned() };
            [line("idpf 0000:00:10.0: Device HW Reset initiated"), line(text)]
        };
        let warning = "WARNING: drivers/infiniband/core/device.c:672 at ib_dealloc_device";
        assert_eq!(trouble(&log(warning)), Some(warning));
        assert!(trouble(&log("BUG: unable to handle page fault for address: 0000")).is_some());
        assert!(trouble(&log("irdma: Link ACTIVE")).is_none());
    }
}
