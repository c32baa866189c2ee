//! What the process holds, and processes of its own.

use std::collections::BTreeSet;

/// Descriptors open in this process.
pub fn open_descriptors() -> BTreeSet<String> {
    let names = std::fs::read_dir("/proc/self/fd").expect("/proc is mounted");
    names
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let target = std::fs::read_link(entry.path()).ok()?;
            Some(format!("{} -> {}", entry.file_name().to_string_lossy(), target.display()))
        })
        .filter(|line| !line.contains("/proc/"))
        .collect()
}

/// Mappings of device pages (the BAR file of the device node) in this process.
pub fn device_mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc is mounted");
    // An unlinked file in memory, which has no other name.
    maps.lines().filter(|line| line.contains(" /dev/shm/#") && line.ends_with("(deleted)")).count()
}

/// Bytes that a forked child would not get (`MADV_DONTFORK`).
pub fn bytes_kept_from_children() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps").expect("/proc is mounted");
    let mut size = 0;
    let mut sum = 0;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("Size:") {
            size = rest.trim().trim_end_matches(" kB").trim().parse().expect("a size in kB");
        }
        if line
            .strip_prefix("VmFlags:")
            .is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "dc"))
        {
            sum += size * 1024;
        }
    }
    sum
}

/// Runs `body` in a forked child and returns its exit status; a child that hangs is killed after ten seconds.
///
/// Meant for programs with one thread: the child has only the calling one.
pub fn in_child(body: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the program has no other thread whose locks the child could need.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork");
    if child == 0 {
        // SAFETY: plain system call; the child must not outlive the program.
        unsafe { libc::alarm(10) };
        let status = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(101);
        // SAFETY: ends the child without running the parent's destructors.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: `child` is our child.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(waited, child, "waitpid");
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 + libc::WTERMSIG(status) }
}
