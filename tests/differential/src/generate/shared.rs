//! Shared receive queues and memory windows.

use rdma_core_sys::bindings::{
    IBV_MW_TYPE_1, IBV_MW_TYPE_2, IBV_SEND_SIGNALED, IBV_SRQ_LIMIT, IBV_SRQ_MAX_WR, IBV_WR_BIND_MW,
    IBV_WR_LOCAL_INV, IBV_WR_RDMA_WRITE, IBV_WR_SEND_WITH_INV,
};

use super::{Generator, QueuePair, any_of};
use crate::program::{Key, Receive, Send, Slot, Step, slots};

impl Generator<'_> {
    pub(super) fn create_srq(&mut self, srq: Slot, good: bool) {
        let pd = if good { 0 } else { self.pd() };
        let wr = self.work_requests(good);
        let sge = if good || self.random.once_in(2) {
            self.random.within(1, 3)
        } else {
            self.random.of(&[0, 1, 4, 6, 7, 13, 14, 15, u32::MAX])
        };
        let limit = self.random.of(&[0, 0, 0, 1, 2, 64, u32::MAX]);
        if self.generation == 3 {
            self.model.srqs[usize::from(srq)] = Some(sge.min(14));
        }
        self.add(Step::CreateSrq { srq, pd, wr, sge, limit });
    }

    /// Anything with shared receive queues but posts.
    pub(super) fn shared(&mut self) {
        let srq = self.random.below(slots::SRQS.into()) as Slot;
        let what = self.random.below(8);
        if self.generation < 3 || what == 0 {
            return self.create_srq(srq, false);
        }
        match what {
            1 => self.add(Step::QuerySrq { srq }),
            // Refused while a queue pair uses it; otherwise posts to it are left out from there.
            2 => self.add(Step::DestroySrq { srq }),
            _ => {
                let usual = IBV_SRQ_LIMIT;
                let mask = self.random.of(&[
                    usual,
                    usual,
                    usual,
                    IBV_SRQ_MAX_WR,
                    usual | IBV_SRQ_MAX_WR,
                    0,
                    4,
                    0x8000_0000,
                ]);
                let wr = self.random.of(&[0, 1, 16, 100, u32::MAX]);
                let limit = self.random.of(&[0, 1, 2, 3, 8, 30, 1000, u32::MAX]);
                self.add(Step::ModifySrq { srq, mask, wr, limit });
            }
        }
    }

    pub(super) fn post_srq_recv(&mut self, srq: Slot) {
        let sge = self.model.srqs[usize::from(srq)].unwrap_or(1);
        let list = self.receives(sge);
        self.add(Step::PostSrqRecv { srq, list });
    }

    /// Receives with about so many elements.
    pub(super) fn receives(&mut self, most: u32) -> Vec<Receive> {
        let count = self.burst();
        let mut list = Vec::new();
        for _ in 0..count {
            let mut elements = self.elements(most);
            // One without elements ends the comparison, see the faults.
            if elements.is_empty() && !self.random.once_in(20) {
                elements.push(self.element());
            }
            list.push(Receive { elements, stale: self.random.once_in(30) });
        }
        list
    }

    pub(super) fn alloc_mw(&mut self, mw: Slot, good: bool) {
        let pd = if good { 0 } else { self.pd() };
        let usual = if self.generation == 3 { IBV_MW_TYPE_2 } else { IBV_MW_TYPE_1 };
        let kind = if good { usual } else { self.random.of(&[1, 1, usual, usual, 2, 0, 3]) };
        self.model.mws[usize::from(mw)] = Some(kind);
        self.add(Step::AllocMw { mw, pd, kind });
    }

    /// A window of type 2 from its bind to its end by the peer or by the program itself.
    pub(super) fn life_of_a_window(&mut self) {
        let connected = |pair: &Option<QueuePair>| pair.is_some_and(|pair| !pair.is_datagram);
        let Some(qp) = any_of(self.random, &self.model.qps, connected) else { return };
        let Some(pair) = self.model.qps[usize::from(qp)] else { return };
        let known = any_of(self.random, &self.model.mws, |mw| *mw == Some(IBV_MW_TYPE_2));
        let mw = known.unwrap_or_else(|| {
            self.alloc_mw(0, true);
            0
        });
        let through = |send: &mut Send, opcode| {
            (send.opcode, send.flags, send.remote.key) = (opcode, IBV_SEND_SIGNALED, Key::Mw(mw));
        };
        let mut bind = self.send(qp, pair);
        through(&mut bind, IBV_WR_BIND_MW);
        bind.elements.clear();
        let at = bind.bind.offset;
        self.add(Step::PostSend { qp, list: vec![bind] });
        self.run();
        // By whom it may be used: on the other side of the connection.
        let user = self.model.qps[usize::from(pair.peer)].filter(|user| !user.is_datagram);
        let (from, user) = user.map_or((qp, pair), |user| (pair.peer, user));
        let mut write = self.send(from, user);
        through(&mut write, IBV_WR_RDMA_WRITE);
        write.remote.offset = at;
        let last = self.random.of(&[IBV_WR_SEND_WITH_INV, IBV_WR_SEND_WITH_INV, IBV_WR_LOCAL_INV]);
        let mut end = if last == IBV_WR_LOCAL_INV { self.send(qp, pair) } else { self.send(from, user) };
        through(&mut end, last);
        if last == IBV_WR_LOCAL_INV {
            end.elements.clear();
            self.add(Step::PostSend { qp: from, list: vec![write] });
            self.run();
            self.add(Step::PostSend { qp, list: vec![end] });
        } else {
            let list = vec![Receive { elements: vec![self.element()], stale: false }; 2];
            self.add(match pair.srq {
                Some(srq) => Step::PostSrqRecv { srq, list },
                None => Step::PostRecv { qp, list },
            });
            self.add(Step::PostSend { qp: from, list: vec![write, end] });
        }
        self.run();
        self.poll();
        self.poll();
    }

    /// A window in use, of that type if there is one.
    pub(super) fn window(&mut self, kind: u32) -> Option<Slot> {
        any_of(self.random, &self.model.mws, |mw| *mw == Some(kind))
            .or_else(|| any_of(self.random, &self.model.mws, Option::is_some))
    }
}
