//! The `ibv_wr_*` interface.

use std::rc::Rc;

use irdma_tests::sys::*;

use crate::bed::{Bed, MESSAGE, ROUND};
use crate::row::{Handles, Row};

/// Work requests of a batch.
const BATCH: usize = 16;

/// Bytes inline.
const INLINE: usize = 32;

/// What the requests are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// Sends of one element.
    Element,
    /// RDMA writes of inline data.
    Inline,
}

/// Posts a round of requests in batches.
pub struct WorkBatches {
    bed: Rc<Bed>,
    data: Data,
}

impl WorkBatches {
    /// Of such requests.
    pub fn new(bed: &Rc<Bed>, data: Data) -> WorkBatches {
        WorkBatches { bed: Rc::clone(bed), data }
    }
}

impl Row for WorkBatches {
    fn handles(&self) -> Handles {
        self.bed.handles()
    }

    fn operations(&self) -> u32 {
        ROUND as u32
    }

    fn calls(&self) -> u32 {
        // Two per request, two per batch.
        (2 * ROUND + 2 * ROUND / BATCH) as u32
    }

    fn prepare(&self, _part: u32) {
        if self.data == Data::Element {
            self.bed.replenish();
        }
    }

    #[inline(never)]
    fn measured(&self, _part: u32, handles: Handles) -> i64 {
        let mr = &self.bed.mr;
        let (address, lkey, rkey) = (mr.address(), mr.lkey(), mr.rkey());
        let qp = handles.qp_ex;
        let mut outcome = 0;
        // SAFETY: a live queue pair with this interface, or a hollow one.
        unsafe {
            for _ in 0..ROUND / BATCH {
                ibv_wr_start(qp);
                for number in 0..BATCH {
                    (*qp).wr_id = number as u64;
                    (*qp).wr_flags = IBV_SEND_SIGNALED;
                    if self.data == Data::Element {
                        ibv_wr_send(qp);
                        ibv_wr_set_sge(qp, lkey, address, MESSAGE as u32);
                    } else {
                        ibv_wr_rdma_write(qp, rkey, address);
                        ibv_wr_set_inline_data(qp, address as *mut _, INLINE);
                    }
                }
                outcome |= ibv_wr_complete(qp);
            }
        }
        outcome.into()
    }

    fn clean_up(&self) {
        self.bed.drain(ROUND, if self.data == Data::Element { ROUND } else { 0 });
    }
}
