//! QPs for a poller to find.

use alloc::vec::Vec;

use super::work::{ReceiveDevice, SendDevice};
use crate::format::ReceiveOpcodes;
use crate::queue::{
    Directory, Member, Origin, Outcome, QueuePair, SendQueueParts, Service, SharedReceiveQueue, Side,
};

/// A QP with the device's side of its queues.
#[derive(Debug)]
pub struct Pair {
    /// What a poller and a poster see. Before the memory that it works on.
    pub queues: QueuePair,
    /// A shared receive queue, whose device the test keeps.
    pub shared: Option<SharedReceiveQueue>,
    /// Completion context.
    pub context: u64,
    /// Sides that complete on the completion queue at hand.
    pub sides: Vec<Side>,
    /// What a poster does at the moment at which a poller makes sure of it.
    pub meanwhile: Option<fn(&Pair, Side)>,
    /// The device's side of the send queue.
    pub send_device: SendDevice,
    /// The device's side of the receive queue.
    pub receive_device: ReceiveDevice,
}

impl Pair {
    /// A QP with a send ring of 512 quanta and a receive ring of 16 one-quantum WQEs.
    pub fn new(context: u64, service: Service, opcodes: ReceiveOpcodes) -> Self {
        Self::with(context, service, opcodes, |_| {})
    }

    /// The same with a send queue of other parts.
    pub fn with(
        context: u64,
        service: Service,
        opcodes: ReceiveOpcodes,
        change: impl FnOnce(&mut SendQueueParts),
    ) -> Self {
        let (send_device, send) = SendDevice::new(512, change);
        let (receive_device, receive) = ReceiveDevice::new(16, 0, 1);
        Self {
            queues: QueuePair::new(send, receive, service, opcodes),
            shared: None,
            context,
            sides: [Side::Send, Side::Receive].into(),
            meanwhile: None,
            send_device,
            receive_device,
        }
    }
}

impl Member for Pair {
    fn queues(&self) -> &QueuePair {
        &self.queues
    }

    fn shared(&self) -> Option<&SharedReceiveQueue> {
        self.shared.as_ref()
    }

    fn await_poster(&self, side: Side) {
        if let Some(meanwhile) = self.meanwhile {
            meanwhile(self, side);
        }
    }
}

/// The QPs of a completion queue.
#[derive(Debug, Default)]
pub struct Pairs(pub Vec<Pair>);

impl Directory for Pairs {
    type Member = Pair;

    fn find(&self, context: u64, side: Side) -> Option<&Pair> {
        self.0.iter().find(|pair| pair.context == context && pair.sides.contains(&side))
    }

    fn note_abandoned(&self) {
        // It is looked for every time.
    }

    fn complete_abandoned(&self) -> Option<(Outcome, Origin)> {
        let sides = self.0.iter().flat_map(|pair| pair.sides.iter().map(move |&side| (pair, side)));
        sides.into_iter().find_map(|(pair, side)| pair.queues.complete_abandoned(side))
    }
}
