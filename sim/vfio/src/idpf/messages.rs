//! Messages of the idpf driver and their answers (virtchnl2).
//!
//! Formats: kernel, drivers/net/ethernet/intel/idpf/virtchnl2.h.

use irdma_engine::Engine;

use super::mailbox::Message;
use super::{Idpf, channel, offset};
use crate::field::{put_at, u16_at};
use crate::function::Function;
use crate::host::Host;

/// Opcodes.
mod opcode {
    pub const VERSION: u32 = 1;
    pub const GET_CAPABILITIES: u32 = 500;
    pub const CREATE_VPORT: u32 = 501;
    pub const DESTROY_VPORT: u32 = 502;
    pub const ENABLE_VPORT: u32 = 503;
    pub const DISABLE_VPORT: u32 = 504;
    pub const CONFIGURE_TX: u32 = 505;
    pub const CONFIGURE_RX: u32 = 506;
    pub const ENABLE_QUEUES: u32 = 507;
    pub const DISABLE_QUEUES: u32 = 508;
    pub const MAP_VECTORS: u32 = 511;
    pub const UNMAP_VECTORS: u32 = 512;
    pub const SET_RSS_KEY: u32 = 514;
    pub const SET_RSS_TABLE: u32 = 516;
    pub const SET_RSS_HASH: u32 = 518;
    pub const ALLOCATE_VECTORS: u32 = 520;
    pub const FREE_VECTORS: u32 = 521;
    pub const EVENT: u32 = 522;
    pub const GET_STATISTICS: u32 = 523;
    pub const GET_PACKET_TYPES: u32 = 526;
    pub const RDMA: u32 = 529;
    pub const ADD_ADDRESS: u32 = 535;
    pub const DELETE_ADDRESS: u32 = 536;
    pub const SET_PROMISCUOUS: u32 = 537;
    pub const GET_MEMORY_REGIONS: u32 = 549;
}

/// The status of a message that the device does not know (`VIRTCHNL2_STATUS_ERR_EOPNOTSUPP`).
const NOT_SUPPORTED: u32 = 95;
/// Bytes of the answer to the question for capabilities.
const CAPABILITY_BYTES: usize = 80;
/// RDMA, filters for addresses, regions of registers.
const CAPABILITIES: u64 = 1 | 1 << 2 | 1 << 22;
/// Vectors in all, and those of them that are RDMA's.
const VECTORS: u16 = 16;
const RDMA_VECTORS: u16 = 8;
/// Vector 0 is the mailbox's.
const FIRST_VECTOR: u16 = 1;
/// Queues of each kind at most.
const QUEUES: u16 = 4;
/// The name of the one port.
pub const VPORT: u32 = 7;
/// Largest packet, in bytes of what Ethernet carries.
const LARGEST_PACKET: u16 = 9000;
/// Speed of the link in megabits per second.
const LINK_SPEED: u32 = 100_000;
/// The event that tells of the link.
const LINK_CHANGED: u32 = 1;
/// Bytes of the request and of the fixed part of the answer that make a port.
const VPORT_BYTES: usize = 160;
const CHUNK_BYTES: usize = 32;

/// Registers that the driver maps: start and bytes. Everything it is told of lies inside.
const REGIONS: [(u64, u64); 4] =
    [(0, 0x10_0000), (0x300_0000, 0x10_0000), (0x500_0000, 0x10_0000), (0x840_6000, 0x60_0000)];

