//! Work queue entries as the device reads them.
//!
//! Formats: kernel, drivers/infiniband/hw/irdma/defs.h (`IRDMAQPSQ_*`) and
//! docs/hardware.md. From GEN2 on every quantum carries a valid bit of the present lap
//! in its last word and every fragment one of its own; the decoder insists on them, as
//! a device that fetches a WQE in pieces has nothing else to go by.

use crate::event::code;
use crate::fast_register::FastRegister;
use crate::format::{Field, QUANTUM, VALID, valid_bit, word};
use crate::mw::Bind;
use crate::spec::{Access, Generation, Key, WindowKind};

const STAG: Field = Field::new(31, 0);
const ADDRESS_HANDLE: Field = Field::new(24, 0);
const OPCODE: Field = Field::new(37, 32);
const MORE_FRAGMENTS: Field = Field::new(41, 38);
const IMMEDIATE: Field = Field::new(47, 47);
const INLINE_LENGTH: Field = Field::new(55, 48);
const PUSH: Field = Field::new(56, 56);
const INLINE: Field = Field::new(57, 57);
const SIGNALED: Field = Field::new(62, 62);

const FRAGMENT_STAG: Field = Field::new(31, 0);
const FRAGMENT_LENGTH: Field = Field::new(62, 32);
const FRAGMENT_STAG_GEN1: Field = Field::new(63, 32);
const FRAGMENT_LENGTH_GEN1: Field = Field::new(31, 0);

const BIND_REMOTE_READ: Field = Field::new(50, 50);
const BIND_REMOTE_WRITE: Field = Field::new(51, 51);
const BIND_ADDRESS_BASED: Field = Field::new(53, 53);
const BIND_TYPE1: Field = Field::new(54, 54);
const BIND_REMOTE_ATOMIC: Field = Field::new(55, 55);

const DATAGRAM_Q_KEY: Field = Field::new(31, 0);
const DATAGRAM_QP: Field = Field::new(55, 32);

/// Opcodes of send WQEs, which come back in their CQEs.
pub(crate) mod opcode {
    pub(crate) const WRITE: u8 = 0x00;
    pub(crate) const READ: u8 = 0x01;
    pub(crate) const SEND: u8 = 0x03;
    pub(crate) const SEND_INVALIDATE: u8 = 0x04;
    pub(crate) const SEND_SOLICITED: u8 = 0x05;
    pub(crate) const SEND_SOLICITED_INVALIDATE: u8 = 0x06;
    pub(crate) const BIND: u8 = 0x08;
    pub(crate) const FAST_REGISTER: u8 = 0x09;
    pub(crate) const LOCAL_INVALIDATE: u8 = 0x0a;
    pub(crate) const NOP: u8 = 0x0c;
    pub(crate) const WRITE_SOLICITED: u8 = 0x0d;
    pub(crate) const FETCH_ADD: u8 = 0x0f;
    pub(crate) const COMPARE_SWAP: u8 = 0x11;
}

/// Largest message of a connection.
const MAX_MESSAGE: u64 = 1 << 31;
/// Inline bytes in the first quantum, and in each further one.
const INLINE_FIRST: usize = 8;
const INLINE_FURTHER: usize = QUANTUM - 1;
/// GEN1: two words in the first quantum, the second whole.
const INLINE_FIRST_GEN1: usize = 16;
/// Slots of the largest WQE.
const MAX_SLOTS: usize = 16;
/// Most inline bytes of any generation.
const MAX_INLINE: usize = 216;

/// Numbers in which the generations differ.
#[derive(Clone, Copy, Debug)]
struct Limits {
    quanta: u32,
    inline: usize,
}

const fn limits(generation: Generation) -> Limits {
    match generation {
        Generation::Gen1 => Limits { quanta: 2, inline: 48 },
        Generation::Gen2 => Limits { quanta: 8, inline: 101 },
        Generation::Gen3 => Limits { quanta: 8, inline: MAX_INLINE },
    }
}

