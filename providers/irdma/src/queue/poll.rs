//! The one decoder of CQEs, as far as nothing unusual happens; the rest is in `unusual`.
//!
//! A CQE is believed only as far as it agrees with what is outstanding: one that
//! names no living QP, or no outstanding WQE, is consumed and passed over.

use super::completion::{CompletionFlags, Directory, Member, Origin, Outcome, Side, Sink};
use super::queue_pair::Service;
use crate::barrier;
use crate::format::{
    CqeExtensionFlags, CqeIdentity, CqePayload, CqeStatus, EXTENSION_FLAGS, EXTENSION_IMMEDIATE,
    EXTENSION_SHARED_CONTEXT, Opcode, Status, VALID, VALID_WORD,
};
use crate::ring::Place;

/// What came of looking at the next CQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usual {
    /// It completes a work request.
    Completed,
    /// There is none.
    Empty,
    /// It takes more than this to understand it, and was left where it is.
    Unusual,
}

/// Bits of a CQE's status that are as they should be in a CQE that has come, is of one slot,
/// of a queue of its QP's own, and tells of no error and no dropped push.
const UNUSUAL: u64 = CqeStatus::from_bits(VALID)
    .with_extended(true)
    .with_push_dropped(true)
    .with_shared(true)
    .with_error(true)
    .bits();

/// Takes the next CQE, if it is one of those that most are: the success of a send, or of the
/// oldest receive of its queue, without anything besides the message.
#[inline(always)]
pub(super) fn take_usual<P: Place, D: Directory, S: Sink>(
    place: &mut P,
    directory: &D,
    sink: &mut S,
) -> Usual {
    // Its lower half are errors. With the valid bit 0 if the CQE has come.
    let high = place.entry()[VALID_WORD].load_high() ^ place.valid();
    let status = CqeStatus::from_bits(u64::from(high) << 32);
    if status.bits() & UNUSUAL != 0 {
        return if status.valid() { Usual::Empty } else { Usual::Unusual };
    }
    barrier::after_valid_bit();
    let taken = if status.send() {
        take_send(status, place, directory, sink)
    } else {
        take_receive(status, place, directory, sink)
    };
    if taken.is_some() { Usual::Completed } else { Usual::Unusual }
}

#[inline(always)]
fn take_send<P: Place, D: Directory, S: Sink>(
    status: CqeStatus,
    place: &mut P,
    directory: &D,
    sink: &mut S,
) -> Option<()> {
    let entry = place.entry();
    let member = directory.find(entry[1].load(), Side::Send)?;
    let send = &member.queues().send;
    let (cell, end) = send.outstanding(status.wqe_index().into())?;
    let outcome = Outcome {
        wr_id: cell.wr_id(),
        status: Status::Success,
        opcode: Opcode::decode_completion(status.opcode_and_more())?,
        vendor_error: 0,
        length: cell.length(),
    };
    sink.put(outcome, send.origin(), || CqePayload::from_bits(entry[0].load()).timestamp());
    // The slot goes back to the device before the quanta of the WQE do to the poster, so that what
    // is posted into them finds room in the completion queue, by the device's reckoning as well.
    place.pass();
    send.retire(end);
    Some(())
}

#[inline(always)]
fn take_receive<P: Place, D: Directory, S: Sink>(
    status: CqeStatus,
    place: &mut P,
    directory: &D,
    sink: &mut S,
) -> Option<()> {
    let entry = place.entry();
    let member = directory.find(entry[1].load(), Side::Receive)?;
    let receive = &member.queues().receive;
    let messages = &receive.retired.messages;
    if messages.service == Service::Connected && status.key_invalidated() {
        return None;
    }
    let (wr_id, end) = receive.oldest_at(status.wqe_index().into())?;
    let payload = CqePayload::from_bits(entry[0].load());
    let outcome = Outcome {
        wr_id,
        status: Status::Success,
        opcode: messages.opcodes.decode(status.opcode_and_more(), false),
        vendor_error: 0,
        length: payload.length(),
    };
    if messages.service == Service::Connected {
        sink.put(outcome, &messages.origin, || payload.timestamp());
    } else {
        let source_queue_pair = CqeIdentity::from_bits(entry[2].load()).source_queue_pair();
        let origin = Origin { source_queue_pair, flags: CompletionFlags::HEADER, ..messages.origin };
        sink.put(outcome, &origin, || payload.timestamp());
    }
    // As in `take_send`.
    place.pass();
    receive.retire_before(end);
    Some(())
}

