//! Steps that make objects.

use rdma_core_sys::bindings::*;

use super::{ALL, Generator, QueuePair, Region, any_of};
use crate::execute::arena;
use crate::program::{Cap, Slot, Step, slots};

/// Work requests of a queue, around every limit of GEN1 and GEN2.
const WORK_REQUESTS: &[u32] = &[
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    15,
    16,
    31,
    63,
    64,
    127,
    128,
    254,
    255,
    256,
    511,
    894,
    895,
    896,
    1023,
    1790,
    2047,
    2048,
    4063,
    4064,
    4095,
    4096,
    8127,
    8128,
    16255,
    16256,
    32510,
    32511,
    32767,
    32768,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
];

impl Generator<'_> {
    pub(super) fn alloc_pd(&mut self, pd: Slot) {
        self.model.pds[usize::from(pd)] = true;
        self.add(Step::AllocPd { pd });
    }

    pub(super) fn pd(&mut self) -> Slot {
        any_of(self.random, &self.model.pds, |used| *used).unwrap_or(0)
    }

    pub(super) fn register(&mut self, mr: Slot, good: bool) {
        let pd = if good { 0 } else { self.pd() };
        let page = 4096;
        let offset =
            self.random.below(8) * page + if self.random.once_in(3) { self.random.below(page) } else { 0 };
        let mut length = self.random.within(1, 6) * page;
        if self.random.once_in(4) {
            length = self.random.within(1, length);
        }
        let access = if good || self.random.once_in(2) {
            if self.generation == 3 { ALL | IBV_ACCESS_REMOTE_ATOMIC } else { ALL }
        } else {
            self.random.of(&[0, 1, 3, 5, 7, 15, 17, 2, 4, 8, 16, 32, ALL | 32, 64, 0x8000_0000, 1 << 20 | 1])
        };
        let wrong = !good && self.random.once_in(8);
        let length = if wrong { self.random.of(&[0, 1 << 40, u64::MAX]) } else { u64::from(length) };
        self.model.mrs[usize::from(mr)] =
            Some(Region { offset, length: length.min(arena::LENGTH as u64 - u64::from(offset)) as u32 });
        self.add(Step::RegMr { mr, pd, offset, length, access });
    }

    pub(super) fn create_cq(&mut self, cq: Slot, good: bool) {
        let channel = any_of(self.random, &self.model.channels, |used| *used);
        let entries = if good {
            // Odd: on the first generation an even number is told apart, on the third an odd one, see the faults.
            let odd = self.random.of(&[1, 3, 5, 7, 15, 63, 65, 99, 255, 511]);
            if self.generation == 3 { odd + 1 } else { odd }
        } else {
            self.random.of(&[
                -1,
                0,
                1,
                2,
                127,
                4096,
                65_535,
                65_536,
                524_286,
                524_287,
                1_048_573,
                1_048_574,
                1_048_575,
                i32::MAX,
            ])
        };
        let extended = self.random.once_in(3);
        self.model.cqs[usize::from(cq)] = Some(extended);
        if extended {
            let wc_flags = if good || self.random.once_in(2) {
                // Path bits end the comparison with release 65, the one that knows the third generation.
                self.random.of(&[0x7f, 0x7f, 0, 1, 2, 4, 8, 0x10, 0x20, 0x40, 0x47])
                    & if self.generation == 3 { 0x3f } else { 0x7f }
            } else {
                self.random.of(&[1 << 7, 1 << 8, 1 << 9, 1 << 10, 1 << 11, 1 << 40])
            };
            let flags = if good { None } else { self.random.of(&[None, Some(0), Some(1), Some(2), Some(4)]) };
            self.add(Step::CreateCqEx { cq, entries: entries as u32, channel, wc_flags, flags });
        } else {
            let vector = if good { 0 } else { self.random.of(&[0, 1, 3, 4, -1, i32::MAX]) };
            self.add(Step::CreateCq { cq, entries, channel, vector });
        }
    }

    pub(super) fn create_qp(&mut self, qp: Slot, good: bool) {
        let pd = if good { 0 } else { self.pd() };
        let Some(send_cq) = any_of(self.random, &self.model.cqs, Option::is_some) else { return };
        let recv_cq = any_of(self.random, &self.model.cqs, Option::is_some).unwrap_or(send_cq);
        // On the third generation a datagram ends the comparison, see the faults.
        let is_datagram = self.random.once_in(if self.generation == 3 { 16 } else { 4 });
        let kind = match (is_datagram, good || !self.random.once_in(8)) {
            (true, true) => IBV_QPT_UD,
            (false, true) => IBV_QPT_RC,
            _ => self.random.of(&[0, IBV_QPT_UC, IBV_QPT_RAW_PACKET, 99]),
        };
        let cap = Cap {
            send_wr: self.work_requests(good),
            recv_wr: self.work_requests(good),
            send_sge: if good || self.random.once_in(2) {
                self.random.within(1, 3)
            } else {
                self.random.of(&[0, 1, 2, 3, 4, 6, 7, 8, 12, 13, 14, 15, u32::MAX])
            },
            recv_sge: if good || self.random.once_in(2) {
                self.random.within(1, 3)
            } else {
                self.random.of(&[0, 1, 2, 3, 4, 6, 7, 8, 12, 13, 14, 15, u32::MAX])
            },
            inline: if good {
                self.random.of(&[0, 0, 8, 16, 32, 48])
            } else {
                self.random.of(&[0, 1, 8, 9, 16, 17, 39, 40, 48, 49, 64, 100, 101, 102, u32::MAX])
            },
        };
        let signals_all = self.random.once_in(3);
        // To itself, or with the one before it.
        let peer = if qp > 0 && self.random.once_in(2) { qp - 1 } else { qp };
        let srq = any_of(self.random, &self.model.srqs, Option::is_some).filter(|_| self.random.once_in(2));
        self.model.qps[usize::from(qp)] = Some(QueuePair {
            is_datagram,
            peer,
            srq,
            send_sge: cap.send_sge.min(14),
            recv_sge: cap.recv_sge.min(14),
            inline: cap.inline.min(110),
        });
        if peer != qp
            && let Some(other) = &mut self.model.qps[usize::from(peer)]
        {
            other.peer = qp;
        }
        self.add(Step::CreateQp { qp, pd, send_cq, recv_cq, srq, kind, cap, signals_all });
        if is_datagram && !self.model.ahs[0] {
            self.create_ah(0, true);
        }
    }

    pub(super) fn work_requests(&mut self, good: bool) -> u32 {
        let usual = good || self.random.once_in(2);
        self.random.of(if usual { &[1, 2, 4, 8, 13, 16, 30, 64, 128] } else { WORK_REQUESTS })
    }

    pub(super) fn create_ah(&mut self, ah: Slot, good: bool) {
        let pd = if good { 0 } else { self.pd() };
        self.model.ahs[usize::from(ah)] = true;
        let pick = |generator: &mut Self, usual: u8, others: &[u8]| {
            if good || generator.random.once_in(2) { usual } else { generator.random.of(others) }
        };
        let gid_index = pick(self, 0, &[0, 1, 2, 31, 32, 255]);
        let port = pick(self, 1, &[0, 1, 2, 255]);
        let destination = pick(self, 0, &[0, 1, 2, 200]);
        let is_global = good || !self.random.once_in(8);
        self.add(Step::CreateAh { ah, pd, gid_index, port, is_global, destination });
    }

    pub(super) fn more_objects(&mut self) {
        match self.random.below(8) {
            0 => {
                let pd = self.random.below(slots::PDS.into()) as Slot;
                self.alloc_pd(pd);
            }
            1 => {
                let mr = self.free(|model| model.mrs.iter().map(Option::is_some).collect());
                self.register(mr, false);
            }
            2 => {
                let cq = self.free(|model| model.cqs.iter().map(Option::is_some).collect());
                self.create_cq(cq, false);
            }
            3 => {
                let qp = self.free(|model| model.qps.iter().map(Option::is_some).collect());
                let good = self.random.once_in(2);
                self.create_qp(qp, good);
                if good {
                    for state in [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS] {
                        self.change(qp, state);
                    }
                }
            }
            4 => {
                let ah = self.free(|model| model.ahs.to_vec());
                self.create_ah(ah, false);
            }
            5 => {
                let mw = self.free(|model| model.mws.iter().map(Option::is_some).collect());
                self.alloc_mw(mw, false);
            }
            6 => {
                let channel = self.free(|model| model.channels.to_vec());
                self.model.channels[usize::from(channel)] = true;
                self.add(Step::CreateChannel { channel });
            }
            _ => self.bind(),
        }
    }

    /// A free slot, or any.
    pub(super) fn free(&mut self, used: impl Fn(&super::Model) -> Vec<bool>) -> Slot {
        let used = used(&self.model);
        match any_of(self.random, &used, |used| !*used) {
            Some(slot) => slot,
            None => self.random.below(used.len() as u32) as Slot,
        }
    }
}
