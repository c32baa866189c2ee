//! Completion queue entries as the device writes them.

use crate::format::{Field, VALID};

const Q0_LENGTH: Field = Field::new(31, 0);
const Q0_TIMESTAMP: Field = Field::new(63, 32);
const Q2_TAG: Field = Field::new(31, 0);
const Q2_QP: Field = Field::new(55, 32);
const Q3_MINOR: Field = Field::new(15, 0);
const Q3_MAJOR: Field = Field::new(31, 16);
const Q3_INDEX: Field = Field::new(46, 32);
pub(crate) const Q3_EXTENDED: Field = Field::new(50, 50);
const Q3_PUSH_DROPPED: Field = Field::new(51, 51);
const Q3_SRQ: Field = Field::new(52, 52);
const Q3_INVALIDATED_OR_IPV4: Field = Field::new(53, 53);
pub(crate) const Q3_SOLICITED: Field = Field::new(54, 54);
pub(crate) const Q3_ERROR: Field = Field::new(55, 55);
const Q3_OPCODE: Field = Field::new(61, 56);
const Q3_SEND_QUEUE: Field = Field::new(62, 62);
const Q4_IMMEDIATE: Field = Field::new(31, 0);
const Q6_MAC: Field = Field::new(47, 0);
const Q7_MAC_VALID: Field = Field::new(61, 61);
const Q7_IMMEDIATE_VALID: Field = Field::new(62, 62);

/// The major error code of a flushed work request.
pub(crate) const MAJOR_FLUSHED: u16 = 1;

/// What a completion says.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Completion {
    /// Payload bytes.
    pub(crate) length: u32,
    /// Device time, where the device stamps completions.
    pub(crate) timestamp: u32,
    /// The QP's completion context, or the wr_id of a shared receive.
    pub(crate) context: u64,
    /// Invalidated STag, or source QP number of a datagram.
    pub(crate) tag: u32,
    pub(crate) qp: u32,
    pub(crate) minor: u16,
    pub(crate) major: u16,
    /// WQE index in quanta.
    pub(crate) index: u32,
    pub(crate) srq: bool,
    /// The tag is an invalidated STag (RC), or the datagram came over IPv4 (UD).
    pub(crate) invalidated_or_ipv4: bool,
    pub(crate) solicited: bool,
    pub(crate) error: bool,
    pub(crate) opcode: u8,
    pub(crate) send_queue: bool,
    /// A push of this send queue was lost.
    pub(crate) push_dropped: bool,
    pub(crate) immediate: Option<u32>,
    pub(crate) source_mac: Option<[u8; 6]>,
    /// The QP's completion context when `context` is taken by a wr_id.
    pub(crate) qp_context: u64,
}

impl Completion {
    /// Whether it needs the extension: the second slot of 32-byte CQEs.
    pub(crate) fn is_extended(&self) -> bool {
        self.immediate.is_some() || self.source_mac.is_some()
    }

    /// Words q0..q7, valid bits not set.
    pub(crate) fn words(&self) -> [u64; 8] {
        let mac =
            self.source_mac.map_or(0, |mac| mac.iter().fold(0, |all, &byte| all << 8 | u64::from(byte)));
        [
            Q0_LENGTH.put(self.length.into()) | Q0_TIMESTAMP.put(self.timestamp.into()),
            self.context,
            Q2_TAG.put(self.tag.into()) | Q2_QP.put(self.qp.into()),
            Q3_MINOR.put(self.minor.into())
                | Q3_MAJOR.put(self.major.into())
                | Q3_INDEX.put(self.index.into())
                | Q3_EXTENDED.put(self.is_extended().into())
                | Q3_PUSH_DROPPED.put(self.push_dropped.into())
                | Q3_SRQ.put(self.srq.into())
                | Q3_INVALIDATED_OR_IPV4.put(self.invalidated_or_ipv4.into())
                | Q3_SOLICITED.put(self.solicited.into())
                | Q3_ERROR.put(self.error.into())
                | Q3_OPCODE.put(self.opcode.into())
                | Q3_SEND_QUEUE.put(self.send_queue.into()),
            Q4_IMMEDIATE.put(self.immediate.unwrap_or(0).into()),
            self.qp_context,
            Q6_MAC.put(mac),
            Q7_IMMEDIATE_VALID.put(self.immediate.is_some().into())
                | Q7_MAC_VALID.put(self.source_mac.is_some().into()),
        ]
    }
}

/// A slot's bytes, its last word carrying the valid bit `polarity`.
pub(crate) fn slot_bytes(words: &[u64; 4], polarity: bool) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    let last = (words[3] & !VALID.put(1)) | VALID.put(polarity.into());
    bytes[24..].copy_from_slice(&last.to_le_bytes());
    bytes
}