/// A piece of local memory named by a WQE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(crate) address: u64,
    pub(crate) length: u32,
    pub(crate) key: Key,
}

/// The fragments of a WQE.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fragments {
    list: [Fragment; MAX_SLOTS],
    count: usize,
}

impl Fragments {
    fn push(&mut self, fragment: Fragment) {
        if let Some(slot) = self.list.get_mut(self.count) {
            *slot = fragment;
            self.count += 1;
        }
    }

    pub(crate) fn as_slice(&self) -> &[Fragment] {
        &self.list[..self.count]
    }

    /// Bytes in all; at most 16 times 2^32.
    pub(crate) fn length(&self) -> u64 {
        self.as_slice().iter().map(|fragment| u64::from(fragment.length)).sum()
    }
}

/// What a send WQE sends, or where a read puts it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload {
    Inline { bytes: [u8; MAX_INLINE], length: usize },
    Fragments(Fragments),
}

impl Payload {
    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::Inline { length, .. } => *length as u64,
            Self::Fragments(fragments) => fragments.length(),
        }
    }
}

/// Memory of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Remote {
    pub(crate) address: u64,
    pub(crate) key: Key,
}

/// What goes with a message into the receiver's completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tail {
    pub(crate) immediate: Option<u32>,
    pub(crate) invalidate: Option<Key>,
    pub(crate) solicited: bool,
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) handle: u32,
    pub(crate) qp: u32,
    pub(crate) q_key: u32,
}

/// What a send WQE asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    Nop,
    Send { payload: Payload, tail: Tail, target: Target },
    Write { payload: Payload, tail: Tail, remote: Remote },
    Read { sink: Fragments, remote: Remote },
    FetchAdd { sink: Fragment, remote: Remote, add: u64 },
    CompareSwap { sink: Fragment, remote: Remote, swap: u64, compare: u64 },
    Bind(Bind),
    FastRegister(FastRegister),
    Invalidate(Key),
}

impl Operation {
    /// Bytes moved.
    fn length(&self) -> u64 {
        match self {
            Self::Send { payload, .. } | Self::Write { payload, .. } => payload.length(),
            Self::Read { sink, .. } => sink.length(),
            Self::FetchAdd { sink, .. } | Self::CompareSwap { sink, .. } => sink.length.into(),
            Self::Nop | Self::Bind(_) | Self::FastRegister(_) | Self::Invalidate(_) => 0,
        }
    }
}

/// A send WQE.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendWqe {
    pub(crate) opcode: u8,
    pub(crate) signaled: bool,
    pub(crate) quanta: u32,
    pub(crate) operation: Operation,
}

/// Quanta of the send WQE with this header (at least one).
pub(crate) fn send_quanta(header: u64, generation: Generation) -> u32 {
    if INLINE.is_set(header) {
        let length = INLINE_LENGTH.get(header) as usize;
        let quanta = if generation == Generation::Gen1 {
            1 + length.saturating_sub(INLINE_FIRST_GEN1).div_ceil(QUANTUM)
        } else {
            1 + length.saturating_sub(INLINE_FIRST).div_ceil(INLINE_FURTHER)
        };
        return quanta as u32;
    }
    1 + (MORE_FRAGMENTS.get(header) as u32).div_ceil(2)
}

/// Whether a whole send WQE says that its queue pair has a push page.
pub(crate) fn is_pushed(bytes: &[u8]) -> bool {
    PUSH.is_set(word(bytes, 3))
}

/// The opcode in a send WQE's header.
pub(crate) fn send_opcode(header: u64) -> u8 {
    OPCODE.get(header) as u8
}

