//! `ibv_post_recv` and `ibv_post_srq_recv`.

use std::rc::Rc;

use irdma_tests::sys::*;

use super::post_send::{send, unsignaled};
use crate::bed::{Bed, MESSAGE, ROUND};
use crate::requests::Requests;
use crate::row::{Handles, Row};

/// Posts a round of receives of one element, in lists.
pub struct PostReceive {
    bed: Rc<Bed>,
    requests: Requests<ibv_recv_wr>,
    /// To the shared queue.
    shared: bool,
    /// What uses them up.
    sends: Requests<ibv_send_wr>,
}

impl PostReceive {
    /// In lists of `list`.
    pub fn new(bed: &Rc<Bed>, list: usize) -> PostReceive {
        let element = [bed.mr.sge(0, MESSAGE)];
        PostReceive {
            bed: Rc::clone(bed),
            shared: !bed.handles().srq.is_null(),
            requests: Requests::new(ROUND, list, &ibv_recv_wr::default(), &element),
            sends: Requests::new(ROUND, 16, &unsignaled(send()), &element),
        }
    }
}

impl Row for PostReceive {
    fn handles(&self) -> Handles {
        self.bed.handles()
    }

    fn operations(&self) -> u32 {
        self.requests.count() as u32
    }

    fn calls(&self) -> u32 {
        self.requests.lists() as u32
    }

    #[inline(never)]
    fn measured(&self, _part: u32, handles: Handles) -> i64 {
        if self.shared { self.requests.post_shared(handles.srq) } else { self.requests.post(handles.qp) }
    }

    fn clean_up(&self) {
        assert_eq!(self.sends.post(self.bed.qp.raw()), 0, "post_send");
        self.bed.drain(0, ROUND);
        self.bed.reclaim();
    }
}
