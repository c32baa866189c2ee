//! How eagerly doorbell pages are looked at: all the time while they are rung, less and less when they are not.

use std::time::{Duration, Instant};

/// Looks without a pause before the processor is given away.
const SPINS: u32 = 200;
/// Looks with a yield in between before sleeping begins.
const YIELDS: u32 = 2000;
/// First and longest sleep between two looks.
const FIRST_SLEEP: Duration = Duration::from_micros(20);
const LONGEST_SLEEP: Duration = Duration::from_millis(20);

/// Grows with the time that nothing was rung.
#[derive(Debug)]
pub struct Eagerness {
    quiet: u32,
    sleep: Duration,
    last: Instant,
}

impl Eagerness {
    /// As eager as can be.
    pub fn new() -> Eagerness {
        Eagerness { quiet: 0, sleep: FIRST_SLEEP, last: Instant::now() }
    }

    /// Something was rung.
    pub fn rung(&mut self) {
        *self = Eagerness::new();
    }

    /// Nothing was rung; how long to wait before the next look. Zero: do not even ask the kernel.
    pub fn quiet(&mut self) -> Duration {
        self.quiet = self.quiet.saturating_add(1);
        if self.quiet < SPINS {
            return Duration::ZERO;
        }
        if self.quiet < YIELDS {
            std::thread::yield_now();
            return Duration::ZERO;
        }
        let sleep = self.sleep;
        // Half as long again at each look, so that the delay stays in proportion to the silence.
        if self.last.elapsed() > 4 * sleep {
            self.sleep = (sleep * 3 / 2).min(LONGEST_SLEEP);
        }
        sleep
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_leads_to_sleep_and_a_ring_ends_it() {
        let mut eagerness = Eagerness::new();
        assert_eq!(eagerness.quiet(), Duration::ZERO);
        while eagerness.quiet() == Duration::ZERO {}
        assert_eq!(eagerness.quiet(), FIRST_SLEEP);
        eagerness.rung();
        assert_eq!(eagerness.quiet(), Duration::ZERO);
    }
}
