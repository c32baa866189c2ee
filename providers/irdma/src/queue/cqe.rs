//! A CQE read in whole, and what becomes of the work request that it is about.

use super::completion::{CompletionFlags, Origin, Outcome};
use super::queue_pair::{QueuePair, Service};
use super::send::Kind;
use super::slots::Tracking;
use crate::barrier;
use crate::format::{
    CqeExtensionFlags, CqeIdentity, CqePayload, CqeStatus, EXTENSION_FLAGS, EXTENSION_IMMEDIATE,
    EXTENSION_SHARED_CONTEXT, FlushCode, MAJOR_FLUSHED, MAJOR_SHARED_FLUSHED, Opcode, Status, VALID,
    VALID_WORD,
};
use crate::ring::CompletionRing;

/// A CQE that has come.
pub(super) struct Cqe {
    pub(super) payload: CqePayload,
    pub(super) context: u64,
    pub(super) identity: CqeIdentity,
    pub(super) status: CqeStatus,
    pub(super) immediate: Option<u32>,
}

/// How a CQE with the error bit ended its work request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// In a flush.
    Flushed(FlushCode),
    /// In some other way.
    Unknown,
}

impl Cqe {
    /// The next CQE, if it has come in full.
    #[inline(always)]
    pub(super) fn read(ring: &CompletionRing) -> Option<Self> {
        let entry = ring.entry();
        let status = entry[VALID_WORD].load();
        if (status ^ ring.valid()) & VALID != 0 {
            return None;
        }
        barrier::after_valid_bit();
        let status = CqeStatus::from_bits(status);
        let mut immediate = None;
        if status.extended() {
            let (extension, valid) = ring.extension();
            let flags = extension[EXTENSION_FLAGS].load();
            if (flags ^ valid) & VALID != 0 {
                return None;
            }
            barrier::after_valid_bit();
            if CqeExtensionFlags::from_bits(flags).has_immediate() {
                immediate = Some(extension[EXTENSION_IMMEDIATE].load() as u32);
            }
        }
        Some(Self {
            payload: CqePayload::from_bits(entry[0].load()),
            context: entry[1].load(),
            identity: CqeIdentity::from_bits(entry[2].load()),
            status,
            immediate,
        })
    }

    /// The completion context of the QP whose shared receive completed.
    #[inline(always)]
    pub(super) fn shared_context(&self, ring: &CompletionRing) -> Option<u64> {
        // In a 64-byte slot the word is there whether or not the rest of the
        // extension is.
        (ring.is_wide() || self.status.extended())
            .then(|| ring.extension().0[EXTENSION_SHARED_CONTEXT].load())
    }

    /// Of a CQE with the error bit: how it ended, and the code for the program.
    pub(super) fn failure(&self) -> (Failure, u32) {
        let (major, minor) = (self.status.major_error(), self.status.minor_error());
        let (failure, minor) = match major {
            MAJOR_FLUSHED => (Failure::Flushed(FlushCode::from_minor(minor)), minor),
            MAJOR_SHARED_FLUSHED => {
                let code = FlushCode::from_event(minor);
                (Failure::Flushed(code), code.number())
            }
            _ => (Failure::Unknown, minor),
        };
        (failure, u32::from(major) << 16 | u32::from(minor))
    }

    /// Whose the completion is and the immediate that came with it.
    pub(super) fn origin(&self, plain: &Origin) -> Origin {
        let mut origin = *plain;
        if let Some(immediate) = self.immediate {
            origin.data = immediate.to_be();
            origin.flags = CompletionFlags::IMMEDIATE;
        }
        origin
    }

    /// The outcome of a send WQE.
    #[inline]
    pub(super) fn send_outcome(&self, cell: &Tracking, kind: Kind) -> Outcome {
        let (opcode, status, length) = match Opcode::decode_completion(self.status.opcode()) {
            Some(opcode) => (opcode, Status::Success, cell.length()),
            None => (kind.opcode(), Status::General, 0),
        };
        Outcome { wr_id: cell.wr_id(), status, opcode, vendor_error: 0, length }
    }

    /// The outcome of a receive WQE, and whose it is.
    #[inline(always)]
    pub(super) fn receive_outcome(&self, wr_id: u64, queues: &QueuePair) -> (Outcome, Origin) {
        let messages = &queues.receive.retired.messages;
        let mut origin = self.origin(&messages.origin);
        match messages.service {
            Service::Datagram => {
                origin.flags |= CompletionFlags::HEADER;
                origin.source_queue_pair = self.identity.source_queue_pair();
            }
            // No message has both.
            Service::Connected if self.status.key_invalidated() => {
                origin.data = self.identity.invalidated_key();
                origin.flags = CompletionFlags::INVALIDATED;
            }
            Service::Connected => {}
        }
        let outcome = Outcome {
            wr_id,
            status: Status::Success,
            opcode: messages.opcodes.decode(self.status.opcode(), self.immediate.is_some()),
            vendor_error: 0,
            length: self.payload.length(),
        };
        (outcome, origin)
    }
}
