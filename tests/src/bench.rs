//! Two queue pairs on one completion queue, one of which gets completions made by hand.

use std::sync::Arc;

use crate::control::{Cqe, HardwareNames, names_of};
use crate::cq::Cq;
use crate::fixtures::Pair;
use crate::qp::{Connection, Qp, QpOptions};
use crate::sys::*;
use crate::wc::{Wc, assert_completions};
use crate::work::SendWork;

/// Queue pairs on one queue, each connected to itself.
pub struct Bench {
    /// Context, domain and memory (the left side's).
    pub pair: Pair,
    /// The queue.
    pub cq: Arc<Cq>,
    /// The queue pair that completions are made up for.
    pub victim: Qp,
    /// What the device calls it.
    pub names: HardwareNames,
    /// The queue pair that must not notice.
    pub neighbour: Qp,
}

/// Never gives up, so that a send without a receive stays outstanding.
fn patient() -> Connection {
    Connection { rnr_retry: 7, min_rnr_timer: 20, ..Connection::default() }
}

impl Bench {
    /// On a plain queue.
    pub fn new() -> Bench {
        let pair = Pair::unconnected(QpOptions::default());
        let cq = Cq::new(pair.left.context(), 64);
        Bench::on(pair, cq)
    }

    /// On that queue.
    pub fn on(pair: Pair, cq: Arc<Cq>) -> Bench {
        let victim = Bench::queue_pair(&pair, &cq);
        let neighbour = Bench::queue_pair(&pair, &cq);
        let names = names_of(&victim);
        Bench { pair, cq, victim, names, neighbour }
    }

    /// A queue pair connected to itself whose requests are one quantum each.
    pub fn queue_pair(pair: &Pair, cq: &Arc<Cq>) -> Qp {
        let options =
            QpOptions { max_send_sge: 0, max_recv_sge: 1, max_inline_data: 8, ..QpOptions::default() };
        let qp = Qp::new(pair.left.pd(), cq, cq, options);
        qp.connect(patient(), qp.number(), pair.left.gid());
        qp
    }

    /// Lets the device write a completion to the queue.
    pub fn inject(&self, cqe: Cqe) {
        cqe.write(self.names.send_cq);
    }

    /// Posts a send on the victim that stays outstanding.
    pub fn outstanding(&self, wr_id: u64) {
        self.victim.post(SendWork::send(wr_id));
    }

    /// The neighbour still works: its completion comes, in one call, and nothing else.
    #[track_caller]
    pub fn check_neighbour(&self) {
        let mr = &self.pair.left.mr;
        self.neighbour.post(SendWork::write(77, mr.address(), mr.rkey()));
        let expected = Wc::sent(self.neighbour.number(), 77, IBV_WC_RDMA_WRITE, 0);
        assert_completions(&self.cq.poll(4), &[expected]);
        self.cq.expect_empty();
    }
}

impl Default for Bench {
    fn default() -> Bench {
        Bench::new()
    }
}
