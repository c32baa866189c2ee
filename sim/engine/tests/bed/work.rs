//! The driver's side of work queues: WQEs as a provider writes them.

use irdma_engine::spec::{Access, Generation, Key};

use super::memory::{Area, Memory};

pub const WRITE: u64 = 0x00;
pub const READ: u64 = 0x01;
pub const SEND: u64 = 0x03;
pub const SEND_INVALIDATE: u64 = 0x04;
pub const SEND_SOLICITED: u64 = 0x05;
pub const BIND: u64 = 0x08;
pub const FAST_REGISTER: u64 = 0x09;
pub const LOCAL_INVALIDATE: u64 = 0x0a;
pub const NOP: u64 = 0x0c;
pub const FETCH_ADD: u64 = 0x0f;
pub const COMPARE_SWAP: u64 = 0x11;

/// A piece of local memory.
#[derive(Clone, Copy, Debug)]
pub struct Sge {
    pub address: u64,
    pub length: u32,
    pub key: Key,
}

/// A send work request.
#[derive(Clone, Debug, Default)]
pub struct Work {
    opcode: u64,
    sges: Vec<Sge>,
    inline: Option<Vec<u8>>,
    immediate: Option<u32>,
    first: Option<[u64; 2]>,
    further: Vec<u64>,
    third: u64,
    tag: u64,
    flags: u64,
}

impl Work {
    pub fn new(opcode: u64, sges: &[Sge]) -> Self {
        Self { opcode, sges: sges.to_vec(), flags: 1 << 62, ..Self::default() }
    }

    pub fn inline(opcode: u64, bytes: &[u8]) -> Self {
        Self { inline: Some(bytes.to_vec()), ..Self::new(opcode, &[]) }
    }

    pub fn unsignaled(mut self) -> Self {
        self.flags &= !(1 << 62);
        self
    }

    pub fn immediate(mut self, value: u32) -> Self {
        self.immediate = Some(value);
        self
    }

    pub fn remote(mut self, address: u64, key: Key) -> Self {
        self.third = address;
        self.tag = key.into();
        self
    }

    pub fn to(mut self, handle: u32, qp: u32, q_key: u32) -> Self {
        self.third = u64::from(qp) << 32 | u64::from(q_key);
        self.tag = handle.into();
        self
    }

    /// As on a queue pair that has a push page.
    pub fn pushed(mut self) -> Self {
        self.flags |= 1 << 56;
        self
    }

    pub fn invalidates(mut self, key: Key) -> Self {
        self.tag = key.into();
        self
    }

    pub fn local_invalidate(key: Key) -> Self {
        Self { first: Some([0, key.into()]), ..Self::new(LOCAL_INVALIDATE, &[]) }
    }

    pub fn bind(window: Key, parent: Key, address: u64, length: u64, access: Access, type1: bool) -> Self {
        let rights = u64::from(access.remote_read) << 50
            | u64::from(access.remote_write) << 51
            | u64::from(!access.zero_based) << 53
            | u64::from(type1) << 54
            | u64::from(access.remote_atomic) << 55;
        let mut work = Self::new(BIND, &[]);
        work.first = Some([address, u64::from(parent) << 32 | u64::from(window)]);
        work.third = length;
        work.flags |= rights;
        work
    }

    /// A registration as work: all rights, address based, one piece of physical memory.
    pub fn register(key: Key, address: u64, length: u64, physical: u64) -> Self {
        let mut work = Self::new(FAST_REGISTER, &[]);
        work.first = Some([address, physical]);
        work.third = length;
        work.tag = key.into();
        work.flags |= 0x0f << 48 | 1 << 53;
        work
    }

    pub fn atomic(opcode: u64, sink: Sge, operands: [u64; 2]) -> Self {
        let mut work = Self::new(opcode, &[]);
        work.first = Some([sink.address, sink.key.into()]);
        work.further = vec![operands[0], operands[1], 0, 0];
        work.flags |= 1 << 38;
        work
    }

    /// The words of the WQE, valid bits of `polarity`.
    pub fn encode(&self, polarity: bool, generation: Generation) -> Vec<u64> {
        let valid = u64::from(polarity) << 63;
        let mut header = self.flags | self.opcode << 32 | self.tag | valid;
        let mut words = vec![0, 0, self.third, 0];
        if let Some(value) = self.immediate {
            header |= 1 << 47;
            words[0] = value.into();
        }
        if let Some(first) = self.first {
            words[..2].copy_from_slice(&first);
            words.extend(&self.further);
        } else if let Some(bytes) = &self.inline {
            header |= 1 << 57 | (bytes.len() as u64) << 48;
            encode_inline(&mut words, bytes, valid, generation);
        } else {
            let first = usize::from(self.immediate.is_some());
            header |= encode_fragments(&mut words, first, &self.sges, valid, generation) << 38;
        }
        words[3] = header;
        for quantum in words.chunks_exact_mut(4).skip(1) {
            if generation != Generation::Gen1 {
                quantum[3] |= valid;
            }
        }
        words
    }
}

