//! A work queue's ring as the device walks it: valid bits, laps, and a window of
//! WQEs fetched ahead.

use crate::format::{QUANTUM, valid_bit, word};
use crate::platform::{MemoryFault, Platform};
use crate::spec::Span;

/// Quanta fetched when little is expected.
const SMALL_WINDOW: u32 = 16;
/// Quanta fetched when the last window was full of work (4 KiB).
const LARGE_WINDOW: u32 = 128;

/// Why a ring cannot be walked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingError {
    /// The ring's memory is gone.
    Fault,
    /// A WQE reaches over the end of the ring.
    Overrun,
}

impl From<MemoryFault> for RingError {
    fn from(MemoryFault: MemoryFault) -> Self {
        Self::Fault
    }
}

/// A send, receive or shared receive ring.
///
/// WQEs found valid are kept until they are consumed: the producer may not touch them
/// until then, and one fetch serves a whole burst.
#[derive(Debug)]
pub(crate) struct WorkRing<B> {
    span: Span<B>,
    quanta: u32,
    position: u32,
    polarity: bool,
    fetched: Vec<u8>,
    fetched_used: usize,
    window: u32,
    /// The last fetch met a quantum that was not posted yet.
    end_met: bool,
}

impl<B: Clone> WorkRing<B> {
    /// A fresh ring of `quanta` quanta; the first lap's valid bits are 1.
    pub(crate) fn new(span: Span<B>, quanta: u32) -> Self {
        Self {
            span,
            quanta,
            position: 0,
            polarity: true,
            fetched: Vec::new(),
            fetched_used: 0,
            window: SMALL_WINDOW,
            end_met: false,
        }
    }

    /// Starts over, as after a reset of the queue.
    pub(crate) fn restart(&mut self) {
        *self = Self::new(self.span.clone(), self.quanta);
    }

    /// Index (quanta) of the next WQE.
    pub(crate) fn position(&self) -> u32 {
        self.position
    }

    /// Size in quanta.
    pub(crate) fn quanta(&self) -> u32 {
        self.quanta
    }

    /// The valid bit that work of this lap carries.
    pub(crate) fn polarity(&self) -> bool {
        self.polarity
    }

    /// The next WQE, whole, or nothing if none has been posted. `size` gives a WQE's
    /// quanta from its header (at least one). `settled`: the producer stands still, so that
    /// what has a valid bit is complete.
    pub(crate) fn peek<P: Platform<Backing = B>>(
        &mut self,
        platform: &mut P,
        size: impl Fn(u64) -> u32,
        settled: bool,
    ) -> Result<Option<&[u8]>, RingError> {
        if self.fetched_used >= self.fetched.len() {
            self.fetch(platform, &size, settled)?;
        }
        let rest = &self.fetched[self.fetched_used..];
        if rest.is_empty() {
            return Ok(None);
        }
        let header = word(rest, 3);
        let bytes = size(header) as usize * QUANTUM;
        // The second look at a ring that its owner scribbles over may differ from the first.
        if valid_bit(header) != self.polarity || bytes > rest.len() {
            self.fetched.clear();
            self.fetched_used = 0;
            return Ok(None);
        }
        Ok(Some(&self.fetched[self.fetched_used..self.fetched_used + bytes]))
    }

    fn fetch<P: Platform<Backing = B>>(
        &mut self,
        platform: &mut P,
        size: &impl Fn(u64) -> u32,
        settled: bool,
    ) -> Result<(), RingError> {
        let to_end = self.quanta - self.position;
        let count = self.window.min(to_end);
        let offset = self.span.offset + u64::from(self.position) * QUANTUM as u64;
        self.fetched_used = 0;
        self.fetched.clear();
        self.fetched.resize(count as usize * QUANTUM, 0);
        if let Err(fault) = platform.read(&self.span.backing, offset, &mut self.fetched) {
            self.fetched.clear();
            return Err(fault.into());
        }
        self.end_met = false;
        let mut valid = 0;
        while valid < self.fetched.len() {
            let header = word(&self.fetched[valid..], 3);
            if valid_bit(header) != self.polarity {
                self.end_met = true;
                break;
            }
            let wqe = size(header);
            if valid == 0 && wqe > to_end {
                self.fetched.clear();
                return Err(RingError::Overrun);
            }
            let end = valid + wqe as usize * QUANTUM;
            if end > self.fetched.len() {
                break;
            }
            valid = end;
        }
        self.window = if valid == self.fetched.len() { LARGE_WINDOW } else { SMALL_WINDOW };
        self.fetched.truncate(valid);
        if valid > 0 && !settled {
            // The producer writes a WQE's body before its valid bit, but the read above may
            // have passed the body before and the valid bit after the producer: read the
            // body once more, now that the valid bit has been seen.
            if let Err(fault) = platform.read(&self.span.backing, offset, &mut self.fetched) {
                self.fetched.clear();
                return Err(fault.into());
            }
        }
        Ok(())
    }

    /// Begins a walk: what an earlier one learnt of the end of what was posted is old.
    pub(crate) fn begin(&mut self) {
        self.end_met = false;
    }

    /// Whether this walk has consumed all there was when it met the end of what was
    /// posted. What comes later has a doorbell of its own.
    pub(crate) fn is_drained(&self) -> bool {
        self.end_met && self.fetched_used >= self.fetched.len()
    }

    /// Steps over quanta of a ring that has not been read yet.
    pub(crate) fn pass(&mut self, quanta: u32) {
        self.position += quanta;
    }

    /// Whether the walk is past a quantum rather than before it.
    pub(crate) fn has_passed(&self, index: u32) -> bool {
        index < self.quanta && (index + self.quanta - self.position) % self.quanta > self.quanta / 2
    }

    /// Whether the ring holds these bytes, a few, from the next WQE on.
    pub(crate) fn holds<P: Platform<Backing = B>>(&self, platform: &mut P, bytes: &[u8]) -> bool {
        let offset = self.span.offset + u64::from(self.position) * QUANTUM as u64;
        let mut present = vec![0; bytes.len()];
        platform.read(&self.span.backing, offset, &mut present).is_ok() && present == bytes
    }

    /// Takes the next WQEs, whole and valid, from here instead of from the ring, and makes
    /// the walk end behind them. `false` if there is no room for them, or some have been
    /// fetched before.
    pub(crate) fn preload(&mut self, wqes: &[u8]) -> bool {
        let is_inside = wqes.len() <= (self.quanta - self.position) as usize * QUANTUM;
        if self.fetched_used < self.fetched.len() || !is_inside {
            return false;
        }
        self.fetched.clear();
        self.fetched.extend_from_slice(wqes);
        self.fetched_used = 0;
        self.end_met = true;
        true
    }

    /// Steps over a WQE of `quanta` quanta that [`Self::peek`] gave.
    pub(crate) fn consume(&mut self, quanta: u32) {
        self.fetched_used += quanta as usize * QUANTUM;
        self.position += quanta;
        if self.position >= self.quanta {
            self.position = 0;
            self.polarity = !self.polarity;
            self.fetched.clear();
            self.fetched_used = 0;
        }
    }
}
