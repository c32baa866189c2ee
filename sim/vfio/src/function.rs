//! A function of the NIC: what its driver has made, beside what the engine knows of it.

use std::collections::BTreeMap;

use irdma_engine::Engine;
use irdma_engine::event::{AsyncEvent, Subject, code};
use irdma_engine::spec::{FunctionId, Generation, Gid, Id, Mac, PdId};

use crate::control::ControlQueue;
use crate::control::queue_pair::state_number;
use crate::event_queue::{EventQueue, asynchronous_entry};
use crate::host::Host;
use crate::interrupts::Interrupts;

/// A completion queue, as far as the engine does not know it.
#[derive(Debug)]
pub struct CompletionQueue {
    /// What stands in its events.
    pub context: u64,
    /// Number of the event queue that it reports to.
    pub event_queue: Option<u32>,
    /// Bytes of a slot.
    pub slot_bytes: usize,
}

/// A function.
#[derive(Debug)]
pub struct Function {
    /// Its name in the engine.
    pub id: FunctionId,
    /// Which formats its driver speaks.
    pub generation: Generation,
    /// Its Ethernet address.
    pub mac: Mac,
    /// The control queue.
    pub control: ControlQueue,
    /// Completion queues by number.
    pub completion_queues: BTreeMap<u32, CompletionQueue>,
    /// Queue pairs by number: completion context.
    pub queue_pairs: BTreeMap<u32, u64>,
    /// Shared receive queues by number: what stands in their events.
    pub shared_queues: BTreeMap<u32, u64>,
    /// Completion event queues by number.
    pub event_queues: BTreeMap<u32, EventQueue>,
    /// The asynchronous event queue.
    pub asynchronous_queue: Option<EventQueue>,
    /// Next hops by index.
    pub neighbours: BTreeMap<u32, Mac>,
    /// Multicast groups by index: address and members.
    pub groups: BTreeMap<u32, (Gid, Vec<u32>)>,
    /// Interrupt vectors of completion event queues.
    pub event_vectors: BTreeMap<u32, u32>,
    /// Interrupt vector of the asynchronous event queue.
    pub asynchronous_vector: Option<u32>,
    /// The interrupts.
    pub interrupts: Interrupts,
}

impl Function {
    /// A function that no driver has touched yet.
    pub fn new(id: FunctionId, generation: Generation, mac: Mac) -> Self {
        Self {
            id,
            generation,
            mac,
            control: ControlQueue::default(),
            completion_queues: BTreeMap::new(),
            queue_pairs: BTreeMap::new(),
            shared_queues: BTreeMap::new(),
            event_queues: BTreeMap::new(),
            asynchronous_queue: None,
            neighbours: BTreeMap::new(),
            groups: BTreeMap::new(),
            event_vectors: BTreeMap::new(),
            asynchronous_vector: None,
            interrupts: Interrupts::default(),
        }
    }

    /// Whether it has the formats of GEN3.
    pub fn is_gen3(&self) -> bool {
        self.generation >= Generation::Gen3
    }

    /// The engine's name for an object.
    pub fn object(&self, number: u32) -> Id {
        Id { function: self.id, number }
    }

    /// The protection domain of that number. Drivers never announce domains: it comes to be when
    /// it is first named.
    pub fn domain(&self, engine: &mut Engine<Host>, number: u32) -> PdId {
        // That it is there already is as good.
        let _ = engine.create_pd(self.id, Some(number));
        self.object(number)
    }

    /// The driver sends from this Ethernet address: it is the function's from now on (a system's
    /// administrator may change it, and no driver announces it otherwise).
    pub fn take_address(&mut self, engine: &mut Engine<Host>, mac: Mac) {
        if mac != Mac::default() && mac != self.mac {
            self.mac = mac;
            engine.set_mac(self.id, mac);
        }
    }

    /// Forgets all objects, here and in the engine; the interrupts stay connected.
    pub fn forget_objects(&mut self, engine: &mut Engine<Host>) {
        engine.reset_function(self.id);
        if let Some(reach) = engine.platform().reach(self.id) {
            reach.private = Default::default();
        }
        let interrupts = std::mem::take(&mut self.interrupts);
        *self = Self { interrupts, ..Self::new(self.id, self.generation, self.mac) };
    }

    /// An armed completion queue has a completion: reports it.
    pub fn report_completion(&mut self, engine: &mut Engine<Host>, number: u32) {
        let Some(queue) = self.completion_queues.get(&number) else { return };
        let Some(event_queue) = queue.event_queue else { return };
        let Some(events) = self.event_queues.get_mut(&event_queue) else { return };
        if events.produce(engine.platform(), &[queue.context]).is_ok()
            && let Some(&vector) = self.event_vectors.get(&event_queue)
        {
            self.interrupts.raise(vector);
        }
    }

    /// Reports something asynchronous.
    pub fn report_event(&mut self, engine: &mut Engine<Host>, event: &AsyncEvent) {
        // That a peer is there is no event of RoCE: the driver takes it for one of iWARP's.
        if event.code == code::CONNECTION_ESTABLISHED {
            return;
        }
        let (context, state) = match event.subject {
            Subject::Qp(id) => (self.queue_pairs.get(&id.number), state_number(engine.qp_state(id))),
            Subject::Cq(_) => (Some(&0), 0),
            Subject::Srq(id) => (self.shared_queues.get(&id.number), 0),
        };
        let (Some(&context), Some(queue)) = (context, self.asynchronous_queue.as_mut()) else { return };
        let entry = asynchronous_entry(self.generation, event, context, state.into());
        if queue.produce(engine.platform(), &entry).is_ok()
            && let Some(vector) = self.asynchronous_vector
        {
            self.interrupts.raise(vector);
        }
    }
}
