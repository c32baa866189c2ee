//! A test bed: the engine on plain memory, and the driver's side of its rings.
//!
//! [`Memory`] plays the platform: areas of bytes that can be taken away, a clock that
//! tests move by hand, and lists of what was reported. [`Bed`] makes objects in it. [`work`]
//! builds WQEs, [`completion`] reads CQEs, both written for the tests and after the
//! hardware's description, with nothing taken from the engine.

// Each test program uses its own part of the bed.
#![allow(dead_code)]

pub mod completion;
pub mod memory;
pub mod work;

use std::time::Duration;

use irdma_engine::Engine;
use irdma_engine::event::{AsyncEvent, Source, Subject};
use irdma_engine::spec::*;

use completion::{HostCq, Wc};
use memory::{Area, Memory};
use work::{HostQueue, Sge, Work};

/// All rights there are.
pub const FULL: Access = Access {
    local_write: true,
    remote_write: true,
    remote_read: true,
    remote_atomic: true,
    window_bind: true,
    zero_based: false,
};

pub const Q_KEY: u32 = 0x1111_1111;
pub const TIMEOUT: Duration = Duration::from_millis(10);
pub const RETRIES: u8 = 2;
pub const RNR_TIMER: Duration = Duration::from_millis(1);
pub const RNR_RETRIES: u8 = 3;
pub const MTU: u32 = 1024;

/// A registered piece of memory.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    pub area: Area,
    pub address: u64,
    pub key: Key,
}

impl Buffer {
    pub fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge { address: self.address + offset, length, key: self.key }
    }
}

/// A queue pair as its driver sees it.
#[derive(Clone, Debug)]
pub struct HostQp {
    pub id: QpId,
    pub sq: HostQueue,
    pub rq: HostQueue,
}

/// What differs between queue pairs of tests.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub service: Service,
    pub function: FunctionId,
    pub pd: u32,
    pub sq_quanta: u32,
    pub rq_quanta: u32,
    pub rq_wqe_quanta: u32,
    pub srq: Option<SrqId>,
    /// What key 0 opens.
    pub privileged: Option<Area>,
}

/// The engine, two functions, a protection domain of the same number on each.
pub struct Bed {
    pub engine: Engine<Memory>,
    pub generation: Generation,
    pub pd: u32,
    pub functions: [FunctionId; 2],
}

/// The GID of a function.
pub fn gid(function: FunctionId) -> Gid {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, function as u8 + 1]
}

impl Bed {
    pub fn new(generation: Generation) -> Self {
        let config = DeviceConfig { generation, port_mtu: 4096, seed: 7 };
        let mut engine = Engine::new(config, Memory::default());
        let functions = [engine.add_function(vec![gid(0)]), engine.add_function(vec![gid(1)])];
        let mut bed = Self { engine, generation, pd: 0, functions };
        bed.pd = bed.domain();
        bed
    }

    /// Another protection domain, on both functions.
    pub fn domain(&mut self) -> u32 {
        let [left, right] = self.functions;
        let number = self.engine.create_pd(left, None).expect("a domain").number;
        self.engine.create_pd(right, Some(number)).expect("the same on the other function");
        number
    }

    pub fn memory(&mut self) -> &mut Memory {
        self.engine.platform()
    }

    pub fn area(&mut self, bytes: usize) -> Area {
        self.memory().area(bytes)
    }

    /// A region of `bytes` bytes, all zero, registered on both functions under one key.
    pub fn region_of(&mut self, bytes: usize, access: Access, pd: u32) -> Buffer {
        let area = self.area(bytes);
        let address = 0x10_0000 * (area as u64 + 1);
        let mut key = None;
        for function in self.functions {
            let pd = Id { function, number: pd };
            let region = MemoryRegion { pd, address, length: bytes as u64, access, backing: area };
            key = Some(self.engine.create_mr(region, key).expect("a region"));
        }
        Buffer { area, address, key: key.expect("two functions") }
    }

