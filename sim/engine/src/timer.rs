//! What waits for time to pass, and what waits for its turn.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::engine::Engine;
use crate::platform::Platform;
use crate::spec::{Id, QpId};

/// Behind all queue pairs.
const LAST: QpId = Id { function: u32::MAX, number: u32::MAX };

/// Send queues to be looked at later.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    due: BTreeSet<(Duration, QpId)>,
}

impl Timers {
    /// Looks at `qp` at `time`.
    pub(crate) fn set(&mut self, time: Duration, qp: QpId) {
        self.due.insert((time, qp));
    }

    /// Forgets that `qp` was due at `time`.
    pub(crate) fn clear(&mut self, time: Duration, qp: QpId) {
        self.due.remove(&(time, qp));
    }

    fn first(&self) -> Option<Duration> {
        self.due.first().map(|&(time, _)| time)
    }

    fn take_due(&mut self, now: Duration) -> Vec<QpId> {
        let later = self.due.split_off(&(now, LAST));
        std::mem::replace(&mut self.due, later).into_iter().map(|(_, qp)| qp).collect()
    }
}

impl<P: Platform> Engine<P> {
    /// When [`Self::advance`] has something to do, on the clock of [`Platform::now`]; in the
    /// past if it has already, `None` if only a doorbell can bring new work.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.timers.first()
    }

    /// Does what is due: repeats of sends that met no receive or no answer, and work left
    /// over by a call that had too much of it.
    pub fn advance(&mut self) {
        let now = self.platform.now();
        for qp in self.timers.take_due(now) {
            self.resume_send_queue(qp);
        }
    }
}
