//! `ibv_req_notify_cq`.

use std::rc::Rc;

use irdma_tests::sys::ibv_req_notify_cq;

use crate::bed::{Bed, ROUND, step};
use crate::row::{Handles, Row};

/// Asks for an event.
pub struct Arm {
    bed: Rc<Bed>,
}

impl Arm {
    /// At the queue of sends.
    pub fn new(bed: &Rc<Bed>) -> Arm {
        Arm { bed: Rc::clone(bed) }
    }
}

impl Row for Arm {
    fn handles(&self) -> Handles {
        self.bed.handles()
    }

    fn operations(&self) -> u32 {
        ROUND as u32
    }

    fn calls(&self) -> u32 {
        ROUND as u32
    }

    #[inline(never)]
    fn measured(&self, _part: u32, handles: Handles) -> i64 {
        let mut outcome = 0;
        for _ in 0..ROUND {
            // SAFETY: a live queue.
            outcome |= unsafe { ibv_req_notify_cq(handles.send_cq, 0) };
        }
        outcome.into()
    }

    fn clean_up(&self) {
        step();
    }
}
