//! The driver's side of completion queues: CQEs as a provider reads them.

use irdma_engine::spec::CqId;

use super::memory::{Area, Memory};

/// A completion, field by field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wc {
    pub length: u32,
    pub context: u64,
    pub qp: u32,
    pub tag: u32,
    pub minor: u16,
    pub major: u16,
    pub index: u32,
    pub srq: bool,
    pub invalidated_or_ipv4: bool,
    pub solicited: bool,
    pub error: bool,
    pub opcode: u8,
    pub send_queue: bool,
    pub push_dropped: bool,
    pub immediate: Option<u32>,
    pub mac: Option<[u8; 6]>,
    pub qp_context: u64,
    /// Slots it took.
    pub slots: u32,
}

/// A completion queue as its driver sees it.
#[derive(Clone, Debug)]
pub struct HostCq {
    pub id: CqId,
    pub ring: Area,
    pub shadow: Area,
    pub entries: u32,
    pub slot: usize,
    pub head: u32,
    pub polarity: bool,
    sequence: u64,
}

impl HostCq {
    pub fn new(id: CqId, ring: Area, shadow: Area, entries: u32, slot: usize) -> Self {
        Self { id, ring, shadow, entries, slot, head: 0, polarity: true, sequence: 0 }
    }

    /// Takes the next completion, if there is one, and publishes the new head.
    pub fn poll(&mut self, memory: &mut Memory) -> Option<Wc> {
        let wc = self.peek(memory)?;
        for _ in 0..wc.slots {
            self.head += 1;
            if self.head == self.entries {
                self.head = 0;
                self.polarity = !self.polarity;
            }
        }
        memory.set_word(self.shadow, 0, self.head.into());
        Some(wc)
    }

    fn peek(&self, memory: &mut Memory) -> Option<Wc> {
        let mut at = |slot: u32, word: usize| memory.word(self.ring, slot as usize * self.slot + word * 8);
        let q: Vec<u64> = (0..4).map(|word| at(self.head, word)).collect();
        if (q[3] >> 63 == 1) != self.polarity {
            return None;
        }
        let extended = q[3] >> 50 & 1 == 1;
        let mut wc = Wc {
            length: q[0] as u32,
            context: q[1],
            qp: (q[2] >> 32 & 0xff_ffff) as u32,
            tag: q[2] as u32,
            minor: q[3] as u16,
            major: (q[3] >> 16) as u16,
            index: (q[3] >> 32 & 0x7fff) as u32,
            srq: q[3] >> 52 & 1 == 1,
            invalidated_or_ipv4: q[3] >> 53 & 1 == 1,
            solicited: q[3] >> 54 & 1 == 1,
            error: q[3] >> 55 & 1 == 1,
            opcode: (q[3] >> 56 & 0x3f) as u8,
            send_queue: q[3] >> 62 & 1 == 1,
            push_dropped: q[3] >> 51 & 1 == 1,
            slots: 1,
            ..Wc::default()
        };
        let (slot, first, polarity) = if self.slot == 64 {
            (self.head, 4, self.polarity)
        } else {
            let next = (self.head + 1) % self.entries;
            (next, 0, self.polarity ^ (next == 0))
        };
        if self.slot == 64 {
            wc.qp_context = at(slot, 5);
        }
        if extended {
            let q: Vec<u64> = (0..4).map(|word| at(slot, first + word)).collect();
            assert_eq!(q[3] >> 63 == 1, polarity, "the extension is valid before the CQE");
            wc.immediate = (q[3] >> 62 & 1 == 1).then_some(q[0] as u32);
            wc.mac = (q[3] >> 61 & 1 == 1).then(|| {
                let bytes = q[2].to_be_bytes();
                bytes[2..].try_into().expect("six bytes")
            });
            wc.slots = if self.slot == 64 { 1 } else { 2 };
        }
        Some(wc)
    }

    /// Writes a new request into the shadow area (the doorbell is the test's).
    pub fn arm(&mut self, memory: &mut Memory, solicited_only: bool) {
        self.sequence = (self.sequence + 1) % 4;
        let resizes = memory.word(self.shadow, 32) & 0x3fff;
        let word = resizes | u64::from(!solicited_only) << 14 | 1 << 15 | self.sequence << 16;
        memory.set_word(self.shadow, 32, word);
    }

    /// Goes over to another ring, as after draining the one before.
    pub fn resized(&mut self, memory: &mut Memory, ring: Area, entries: u32) {
        self.ring = ring;
        self.entries = entries;
        self.head = 0;
        self.polarity = true;
        let word = memory.word(self.shadow, 32);
        memory.set_word(self.shadow, 0, 0);
        memory.set_word(self.shadow, 32, (word & !0x3fff) | (word + 1) & 0x3fff);
    }
}