/// The same for the CQE of a receive that may have an extension.
const UNUSUAL_OF_RECEIVES: u64 = CqeStatus::from_bits(UNUSUAL).with_extended(false).with_send(true).bits();

/// Takes the next CQE, if it is the success of the oldest receive of its queue, with an extension:
/// an immediate, or what datagrams bring along.
#[inline(always)]
pub(super) fn take_extended<P: Place, D: Directory, S: Sink>(
    place: &mut P,
    directory: &D,
    sink: &mut S,
) -> Option<()> {
    let entry = place.entry();
    let high = entry[VALID_WORD].load_high() ^ place.valid();
    let status = CqeStatus::from_bits(u64::from(high) << 32);
    if status.bits() & UNUSUAL_OF_RECEIVES != 0 || !status.extended() {
        return None;
    }
    barrier::after_valid_bit();
    let (extension, valid) = place.extension();
    let flags = CqeExtensionFlags::from_bits(u64::from(extension[EXTENSION_FLAGS].load_high() ^ valid) << 32);
    if flags.valid() {
        return None;
    }
    barrier::after_valid_bit();
    let member = directory.find(entry[1].load(), Side::Receive)?;
    let receive = &member.queues().receive;
    let messages = &receive.retired.messages;
    if messages.service == Service::Connected && status.key_invalidated() {
        return None;
    }
    let (wr_id, end) = receive.oldest_at(status.wqe_index().into())?;
    let payload = CqePayload::from_bits(entry[0].load());
    let outcome = Outcome {
        wr_id,
        status: Status::Success,
        opcode: messages.opcodes.decode(status.opcode_and_more(), flags.has_immediate()),
        vendor_error: 0,
        length: payload.length(),
    };
    let mut origin = messages.origin;
    if messages.service == Service::Datagram {
        origin.flags = CompletionFlags::HEADER;
        origin.source_queue_pair = CqeIdentity::from_bits(entry[2].load()).source_queue_pair();
    }
    if flags.has_immediate() {
        origin.flags |= CompletionFlags::IMMEDIATE;
        origin.data = (extension[EXTENSION_IMMEDIATE].load() as u32).to_be();
    }
    sink.put(outcome, &origin, || payload.timestamp());
    // As in `take_send`.
    place.pass_extended();
    receive.retire_before(end);
    Some(())
}

/// The same for the CQE of a receive of a shared queue, without an extension.
const UNUSUAL_OF_SHARED: u64 = CqeStatus::from_bits(UNUSUAL).with_shared(false).with_send(true).bits();

/// Takes the next CQE, if it is the success of a receive of a shared queue, without an immediate.
///
/// One of a queue of which nothing is outstanding is consumed, and nothing comes of it.
#[inline(always)]
pub(super) fn take_shared<P: Place, D: Directory, S: Sink>(
    place: &mut P,
    directory: &D,
    sink: &mut S,
) -> Option<()> {
    let entry = place.entry();
    let high = entry[VALID_WORD].load_high() ^ place.valid();
    let status = CqeStatus::from_bits(u64::from(high) << 32);
    if status.bits() & UNUSUAL_OF_SHARED != 0 || !status.shared() {
        return None;
    }
    barrier::after_valid_bit();
    let context = place.second_half()?[EXTENSION_SHARED_CONTEXT].load();
    let member = directory.find(context, Side::Receive)?;
    let shared = member.shared()?;
    let messages = &member.queues().receive.retired.messages;
    let mut origin = messages.origin;
    if messages.service == Service::Datagram {
        origin.flags = CompletionFlags::HEADER;
        origin.source_queue_pair = CqeIdentity::from_bits(entry[2].load()).source_queue_pair();
    } else if status.key_invalidated() {
        return None;
    }
    let payload = CqePayload::from_bits(entry[0].load());
    let outcome = Outcome {
        // Where other CQEs have the context.
        wr_id: entry[1].load(),
        status: Status::Success,
        opcode: messages.opcodes.decode(status.opcode_and_more(), false),
        vendor_error: 0,
        length: payload.length(),
    };
    // As in `take_send`.
    place.pass();
    if !shared.retire_one() {
        return None;
    }
    sink.put(outcome, &origin, || payload.timestamp());
    Some(())
}
