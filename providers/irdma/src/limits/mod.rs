//! How large queues may be, and how large they become.
//!
//! The kernel's driver computes the same sizes from the same numbers
//! (`irdma_uk_calc_depth_shift_sq` and its kin in
//! `drivers/infiniband/hw/irdma/uk.c`), so both sides must agree to the quantum.

mod size;
#[cfg(test)]
mod tests;

use crate::generation::{Gen1, Gen2, Gen3, WqeFormat};

pub use size::{CompletionQueueSize, QueuePairMemory, WorkQueueSize};

bitflags::bitflags! {
    /// What the device can do, as the kernel reports it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Features: u16 {
        /// The device reports its arrival in RTS, with a WQE of the kernel's.
        const RTS_EVENT = 1 << 0;
        /// CQs can be resized.
        const CQ_RESIZE = 1 << 1;
        /// CQEs have 64 bytes.
        const CQE_64_BYTES = 1 << 5;
        /// Atomics.
        const ATOMICS = 1 << 6;
        /// Shared receive queues.
        const SHARED_RECEIVE = 1 << 7;
        /// CQEs carry timestamps.
        const CQE_TIMESTAMPS = 1 << 8;
        // The kernel may know more.
        const _ = !0;
    }

    /// What a QP can do, as the kernel reports it when it creates the QP.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct QueuePairCapabilities: u32 {
        /// RDMA write with immediate.
        const WRITE_WITH_IMMEDIATE = 1 << 0;
        /// Send with immediate.
        const SEND_WITH_IMMEDIATE = 1 << 1;
        /// RoCE, not iWARP.
        const ROCE = 1 << 2;
        /// Push pages.
        const PUSH = 1 << 3;
        const _ = !0;
    }
}

/// Which generation the device is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HardwareGeneration {
    /// X722.
    Gen1,
    /// E810 and its family.
    Gen2,
    /// IPU E2000 and later.
    Gen3,
}

impl HardwareGeneration {
    /// What the [format](WqeFormat::EMPTY_FRAGMENT_COUNTS) of the generation says of empty fragments.
    pub fn empty_fragment_counts(self) -> bool {
        let counts = match self {
            Self::Gen1 => Gen1::EMPTY_FRAGMENT_COUNTS,
            Self::Gen2 => Gen2::EMPTY_FRAGMENT_COUNTS,
            Self::Gen3 => Gen3::EMPTY_FRAGMENT_COUNTS,
        };
        counts == Some(true)
    }
}

/// What the device can do and how much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLimits {
    /// Generation.
    pub generation: HardwareGeneration,
    /// Features.
    pub features: Features,
    /// Version of the driver data that both sides speak.
    pub abi_version: u8,
    /// Fragments of a WQE.
    pub max_fragments: u8,
    /// Fragments of an RDMA read.
    pub max_read_fragments: u8,
    /// Bytes of inline data.
    pub max_inline: u8,
    /// Quanta that a WQE must not cross a multiple of.
    pub send_chunk: u8,
    /// Quanta of the largest send queue.
    pub max_send_quanta: u32,
    /// Quanta of the largest receive queue.
    pub max_receive_quanta: u32,
    /// Quanta of the largest shared receive queue.
    pub max_shared_quanta: u32,
    /// WQEs of the smallest work queue.
    pub min_work_queue: u32,
    /// Slots of the largest completion queue.
    pub max_completion_slots: u32,
}

/// Something that was asked for and has a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// `max_send_wr`.
    SendRequests,
    /// `max_recv_wr`.
    ReceiveRequests,
    /// `max_wr` of a shared receive queue.
    SharedRequests,
    /// `max_send_sge`.
    SendFragments,
    /// `max_recv_sge`.
    ReceiveFragments,
    /// `max_sge` of a shared receive queue.
    SharedFragments,
    /// `max_inline_data`.
    InlineBytes,
    /// `cqe`.
    CompletionEntries,
}

impl Quantity {
    /// Its name in the verbs API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SendRequests => "max_send_wr",
            Self::ReceiveRequests => "max_recv_wr",
            Self::SharedRequests => "max_wr",
            Self::SendFragments => "max_send_sge",
            Self::ReceiveFragments => "max_recv_sge",
            Self::SharedFragments => "max_sge",
            Self::InlineBytes => "max_inline_data",
            Self::CompletionEntries => "cqe",
        }
    }
}

/// More (or less) was asked for than there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitExceeded {
    /// Of what.
    pub quantity: Quantity,
    /// How much was asked for.
    pub asked: u64,
    /// How much there is.
    pub limit: u64,
}

