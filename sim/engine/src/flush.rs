//! Flushing: what outstanding work of a failed queue pair turns into.
//!
//! Until GEN2 the device writes one CQE for a whole queue, whatever is in it, and software
//! makes a completion out of it for every work request. From GEN3 on it writes one CQE for each.

use crate::cqe::{Completion, MAJOR_FLUSHED};
use crate::engine::Engine;
use crate::format::word;
use crate::platform::Platform;
use crate::spec::{CqId, EngineError, Generation, QpId, QpState};
use crate::wqe::{opcode, send_opcode, send_quanta};

/// Flush code of work that merely stood behind the work that failed.
const FLUSH_GENERAL: u16 = 1;

impl<P: Platform> Engine<P> {
    /// Flushes the queues for which there is a flush code (kernel: `enum irdma_flush_opcode`,
    /// drivers/infiniband/hw/irdma/user.h); the queue pair goes to ERROR if it is not there.
    /// May be repeated, for work posted later.
    ///
    /// # Errors
    /// Unknown queue pair.
    pub fn flush_qp(&mut self, qp: QpId, sq: Option<u16>, rq: Option<u16>) -> Result<(), EngineError> {
        let target = self.qps.get_mut(qp).ok_or(EngineError::NotFound)?;
        target.state = QpState::Error;
        self.stop_waiting(qp);
        let one_each = self.config.generation >= Generation::Gen3;
        match sq {
            Some(code) if one_each => {
                self.flush_sends(qp, code);
            }
            Some(code) => self.flush_whole(qp, true, code),
            None => {}
        }
        match rq {
            Some(code) if one_each => self.flush_receives(qp, code),
            Some(code) => self.flush_whole(qp, false, code),
            None => {}
        }
        Ok(())
    }

    /// One CQE for all that is in a queue. An empty queue has one too, as software may know
    /// of work that the device does not; but it does not overrun a full completion queue.
    fn flush_whole(&mut self, qp: QpId, send_queue: bool, code: u16) {
        let generation = self.config.generation;
        let Some(target) = self.qps.get_mut(qp) else { return };
        let receive_quanta = target.rq_wqe_quanta;
        let (cq, ring) =
            if send_queue { (target.send_cq, &mut target.sq) } else { (target.recv_cq, &mut target.rq) };
        let size = |header| if send_queue { send_quanta(header, generation) } else { receive_quanta };
        let index = ring.position();
        let empty = matches!(ring.peek(&mut self.platform, size, false), Ok(None));
        if empty && !self.cq_has_room(cq) {
            return;
        }
        self.complete_flushed(qp, cq, send_queue, index, 0, code);
    }

    /// A CQE for each send outstanding, the first with `code`; true if there were any.
    fn flush_sends(&mut self, qp: QpId, mut code: u16) -> bool {
        let generation = self.config.generation;
        let Some(target) = self.qps.get_mut(qp) else { return false };
        target.sq_flushed = true;
        let cq = target.send_cq;
        let mut left = target.sq.quanta();
        let mut flushed = false;
        while left > 0 {
            let Some(target) = self.qps.get_mut(qp) else { break };
            let index = target.sq.position();
            // A ring that cannot be read holds nothing that could be completed.
            let Ok(Some(wqe)) =
                target.sq.peek(&mut self.platform, |header| send_quanta(header, generation), false)
            else {
                break;
            };
            let header = word(wqe, 3);
            let quanta = send_quanta(header, generation);
            target.sq.consume(quanta);
            left = left.saturating_sub(quanta);
            if send_opcode(header) != opcode::NOP {
                self.complete_flushed(qp, cq, true, index, send_opcode(header), code);
                code = FLUSH_GENERAL;
                flushed = true;
            }
        }
        flushed
    }

    /// Sends posted to a queue that was flushed already.
    pub(crate) fn flush_late_sends(&mut self, qp: QpId) -> bool {
        self.flush_sends(qp, FLUSH_GENERAL)
    }

    /// A CQE for each receive outstanding, the first with `code`. Receives of a shared queue
    /// stay there for others.
    fn flush_receives(&mut self, qp: QpId, mut code: u16) {
        let Some(target) = self.qps.get(qp) else { return };
        if target.srq.is_some() {
            return;
        }
        let (cq, quanta) = (target.recv_cq, target.rq_wqe_quanta);
        for _ in 0..target.rq.quanta() / quanta {
            let Some(target) = self.qps.get_mut(qp) else { break };
            let index = target.rq.position();
            if !matches!(target.rq.peek(&mut self.platform, |_| quanta, false), Ok(Some(_))) {
                break;
            }
            target.rq.consume(quanta);
            self.complete_flushed(qp, cq, false, index, 0, code);
            code = FLUSH_GENERAL;
        }
    }

    fn complete_flushed(&mut self, qp: QpId, cq: CqId, send_queue: bool, index: u32, opcode: u8, code: u16) {
        let completion = Completion {
            error: true,
            major: MAJOR_FLUSHED,
            minor: code,
            index,
            opcode,
            send_queue,
            ..Completion::default()
        };
        // A completion queue that cannot take it has reported so itself.
        let _ = self.complete_for(qp, cq, completion);
    }
}
