//! Verbs as programs mix them.

use std::cell::RefCell;
use std::rc::Rc;

use irdma_tests::sys::*;

use super::poll::poll;
use super::post_send::{addressed, send, write};
use crate::bed::{Bed, MESSAGE, ROUND, step};
use crate::requests::Requests;
use crate::row::{Handles, Row};

/// Exchanges of a round of [`PingPong`]: the device works in each of them.
const EXCHANGES: u32 = 16;

/// Posts a receive and a send, then polls for each.
pub struct PingPong {
    bed: Rc<Bed>,
    receive: Requests<ibv_recv_wr>,
    send: Requests<ibv_send_wr>,
    room: RefCell<[ibv_wc; 16]>,
}

impl PingPong {
    /// With one element each.
    pub fn new(bed: &Rc<Bed>) -> PingPong {
        let element = [bed.mr.sge(0, MESSAGE)];
        PingPong {
            bed: Rc::clone(bed),
            receive: Requests::new(1, 1, &ibv_recv_wr::default(), &element),
            send: Requests::new(1, 1, &send(), &element),
            room: RefCell::default(),
        }
    }

    fn is_posting(part: u32) -> bool {
        part.is_multiple_of(2)
    }
}

impl Row for PingPong {
    fn handles(&self) -> Handles {
        self.bed.handles()
    }

    fn operations(&self) -> u32 {
        EXCHANGES
    }

    fn calls(&self) -> u32 {
        4 * EXCHANGES
    }

    fn parts(&self) -> u32 {
        2 * EXCHANGES
    }

    fn prepare(&self, part: u32) {
        if !PingPong::is_posting(part) {
            step();
        }
    }

    #[inline(never)]
    fn measured(&self, part: u32, handles: Handles) -> i64 {
        if PingPong::is_posting(part) {
            self.receive.post(handles.qp) | self.send.post(handles.qp)
        } else {
            poll(handles.send_cq, 1, 1, &self.room) + poll(handles.recv_cq, 1, 1, &self.room)
        }
    }

    fn expected(&self, part: u32) -> i64 {
        if PingPong::is_posting(part) { 0 } else { 2 }
    }
}

/// Posts a round of writes one by one, then polls until all are done.
pub struct MessageRate {
    bed: Rc<Bed>,
    requests: Requests<ibv_send_wr>,
    room: RefCell<[ibv_wc; 16]>,
}

impl MessageRate {
    /// Completions per poll.
    const BATCH: usize = 16;

    /// With one element each.
    pub fn new(bed: &Rc<Bed>) -> MessageRate {
        let requests = Requests::new(ROUND, 1, &addressed(bed, write()), &[bed.mr.sge(0, MESSAGE)]);
        MessageRate { bed: Rc::clone(bed), requests, room: RefCell::default() }
    }
}

impl Row for MessageRate {
    fn handles(&self) -> Handles {
        self.bed.handles()
    }

    fn operations(&self) -> u32 {
        ROUND as u32
    }

    fn calls(&self) -> u32 {
        (ROUND + ROUND / MessageRate::BATCH) as u32
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
        match part {
            0 => self.requests.post(handles.qp),
            _ => poll(handles.send_cq, ROUND / MessageRate::BATCH, MessageRate::BATCH, &self.room),
        }
    }

    fn expected(&self, part: u32) -> i64 {
        if part == 0 { 0 } else { ROUND as i64 }
    }
}
