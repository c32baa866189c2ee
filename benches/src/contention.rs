//! Two threads that post or poll at once.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use irdma_tests::context::{Context, Pd};
use irdma_tests::cq::Cq;
use irdma_tests::memory::Mr;
use irdma_tests::qp::Qp;

use crate::bed::{self, MESSAGE, step};
use crate::requests::Requests;
use crate::rows::{poll::poll, post_send::write};

const THREADS: usize = 2;

/// When a thread began a round, and when it ended.
type Span = (Instant, Instant);

/// Operations of each thread in a round.
const OPERATIONS: usize = 400;

/// Rounds. The time is that of the quickest quarter's end: in the others somebody else may have been on the
/// processors.
const ROUNDS: usize = 61;

/// What the threads do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    /// They post writes, one per call.
    Post,
    /// They take completions, one per call.
    Poll,
}

/// Name, work, and how many queue pairs there are, each with a completion queue.
const ROWS: [(&str, Work, usize); 4] = [
    ("two threads post_send, a queue pair each", Work::Post, THREADS),
    ("two threads post_send, one queue pair", Work::Post, 1),
    ("two threads poll_cq, a queue each", Work::Poll, THREADS),
    ("two threads poll_cq, one queue", Work::Poll, 1),
];

/// Prints a line `NAME TAB NANOSECONDS` for every row whose name contains `filter`: from the common start of
/// both threads to the end of the later, per operation of one.
pub fn measure(filter: &str) {
    let pd = Pd::new(&Context::open());
    for (name, work, count) in ROWS.iter().filter(|(name, ..)| name.contains(filter)) {
        println!("{name}\t{:.3}", Contention::new(&pd, *count).time(*work));
    }
}

/// Queue pairs that two threads use.
struct Contention {
    queue_pairs: Vec<(Qp, Arc<Cq>)>,
    mr: Mr,
    /// Both wait here between rounds, asleep.
    rounds: Barrier,
    /// How often one has come to the start of a round.
    arrived: AtomicU32,
}

impl Contention {
    fn new(pd: &Arc<Pd>, count: usize) -> Contention {
        let requests = OPERATIONS * THREADS / count;
        let queue_pairs = (0..count)
            .map(|_| {
                let cq = Cq::new(pd.context(), 2 * requests as i32);
                let qp = bed::small(pd, &cq, requests as u32);
                bed::connect(&qp);
                step();
                cq.poll(requests);
                (qp, cq)
            })
            .collect();
        let (rounds, arrived) = (Barrier::new(THREADS), AtomicU32::new(0));
        Contention { queue_pairs, mr: bed::memory(pd), rounds, arrived }
    }

    /// Nanoseconds per operation.
    fn time(&self, work: Work) -> f64 {
        let (mine, theirs) = thread::scope(|scope| {
            let other = scope.spawn(|| self.thread(work, 1));
            (self.thread(work, 0), other.join().expect("the other thread works"))
        });
        // From the earlier start to the later end.
        let both = |(mine, theirs): (&Span, &Span)| (mine.1.max(theirs.1) - mine.0.min(theirs.0)).as_nanos();
        let mut times: Vec<_> = mine.iter().zip(&theirs).map(both).collect();
        *times.select_nth_unstable(ROUNDS / 4).1 as f64 / OPERATIONS as f64
    }

    /// What one of the threads does; its own start and end in every round.
    fn thread(&self, work: Work, number: usize) -> Vec<Span> {
        let (qp, cq) = &self.queue_pairs[number % self.queue_pairs.len()];
        let mut request = write();
        request.wr.rdma.remote_addr = self.mr.address();
        request.wr.rdma.rkey = self.mr.rkey();
        let requests = Requests::new(OPERATIONS, 1, &request, &[self.mr.sge(0, MESSAGE)]);
        let room = RefCell::default();
        let post = || assert_eq!(requests.post(qp.raw()), 0, "post_send");
        let take = || assert_eq!(poll(cq.raw(), OPERATIONS, 1, &room), OPERATIONS as i64, "poll_cq");
        (0..ROUNDS)
            .map(|_| {
                if work == Work::Poll {
                    post();
                    self.step(number);
                }
                self.meet();
                let start = Instant::now();
                match work {
                    Work::Post => post(),
                    Work::Poll => take(),
                }
                let end = Instant::now();
                if work == Work::Post {
                    self.step(number);
                    take();
                }
                (start, end)
            })
            .collect()
    }

    /// Lets the device work when both threads have come here.
    fn step(&self, number: usize) {
        self.rounds.wait();
        if number == 0 {
            step();
        }
        self.rounds.wait();
    }

    /// Both threads go on from here within the time that a cache line takes from one to the other.
    fn meet(&self) {
        self.rounds.wait();
        // Nobody arrives for the next round while the other is still here: both wait above first.
        self.arrived.fetch_add(1, Ordering::AcqRel);
        while !self.arrived.load(Ordering::Acquire).is_multiple_of(THREADS as u32) {
            std::hint::spin_loop();
        }
    }
}
