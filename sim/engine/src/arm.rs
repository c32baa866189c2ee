//! Completion notification: one event for each request, none without.

use crate::cq::Pending;
use crate::engine::Engine;
use crate::format::Field;
use crate::platform::Platform;
use crate::spec::CqId;

/// Arm word, at byte 32 of a CQ's shadow area.
const ARM_ANY: Field = Field::new(14, 14);
const ARM_SOLICITED: Field = Field::new(15, 15);
const ARM_SEQUENCE: Field = Field::new(17, 16);

/// What the consumer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Any,
    Solicited,
}

/// The requests of one queue.
#[derive(Debug, Default)]
pub(crate) struct Arming {
    /// Sequence number of the last request taken; consumers start with 1.
    sequence: u64,
    request: Option<Request>,
}

impl Arming {
    /// Looks at the arm word; true if an event is due at once because of what is `pending`.
    /// A word whose sequence number was seen before asks for nothing new, except that it
    /// may widen a request not yet answered.
    fn arm(&mut self, arm_word: u64, pending: Pending) -> bool {
        let sequence = ARM_SEQUENCE.get(arm_word);
        if sequence == self.sequence && self.request.is_none() {
            return false;
        }
        let request = if ARM_ANY.is_set(arm_word) {
            Request::Any
        } else if ARM_SOLICITED.is_set(arm_word) {
            Request::Solicited
        } else {
            return false;
        };
        self.sequence = sequence;
        self.request = Some(request);
        (pending.solicited || pending.any && request == Request::Any) && self.take(pending.solicited)
    }

    /// Answers the request if a completion (`solicited` or not) is what it waits for.
    fn take(&mut self, solicited: bool) -> bool {
        let due = match self.request {
            Some(Request::Any) => true,
            Some(Request::Solicited) => solicited,
            None => false,
        };
        if due {
            self.request = None;
        }
        due
    }
}

impl<P: Platform> Engine<P> {
    /// The arming doorbell: reads the request from the queue's shadow area. Completions
    /// that the consumer has not taken yet answer it at once. Unknown numbers are ignored.
    pub fn arm_cq(&mut self, cq: CqId) {
        let Some(queue) = self.cqs.get_mut(cq) else { return };
        let Ok(arm_word) = queue.refresh(&mut self.platform) else { return };
        let pending = queue.pending();
        if queue.arming.arm(arm_word, pending) {
            self.platform.completion_event(cq);
        }
    }

    /// A completion was written.
    pub(crate) fn notify_cq(&mut self, cq: CqId, solicited: bool) {
        if self.cqs.get_mut(cq).is_some_and(|queue| queue.arming.take(solicited)) {
            self.platform.completion_event(cq);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Pending = Pending { any: false, solicited: false };
    const PLAIN: Pending = Pending { any: true, solicited: false };

    fn word(sequence: u64, any: bool) -> u64 {
        ARM_SEQUENCE.put(sequence) | ARM_SOLICITED.put(1) | ARM_ANY.put(any.into())
    }

    #[test]
    fn one_event_per_request() {
        let mut arming = Arming::default();
        assert!(!arming.take(true), "nobody asked");
        assert!(!arming.arm(word(1, true), NOTHING));
        assert!(arming.take(false));
        assert!(!arming.take(false), "answered already");
        assert!(!arming.arm(word(1, true), PLAIN), "the same request again");
        assert!(arming.arm(word(2, true), PLAIN), "something is waiting");
        assert!(!arming.take(true));
    }

    #[test]
    fn solicited_requests_wait_for_solicited_completions() {
        let mut arming = Arming::default();
        assert!(!arming.arm(word(1, false), PLAIN));
        assert!(!arming.take(false));
        assert!(!arming.arm(word(2, true), NOTHING), "now for any");
        assert!(arming.take(false));
    }
}
