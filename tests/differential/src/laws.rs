//! What holds of this provider's trace by itself, also where the C provider's fault ends the comparison.
//!
//! A work request that was accepted completes at most once, none completes that was not accepted, those
//! of a queue complete in the order of their posting, and no program crashes or hangs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};

use crate::compare::Event;
use crate::program::{Program, Slot, Step};

/// The `wr_id` of a program's first work request.
pub const FIRST_ID: u64 = 1000;

/// A queue of a program: of the queue pair that is the so-manieth in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Queue {
    Send(Slot, u32),
    Receive(Slot, u32),
    /// Shared: its requests complete in any order.
    Shared,
}

/// Requests that are out, and what has completed last of each queue.
#[derive(Debug)]
struct Posted {
    next: u64,
    out: BTreeMap<u64, Queue>,
    last: BTreeMap<Queue, u64>,
    /// Queue pairs made in each slot.
    made: BTreeMap<Slot, u32>,
    finished: BTreeSet<u64>,
}

impl Posted {
    /// A call that posted `count` requests has ended so.
    fn post(&mut self, queue: Queue, count: usize, event: &Event<'_>) -> Result<(), &'static str> {
        let accepted = match (event.number("result"), event.number("bad_wr")) {
            (Some(0), _) => count as u64,
            (_, Some(refused)) => refused.unsigned_abs(),
            _ if event.kind == "bind_mw" => 0,
            _ => return Err("a refused post names no request"),
        };
        self.out.extend((self.next..self.next + accepted).map(|id| (id, queue)));
        self.next += count as u64;
        Ok(())
    }

    fn complete(&mut self, event: &Event<'_>) -> Result<(), &'static str> {
        let id = event.number("wr_id").map_or(0, i64::unsigned_abs);
        let Some(queue) = self.out.remove(&id) else {
            return Err(match self.finished.contains(&id) {
                true => "a request completes twice",
                false => "a request completes that was not accepted",
            });
        };
        self.finished.insert(id);
        if queue == Queue::Shared {
            return Ok(());
        }
        match self.last.insert(queue, id) {
            Some(last) if last > id => Err("requests of a queue complete out of order"),
            _ => Ok(()),
        }
    }
}

/// A law that is broken.
#[derive(Debug)]
pub struct Broken {
    /// Which one.
    pub law: &'static str,
    /// The line that breaks it.
    line: String,
}

impl Display for Broken {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.law, self.line)
    }
}

/// The first law that the trace breaks.
pub fn broken(program: &Program, trace: &str) -> Option<Broken> {
    let mut posted = Posted {
        next: FIRST_ID,
        out: BTreeMap::new(),
        last: BTreeMap::new(),
        made: BTreeMap::new(),
        finished: BTreeSet::new(),
    };
    let mut step = None;
    for line in trace.lines() {
        if let Some(number) = line.strip_prefix("step ") {
            step = number.parse().ok().and_then(|number: usize| program.get(number));
            continue;
        }
        let event = Event::parse(line);
        let number = |slot: &Slot| posted.made.get(slot).copied().unwrap_or(0);
        let result = match (event.kind, step) {
            ("died", _) => Err("the program crashes"),
            ("hung", _) => Err("the program hangs"),
            ("create_qp", Some(Step::CreateQp { qp, .. })) => {
                *posted.made.entry(*qp).or_default() += 1;
                Ok(())
            }
            ("post_send", Some(Step::PostSend { qp, list })) => {
                posted.post(Queue::Send(*qp, number(qp)), list.len(), &event)
            }
            ("bind_mw", Some(Step::BindMw { qp, .. })) => {
                posted.post(Queue::Send(*qp, number(qp)), 1, &event)
            }
            ("post_recv", Some(Step::PostRecv { qp, list })) => {
                posted.post(Queue::Receive(*qp, number(qp)), list.len(), &event)
            }
            ("post_srq_recv", Some(Step::PostSrqRecv { list, .. })) => {
                posted.post(Queue::Shared, list.len(), &event)
            }
            ("wc" | "current", _) => posted.complete(&event),
            _ => Ok(()),
        };
        if let Err(law) = result {
            return Some(Broken { law, line: line.to_owned() });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Receive;

    fn program() -> Program {
        let receive = Receive { elements: Vec::new(), stale: false };
        vec![
            Step::PostRecv { qp: 0, list: vec![receive.clone(), receive.clone(), receive] },
            Step::Poll { cq: 0, count: 32 },
        ]
    }

    fn trace(post: &str, completions: &[u64]) -> String {
        let all: String = completions.iter().map(|id| format!("wc wr_id={id} status=0\n")).collect();
        format!("step 0\npost_recv {post}\nstep 1\n{all}step end\n")
    }

    #[test]
    fn requests_complete_once_in_order_if_they_were_accepted() {
        let broken =
            |post: &str, completions: &[u64]| broken(&program(), &trace(post, completions)).is_some();
        assert!(!broken("result=0", &[1000, 1001, 1002]));
        assert!(!broken("result=0", &[1001]));
        assert!(!broken("result=12 bad_wr=1", &[1000]));
        assert!(broken("result=12 bad_wr=1", &[1000, 1001]), "not accepted");
        assert!(broken("result=0", &[1000, 1000]), "twice");
        assert!(broken("result=0", &[1001, 1000]), "out of order");
        assert!(broken("result=0", &[1003]), "never posted");
        assert!(broken("result=12 bad_wr=none", &[]), "no request is named");
    }

    #[test]
    fn a_crash_breaks_a_law_wherever_it_is() {
        let trace = trace("result=0", &[1000]) + "died code=139\n";
        assert!(broken(&program(), &trace).is_some());
    }
}
