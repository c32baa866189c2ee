//! Many queue pairs on one completion queue: what a verb costs must not depend on how many there are.

use std::cell::{Cell, RefCell};

use irdma_tests::cq::Cq;
use irdma_tests::memory::Mr;
use irdma_tests::qp::Qp;
use irdma_tests::sys::*;

use super::poll::poll;
use super::post_send::write;
use crate::bed::{self, Beds, ENTRIES, MESSAGE, ROUND, step};
use crate::hollow;
use crate::requests::Requests;
use crate::row::{Handles, Rounds, Row};

/// Completions per poll.
const BATCH: usize = 16;

/// Queue pairs whose completions find room in the queue.
const SOME: usize = ENTRIES as usize / 2;

/// An odd number: its multiples, modulo a power of two, are in no order that a cache could foresee.
const STRIDE: usize = 2_654_435_761;

/// Posts a round of writes, each to another queue pair, then polls until all are done.
pub struct Crowd {
    queue_pairs: Vec<Qp>,
    _mr: Mr,
    /// The queue pairs in the order of posting.
    order: Vec<*mut ibv_qp>,
    /// As many hollow ones.
    hollow: Vec<*mut ibv_qp>,
    request: Requests<ibv_send_wr>,
    /// Whose turn is next, as an index.
    next: Cell<usize>,
    room: RefCell<[ibv_wc; 16]>,
}

impl Crowd {
    /// Of `count` queue pairs, a power of two.
    pub fn new(beds: &Beds, count: usize) -> Crowd {
        assert!(count.is_power_of_two());
        let pd = beds.connected.qp.pd();
        let cq = bed::queue(pd.context());
        let depth = (ROUND / count).max(1) as u32;
        let queue_pairs: Vec<Qp> = (0..count).map(|_| bed::small(pd, &cq, depth)).collect();
        queue_pairs.iter().for_each(bed::connect);
        let mr = bed::memory(pd);
        let mut request = write();
        request.wr.rdma.remote_addr = mr.address();
        request.wr.rdma.rkey = mr.rkey();
        let crowd = Crowd {
            order: (0..count).map(|turn| queue_pairs[turn * STRIDE % count].raw()).collect(),
            hollow: vec![hollow::handles().qp; count],
            request: Requests::new(1, 1, &request, &[mr.sge(0, MESSAGE)]),
            next: Cell::new(0),
            room: RefCell::default(),
            queue_pairs,
            _mr: mr,
        };
        crowd.touch(&cq);
        crowd
    }

    /// Every queue pair does something once, so that all of its memory is there that a round needs.
    fn touch(&self, cq: &Cq) {
        for some in self.order.chunks(SOME) {
            let outcome = some.iter().fold(0, |outcome, &qp| outcome | self.request.post(qp));
            assert_eq!(outcome, 0, "post_send");
            step();
            assert_eq!(cq.poll(some.len() + 1).len(), some.len(), "completions");
        }
    }
}

impl Row for Crowd {
    fn handles(&self) -> Handles {
        let cq = self.queue_pairs[0].send_cq().raw();
        Handles { qp: self.order[0], send_cq: cq, recv_cq: cq, ..Handles::default() }
    }

    fn operations(&self) -> u32 {
        ROUND as u32
    }

    fn calls(&self) -> u32 {
        (ROUND + ROUND / BATCH) as u32
    }

    fn rounds(&self) -> Rounds {
        // The device looks at every queue pair in every round.
        if self.order.len() > 1000 { Rounds::LABORIOUS } else { Rounds::SHORT }
    }

    fn parts(&self) -> u32 {
        2
    }

    fn prepare(&self, part: u32) {
        if part == 1 {
            step();
        }
    }

    #[inline(never)]
    fn measured(&self, part: u32, handles: Handles) -> i64 {
        if part == 1 {
            return poll(handles.send_cq, ROUND / BATCH, BATCH, &self.room);
        }
        let order = if handles.are_hollow { &self.hollow } else { &self.order };
        let (mut outcome, mut next) = (0, self.next.get());
        for _ in 0..ROUND {
            outcome |= self.request.post(order[next]);
            next = (next + 1) & (order.len() - 1);
        }
        self.next.set(next);
        outcome
    }

    fn expected(&self, part: u32) -> i64 {
        if part == 0 { 0 } else { ROUND as i64 }
    }
}