fn version() -> Vec<u8> {
    [2_u32, 0].iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn capabilities() -> Vec<u8> {
    let mut body = vec![0; CAPABILITY_BYTES];
    put_at(&mut body, 24, CAPABILITIES.to_le_bytes());
    put_at(&mut body, 32, (offset::INTERRUPTS as u32).to_le_bytes());
    put_at(&mut body, 38, VECTORS.to_le_bytes());
    put_at(&mut body, 40, QUEUES.to_le_bytes()); // receive
    put_at(&mut body, 42, QUEUES.to_le_bytes()); // transmit
    put_at(&mut body, 44, (2 * QUEUES).to_le_bytes()); // receive buffers
    put_at(&mut body, 46, QUEUES.to_le_bytes()); // transmit completions
    put_at(&mut body, 50, 1_u16.to_le_bytes()); // ports at most
    put_at(&mut body, 52, 1_u16.to_le_bytes()); // ports to begin with
    put_at(&mut body, 54, 256_u16.to_le_bytes()); // header bytes of a packet
    put_at(&mut body, 56, [10]); // pieces of a packet
    put_at(&mut body, 68, [17, 10]); // smallest packet, pieces of a large one
    put_at(&mut body, 70, RDMA_VECTORS.to_le_bytes());
    body
}

fn memory_regions() -> Vec<u8> {
    let mut body = vec![0; 8];
    put_at(&mut body, 0, (REGIONS.len() as u16).to_le_bytes());
    for (start, bytes) in REGIONS {
        body.extend(start.to_le_bytes());
        body.extend(bytes.to_le_bytes());
    }
    body
}

fn vectors(request: &[u8]) -> Vec<u8> {
    let count = u16_at(request, 0);
    let (control, step) = (offset::INTERRUPTS as u32, offset::INTERRUPT_STEP as u32);
    let first = control + step * u32::from(FIRST_VECTOR);
    let mut body = vec![0; 64];
    put_at(&mut body, 0, count.to_le_bytes());
    put_at(&mut body, 16, 1_u16.to_le_bytes());
    put_at(&mut body, 32, FIRST_VECTOR.to_le_bytes());
    put_at(&mut body, 34, FIRST_VECTOR.to_le_bytes());
    put_at(&mut body, 36, count.to_le_bytes());
    put_at(&mut body, 40, first.to_le_bytes());
    put_at(&mut body, 44, step.to_le_bytes());
    put_at(&mut body, 48, (first + 4).to_le_bytes());
    put_at(&mut body, 52, step.to_le_bytes());
    put_at(&mut body, 56, 4_u32.to_le_bytes());
    body
}

/// There is no type of packet that the device tells apart.
fn packet_types(request: &[u8]) -> Vec<u8> {
    let mut body = vec![0; 14];
    put_at(&mut body, 0, u16_at(request, 0).to_le_bytes());
    put_at(&mut body, 2, 1_u16.to_le_bytes());
    put_at(&mut body, 8, 0xffff_u16.to_le_bytes());
    put_at(&mut body, 10, [0xff]);
    body
}

/// The port, in the driver's words with what the device decides filled in.
fn create_vport(function: &Function, request: &[u8]) -> Vec<u8> {
    let mut body = vec![0; VPORT_BYTES];
    let known = request.len().min(VPORT_BYTES);
    body[..known].copy_from_slice(&request[..known]);
    // Kind of queue, where the request has its number, and where its doorbells begin.
    let kinds = [
        (0_u32, 6, super::vport::TX_DOORBELLS),
        (1, 10, 0),
        (2, 8, super::vport::TX_DOORBELLS),
        (3, 12, super::vport::BUFFER_DOORBELLS),
    ];
    put_at(&mut body, 18, LARGEST_PACKET.to_le_bytes());
    put_at(&mut body, 20, VPORT.to_le_bytes());
    put_at(&mut body, 24, function.mac);
    put_at(&mut body, 30, (1_u16 << 4).to_le_bytes()); // RDMA
    put_at(&mut body, 32, (1_u64 << 2).to_le_bytes()); // receive descriptors: flexible, split
    put_at(&mut body, 40, (1_u64 << 5 | 1 << 12).to_le_bytes()); // transmit: flow scheduled
    put_at(&mut body, 124, 52_u16.to_le_bytes()); // bytes of the hash key
    put_at(&mut body, 126, 64_u16.to_le_bytes()); // entries of the hash table
    put_at(&mut body, 152, (kinds.len() as u16).to_le_bytes());
    for (kind, place, doorbells) in kinds {
        let mut chunk = vec![0; CHUNK_BYTES];
        put_at(&mut chunk, 0, kind.to_le_bytes());
        put_at(&mut chunk, 8, u32::from(u16_at(request, place)).to_le_bytes());
        put_at(&mut chunk, 16, doorbells.to_le_bytes());
        put_at(&mut chunk, 24, (super::vport::DOORBELL_STEP as u32).to_le_bytes());
        body.extend(chunk);
    }
    body
}

fn link_is_up() -> Message {
    let mut body = vec![0; 16];
    put_at(&mut body, 0, LINK_CHANGED.to_le_bytes());
    put_at(&mut body, 4, LINK_SPEED.to_le_bytes());
    put_at(&mut body, 8, VPORT.to_le_bytes());
    put_at(&mut body, 12, [1]);
    Message { opcode: opcode::EVENT, status: 0, cookie: 0, body }
}

impl Idpf {
    /// Carries out a request and queues its answer.
    pub fn answer(&mut self, function: &mut Function, engine: &mut Engine<Host>, request: &Message) {
        let body = self.carry_out(function, engine, request);
        let (status, body) = body.map_or((NOT_SUPPORTED, Vec::new()), |body| (0, body));
        if status != 0 {
            eprintln!("function {}: message {} is not supported", function.id, request.opcode);
        }
        self.mailbox.post(Message { opcode: request.opcode, status, cookie: request.cookie, body });
        if request.opcode == opcode::ENABLE_VPORT {
            self.mailbox.post(link_is_up());
        }
    }

    fn carry_out(
        &mut self,
        function: &mut Function,
        engine: &mut Engine<Host>,
        request: &Message,
    ) -> Option<Vec<u8>> {
        let asked = &request.body;
        match request.opcode {
            opcode::VERSION => Some(version()),
            opcode::GET_CAPABILITIES => Some(capabilities()),
            opcode::GET_MEMORY_REGIONS => Some(memory_regions()),
            opcode::ALLOCATE_VECTORS => Some(vectors(asked)),
            opcode::GET_PACKET_TYPES => Some(packet_types(asked)),
            opcode::CREATE_VPORT => Some(create_vport(function, asked)),
            opcode::RDMA => channel::answer(function, asked),
            opcode::GET_STATISTICS => Some(self.vport.statistics()),
            opcode::DESTROY_VPORT | opcode::DISABLE_VPORT => {
                self.vport.enabled = false;
                Some(asked.clone())
            }
            opcode::ENABLE_VPORT => {
                self.vport.enabled = true;
                Some(asked.clone())
            }
            opcode::CONFIGURE_TX => {
                self.vport.configure_transmit(asked);
                Some(asked.clone())
            }
            opcode::CONFIGURE_RX => {
                self.vport.configure_receive(asked);
                Some(asked.clone())
            }
            opcode::MAP_VECTORS => {
                self.vport.map_vectors(asked);
                Some(asked.clone())
            }
            opcode::DISABLE_QUEUES => {
                self.vport.drain(function, engine);
                Some(asked.clone())
            }
            opcode::ENABLE_QUEUES
            | opcode::UNMAP_VECTORS
            | opcode::SET_RSS_KEY
            | opcode::SET_RSS_TABLE
            | opcode::SET_RSS_HASH
            | opcode::FREE_VECTORS
            | opcode::ADD_ADDRESS
            | opcode::DELETE_ADDRESS
            | opcode::SET_PROMISCUOUS => Some(asked.clone()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use irdma_engine::spec::Generation;

    use super::*;
    use crate::field::{u32_at, u64_at};

    #[test]
    fn a_port_has_the_queues_that_were_asked_for() {
        let function = Function::new(0, Generation::Gen3, [2, 0, 0, 0, 0, 1]);
        let mut request = vec![0; VPORT_BYTES];
        put_at(&mut request, 6, 3_u16.to_le_bytes());
        put_at(&mut request, 12, 6_u16.to_le_bytes());
        let body = create_vport(&function, &request);
        assert_eq!(body.len(), VPORT_BYTES + 4 * CHUNK_BYTES);
        assert_eq!(body[24..30], function.mac);
        let chunk = |index: usize| &body[VPORT_BYTES + index * CHUNK_BYTES..];
        assert_eq!((u32_at(chunk(0), 0), u32_at(chunk(0), 8)), (0, 3));
        assert_eq!((u32_at(chunk(3), 0), u32_at(chunk(3), 8)), (3, 6));
        assert_eq!(create_vport(&function, &[]).len(), VPORT_BYTES + 4 * CHUNK_BYTES);
    }

    #[test]
    fn every_register_that_is_named_is_mapped() {
        let body = memory_regions();
        let inside = |place: u64| {
            body[8..].chunks_exact(16).any(|region| {
                let start = u64_at(region, 0);
                (start..start + u64_at(region, 8)).contains(&place)
            })
        };
        let last_vector = offset::INTERRUPTS + offset::INTERRUPT_STEP * u64::from(VECTORS) + 8;
        for place in [offset::RESET, offset::RESET_STATUS, offset::INTERRUPTS, last_vector] {
            assert!(inside(place), "{place:#x}");
        }
        for queue in [0, u64::from(2 * QUEUES) - 1] {
            let step = queue * super::super::vport::DOORBELL_STEP;
            assert!(inside(super::super::vport::TX_DOORBELLS + step));
            assert!(inside(super::super::vport::BUFFER_DOORBELLS + step));
        }
    }
}
