//! Creating and destroying queue pairs.

use std::cell::RefCell;
use std::sync::Arc;

use irdma_tests::context::Pd;
use irdma_tests::cq::Cq;
use irdma_tests::sys::*;

use crate::bed::{self, Beds};
use crate::row::{Clock, Handles, Rounds, Row};

/// Queue pairs of a round.
const COUNT: usize = 1000;

/// Sends and receives of each.
const DEPTH: u32 = 64;

/// Which half is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// `ibv_create_qp`.
    Create,
    /// `ibv_destroy_qp`.
    Destroy,
}

/// Creates a thousand queue pairs and destroys them.
pub struct Creation {
    half: Half,
    pd: Arc<Pd>,
    cq: Arc<Cq>,
    made: RefCell<Vec<*mut ibv_qp>>,
    handles: Handles,
}

impl Creation {
    /// One half of it.
    pub fn new(beds: &Beds, half: Half) -> Creation {
        let pd = Arc::clone(beds.connected.qp.pd());
        let cq = bed::queue(pd.context());
        let handles = beds.connected.handles();
        Creation { half, pd, cq, made: RefCell::new(Vec::with_capacity(COUNT)), handles }
    }

    fn create(&self) -> i64 {
        let mut made = self.made.borrow_mut();
        for _ in 0..COUNT {
            let mut attributes = bed::small_options(DEPTH).attributes(self.cq.raw(), self.cq.raw());
            // SAFETY: domain and queue are alive, the attributes valid for the call.
            let qp = unsafe { ibv_create_qp(self.pd.raw(), &mut attributes) };
            if qp.is_null() {
                return -1;
            }
            made.push(qp);
        }
        0
    }

    fn destroy(&self) -> i64 {
        let mut outcome = 0;
        for qp in self.made.borrow_mut().drain(..) {
            // SAFETY: a queue pair of `create`, destroyed once.
            outcome |= unsafe { ibv_destroy_qp(qp) };
        }
        outcome.into()
    }
}

impl Row for Creation {
    fn handles(&self) -> Handles {
        self.handles
    }

    fn operations(&self) -> u32 {
        COUNT as u32
    }

    fn calls(&self) -> u32 {
        // There is no hollow run.
        0
    }

    fn rounds(&self) -> Rounds {
        Rounds::LONG
    }

    fn clock(&self) -> Clock {
        // The device's work is most of what passes.
        Clock::Own
    }

    fn prepare(&self, _part: u32) {
        if self.half == Half::Destroy {
            assert_eq!(self.create(), 0, "create_qp");
        }
    }

    #[inline(never)]
    fn measured(&self, _part: u32, handles: Handles) -> i64 {
        match self.half {
            _ if handles.are_hollow => 0,
            Half::Create => self.create(),
            Half::Destroy => self.destroy(),
        }
    }

    fn clean_up(&self) {
        if self.half == Half::Create {
            assert_eq!(self.destroy(), 0, "destroy_qp");
        }
    }
}