/// Quanta of a send queue that never hold outstanding work: the device may read
/// ahead of the doorbell, into quanta that are kept invalid for it.
pub const SEND_RESERVE: u32 = 258;
/// WQEs of a receive queue that never hold outstanding work.
pub const RECEIVE_RESERVE: u32 = 1;
/// Quanta cleared ahead of the head at a time.
pub const CLEAR_AHEAD: u32 = 128;
/// Log2 of the quanta of every receive WQE on GEN1, unless the ABI is older than 5.
const GEN1_RECEIVE_SHIFT: u32 = 2;
/// Bytes of a page of a completion queue. On GEN3 no queue is of just one.
const PAGE_BYTES: usize = 4096;
/// Slots of the smallest completion queue.
const MIN_COMPLETION_SLOTS: u32 = 4;

impl DeviceLimits {
    /// The limits of a device behind a kernel that does not report any (the
    /// i40iw driver), which knows GEN1 only.
    pub const fn legacy(abi_version: u8) -> Self {
        Self {
            generation: HardwareGeneration::Gen1,
            features: Features::empty(),
            abi_version,
            max_fragments: 3,
            max_read_fragments: 1,
            max_inline: 48,
            send_chunk: 2,
            max_send_quanta: 2048,
            max_receive_quanta: 16384,
            max_shared_quanta: 0,
            min_work_queue: 4,
            max_completion_slots: 1_048_575,
        }
    }