fn encode_inline(words: &mut Vec<u64>, bytes: &[u8], valid: u64, generation: Generation) {
    let mut raw: Vec<u8> = Vec::new();
    let (head, further) = if generation == Generation::Gen1 { (16, 32) } else { (8, 31) };
    let head = bytes.len().min(head);
    raw.extend(&bytes[..head]);
    raw.resize(if generation == Generation::Gen1 { 16 } else { 8 }, 0);
    let start = if generation == Generation::Gen1 { 0 } else { 1 };
    for (index, chunk) in raw.chunks_exact(8).enumerate() {
        words[start + index] = u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
    }
    for chunk in bytes[head..].chunks(further) {
        let mut quantum = chunk.to_vec();
        quantum.resize(32, 0);
        if generation != Generation::Gen1 {
            quantum[31] = (valid >> 56) as u8;
        }
        words.extend(quantum.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight"))));
    }
}

/// Puts fragments into slots from `first` on; the count for the header.
fn encode_fragments(
    words: &mut Vec<u64>,
    first: usize,
    sges: &[Sge],
    valid: u64,
    generation: Generation,
) -> u64 {
    let gen1 = generation == Generation::Gen1;
    let mut slots: Vec<[u64; 2]> = sges
        .iter()
        .map(|sge| {
            let (length, key) = (u64::from(sge.length), u64::from(sge.key));
            [sge.address, if gen1 { key << 32 | length } else { valid | length << 32 | key }]
        })
        .collect();
    if slots.is_empty() && first == 0 {
        slots.push([0, if gen1 { 0 } else { valid }]);
    }
    let real = slots.len() + first;
    let mut counted = real;
    if !gen1 && real.is_multiple_of(2) {
        slots.push([0, valid]);
        if generation == Generation::Gen2 {
            counted += 1;
        }
    }
    for (index, slot) in slots.iter().enumerate() {
        let index = index + first;
        let at = if index == 0 { 0 } else { 2 + 2 * index };
        if words.len() < at + 2 {
            words.resize((at + 2).next_multiple_of(4), 0);
        }
        words[at..at + 2].copy_from_slice(slot);
    }
    counted as u64 - 1
}

/// A work queue as its driver writes it.
#[derive(Clone, Debug)]
pub struct HostQueue {
    pub area: Area,
    quanta: u32,
    wqe_quanta: u32,
    pub position: u32,
    pub polarity: bool,
}

impl HostQueue {
    pub fn new(area: Area, quanta: u32) -> Self {
        Self { area, quanta, wqe_quanta: 1, position: 0, polarity: true }
    }

    pub fn with_wqe_quanta(self, wqe_quanta: u32) -> Self {
        Self { wqe_quanta, ..self }
    }

    /// Writes a send, padded so that it stays within its chunk of eight quanta; its index.
    pub fn post_send(&mut self, memory: &mut Memory, work: &Work, generation: Generation) -> u32 {
        let chunk = if generation == Generation::Gen1 { 2 } else { 8 };
        let quanta = work.encode(true, generation).len() as u32 / 4;
        while self.position % chunk + quanta > chunk {
            let nop = [0, 0, 0, NOP << 32 | u64::from(self.polarity) << 63];
            self.put(memory, &nop, 1);
        }
        let words = work.encode(self.polarity, generation);
        self.put(memory, &words, quanta)
    }

    /// Writes a receive; its index.
    pub fn post_receive(
        &mut self,
        memory: &mut Memory,
        sges: &[Sge],
        wr_id: u64,
        generation: Generation,
    ) -> u32 {
        let valid = u64::from(self.polarity) << 63;
        let mut words = vec![0, 0, wr_id, 0];
        let count = encode_fragments(&mut words, 0, sges, valid, generation);
        words[3] = count << 38 | valid;
        assert!(words.len() <= self.wqe_quanta as usize * 4, "the receive fits its slot");
        let quanta = self.wqe_quanta;
        self.put(memory, &words, quanta)
    }

    /// Writes words at the present place and steps over `quanta` quanta.
    pub fn put(&mut self, memory: &mut Memory, words: &[u64], quanta: u32) -> u32 {
        let index = self.position;
        for (offset, &word) in words.iter().enumerate() {
            memory.set_word(self.area, index as usize * 32 + offset * 8, word);
        }
        self.position += quanta;
        if self.position >= self.quanta {
            self.position = 0;
            self.polarity = !self.polarity;
        }
        index
    }
}
