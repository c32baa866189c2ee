//! Asks the scheduler to serve requests at once also where programs keep all processors busy.

use irdma_sim_protocol::Mode;

/// Lowest real-time priority: before every ordinary program, after everybody else's real-time work.
const PRIORITY: u32 = 1;

/// Shortest turn that the scheduler grants, in nanoseconds.
const SLICE: u64 = 100_000;

/// `struct sched_attr` up to the fields that exist everywhere.
#[repr(C)]
#[derive(Default)]
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

impl Attributes {
    /// Asks for them for this process; `false` if they are refused.
    fn take(mut self) -> bool {
        self.size = size_of::<Self>() as u32;
        // SAFETY: the struct is as long as it says and lives until the call returns.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const self, 0) == 0 }
    }
}

/// Makes the device run as soon as it has something to do.
///
/// Programs poll: two of them keep two processors busy, and an ordinary process
/// would wait a turn of several milliseconds for each doorbell. In trap mode the
/// device works only while a program waits for it, and sleeps otherwise, so it may
/// go before them as a real-time process where that is allowed. Else, and in the
/// modes in which it may itself be busy for long, it asks for short turns, which
/// come sooner; kernels before 6.12 do not know these, and nothing is lost if they
/// are refused.
pub fn come_first(mode: Mode) {
    let real_time = Attributes {
        policy: libc::SCHED_FIFO as u32,
        flags: libc::SCHED_FLAG_RESET_ON_FORK as u64,
        priority: PRIORITY,
        ..Attributes::default()
    };
    if mode == Mode::Trap && real_time.take() {
        return;
    }
    // SAFETY: a system call without pointers, about this process.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    Attributes { policy: libc::SCHED_OTHER as u32, nice, runtime: SLICE, ..Attributes::default() }.take();
}
