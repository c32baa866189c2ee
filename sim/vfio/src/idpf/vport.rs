//! The network port: transmit and receive queues of Ethernet frames (split queue model, flow
//! scheduling).
//!
//! Formats: kernel, drivers/net/ethernet/intel/idpf/virtchnl2.h (configuration),
//! idpf_lan_txrx.h and virtchnl2_lan_desc.h (descriptors).

use std::collections::BTreeMap;

use irdma_engine::Engine;

use super::receive::{BufferQueue, ReceiveQueue};
use super::transmit::{CompletionRing, TransmitQueue};
use crate::field::{put_at, u16_at, u32_at, u64_at};
use crate::function::Function;
use crate::host::Host;

/// Doorbells of transmit queues.
pub const TX_DOORBELLS: u64 = 0x500_0000;
/// Doorbells of receive buffer queues.
pub const BUFFER_DOORBELLS: u64 = 0x300_0000;
/// Distance between doorbells.
pub const DOORBELL_STEP: u64 = 0x1000;

/// Kinds of queues.
pub mod kind {
    pub const TRANSMIT: u32 = 0;
    pub const RECEIVE: u32 = 1;
    pub const TRANSMIT_COMPLETION: u32 = 2;
    pub const RECEIVE_BUFFER: u32 = 3;
}

const TRANSMIT_HEADER: usize = 16;
const TRANSMIT_ENTRY: usize = 56;
const RECEIVE_HEADER: usize = 24;
const RECEIVE_ENTRY: usize = 88;
const MAP_HEADER: usize = 16;
const MAP_ENTRY: usize = 24;
const STATISTICS_BYTES: usize = 128;

/// Frames and bytes of a direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes.
    pub bytes: u64,
    /// Frames to one address.
    pub unicast: u64,
    /// Frames to several.
    pub multicast: u64,
    /// Frames to all.
    pub broadcast: u64,
    /// Frames that came to nothing.
    pub discarded: u64,
}

impl Traffic {
    fn count(&mut self, frame: &[u8]) {
        self.bytes += frame.len() as u64;
        match frame.first_chunk::<6>() {
            Some([0xff, 0xff, 0xff, 0xff, 0xff, 0xff]) => self.broadcast += 1,
            Some([first, ..]) if first & 1 != 0 => self.multicast += 1,
            _ => self.unicast += 1,
        }
    }
}

/// The port.
#[derive(Debug, Default)]
pub struct Vport {
    /// Whether frames come in.
    pub enabled: bool,
    /// Frames that the driver has sent and nobody has taken yet.
    pub outgoing: Vec<Vec<u8>>,
    transmit: BTreeMap<u32, TransmitQueue>,
    completions: BTreeMap<u32, CompletionRing>,
    receive: BTreeMap<u32, ReceiveQueue>,
    buffers: BTreeMap<u32, BufferQueue>,
    /// What was last stored to the doorbells of buffer queues: the driver rings before it
    /// configures.
    buffer_tails: BTreeMap<u32, u32>,
    /// Interrupt vectors by kind and number of the queue.
    vectors: BTreeMap<(u32, u32), u32>,
    sent: Traffic,
    received: Traffic,
}

/// The entries of a message that has their number at byte 4.
fn entries(body: &[u8], header: usize, bytes: usize) -> impl Iterator<Item = &[u8]> {
    let count = u16_at(body, 4);
    body.get(header..).unwrap_or_default().chunks_exact(bytes).take(count.into())
}

impl Vport {
    /// Transmit queues and the rings of their completions.
    pub fn configure_transmit(&mut self, body: &[u8]) {
        for entry in entries(body, TRANSMIT_HEADER, TRANSMIT_ENTRY) {
            let (address, number) = (u64_at(entry, 0), u32_at(entry, 12));
            let length = u16_at(entry, 24);
            match u32_at(entry, 8) {
                kind::TRANSMIT => {
                    let completions = u16_at(entry, 26).into();
                    let relative = u16_at(entry, 16);
                    let queue = TransmitQueue::new(address, length, relative, completions);
                    self.transmit.insert(number, queue);
                }
                kind::TRANSMIT_COMPLETION => {
                    self.completions.insert(number, CompletionRing::new(address, length));
                }
                _ => {}
            }
        }
    }

    /// Receive queues and the rings of their buffers.
    pub fn configure_receive(&mut self, body: &[u8]) {
        for entry in entries(body, RECEIVE_HEADER, RECEIVE_ENTRY) {
            let (address, number) = (u64_at(entry, 8), u32_at(entry, 20));
            let (size, length) = (u32_at(entry, 28), u16_at(entry, 36));
            match u32_at(entry, 16) {
                kind::RECEIVE => {
                    let second = (entry[56] != 0).then(|| u16_at(entry, 54).into());
                    let buffers = [Some(u16_at(entry, 52).into()), second];
                    self.receive.insert(number, ReceiveQueue::new(address, length, buffers));
                }
                kind::RECEIVE_BUFFER => {
                    let mut queue = BufferQueue::new(address, length, size);
                    queue.set_tail(self.buffer_tails.get(&number).copied().unwrap_or(0));
                    self.buffers.insert(number, queue);
                }
                _ => {}
            }
        }
    }

    /// Which vector a queue raises.
    pub fn map_vectors(&mut self, body: &[u8]) {
        for entry in entries(body, MAP_HEADER, MAP_ENTRY) {
            let queue = (u32_at(entry, 12), u32_at(entry, 0));
            self.vectors.insert(queue, u16_at(entry, 4).into());
        }
    }

