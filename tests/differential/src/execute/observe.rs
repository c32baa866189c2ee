//! What a provider leaves in memory: work queues, shadow areas, doorbells.
//!
//! Where the queues are is learnt from the ioctls that tell the kernel of them.

use std::collections::BTreeMap;

use irdma_tests::device::{Device, feature};

use super::hook::{Names, Seen};
use super::layouts;
use super::rings::{ReceiveRing, SendRing};
use super::trace::Trace;

/// Bytes of a page of a ring.
const PAGE: usize = 4096;
/// Nothing has been stored to a doorbell since it was last looked at.
const QUIET: u32 = u32::MAX;
/// Stands for the index of the next completion that a poll has not written.
const UNWRITTEN: u64 = u64::MAX;
/// Byte of the CQs' doorbell in its page; the send queues' is at 0.
const CQ_DOORBELL: usize = 64;

/// A queue pair's rings.
#[derive(Debug)]
struct QueuePair {
    number: u32,
    send: SendRing,
    receive: ReceiveRing,
}

/// A completion queue's shadow area: where it is and the last seen first word and arm word.
#[derive(Debug)]
struct CompletionQueue {
    number: u32,
    shadow: *mut u64,
    seen: [u64; 2],
}

impl CompletionQueue {
    /// What a provider has written to a word.
    fn word(&self, word: usize) -> u64 {
        // SAFETY: the shadow area of a living CQ has eight words, which the provider alone writes.
        unsafe { self.shadow.add(word).read_volatile() }
    }

    /// Puts a word where the provider has put it last, or a mark.
    fn set_word(&self, word: usize, value: u64) {
        // SAFETY: as above; the device, which reads it, is in step mode and does not work now.
        unsafe { self.shadow.add(word).write_volatile(value) }
    }
}

/// A shared receive queue's ring, and its shadow area: the index of the work request that comes next.
#[derive(Debug)]
struct SharedQueue {
    number: u32,
    receive: ReceiveRing,
    shadow: *const u64,
    seen: u64,
}

/// Observes one program.
#[derive(Debug, Default)]
pub struct Observer {
    /// All that was seen.
    pub trace: Trace,
    /// Pages of the send and the receive ring, by address of the registration.
    registrations: BTreeMap<u64, [usize; 2]>,
    qps: BTreeMap<u32, QueuePair>,
    cqs: BTreeMap<u32, CompletionQueue>,
    srqs: BTreeMap<u32, SharedQueue>,
    doorbells: Option<*mut u8>,
    forgotten: Option<Forgotten>,
    /// Of objects.
    pub(super) names: Names,
}

/// What a command that may yet fail takes away.
#[derive(Debug)]
enum Forgotten {
    Qp(u32, QueuePair),
    Cq(u32, CompletionQueue),
    Srq(u32, SharedQueue),
}

impl Observer {
    /// An object is about to be destroyed: its memory is not looked at any more.
    pub(super) fn forget(&mut self, object: u16, handle: u32) {
        self.forgotten = match object {
            layouts::QP => self.qps.remove(&handle).map(|qp| Forgotten::Qp(handle, qp)),
            layouts::CQ => self.cqs.remove(&handle).map(|cq| Forgotten::Cq(handle, cq)),
            layouts::SRQ => self.srqs.remove(&handle).map(|srq| Forgotten::Srq(handle, srq)),
            _ => None,
        };
    }

    /// A call has failed.
    pub(super) fn remember(&mut self, seen: &Seen) {
        match self.forgotten.take() {
            Some(Forgotten::Qp(handle, qp)) if seen.name == "destroy_qp" => drop(self.qps.insert(handle, qp)),
            Some(Forgotten::Cq(handle, cq)) if seen.name == "destroy_cq" => drop(self.cqs.insert(handle, cq)),
            Some(Forgotten::Srq(handle, srq)) if seen.name == "destroy_srq" => {
                drop(self.srqs.insert(handle, srq))
            }
            _ => {}
        }
    }

