//! `ibv_post_send`.

use std::rc::Rc;

use irdma_tests::fixtures::Q_KEY;
use irdma_tests::sys::*;

use crate::bed::{Bed, ROUND};
use crate::requests::Requests;
use crate::row::{Handles, Row};

/// Posts a round of requests, in lists.
pub struct PostSend {
    bed: Rc<Bed>,
    requests: Requests<ibv_send_wr>,
    completions: usize,
    /// They arrive in receives.
    receives: bool,
}

fn signaled(opcode: u32) -> ibv_send_wr {
    ibv_send_wr { opcode, send_flags: IBV_SEND_SIGNALED, ..ibv_send_wr::default() }
}

/// A signaled send.
pub fn send() -> ibv_send_wr {
    signaled(IBV_WR_SEND)
}

/// A signaled send with immediate data.
pub fn immediate() -> ibv_send_wr {
    signaled(IBV_WR_SEND_WITH_IMM)
}

/// A signaled RDMA write.
pub fn write() -> ibv_send_wr {
    signaled(IBV_WR_RDMA_WRITE)
}

/// A signaled RDMA read.
pub fn read() -> ibv_send_wr {
    signaled(IBV_WR_RDMA_READ)
}

/// A signaled atomic addition.
pub fn fetch_add() -> ibv_send_wr {
    signaled(IBV_WR_ATOMIC_FETCH_AND_ADD)
}

/// A signaled atomic comparison and exchange.
pub fn compare_swap() -> ibv_send_wr {
    signaled(IBV_WR_ATOMIC_CMP_AND_SWP)
}

/// The same, its data taken at once.
pub fn inline(like: ibv_send_wr) -> ibv_send_wr {
    ibv_send_wr { send_flags: like.send_flags | IBV_SEND_INLINE, ..like }
}

/// The same without a completion.
pub fn unsignaled(like: ibv_send_wr) -> ibv_send_wr {
    ibv_send_wr { send_flags: like.send_flags & !IBV_SEND_SIGNALED, ..like }
}

/// A request like `like`, addressed to the bed's own queue pair and memory.
pub fn addressed(bed: &Bed, mut like: ibv_send_wr) -> ibv_send_wr {
    match (&bed.ah, like.opcode) {
        (Some(ah), _) => {
            like.wr.ud.ah = ah.raw();
            like.wr.ud.remote_qpn = bed.qp.number();
            like.wr.ud.remote_qkey = Q_KEY;
        }
        (None, IBV_WR_RDMA_WRITE | IBV_WR_RDMA_READ) => {
            like.wr.rdma.remote_addr = bed.mr.address();
            like.wr.rdma.rkey = bed.mr.rkey();
        }
        (None, IBV_WR_ATOMIC_FETCH_AND_ADD | IBV_WR_ATOMIC_CMP_AND_SWP) => {
            like.wr.atomic.remote_addr = bed.mr.address();
            like.wr.atomic.rkey = bed.mr.rkey();
            (like.wr.atomic.compare_add, like.wr.atomic.swap) = (1, 2);
        }
        (None, _) => {}
    }
    like
}

impl PostSend {
    /// Signaled requests like `like` in lists of `list`, each with elements of those lengths.
    pub fn new(bed: &Rc<Bed>, like: ibv_send_wr, list: usize, lengths: &[usize]) -> PostSend {
        let elements: Vec<_> = lengths.iter().map(|&length| bed.mr.sge(0, length)).collect();
        let requests = Requests::new(ROUND, list, &addressed(bed, like), &elements);
        let signaled = like.send_flags & IBV_SEND_SIGNALED != 0;
        let receives = matches!(like.opcode, IBV_WR_SEND | IBV_WR_SEND_WITH_IMM);
        PostSend { bed: Rc::clone(bed), requests, completions: if signaled { ROUND } else { 0 }, receives }
    }

    /// Unsignaled writes of one element, one per call.
    pub fn unsignaled(bed: &Rc<Bed>) -> PostSend {
        PostSend::new(bed, unsignaled(write()), 1, &[crate::bed::MESSAGE])
    }
}

impl Row for PostSend {
    fn handles(&self) -> Handles {
        self.bed.handles()
    }

    fn operations(&self) -> u32 {
        self.requests.count() as u32
    }

    fn calls(&self) -> u32 {
        self.requests.lists() as u32
    }

    fn prepare(&self, _part: u32) {
        if self.receives {
            self.bed.replenish();
        }
    }

    #[inline(never)]
    fn measured(&self, _part: u32, handles: Handles) -> i64 {
        self.requests.post(handles.qp)
    }

    fn clean_up(&self) {
        self.bed.drain(self.completions, if self.receives { ROUND } else { 0 });
        if self.completions == 0 {
            self.bed.reclaim();
        }
    }
}
