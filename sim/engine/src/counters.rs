//! What a function has sent and received, as its statistics tell it.

use crate::engine::Engine;
use crate::platform::Platform;
use crate::spec::FunctionId;
use crate::wqe::Operation;

/// Messages of a function since it was made or reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Sends and datagrams sent.
    pub sends_out: u64,
    /// Sends and datagrams taken by a receive.
    pub sends_in: u64,
    /// Writes done at a peer.
    pub writes_out: u64,
    /// Writes of peers.
    pub writes_in: u64,
    /// Reads answered by a peer.
    pub reads_out: u64,
    /// Reads of peers answered.
    pub reads_in: u64,
    /// Atomics answered by a peer.
    pub atomics_out: u64,
    /// Atomics of peers answered.
    pub atomics_in: u64,
    /// Windows bound.
    pub binds: u64,
    /// Keys invalidated by own work.
    pub invalidations: u64,
    /// Peers told that there is no receive.
    pub not_ready_out: u64,
    /// Peers that had no receive.
    pub not_ready_in: u64,
    /// Times without an answer.
    pub timeouts: u64,
}

impl<P: Platform> Engine<P> {
    /// The counters of a function; all zero for an unknown one.
    pub fn counters(&self, function: FunctionId) -> Counters {
        self.functions.get(function as usize).map(|function| function.counters).unwrap_or_default()
    }

    /// Changes the counters of a function.
    pub(crate) fn count(&mut self, function: FunctionId, change: impl FnOnce(&mut Counters)) {
        if let Some(function) = self.functions.get_mut(function as usize) {
            change(&mut function.counters);
        }
    }

    /// Counts a work request that is done.
    pub(crate) fn count_done(&mut self, function: FunctionId, operation: &Operation) {
        self.count(function, |counters| {
            let counter = match operation {
                Operation::Nop | Operation::FastRegister(_) => return,
                Operation::Send { .. } => &mut counters.sends_out,
                Operation::Write { .. } => &mut counters.writes_out,
                Operation::Read { .. } => &mut counters.reads_out,
                Operation::FetchAdd { .. } | Operation::CompareSwap { .. } => &mut counters.atomics_out,
                Operation::Bind(_) => &mut counters.binds,
                Operation::Invalidate(_) => &mut counters.invalidations,
            };
            *counter += 1;
        });
    }
}
