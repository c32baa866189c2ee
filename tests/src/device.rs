//! What the device under test is, so that a program knows what must work on it.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use crate::control::control;
use crate::runner::skip;

/// `feature_flags` of the kernel's driver.
pub mod feature {
    #![allow(missing_docs, reason = "the kernel's names")]
    pub const RTS_AE: u64 = 1 << 0;
    pub const CQ_RESIZE: u64 = 1 << 1;
    pub const ATOMIC_OPS: u64 = 1 << 6;
    pub const SRQ: u64 = 1 << 7;
    pub const CQE_TIMESTAMPING: u64 = 1 << 8;
}

/// A device.
#[derive(Clone, Debug)]
pub struct Device {
    /// 1, 2 or 3.
    pub generation: u32,
    /// RoCE, not iWARP.
    pub roce: bool,
    /// The newest ABI version of the old i40iw kernel; 0 on others.
    pub legacy: u8,
    /// Bytes of a CQE.
    pub cqe_size: usize,
    /// Bits of [`feature`].
    pub features: u64,
    /// Most elements of a request.
    pub fragments: u32,
    /// Most elements of a read.
    pub read_fragments: u32,
    /// Most bytes inline.
    pub inline: u32,
    /// Requests of the smallest queue's ring.
    pub smallest_queue: u32,
    /// Quanta at the start of a send queue by which the kernel sets up a connection.
    pub connection_requests: u32,
    /// Quanta of the largest send queue.
    pub send_quanta: u32,
    /// Quanta of the largest receive queue.
    pub receive_quanta: u32,
    /// Queue pairs that can have a push page.
    pub push_pages: u32,
    /// Where in the page a queue pair's part is.
    pub push_offset: u32,
}

impl Device {
    /// The one that the program runs on.
    pub fn present() -> &'static Device {
        static PRESENT: OnceLock<Device> = OnceLock::new();
        PRESENT.get_or_init(Device::ask)
    }

    fn ask() -> Device {
        let answer = control("describe");
        let values: BTreeMap<_, _> = answer
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(name, value)| (name, value.trim()))
            .collect();
        let number = |name: &str| -> u64 {
            let value = values.get(name).unwrap_or_else(|| panic!("the device tells its {name}"));
            value.parse().expect("a number")
        };
        Device {
            generation: number("generation") as u32,
            roce: values.get("transport") == Some(&"roce"),
            legacy: number("legacy") as u8,
            cqe_size: number("cqe_size") as usize,
            features: number("features"),
            fragments: number("fragments") as u32,
            read_fragments: number("read_fragments") as u32,
            inline: number("inline_bytes") as u32,
            smallest_queue: number("smallest_queue") as u32,
            connection_requests: match (values.get("transport"), number("features") & feature::RTS_AE != 0) {
                (Some(&"roce"), _) => 0,
                (_, true) => 3,
                (_, false) => 1,
            },
            send_quanta: number("sq_quanta") as u32,
            receive_quanta: number("rq_quanta") as u32,
            push_pages: number("push_pages") as u32,
            push_offset: number("push_offset") as u32,
        }
    }

    /// Whether it has a feature.
    pub fn has(&self, flag: u64) -> bool {
        self.features & flag != 0
    }

    /// Log2 of the quanta of a request with that many elements (an immediate counts as one
    /// from the second generation on) or bytes inline.
    pub fn shift(&self, fragments: u32, inline: u32) -> u32 {
        let smallest =
            if self.generation == 1 { [(1, 16), (3, 48), (4, 48)] } else { [(1, 8), (3, 39), (7, 101)] };
        let fits = |&(most, bytes): &(u32, u32)| fragments <= most && inline <= bytes;
        smallest.iter().position(fits).unwrap_or(3) as u32
    }

    /// Ends the program on iWARP, of which it needs something that only RoCE has.
    pub fn require_roce(&self, what: &str) {
        if !self.roce {
            skip(&format!("iWARP has no {what}"));
        }
    }

    /// Log2 of the quanta of a receive; on the first generation all are of one size, since ABI 5.
    pub fn receive_shift(&self, fragments: u32) -> u32 {
        if self.generation == 1 && self.legacy != 4 { 2 } else { self.shift(fragments, 0) }
    }

    /// Ends the program where completion queues have no extended interface.
    pub fn require_extended_queues(&self) {
        if self.generation == 1 {
            skip("the device has no extended completion queues");
        }
    }

    /// Ends the program where the device lacks a feature.
    pub fn require(&self, flag: u64, name: &str) {
        if !self.has(flag) {
            skip(&format!("the device has no {name}"));
        }
    }
}
