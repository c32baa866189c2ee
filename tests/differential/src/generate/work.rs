//! Posts of work requests.

use rdma_core_sys::bindings::*;

use super::{Generator, QueuePair, Region, any_of};
use crate::program::{Bind, Element, Key, Place, Send, Slot, Step, slots};

impl Generator<'_> {
    fn region(&mut self) -> (Slot, Region) {
        match any_of(self.random, &self.model.mrs, Option::is_some) {
            Some(mr) => (mr, self.model.mrs[usize::from(mr)].unwrap_or(Region { offset: 0, length: 64 })),
            None => (0, Region { offset: 0, length: 64 }),
        }
    }

    /// A piece of a region, usually within it, usually short.
    pub(super) fn element(&mut self) -> Element {
        let (mr, region) = self.region();
        let most = region.length.clamp(1, 700);
        let length = self.random.of(&[0, 1, 7, 8, 16, 31, 64, 100, 255]).min(most);
        let room = (region.length - length.min(region.length)).min(0x3fff);
        let mut element = Element {
            place: Place { offset: region.offset + self.random.within(0, room), key: Key::Mr(mr) },
            length,
        };
        if self.random.once_in(100) {
            match self.random.below(4) {
                0 => element.place.key = Key::Number(self.random.of(&[0, 0x1234, u32::MAX])),
                1 => {
                    element.length =
                        self.random.of(&[0x7fff_ffff, 1 << 20, 1 << 20, 0x8000_0000, 0xffff_ffff])
                }
                2 => element.place.offset = self.random.of(&[0, 0xffff, 0x1_0000, 0x8000_0000]),
                _ => element.place.key = Key::Mw(self.random.below(slots::MWS.into()) as Slot),
            }
        }
        element
    }

    pub(super) fn elements(&mut self, most: u32) -> Vec<Element> {
        if self.random.once_in(40) {
            return Vec::new();
        }
        let count = match self.random.below(40) {
            0 => most + 1,
            1..=6 => most,
            _ => self.random.within(1, most.max(1)),
        };
        (0..count.min(16)).map(|_| self.element()).collect()
    }

    /// Elements of a request with inline data, around its limits; they must be readable.
    fn inline_elements(&mut self, pair: QueuePair) -> Vec<Element> {
        let total = match self.random.below(10) {
            0 => pair.inline + 1,
            1..=3 => pair.inline,
            _ => self.random.within(0, pair.inline),
        };
        let mut left = total;
        let mut elements = Vec::new();
        while left > 0 && (elements.len() as u32) < pair.send_sge.max(1) {
            let last = elements.len() as u32 + 1 >= pair.send_sge;
            let length = if last || self.random.once_in(2) { left } else { self.random.within(0, left) };
            let key = Key::Number(self.random.below(3));
            elements.push(Element { place: Place { offset: self.random.below(4096), key }, length });
            left -= length;
        }
        elements
    }

    pub(super) fn send(&mut self, qp: Slot, pair: QueuePair) -> Send {
        let usual = if pair.is_datagram {
            self.random.weighted(&[(6, IBV_WR_SEND), (3, IBV_WR_SEND_WITH_IMM)])
        } else {
            self.random.weighted(&[
                (8, IBV_WR_SEND),
                (3, IBV_WR_SEND_WITH_IMM),
                (6, IBV_WR_RDMA_WRITE),
                (3, IBV_WR_RDMA_WRITE_WITH_IMM),
                (4, IBV_WR_RDMA_READ),
                (1, IBV_WR_SEND_WITH_INV),
                (1, IBV_WR_LOCAL_INV),
            ])
        };
        let can_bind =
            self.generation == 3 && !pair.is_datagram && self.model.mws.iter().any(Option::is_some);
        let usual = match can_bind && self.random.once_in(8) {
            true => self.random.of(&[IBV_WR_BIND_MW, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV, IBV_WR_SEND_WITH_INV]),
            false => usual,
        };
        let opcode = if self.random.once_in(50) { self.random.below(20) } else { usual };
        let mut flags = 0;
        for (times, flag) in
            [(2, IBV_SEND_SIGNALED), (6, IBV_SEND_SOLICITED), (8, IBV_SEND_FENCE), (60, IBV_SEND_IP_CSUM)]
        {
            if self.random.once_in(times) {
                flags |= flag;
            }
        }
        if self.generation == 3 && !pair.is_datagram && self.random.once_in(8) {
            return self.atomic(pair, flags & !IBV_SEND_IP_CSUM);
        }
        let can_inline = opcode != IBV_WR_RDMA_READ || self.random.once_in(10);
        let elements = if can_inline && self.random.once_in(3) && pair.inline > 0 {
            flags |= IBV_SEND_INLINE;
            self.inline_elements(pair)
        } else if opcode == IBV_WR_RDMA_READ && !self.random.once_in(3) {
            // One on GEN1.
            vec![self.element()]
        } else {
            self.elements(pair.send_sge)
        };
        let (mr, region) = self.region();
        let (mut key, mut offset) = (Key::Mr(mr), region.offset);
        if self.random.once_in(3) {
            offset += self.random.below(region.length.clamp(1, 1000));
        }
        let windows = self.window(IBV_MW_TYPE_2);
        match (opcode, windows) {
            (IBV_WR_BIND_MW, Some(mw)) => key = Key::Mw(mw),
            (IBV_WR_SEND_WITH_INV | IBV_WR_LOCAL_INV, Some(mw)) if !self.random.once_in(4) => {
                key = Key::Mw(mw)
            }
            (_, Some(mw)) if self.random.once_in(6) => key = Key::Mw(mw),
            _ if self.random.once_in(50) => key = Key::Number(self.random.of(&[0, 0x4321, u32::MAX])),
            _ => {}
        }
        let peer = if pair.is_datagram { self.datagram_peer(qp) } else { pair.peer };
        Send {
            opcode,
            flags,
            elements,
            stale: self.random.once_in(200),
            immediate: self.random.next() as u32,
            remote: Place { offset, key },
            ah: any_of(self.random, &self.model.ahs, |used| *used).unwrap_or(0),
            peer,
            bind: self.bind_of_region(),
        }
    }

    /// An atomic operation, with what it compares and adds; wrong in size or place now and then.
    fn atomic(&mut self, pair: QueuePair, flags: u32) -> Send {
        let mut element = self.element();
        element.length = if self.random.once_in(100) { self.random.of(&[0, 4, 16]) } else { 8 };
        let (mr, region) = self.region();
        let within = self.random.below(region.length.clamp(8, 1000) - 7);
        let mut offset = (region.offset + within).next_multiple_of(8);
        if self.random.once_in(100) {
            offset += self.random.within(1, 7);
        }
        Send {
            opcode: self.random.of(&[IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD]),
            flags,
            elements: vec![element],
            stale: false,
            immediate: self.random.next() as u32,
            remote: Place { offset, key: Key::Mr(mr) },
            ah: 0,
            peer: pair.peer,
            bind: self.bind_of_region(),
        }
    }

    /// A queue pair for datagrams, if there is one.
    fn datagram_peer(&mut self, qp: Slot) -> Slot {
        any_of(self.random, &self.model.qps, |pair| pair.is_some_and(|pair| pair.is_datagram)).unwrap_or(qp)
    }

    fn bind_of_region(&mut self) -> Bind {
        let (mr, region) = self.region();
        let inside = self.random.below(region.length.clamp(1, 100));
        let mut bind = Bind {
            mr,
            offset: region.offset + inside,
            length: u64::from(region.length.saturating_sub(inside)),
            access: self.random.of(&[2, 4, 6, 6, 6, 0, 1, 8, 32 | 6]),
        };
        match self.random.below(40) {
            0 => bind.access |= self.random.of(&[16, 1 << 20, 0x8000_0000]),
            1 => bind.length = self.random.of(&[0, 1 << 20, u64::MAX]),
            _ => {}
        }
        bind
    }

    /// `ibv_bind_mw`.
    pub(super) fn bind(&mut self) {
        let Some(qp) = any_of(self.random, &self.model.qps, Option::is_some) else { return };
        let Some(mw) = self.window(IBV_MW_TYPE_1) else { return };
        let bind = self.bind_of_region();
        let flags = self.random.of(&[IBV_SEND_SIGNALED, 0]);
        self.add(Step::BindMw { qp, mw, bind, flags });
    }

    /// How many work requests a call posts.
    pub(super) fn burst(&mut self) -> u32 {
        let most = self.random.weighted(&[(30, 1), (8, 4), (2, 20), (1, 150)]);
        self.random.within(1, most)
    }

    pub(super) fn post_send(&mut self) {
        let Some(qp) = any_of(self.random, &self.model.qps, Option::is_some) else { return };
        let Some(pair) = self.model.qps[usize::from(qp)] else { return };
        let list = (0..self.burst()).map(|_| self.send(qp, pair)).collect();
        self.add(Step::PostSend { qp, list });
    }

    pub(super) fn post_recv(&mut self) {
        let Some(qp) = any_of(self.random, &self.model.qps, Option::is_some) else { return };
        let Some(pair) = self.model.qps[usize::from(qp)] else { return };
        // Hardly ever to the queue pair's own queue if it has none.
        if let Some(srq) = pair.srq
            && !self.random.once_in(16)
        {
            return self.post_srq_recv(srq);
        }
        let list = self.receives(pair.recv_sge);
        self.add(Step::PostRecv { qp, list });
    }
}
