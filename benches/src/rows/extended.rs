//! `ibv_start_poll`, `ibv_next_poll`, `ibv_end_poll` and three readers.

use std::rc::Rc;

use irdma_tests::sys::*;

use super::poll::{Completed, Side};
use super::post_send::{send, write};
use crate::bed::{Bed, ROUND};
use crate::row::{Handles, Row};

/// Completions of a batch.
const BATCH: usize = 16;

/// Takes a round of completions in batches; reads opcode, length and flags of each.
pub struct ExtendedPoll {
    work: Completed,
}

impl ExtendedPoll {
    /// Of sends or of receives.
    pub fn new(bed: &Rc<Bed>, side: Side) -> ExtendedPoll {
        let like = if side == Side::Send { write() } else { send() };
        ExtendedPoll { work: Completed::new(bed, side, like) }
    }
}

impl Row for ExtendedPoll {
    fn handles(&self) -> Handles {
        self.work.bed.handles()
    }

    fn operations(&self) -> u32 {
        ROUND as u32
    }

    fn calls(&self) -> u32 {
        // Per completion: the function that takes it and three readers; per batch: its end.
        (ROUND * 4 + ROUND / BATCH) as u32
    }

    fn prepare(&self, _part: u32) {
        self.work.complete();
    }

    #[inline(never)]
    fn measured(&self, _part: u32, handles: Handles) -> i64 {
        let cq: *mut ibv_cq_ex = self.work.side.queue(handles).cast();
        let mut attributes = ibv_poll_cq_attr::default();
        let (mut outcome, mut bytes) = (0, 0);
        // SAFETY: an extended queue that holds a round of completions.
        unsafe {
            for _ in 0..ROUND / BATCH {
                outcome |= ibv_start_poll(cq, &mut attributes);
                bytes += read(cq);
                for _ in 1..BATCH {
                    outcome |= ibv_next_poll(cq);
                    bytes += read(cq);
                }
                ibv_end_poll(cq);
            }
        }
        std::hint::black_box(bytes);
        outcome.into()
    }

    fn clean_up(&self) {
        self.work.clean_up();
    }
}

/// Three fields of the current completion.
///
/// # Safety
/// Within a batch.
#[inline(always)]
unsafe fn read(cq: *mut ibv_cq_ex) -> u64 {
    // SAFETY: as the caller promises.
    unsafe {
        u64::from(ibv_wc_read_opcode(cq))
            + u64::from(ibv_wc_read_byte_len(cq))
            + u64::from(ibv_wc_read_wc_flags(cq))
    }
}
