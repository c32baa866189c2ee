//! Pushed WQEs: handed over through a page of the device, not fetched from the ring.
//!
//! The program copies a WQE from its ring to the same place in the window of its push page
//! and rings the push doorbell. Whatever is not taken from the window is found in the ring
//! when the ordinary doorbell rings.

use crate::engine::Engine;
use crate::format::{QUANTUM, valid_bit, word};
use crate::platform::Platform;
use crate::send::Trigger;
use crate::spec::{EngineError, QpId, QpState};
use crate::wqe::send_quanta;

/// Quanta of a window: WQE index modulo this is the place in it.
const WINDOW_QUANTA: u32 = 8;

/// Bytes of a window.
pub const WINDOW_BYTES: usize = WINDOW_QUANTA as usize * QUANTUM;

/// What became of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The device took that many quanta.
    Taken {
        /// Quanta.
        quanta: u32,
        /// The ring held something else.
        differs: bool,
    },
    /// The device had executed it from the ring before.
    Late,
    /// The device could not take it; a later completion of the queue says so.
    Dropped,
}

/// The pushes of a queue pair that has a push page.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pushes {
    /// One was dropped, and no completion has said so yet.
    dropped: bool,
}

impl Pushes {
    /// Whether a completion is to say that a push was dropped; not again by the next.
    pub(crate) fn take_dropped(&mut self) -> bool {
        std::mem::take(&mut self.dropped)
    }
}

impl<P: Platform> Engine<P> {
    /// Gives a queue pair a push page.
    ///
    /// # Errors
    /// Unknown queue pair.
    pub fn enable_push(&mut self, qp: QpId) -> Result<(), EngineError> {
        self.qps.get_mut(qp).ok_or(EngineError::NotFound)?.pushes.get_or_insert_default();
        Ok(())
    }

    /// Loses a push. Unknown queue pairs, and those without a push page, are ignored.
    pub fn drop_push(&mut self, qp: QpId) {
        if let Some(pushes) = self.qps.get_mut(qp).and_then(|qp| qp.pushes.as_mut()) {
            pushes.dropped = true;
        }
    }

    /// The push doorbell, for the WQEs of the ring's quanta `8 * chunk` to `8 * chunk + 7`;
    /// `window` is what lies in the push page. A header of zero is no WQE.
    ///
    /// A push is taken only if it is the very next WQE; what is pushed in between is then
    /// dropped. Where the producer does not stand still it may have filled the window anew:
    /// there what differs from the ring is dropped.
    pub fn push_sq(&mut self, qp: QpId, chunk: u32, window: &[u8; WINDOW_BYTES]) -> Pushed {
        let settled = self.platform.doorbell_waits();
        let outcome = self.try_push(qp, chunk, window, settled);
        if outcome == Pushed::Dropped {
            self.drop_push(qp);
        }
        outcome
    }

    fn try_push(&mut self, qp: QpId, chunk: u32, window: &[u8; WINDOW_BYTES], settled: bool) -> Pushed {
        let generation = self.config.generation;
        let Some(target) = self.qps.get_mut(qp).filter(|qp| qp.pushes.is_some()) else {
            return Pushed::Late;
        };
        let position = target.sq.position();
        let first = WINDOW_QUANTA.saturating_mul(chunk);
        if position / WINDOW_QUANTA != chunk || word(slot(window, position % WINDOW_QUANTA), 3) == 0 {
            let pushed = (0..WINDOW_QUANTA).find(|&index| word(slot(window, index), 3) != 0);
            return match pushed {
                // The WQE of an earlier doorbell may have been taken together with it.
                None if !settled => Pushed::Late,
                None => Pushed::Dropped,
                Some(index) if target.sq.has_passed(first + index) => Pushed::Late,
                Some(_) => Pushed::Dropped,
            };
        }
        if target.state != QpState::ReadyToSend || target.wait.is_some() {
            return Pushed::Dropped;
        }
        let start = position % WINDOW_QUANTA;
        let mut end = start;
        while end < WINDOW_QUANTA {
            let header = word(slot(window, end), 3);
            let next = end + send_quanta(header, generation);
            if header == 0 || valid_bit(header) != target.sq.polarity() || next > WINDOW_QUANTA {
                break;
            }
            end = next;
        }
        let pushed = &window[start as usize * QUANTUM..end as usize * QUANTUM];
        if pushed.is_empty() {
            return Pushed::Dropped;
        }
        let differs = !target.sq.holds(&mut self.platform, pushed);
        if (differs && !settled) || !target.sq.preload(pushed) {
            return Pushed::Dropped;
        }
        self.run(qp, Trigger::Push);
        Pushed::Taken { quanta: end - start, differs }
    }
}

/// A window from a quantum on.
fn slot(window: &[u8; WINDOW_BYTES], index: u32) -> &[u8] {
    &window[index as usize * QUANTUM..]
}
