//! What the sizes of queues come to in memory.

use crate::format::{PAGE_BYTES, QUANTUM_BYTES, SHADOW_BYTES};

/// Size of a send, receive or shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkQueueSize {
    /// Quanta of the ring; a power of two.
    pub quanta: u32,
    /// Log2 of the quanta that the largest WQE of this queue takes.
    pub shift: u32,
    /// Quanta that never hold outstanding work.
    pub(super) reserve: u32,
}

impl WorkQueueSize {
    /// The ring in WQEs of the largest size, as the kernel counts it.
    pub const fn entries(self) -> u32 {
        self.quanta >> self.shift
    }

    /// Work requests that always fit; what a program is told.
    pub const fn usable_entries(self) -> u32 {
        (self.quanta - self.reserve) >> self.shift
    }

    /// The size that the kernel answered with, in WQEs of the largest size, if a
    /// queue can be built with it in the memory meant for this one.
    pub const fn answered(self, entries: u32) -> Option<Self> {
        if !entries.is_power_of_two() || entries > self.entries() {
            return None;
        }
        let quanta = entries << self.shift;
        // Room for one WQE at least beside the reserve.
        if quanta < self.reserve + (1 << self.shift) {
            return None;
        }
        Some(Self { quanta, ..self })
    }

    /// Bytes of the ring, rounded up to the device's pages.
    pub const fn bytes(self) -> usize {
        page_multiple(self.quanta as usize * QUANTUM_BYTES)
    }

    /// The device's pages of the ring.
    pub const fn pages(self) -> usize {
        self.bytes() / PAGE_BYTES
    }
}

/// Size of a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionQueueSize {
    /// Slots of the ring.
    pub slots: u32,
    /// Bytes of a slot: 32 or 64.
    pub slot_bytes: usize,
}

impl CompletionQueueSize {
    /// Bytes of the ring, rounded up to the device's pages.
    pub const fn bytes(self) -> usize {
        page_multiple(self.slots as usize * self.slot_bytes)
    }

    /// The device's pages of the ring.
    pub const fn pages(self) -> usize {
        self.bytes() / PAGE_BYTES
    }
}

/// Offsets of a QP's parts in its one block of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePairMemory {
    /// First byte of the receive ring; the send ring is at 0.
    pub receive: usize,
    /// First byte of the shadow area.
    pub shadow: usize,
    /// Bytes in all.
    pub bytes: usize,
}

impl QueuePairMemory {
    /// The parts of a QP with these queues.
    pub const fn new(send: WorkQueueSize, receive: WorkQueueSize) -> Self {
        let shadow = send.bytes() + receive.bytes();
        Self { receive: send.bytes(), shadow, bytes: shadow + SHADOW_BYTES }
    }
}

const fn page_multiple(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE_BYTES)
}
