//! How eagerly doorbell pages are looked at: all the time while they are rung, less and less when they are not.

use std::time::{Duration, Instant};

/// Looks without a pause before the processor is given away.
const SPINS: u32 = 200;
/// Looks with a yield in between before sleeping begins.
const YIELDS: u32 = 2000;
/// Shortest and longest sleep between two looks.
const SHORTEST_SLEEP: Duration = Duration::from_micros(20);
const LONGEST_SLEEP: Duration = Duration::from_millis(20);
/// A sleep is this part of the silence so far.
const SHARE: u32 = 8;

/// Shrinks with the time that nothing was rung.
#[derive(Debug)]
pub struct Eagerness {
    looks: u32,
    last_ring: Instant,
}

impl Eagerness {
    /// As eager as can be.
    pub fn new() -> Eagerness {
        Eagerness { looks: 0, last_ring: Instant::now() }
    }

    /// Something was rung.
    pub fn rung(&mut self) {
        *self = Eagerness::new();
    }

    /// Nothing was rung; how long to wait before the next look.
    pub fn quiet(&mut self) -> Duration {
        self.looks = self.looks.saturating_add(1);
        if self.looks < SPINS {
            return Duration::ZERO;
        }
        if self.looks < YIELDS {
            std::thread::yield_now();
            return Duration::ZERO;
        }
        (self.last_ring.elapsed() / SHARE).clamp(SHORTEST_SLEEP, LONGEST_SLEEP)
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
        std::thread::sleep(Duration::from_millis(8));
        assert!(eagerness.quiet() >= Duration::from_millis(1));
        std::thread::sleep(10 * LONGEST_SLEEP);
        assert_eq!(eagerness.quiet(), LONGEST_SLEEP);
        eagerness.rung();
        assert_eq!(eagerness.quiet(), Duration::ZERO);
    }
}