    /// The domain of that number on the left, or the right.
    pub fn left(&self, number: u32) -> Id {
        Id { function: self.functions[0], number }
    }

    pub fn right(&self, number: u32) -> Id {
        Id { function: self.functions[1], number }
    }

    pub fn region(&mut self, bytes: usize) -> Buffer {
        let pd = self.pd;
        self.region_of(bytes, FULL, pd)
    }

    pub fn fill(&mut self, buffer: Buffer, offset: usize, bytes: &[u8]) {
        self.memory().bytes(buffer.area)[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    pub fn bytes(&mut self, buffer: Buffer, offset: usize, length: usize) -> Vec<u8> {
        self.memory().bytes(buffer.area)[offset..offset + length].to_vec()
    }

    pub fn cq(&mut self, entries: u32) -> HostCq {
        self.cq_on(self.functions[0], entries)
    }

    pub fn cq_on(&mut self, function: FunctionId, entries: u32) -> HostCq {
        let slot = if self.generation == Generation::Gen3 { 64 } else { 32 };
        let ring = self.area(entries as usize * slot);
        let shadow = self.area(64);
        let spec = CqSpec {
            ring: CqRing { ring: Span { backing: ring, offset: 0 }, entries },
            shadow: Span { backing: shadow, offset: 0 },
            slot_bytes: slot,
        };
        let id = self.engine.create_cq(function, spec, None).expect("a completion queue");
        HostCq::new(id, ring, shadow, entries, slot)
    }

    pub fn shape(&self) -> Shape {
        Shape {
            service: Service::ReliableConnection,
            function: self.functions[0],
            pd: self.pd,
            sq_quanta: 512,
            rq_quanta: 64,
            rq_wqe_quanta: 2,
            srq: None,
            privileged: None,
        }
    }

    pub fn qp(&mut self, shape: Shape, send_cq: &HostCq, recv_cq: &HostCq) -> HostQp {
        let sq = self.area(shape.sq_quanta as usize * 32);
        let rq = self.area(shape.rq_quanta as usize * 32);
        let shadow = self.area(64);
        let spec = QpSpec {
            pd: Id { function: shape.function, number: shape.pd },
            service: shape.service,
            send_cq: send_cq.id,
            recv_cq: recv_cq.id,
            srq: shape.srq,
            sq: Span { backing: sq, offset: 0 },
            sq_quanta: shape.sq_quanta,
            rq: Span { backing: rq, offset: 0 },
            rq_quanta: shape.rq_quanta,
            rq_wqe_quanta: shape.rq_wqe_quanta,
            shadow: Span { backing: shadow, offset: 0 },
            completion_context: context_of(sq),
            privileged: shape.privileged,
        };
        let id = self.engine.create_qp(spec, None).expect("a queue pair");
        HostQp {
            id,
            sq: HostQueue::new(sq, shape.sq_quanta),
            rq: HostQueue::new(rq, shape.rq_quanta).with_wqe_quanta(shape.rq_wqe_quanta),
        }
    }

    /// The change that takes a connection all the way to READY TO SEND.
    pub fn connection(&self, peer: QpId, own: FunctionId, other: FunctionId) -> QpChange {
        QpChange {
            state: Some(QpState::ReadyToSend),
            access: Some(FULL),
            destination_gid: Some(gid(other)),
            source_gid: Some(gid(own)),
            destination_qp: Some(peer.number),
            path_mtu: Some(MTU),
            timeout: Some(TIMEOUT),
            retry_count: Some(RETRIES),
            rnr_retry: Some(RNR_RETRIES),
            min_rnr_timer: Some(RNR_TIMER),
            max_rd_atomic: Some(1),
            max_dest_rd_atomic: Some(1),
            ..QpChange::default()
        }
    }

    /// Two connected queue pairs on the two functions, one completion queue each. A shared
    /// receive queue is the right one's.
    pub fn pair(&mut self) -> (Side, Side) {
        let shape = self.shape();
        self.pair_of(shape)
    }

    pub fn pair_of(&mut self, shape: Shape) -> (Side, Side) {
        let [left, right] = self.functions;
        let left_cq = self.cq_on(left, 64);
        let right_cq = self.cq_on(right, 64);
        let left_qp = self.qp(Shape { function: left, srq: None, ..shape }, &left_cq, &left_cq);
        let right_qp = self.qp(Shape { function: right, ..shape }, &right_cq, &right_cq);
        let change = self.connection(right_qp.id, left, right);
        self.engine.modify_qp(left_qp.id, &change).expect("left connects");
        let change = self.connection(left_qp.id, right, left);
        self.engine.modify_qp(right_qp.id, &change).expect("right connects");
        (Side { qp: left_qp, cq: left_cq }, Side { qp: right_qp, cq: right_cq })
    }

    /// A datagram queue pair, ready to send.
    pub fn datagram(&mut self, function: FunctionId, q_key: u32) -> Side {
        let cq = self.cq_on(function, 64);
        let shape =
            Shape { service: Service::UnreliableDatagram, function, rq_wqe_quanta: 4, ..self.shape() };
        let qp = self.qp(shape, &cq, &cq);
        let change =
            QpChange { state: Some(QpState::ReadyToSend), q_key: Some(q_key), ..QpChange::default() };
        self.engine.modify_qp(qp.id, &change).expect("a datagram queue pair");
        Side { qp, cq }
    }

    pub fn handle(&mut self, function: FunctionId, destination_gid: Gid) -> u32 {
        let handle = AddressHandle {
            pd: Id { function, number: self.pd },
            source_gid: gid(function),
            destination_gid,
            destination_mac: None,
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
        };
        self.engine.create_ah(handle, None).expect("an address handle").number
    }

    pub fn post(&mut self, side: &mut Side, work: &Work) -> u32 {
        let generation = self.generation;
        side.qp.sq.post_send(self.memory(), work, generation)
    }

    pub fn send(&mut self, side: &mut Side, work: &Work) -> u32 {
        let index = self.post(side, work);
        self.engine.ring_sq(side.qp.id);
        index
    }

    pub fn receive(&mut self, side: &mut Side, sges: &[Sge]) -> u32 {
        let generation = self.generation;
        side.qp.rq.post_receive(self.memory(), sges, 0, generation)
    }

    pub fn poll(&mut self, side: &mut Side) -> Option<Wc> {
        side.cq.poll(self.memory())
    }

    /// The one completion that is there.
    pub fn completion(&mut self, side: &mut Side) -> Wc {
        let wc = self.poll(side).expect("a completion");
        assert_eq!(self.poll(side), None, "one completion only");
        wc
    }

    /// Lets time pass and does what is due.
    pub fn pass(&mut self, time: Duration) {
        self.memory().now += time;
        self.engine.advance();
    }

    /// The events since the last call.
    pub fn events(&mut self) -> Vec<AsyncEvent> {
        std::mem::take(&mut self.memory().events)
    }

    /// Checks that exactly these events of queue pairs came: (queue pair, code, source).
    pub fn expect_events(&mut self, expected: &[(&Side, u16, Source)]) {
        let found: Vec<_> =
            self.events().iter().map(|event| (event.subject, event.code, event.source)).collect();
        let expected: Vec<_> =
            expected.iter().map(|&(side, code, source)| (Subject::Qp(side.qp.id), code, source)).collect();
        assert_eq!(found, expected);
    }

    pub fn state(&self, side: &Side) -> QpState {
        self.engine.qp_state(side.qp.id).expect("a queue pair")
    }
}

/// One end of a test: a queue pair and the completion queue of both its queues.
#[derive(Clone, Debug)]
pub struct Side {
    pub qp: HostQp,
    pub cq: HostCq,
}

impl Side {
    /// What its completions carry in q1.
    pub fn context(&self) -> u64 {
        context_of(self.qp.sq.area)
    }
}

fn context_of(sq: Area) -> u64 {
    0xabcd_0000_0000_0000 | sq as u64
}
