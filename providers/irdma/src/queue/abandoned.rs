//! Work requests that the device completes no more: those of a QP in error (GEN3).
//!
//! When a QP goes into error a GEN3 device writes a CQE for every work request that is
//! outstanding, and then it is done with the queue. What is posted later stays where it
//! is: the kernel's driver ignores requests for another flush on GEN3
//! (`irdma_modify_qp_roce` in `drivers/infiniband/hw/irdma/verbs.c`). So software
//! completes it, as that driver does for the QPs of the kernel
//! (`irdma_generate_flush_completions` in `utils.c`):
//!
//! - A queue is *abandoned* when nothing can come any more that says more than that it
//!   was flushed: the program itself has put the QP into error, or a flush CQE of the
//!   queue was seen (only the first one carries the reason), or it was empty when
//!   something was posted to a QP known to be in error.
//! - Whoever posts looks afterwards whether the QP is known to be in error, and then has the
//!   completion queue searched. What was posted too early for that is seen by the search that
//!   follows the error: [`Member::await_poster`](super::Member::await_poster) lies in between.
//! - What is outstanding in an abandoned queue is completed when the completion queue is
//!   found empty, so never before what the device has still written.
//! - A flush CQE that comes after all finds the queue empty and is passed over, or
//!   completes the next work request in the same words.
//!
//! No event comes of such completions: a program that waits for events must poll after
//! it has posted to a failed QP.

use core::sync::atomic::Ordering;

use super::completion::{Origin, Outcome, Side};
use super::queue_pair::QueuePair;
use crate::format::{CompletionOpcode, FlushCode, MAJOR_FLUSHED, Status};

impl QueuePair {
    /// Notes that the device completes nothing more of a queue, or nothing that matters.
    /// Returns whether that is news.
    #[inline]
    pub fn abandon(&self, side: Side) -> bool {
        self.set_in_error();
        !self.abandoned(side).swap(true, Ordering::Relaxed)
    }

    /// Completes the oldest work request of a queue as flushed, if the queue is abandoned
    /// and has any. By the poller of that side, on GEN3.
    #[cold]
    #[inline]
    pub fn complete_abandoned(&self, side: Side) -> Option<(Outcome, Origin)> {
        if !self.abandoned(side).load(Ordering::Relaxed) {
            return None;
        }
        let (wr_id, opcode, length) = match side {
            Side::Send => {
                let (cell, kind) = self.send.oldest()?;
                let completed = (cell.wr_id(), kind.opcode(), cell.length());
                self.send.retire(cell.end());
                completed
            }
            Side::Receive => {
                let position = self.receive.oldest()?;
                let wr_id = self.receive.wr_id(position);
                self.receive.retire(position);
                (wr_id, CompletionOpcode::Receive, 0)
            }
        };
        let vendor_error = u32::from(MAJOR_FLUSHED) << 16 | u32::from(FlushCode::GENERAL.number());
        let outcome = Outcome { wr_id, status: Status::Flushed, opcode, vendor_error, length };
        Some((outcome, *self.send.origin()))
    }
}
