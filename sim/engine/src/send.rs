//! The send queue's side.

use crate::engine::Engine;
use crate::platform::Platform;
use crate::spec::QpId;

impl<P: Platform> Engine<P> {
    /// The send doorbell: executes what has been posted. Unknown numbers are ignored.
    pub fn ring_sq(&mut self, qp: QpId) {
        let settled = self.platform.doorbell_waits();
        self.run_send_queue(qp, settled);
    }

    pub(crate) fn resume_send_queue(&mut self, qp: QpId) {
        self.run_send_queue(qp, false);
    }

    pub(crate) fn run_send_queue(&mut self, _qp: QpId, _settled: bool) -> bool {
        false
    }

    /// Flushes (interface first; execution follows).
    ///
    /// # Errors
    /// Unknown queue pair.
    pub fn flush_qp(&mut self, qp: QpId, _sq: Option<u16>, _rq: Option<u16>) -> Result<(), crate::spec::EngineError> {
        self.qps.get(qp).map(drop).ok_or(crate::spec::EngineError::NotFound)
    }
}
