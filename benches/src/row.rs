//! A row of the table: what is measured, and what has to be done around it.

use std::sync::OnceLock;
use std::time::Instant;

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
}

// SAFETY: handles of hollow objects, the only ones that are shared, are never written through.
unsafe impl Send for Handles {}
// SAFETY: as above.
unsafe impl Sync for Handles {}

/// A row. It runs in rounds, each of one or more parts that are measured.
pub trait Row {
    /// The provider's objects.
    fn handles(&self) -> Handles;

    /// Verbs that a round is about; figures are per operation.
    fn operations(&self) -> u32;

    /// Functions of the provider that a round calls.
    fn calls(&self) -> u32;

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
    static HOLLOW: OnceLock<Handles> = OnceLock::new();
    let handles = *HOLLOW.get_or_init(hollow::handles);
    for part in 0..row.parts() {
        around(&mut || row.measured(part, handles));
    }
}

/// Adds the nanoseconds that a part takes to `total`.
pub fn timing(total: &mut u64) -> impl FnMut(&mut dyn FnMut() -> i64) -> i64 {
    |measured| {
        let start = Instant::now();
        let outcome = measured();
        *total += start.elapsed().as_nanos() as u64;
        outcome
    }
}
