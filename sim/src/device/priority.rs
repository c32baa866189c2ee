//! Asks the scheduler for short turns, so that a request is served at once also where programs keep all processors busy.

/// Shortest turn that the scheduler grants, in nanoseconds.
const SLICE: u64 = 100_000;

/// `struct sched_attr` up to the fields that exist everywhere.
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// A task that asks for short turns comes sooner: it may interrupt one with longer turns. Kernels
/// before 6.12 do not know this, and nothing is lost if it is refused.
pub fn take_short_turns() {
    // SAFETY: a system call without pointers, about this process.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: 0,
        nice,
        priority: 0,
        runtime: SLICE,
        deadline: 0,
        period: 0,
    };
    // SAFETY: the struct is as long as it says and lives until the call returns.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}
