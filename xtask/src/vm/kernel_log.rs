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

/// The end of what follows a warning.
const END: &str = "---[ end trace";

/// The first line that is trouble, but for warnings of one of the functions `known` to warn.
pub fn trouble<'lines>(lines: &'lines [Line], known: &[&str]) -> Option<&'lines str> {
    let mut is_known = false;
    let is_trouble = |line: &&Line| {
        let text = &line.text;
        is_known = match text.contains("WARNING:") {
            true => known.iter().any(|function| text.contains(&format!(" at {function}+"))),
            false => is_known && !text.contains(END),
        };
        !is_known && TROUBLE.iter().any(|word| text.contains(word))
    };
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
        assert_eq!(trouble(&log(warning), &[]), Some(warning));
        assert!(trouble(&log("BUG: unable to handle page fault for address: 0000"), &[]).is_some());
        assert!(trouble(&log("irdma: Link ACTIVE"), &[]).is_none());
    }

    #[test]
    fn known_warning_is_none_up_to_its_end() {
        let log =
            ["WARNING: x.c:1 at one+0x1/0x2 [x]", "Call Trace:", "---[ end trace 0 ]---", "Call Trace:"];
        let log = log.map(|text| Line { text: text.to_owned() });
        assert_eq!(trouble(&log[..3], &["one"]), None);
        assert_eq!(trouble(&log, &["one"]), Some("Call Trace:"));
        assert_eq!(trouble(&log, &["on", "another"]), Some(log[0].text.as_str()));
    }
}