    /// A call has succeeded.
    pub(super) fn learn(&mut self, seen: &Seen) {
        let handle = seen.get("handle") as u32;
        match seen.name {
            "reg_mr" if matches!(seen.get("reg_type"), 1 | 3) => {
                let pages = ["sq_pages", "rq_pages"].map(|name| seen.get(name) as usize * PAGE);
                self.registrations.insert(seen.get("start"), pages);
            }
            "create_qp" => {
                let rings = seen.get("rings");
                let Some(&[send, receive]) = self.registrations.get(&rings) else { return };
                // A kernel without limits of its own sets up every connection with one request.
                let own = if seen.get("lsmm") == 0 && Device::present().legacy == 0 {
                    0
                } else if Device::present().has(feature::RTS_AE) {
                    3
                } else {
                    1
                };
                // SAFETY: the provider has registered so much memory there, and keeps it until the
                // queue pair is destroyed.
                let (send, receive) = unsafe {
                    (SendRing::new(rings, send, own), ReceiveRing::new(rings + send as u64, receive))
                };
                let number = seen.get("qp_id") as u32;
                self.qps.insert(handle, QueuePair { number, send, receive });
            }
            "create_cq" => {
                let shadow = seen.get("shadow") as *mut u64;
                let number = seen.get("cq_id") as u32;
                self.cqs.insert(handle, CompletionQueue { number, shadow, seen: [0; 2] });
            }
            "create_srq" => {
                let ring = seen.get("ring");
                let Some(&[_, receive]) = self.registrations.get(&ring) else { return };
                // SAFETY: the provider has registered so much memory there, and keeps it until the queue
                // is destroyed.
                let receive = unsafe { ReceiveRing::new(ring, receive) };
                let (number, shadow) = (seen.get("srq_id") as u32, seen.get("shadow") as *const u64);
                self.srqs.insert(handle, SharedQueue { number, receive, shadow, seen: 0 });
            }
            _ => {}
        }
        self.forgotten = None;
    }

    /// The doorbell page of the open device.
    pub fn set_doorbells(&mut self, page: *mut u8) {
        self.doorbells = Some(page);
    }

    /// Marks the indices of the next completions, so that writing one is seen even if it is what was
    /// there before, as in another ring after a resize. The mark is to be taken away before anything
    /// but polling happens.
    pub fn mark_progress(&mut self) {
        for cq in self.cqs.values() {
            cq.set_word(0, UNWRITTEN);
        }
    }

    /// Takes the mark away again, and tells which indices were written.
    pub fn tell_progress(&mut self) {
        let Observer { trace, cqs, .. } = self;
        for cq in cqs.values_mut() {
            let now = cq.word(0);
            if now == UNWRITTEN {
                cq.set_word(0, cq.seen[0]);
            } else {
                cq.seen[0] = now;
                drop(trace.line("shadow").with("cq", cq.number).with("word", 0).hex("value", now));
            }
        }
    }

    /// Tells what has changed since the last look.
    pub fn look(&mut self) {
        let Observer { trace, qps, cqs, srqs, doorbells, .. } = self;
        for qp in qps.values_mut() {
            qp.send.look(trace, qp.number);
            qp.receive.look(trace, "rq", qp.number);
        }
        for srq in srqs.values_mut() {
            srq.receive.look(trace, "srq", srq.number);
            // SAFETY: a living queue's shadow area, which the provider alone writes.
            let now = unsafe { srq.shadow.read_volatile() };
            if now != srq.seen {
                srq.seen = now;
                drop(trace.line("shadow").with("srq", srq.number).with("word", 0).hex("value", now));
            }
        }
        for cq in cqs.values_mut() {
            for (place, word) in [0, 4].into_iter().enumerate() {
                let now = cq.word(word);
                if now != cq.seen[place] {
                    cq.seen[place] = now;
                    drop(trace.line("shadow").with("cq", cq.number).with("word", word).hex("value", now));
                }
            }
        }
        for (name, offset) in [("sq", 0), ("cq", CQ_DOORBELL)] {
            let Some(page) = doorbells else { return };
            // SAFETY: the doorbell page of the open device, aligned; its word is that of no queue when
            // nothing was stored, and the device in step mode does not need to know.
            let value = unsafe {
                let word = page.add(offset).cast::<u32>();
                let value = word.read_volatile();
                word.write_volatile(QUIET);
                value
            };
            if value != QUIET {
                drop(trace.line("doorbell").with("of", name).with("value", value));
            }
        }
    }
}
