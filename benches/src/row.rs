//! A row of the table: what is measured, and what has to be done around it.

use std::ptr::null_mut;
use std::time::Duration;

use irdma_tests::sys::{ibv_cq, ibv_qp, ibv_qp_ex, ibv_srq};

use crate::hollow;

/// The objects that a row's verbs are called on, a provider's or [`hollow`] ones.
#[derive(Clone, Copy)]
pub struct Handles {
    /// The queue pair.
    pub qp: *mut ibv_qp,
    /// Its extended view, if it has one.
    pub qp_ex: *mut ibv_qp_ex,
    /// Its shared receive queue, or null.
    pub srq: *mut ibv_srq,
    /// Queue of its sends.
    pub send_cq: *mut ibv_cq,
    /// Queue of its receives.
    pub recv_cq: *mut ibv_cq,
    /// They are hollow.
    pub are_hollow: bool,
}

/// How often a row is run.
#[derive(Clone, Copy)]
pub struct Rounds {
    /// Before any is measured: every code path has been taken, every cache is filled.
    pub warm_up: u32,
    /// Of the two runs whose difference is counted: what the first rounds do beside their work cancels.
    pub counted: [u32; 2],
    /// Rounds whose median is the row's time.
    pub timed: usize,
}

impl Default for Handles {
    /// None.
    fn default() -> Handles {
        Handles {
            qp: null_mut(),
            qp_ex: null_mut(),
            srq: null_mut(),
            send_cq: null_mut(),
            recv_cq: null_mut(),
            are_hollow: false,
        }
    }
}

impl Rounds {
    /// Of some dozen operations each.
    pub const SHORT: Rounds = Rounds { warm_up: 4, counted: [6, 38], timed: 101 };
    /// With much to do around what is measured.
    pub const LABORIOUS: Rounds = Rounds { warm_up: 2, counted: [2, 10], timed: 31 };
    /// Of a thousand operations each.
    pub const LONG: Rounds = Rounds { warm_up: 1, counted: [1, 2], timed: 3 };
}

/// A row. It runs in rounds, each of one or more parts that are measured.
pub trait Row {
    /// The provider's objects.
    fn handles(&self) -> Handles;

    /// Verbs that a round is about; figures are per operation.
    fn operations(&self) -> u32;

    /// Functions of the provider that a round calls.
    fn calls(&self) -> u32;

    /// How many rounds.
    fn rounds(&self) -> Rounds {
        Rounds::SHORT
    }

    /// Which time is the row's.
    fn clock(&self) -> Clock {
        Clock::Wall
    }

    /// Parts of a round.
    fn parts(&self) -> u32 {
        1
    }

    /// What must have happened before a part.
    fn prepare(&self, _part: u32) {}

    /// What is measured. Goes the same way whatever the verbs return; the outcome tells whether they succeeded.
    fn measured(&self, part: u32, handles: Handles) -> i64;

    /// The outcome of a part when all goes well.
    fn expected(&self, _part: u32) -> i64 {
        0
    }

    /// Leaves the queues as they were before the round.
    fn clean_up(&self) {}
}

/// Runs a round on the provider, each part inside `around`.
pub fn run(row: &dyn Row, mut around: impl FnMut(&mut dyn FnMut() -> i64) -> i64) {
    let handles = row.handles();
    for part in 0..row.parts() {
        row.prepare(part);
        let outcome = around(&mut || row.measured(part, handles));
        assert_eq!(outcome, row.expected(part), "outcome of part {part}");
    }
    row.clean_up();
}

/// Runs the measured parts of a round on the hollow provider.
pub fn run_hollow(row: &dyn Row, mut around: impl FnMut(&mut dyn FnMut() -> i64) -> i64) {
    let handles = hollow::handles();
    for part in 0..row.parts() {
        around(&mut || row.measured(part, handles));
    }
}

/// Which time is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// What passes.
    Wall,
    /// The processor's for this thread, in the program and in the kernel: not that of the device.
    Own,
}

impl Clock {
    fn now(self) -> Duration {
        let clock = if self == Clock::Wall { libc::CLOCK_MONOTONIC } else { libc::CLOCK_THREAD_CPUTIME_ID };
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the result is valid for the call, which cannot fail with these clocks.
        unsafe { libc::clock_gettime(clock, &mut now) };
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    }
}

/// Adds the nanoseconds that a part takes to `total`.
pub fn timing(clock: Clock, total: &mut u64) -> impl FnMut(&mut dyn FnMut() -> i64) -> i64 {
    move |measured| {
        let start = clock.now();
        let outcome = measured();
        *total += (clock.now() - start).as_nanos() as u64;
        outcome
    }
}