    /// Whether the formats of the generation can express these numbers. Queues
    /// are built on them without a further look.
    ///
    /// # Errors
    /// What is wrong, for a log line.
    pub const fn check(&self) -> Result<(), &'static str> {
        let (fragments, inline, chunk) = match self.generation {
            HardwareGeneration::Gen1 => (4, 48, 2),
            HardwareGeneration::Gen2 | HardwareGeneration::Gen3 => (15, 225, 8),
        };
        if !self.send_chunk.is_power_of_two() || self.send_chunk < chunk || self.send_chunk > 128 {
            return Err("send queue chunk");
        }
        if self.max_fragments == 0 || self.max_fragments > fragments {
            return Err("fragments per work request");
        }
        if self.max_read_fragments > self.max_fragments {
            return Err("fragments per read");
        }
        if self.max_inline > inline {
            return Err("inline bytes");
        }
        // The index in a CQE has 15 bits.
        if self.max_send_quanta > 1 << 15 || self.max_receive_quanta > 1 << 15 {
            return Err("quanta of a work queue");
        }
        if self.max_shared_quanta > 1 << 24 {
            return Err("quanta of a shared receive queue");
        }
        // The sizes of rings must come out as powers of two.
        if !self.min_work_queue.is_power_of_two() || self.min_work_queue > 1 << 12 {
            return Err("size of the smallest work queue");
        }
        if self.max_completion_slots < 8 || self.max_completion_slots > 1 << 20 {
            return Err("size of a completion queue");
        }
        Ok(())
    }

    /// Bytes of a CQE slot.
    pub const fn completion_slot_bytes(&self) -> usize {
        if self.features.contains(Features::CQE_64_BYTES) { 64 } else { 32 }
    }

    /// Size of the send queue for these capabilities.
    ///
    /// # Errors
    /// The first quantity that is too large.
    pub fn send_queue(
        &self,
        max_requests: u32,
        max_fragments: u32,
        max_inline: u32,
    ) -> Result<WorkQueueSize, LimitExceeded> {
        within(Quantity::SendFragments, max_fragments, self.max_fragments.into())?;
        within(Quantity::InlineBytes, max_inline, self.max_inline.into())?;
        // Since GEN2 an immediate may take a fragment's place.
        let shift = match self.generation {
            HardwareGeneration::Gen1 => self.work_shift(max_fragments, max_inline),
            _ => self.work_shift(max_fragments + 1, max_inline),
        };
        self.work_queue(Quantity::SendRequests, max_requests, shift, SEND_RESERVE, self.max_send_quanta)
    }

    /// Size of the receive queue for these capabilities.
    ///
    /// # Errors
    /// The first quantity that is too large.
    pub fn receive_queue(
        &self,
        max_requests: u32,
        max_fragments: u32,
    ) -> Result<WorkQueueSize, LimitExceeded> {
        within(Quantity::ReceiveFragments, max_fragments, self.max_fragments.into())?;
        let shift = if self.generation == HardwareGeneration::Gen1 && self.abi_version > 4 {
            GEN1_RECEIVE_SHIFT
        } else {
            self.work_shift(max_fragments, 0)
        };
        self.work_queue(
            Quantity::ReceiveRequests,
            max_requests,
            shift,
            RECEIVE_RESERVE,
            self.max_receive_quanta,
        )
    }

    /// Size of a shared receive queue.
    ///
    /// # Errors
    /// The first quantity that is too large.
    pub fn shared_receive_queue(
        &self,
        max_requests: u32,
        max_fragments: u32,
    ) -> Result<WorkQueueSize, LimitExceeded> {
        within(Quantity::SharedFragments, max_fragments, self.max_fragments.into())?;
        self.work_queue(
            Quantity::SharedRequests,
            max_requests,
            self.work_shift(max_fragments, 0),
            RECEIVE_RESERVE,
            self.max_shared_quanta,
        )
    }

    /// Fragments that a WQE of a shared receive queue of this size can take.
    pub fn shared_fragments(&self, size: WorkQueueSize) -> u32 {
        u32::from(self.max_fragments).min((2 << size.shift) - 1)
    }

    /// Size of a completion queue that holds `entries` completions.
    ///
    /// # Errors
    /// `entries` is 0 or too large.
    pub fn completion_queue(&self, entries: u32) -> Result<CompletionQueueSize, LimitExceeded> {
        let most = self.max_completion_entries();
        if entries == 0 || entries > most {
            return Err(LimitExceeded {
                quantity: Quantity::CompletionEntries,
                asked: entries.into(),
                limit: most.into(),
            });
        }
        let slots = self.completion_slots(entries);
        Ok(CompletionQueueSize { slots, slot_bytes: self.completion_slot_bytes() })
    }

    /// The largest number of completions that a completion queue can hold.
    pub fn max_completion_entries(&self) -> u32 {
        let most_slots = self.max_completion_slots & !1;
        most_slots / self.slots_per_completion() - self.free_entries()
    }

    /// Slots for `entries` completions. Where an extension is a slot of its own, each
    /// completion may need two.
    fn completion_slots(&self, entries: u32) -> u32 {
        let slots = (entries + self.free_entries()) * self.slots_per_completion();
        let slots = slots.next_multiple_of(2).max(MIN_COMPLETION_SLOTS);
        let is_a_page = slots as usize * self.completion_slot_bytes() == PAGE_BYTES;
        if self.generation == HardwareGeneration::Gen3 && is_a_page { slots + 2 } else { slots }
    }

    /// Entries that stay free: one, and on GEN3 the one at the end of a page that the device
    /// is not told of at once.
    fn free_entries(&self) -> u32 {
        if self.generation == HardwareGeneration::Gen3 { 2 } else { 1 }
    }

    fn slots_per_completion(&self) -> u32 {
        let separate_extension =
            self.generation != HardwareGeneration::Gen1 && !self.features.contains(Features::CQE_64_BYTES);
        if separate_extension { 2 } else { 1 }
    }

    /// Log2 of the quanta of a WQE with that many fragments or inline bytes.
    fn work_shift(&self, fragments: u32, inline: u32) -> u32 {
        match self.generation {
            HardwareGeneration::Gen1 => match (fragments, inline) {
                (0..=1, 0..=16) => 0,
                (0..=3, 0..=48) => 1,
                _ => 2,
            },
            HardwareGeneration::Gen2 | HardwareGeneration::Gen3 => match (fragments, inline) {
                (0..=1, 0..=8) => 0,
                (0..=3, 0..=39) => 1,
                (0..=7, 0..=101) => 2,
                _ => 3,
            },
        }
    }

    fn work_queue(
        &self,
        quantity: Quantity,
        max_requests: u32,
        shift: u32,
        reserve: u32,
        max_quanta: u32,
    ) -> Result<WorkQueueSize, LimitExceeded> {
        let smallest = u64::from(self.min_work_queue) << shift;
        let wanted = (u64::from(max_requests) << shift) + u64::from(reserve);
        let quanta = wanted.next_power_of_two().max(smallest);
        if quanta > u64::from(max_quanta) {
            // The largest power of two is the largest ring.
            let largest = max_quanta.checked_ilog2().map_or(0, |log| 1u32 << log);
            return Err(LimitExceeded {
                quantity,
                asked: max_requests.into(),
                limit: (largest.saturating_sub(reserve) >> shift).into(),
            });
        }
        // Bounded by `max_quanta`.
        let quanta = quanta as u32;
        Ok(WorkQueueSize { quanta, shift, reserve })
    }
}

fn within(quantity: Quantity, asked: u32, limit: u32) -> Result<(), LimitExceeded> {
    if asked > limit {
        return Err(LimitExceeded { quantity, asked: asked.into(), limit: limit.into() });
    }
    Ok(())
}