/// Decodes a whole send WQE (as many bytes as [`send_quanta`] says); `polarity` is the
/// lap's valid bit. Else the event code.
pub(crate) fn decode_send(bytes: &[u8], polarity: bool, generation: Generation) -> Result<SendWqe, u16> {
    let header = word(bytes, 3);
    let quanta = send_quanta(header, generation);
    if quanta > limits(generation).quanta || bytes.len() != quanta as usize * QUANTUM {
        return Err(code::WQE_INVALID_FRAGMENTS);
    }
    if generation != Generation::Gen1 {
        let lap = |index: u32| valid_bit(word(bytes, index as usize * 4 + 3)) == polarity;
        if !(1..quanta).all(lap) {
            return Err(code::WQE_INVALID_FRAGMENTS);
        }
    }
    let reader = Reader { bytes, polarity, generation, header };
    let opcode = send_opcode(header);
    let remote = Remote { address: word(bytes, 2), key: stag(header) };
    let operation = match opcode {
        opcode::NOP => Operation::Nop,
        opcode::SEND
        | opcode::SEND_SOLICITED
        | opcode::SEND_INVALIDATE
        | opcode::SEND_SOLICITED_INVALIDATE => {
            let invalidates = matches!(opcode, opcode::SEND_INVALIDATE | opcode::SEND_SOLICITED_INVALIDATE);
            Operation::Send {
                payload: reader.payload()?,
                tail: Tail {
                    immediate: reader.immediate(),
                    invalidate: invalidates.then_some(stag(header)),
                    solicited: matches!(opcode, opcode::SEND_SOLICITED | opcode::SEND_SOLICITED_INVALIDATE),
                },
                target: Target {
                    handle: ADDRESS_HANDLE.get(header) as u32,
                    qp: DATAGRAM_QP.get(word(bytes, 2)) as u32,
                    q_key: DATAGRAM_Q_KEY.get(word(bytes, 2)) as u32,
                },
            }
        }
        opcode::WRITE | opcode::WRITE_SOLICITED => Operation::Write {
            payload: reader.payload()?,
            tail: Tail {
                immediate: reader.immediate(),
                invalidate: None,
                solicited: opcode == opcode::WRITE_SOLICITED,
            },
            remote,
        },
        opcode::READ => match reader.payload()? {
            Payload::Fragments(sink) => Operation::Read { sink, remote },
            Payload::Inline { .. } => return Err(code::WQE_INVALID_PARAMETER),
        },
        opcode::FETCH_ADD | opcode::COMPARE_SWAP if generation >= Generation::Gen3 => {
            if quanta != 2 {
                return Err(code::WQE_INVALID_FRAGMENTS);
            }
            let sink = Fragment {
                address: word(bytes, 0),
                length: 8,
                key: FRAGMENT_STAG.get(word(bytes, 1)) as Key,
            };
            if opcode == opcode::FETCH_ADD {
                Operation::FetchAdd { sink, remote, add: word(bytes, 4) }
            } else {
                Operation::CompareSwap { sink, remote, swap: word(bytes, 4), compare: word(bytes, 5) }
            }
        }
        opcode::BIND => Operation::Bind(reader.bind()),
        opcode::FAST_REGISTER if generation >= Generation::Gen2 => {
            Operation::FastRegister(FastRegister::decode(bytes, generation)?)
        }
        opcode::LOCAL_INVALIDATE => {
            let field = if generation == Generation::Gen1 { FRAGMENT_STAG_GEN1 } else { FRAGMENT_STAG };
            Operation::Invalidate(field.get(word(bytes, 1)) as Key)
        }
        _ => return Err(code::UNEXPECTED_OPCODE),
    };
    if operation.length() > MAX_MESSAGE {
        return Err(code::INVALID_MESSAGE_OFFSET);
    }
    Ok(SendWqe { opcode, signaled: SIGNALED.is_set(header), quanta, operation })
}

/// A receive WQE.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveWqe {
    pub(crate) fragments: Fragments,
    /// Word q2: the wr_id in a shared receive queue.
    pub(crate) wr_id: u64,
}

