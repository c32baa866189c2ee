//! `ibv_poll_cq`.

use std::cell::RefCell;
use std::rc::Rc;

use irdma_tests::sys::*;

use super::post_send::{addressed, unsignaled};
use crate::bed::{Bed, MESSAGE, ROUND, step};
use crate::requests::Requests;
use crate::row::{Handles, Row};

/// Whose completions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Those of sends.
    Send,
    /// Those of receives.
    Receive,
}

impl Side {
    /// The queue they come from.
    #[inline(always)]
    pub fn queue(self, handles: Handles) -> *mut ibv_cq {
        match self {
            Side::Send => handles.send_cq,
            Side::Receive => handles.recv_cq,
        }
    }
}

/// Work whose completions lie in one queue, ready to be taken.
pub struct Completed {
    pub bed: Rc<Bed>,
    pub side: Side,
    requests: Requests<ibv_send_wr>,
}

impl Completed {
    /// A round of requests like `like`.
    pub fn new(bed: &Rc<Bed>, side: Side, like: ibv_send_wr) -> Completed {
        // What arrives by receives is of no interest on the other side; datagrams have no other way
        // to free the send queue.
        let like = if side == Side::Receive && bed.ah.is_none() { unsignaled(like) } else { like };
        let requests = Requests::new(ROUND, 16, &addressed(bed, like), &[bed.mr.sge(0, MESSAGE)]);
        Completed { bed: Rc::clone(bed), side, requests }
    }

    /// Does the work.
    pub fn complete(&self) {
        if self.side == Side::Receive {
            self.bed.replenish();
        }
        assert_eq!(self.requests.post(self.bed.qp.raw()), 0, "post_send");
        step();
    }

    /// Frees the send queue.
    pub fn clean_up(&self) {
        match (self.side, &self.bed.ah) {
            (Side::Send, _) => {}
            (Side::Receive, None) => self.bed.reclaim(),
            (Side::Receive, Some(_)) => self.bed.drain(ROUND, 0),
        }
    }
}

/// Room for the completions of a call.
type Room = RefCell<[ibv_wc; 16]>;

/// Takes a round of completions.
pub struct Poll {
    work: Completed,
    batch: usize,
    room: Room,
}

impl Poll {
    /// At most `batch` completions per call.
    pub fn new(bed: &Rc<Bed>, side: Side, like: ibv_send_wr, batch: usize) -> Poll {
        Poll { work: Completed::new(bed, side, like), batch, room: Room::default() }
    }
}

impl Row for Poll {
    fn handles(&self) -> Handles {
        self.work.bed.handles()
    }

    fn operations(&self) -> u32 {
        ROUND as u32
    }

    fn calls(&self) -> u32 {
        (ROUND / self.batch) as u32
    }

    fn prepare(&self, _part: u32) {
        self.work.complete();
    }

    #[inline(never)]
    fn measured(&self, _part: u32, handles: Handles) -> i64 {
        poll(self.work.side.queue(handles), ROUND / self.batch, self.batch, &self.room)
    }

    fn expected(&self, _part: u32) -> i64 {
        ROUND as i64
    }

    fn clean_up(&self) {
        self.work.clean_up();
    }
}

/// Completions of so many calls.
#[inline(always)]
pub fn poll(cq: *mut ibv_cq, calls: usize, batch: usize, room: &Room) -> i64 {
    let room = room.as_ptr().cast();
    let mut sum = 0;
    for _ in 0..calls {
        // SAFETY: a live queue; the room has as many places as the largest batch.
        sum += i64::from(unsafe { ibv_poll_cq(cq, batch as i32, room) });
    }
    sum
}

/// Polls a queue that is empty.
pub struct PollNothing {
    bed: Rc<Bed>,
    room: Room,
}

impl PollNothing {
    /// The queue of sends.
    pub fn new(bed: &Rc<Bed>) -> PollNothing {
        PollNothing { bed: Rc::clone(bed), room: Room::default() }
    }
}

impl Row for PollNothing {
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
        poll(handles.send_cq, ROUND, 16, &self.room)
    }
}