    /// A store to any register of the port.
    pub fn write(&mut self, function: &mut Function, engine: &mut Engine<Host>, place: u64, value: u32) {
        let queue = |start: u64| {
            let offset = place.checked_sub(start)?;
            (offset % DOORBELL_STEP == 0 && offset / DOORBELL_STEP < 256)
                .then_some((offset / DOORBELL_STEP) as u32)
        };
        if let Some(number) = queue(TX_DOORBELLS) {
            self.transmit(function, engine, number, value);
        } else if let Some(number) = queue(BUFFER_DOORBELLS) {
            self.buffer_tails.insert(number, value);
            if let Some(buffers) = self.buffers.get_mut(&number) {
                buffers.set_tail(value);
            }
        }
    }

    fn transmit(&mut self, function: &mut Function, engine: &mut Engine<Host>, number: u32, tail: u32) {
        let Some(queue) = self.transmit.get_mut(&number) else { return };
        let completions = queue.completions;
        let Some(ring) = self.completions.get_mut(&completions) else { return };
        let before = self.outgoing.len();
        queue.transmit(engine.platform(), function.id, tail, ring, &mut self.outgoing);
        for frame in &self.outgoing[before..] {
            self.sent.count(frame);
        }
        self.raise(function, [(kind::TRANSMIT, number), (kind::TRANSMIT_COMPLETION, completions)]);
    }

    /// Raises the vector of the first of these queues that has one.
    fn raise(&self, function: &mut Function, queues: [(u32, u32); 2]) {
        if let Some(&vector) = queues.iter().find_map(|queue| self.vectors.get(queue)) {
            function.interrupts.raise(vector);
        }
    }

    /// The queues are to be taken away: all that was sent is done, which each transmit queue is
    /// told by a marker. The driver waits for it by looking: its interrupt handler does not know markers.
    pub fn drain(&mut self, function: &Function, engine: &mut Engine<Host>) {
        let numbers: Vec<(u32, u32)> =
            self.transmit.iter().map(|(&number, queue)| (number, queue.completions)).collect();
        for (number, completions) in numbers {
            let Some(queue) = self.transmit.get(&number) else { continue };
            let Some(ring) = self.completions.get_mut(&completions) else { continue };
            queue.mark(engine.platform(), function.id, ring);
        }
    }

    /// A frame arrives.
    pub fn receive(&mut self, function: &mut Function, engine: &mut Engine<Host>, frame: &[u8]) {
        let Some((&number, queue)) = self.receive.iter_mut().next().filter(|_| self.enabled) else {
            self.received.discarded += 1;
            return;
        };
        if !queue.receive(engine.platform(), function.id, &mut self.buffers, frame) {
            self.received.discarded += 1;
            return;
        }
        self.received.count(frame);
        self.raise(function, [(kind::RECEIVE, number); 2]);
    }

    /// The counters, as the driver asks for them.
    pub fn statistics(&self) -> Vec<u8> {
        let mut body = vec![0; STATISTICS_BYTES];
        put_at(&mut body, 0, super::messages::VPORT.to_le_bytes());
        let (rx, tx) = (&self.received, &self.sent);
        let numbers = [
            (8, rx.bytes),
            (16, rx.unicast),
            (24, rx.multicast),
            (32, rx.broadcast),
            (40, rx.discarded),
            (64, tx.bytes),
            (72, tx.unicast),
            (80, tx.multicast),
            (88, tx.broadcast),
            (96, tx.discarded),
        ];
        for (place, number) in numbers {
            put_at(&mut body, place, number.to_le_bytes());
        }
        body
    }
}

#[cfg(test)]
mod tests {
    use irdma_engine::spec::{DeviceConfig, Generation};

    use super::*;

    #[test]
    fn buffers_announced_before_their_queue_is_configured_count() {
        let config = DeviceConfig { generation: Generation::Gen3, port_mtu: 1024, seed: 1 };
        let mut engine = Engine::new(config, crate::host::tests::host(0x1_0000));
        let id = engine.add_function(Vec::new());
        let mut function = Function::new(id, Generation::Gen3, [2; 6]);
        let mut vport = Vport { enabled: true, ..Vport::default() };
        vport.write(&mut function, &mut engine, BUFFER_DOORBELLS, 2);
        let mut body = vec![0; RECEIVE_HEADER + 2 * RECEIVE_ENTRY];
        put_at(&mut body, 4, 2_u16.to_le_bytes());
        for (start, kind, address) in [
            (RECEIVE_HEADER, kind::RECEIVE, 0x3000_u64),
            (RECEIVE_HEADER + RECEIVE_ENTRY, kind::RECEIVE_BUFFER, 0x1000),
        ] {
            put_at(&mut body, start + 8, address.to_le_bytes());
            put_at(&mut body, start + 16, kind.to_le_bytes());
            put_at(&mut body, start + 28, 2048_u32.to_le_bytes());
            put_at(&mut body, start + 36, 8_u16.to_le_bytes());
        }
        vport.configure_receive(&body);
        for _ in 0..3 {
            vport.receive(&mut function, &mut engine, &[0xff; 64]);
        }
        assert_eq!((vport.received.broadcast, vport.received.discarded), (2, 1));
        let statistics = vport.statistics();
        assert_eq!((u64_at(&statistics, 32), u64_at(&statistics, 40)), (2, 1));
    }
}