/// Decodes a receive WQE from its slot; else the event code.
pub(crate) fn decode_receive(
    bytes: &[u8],
    polarity: bool,
    generation: Generation,
) -> Result<ReceiveWqe, u16> {
    let header = word(bytes, 3);
    let fragments = Reader { bytes, polarity, generation, header }.fragments(0)?;
    Ok(ReceiveWqe { fragments, wr_id: word(bytes, 2) })
}

/// The STag in a header.
fn stag(header: u64) -> Key {
    STAG.get(header) as Key
}

struct Reader<'a> {
    bytes: &'a [u8],
    polarity: bool,
    generation: Generation,
    header: u64,
}

impl Reader<'_> {
    fn immediate(&self) -> Option<u32> {
        IMMEDIATE.is_set(self.header).then(|| word(self.bytes, 0) as u32)
    }

    fn payload(&self) -> Result<Payload, u16> {
        if INLINE.is_set(self.header) {
            return self.inline();
        }
        // An immediate takes the first slot.
        self.fragments(IMMEDIATE.get(self.header) as usize).map(Payload::Fragments)
    }

    /// Slots from `first` on: slot 0 is q0/q1, slot n the n-th pair of words after q3.
    fn fragments(&self, first: usize) -> Result<Fragments, u16> {
        let mut fragments = Fragments::default();
        for slot in first..=MORE_FRAGMENTS.get(self.header) as usize {
            let at = if slot == 0 { 0 } else { 2 + 2 * slot };
            if (at + 2) * 8 > self.bytes.len() {
                return Err(code::WQE_INVALID_FRAGMENTS);
            }
            let second = word(self.bytes, at + 1);
            let (length, key) = if self.generation == Generation::Gen1 {
                (FRAGMENT_LENGTH_GEN1.get(second), FRAGMENT_STAG_GEN1.get(second))
            } else if VALID.is_set(second) != self.polarity {
                return Err(code::WQE_INVALID_FRAGMENTS);
            } else {
                (FRAGMENT_LENGTH.get(second), FRAGMENT_STAG.get(second))
            };
            fragments.push(Fragment {
                address: word(self.bytes, at),
                length: length as u32,
                key: key as Key,
            });
        }
        Ok(fragments)
    }

    fn inline(&self) -> Result<Payload, u16> {
        let length = INLINE_LENGTH.get(self.header) as usize;
        if length > limits(self.generation).inline {
            return Err(code::WQE_INVALID_PARAMETER);
        }
        let mut bytes = [0; MAX_INLINE];
        let (first, further, start) = if self.generation == Generation::Gen1 {
            (INLINE_FIRST_GEN1, QUANTUM, 0)
        } else {
            (INLINE_FIRST, INLINE_FURTHER, 8)
        };
        let head = length.min(first);
        bytes[..head].copy_from_slice(&self.bytes[start..start + head]);
        let quanta = self.bytes[QUANTUM..].chunks_exact(QUANTUM);
        for (target, quantum) in bytes[head..length].chunks_mut(further).zip(quanta) {
            target.copy_from_slice(&quantum[..target.len()]);
        }
        Ok(Payload::Inline { bytes, length })
    }

    fn bind(&self) -> Bind {
        let stags = word(self.bytes, 1);
        let (upper, lower) = (FRAGMENT_STAG_GEN1.get(stags) as Key, FRAGMENT_STAG.get(stags) as Key);
        let (parent, window) =
            if self.generation == Generation::Gen1 { (lower, upper) } else { (upper, lower) };
        Bind {
            window,
            parent,
            address: word(self.bytes, 0),
            length: word(self.bytes, 2),
            access: Access {
                remote_read: BIND_REMOTE_READ.is_set(self.header),
                remote_write: BIND_REMOTE_WRITE.is_set(self.header),
                remote_atomic: self.generation >= Generation::Gen3 && BIND_REMOTE_ATOMIC.is_set(self.header),
                zero_based: !BIND_ADDRESS_BASED.is_set(self.header),
                ..Access::default()
            },
            kind: if BIND_TYPE1.is_set(self.header) { WindowKind::Type1 } else { WindowKind::Type2 },
        }
    }
}
