//! What the device and its kernel are: generation, transport, kernel version and the numbers that follow from them.

use irdma_engine::push::WINDOW_BYTES;
use irdma_engine::spec::{Generation, Gid};

use crate::identity;

/// Wire protocol of the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// RoCEv2: RC and UD.
    Roce,
    /// iWARP: RC only.
    Iwarp,
}

/// The kernel whose behaviour towards programs is reproduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KernelVersion {
    /// Debian 12: no raw attributes, context answer of 64 bytes.
    V6_1,
    /// Long-term 6.12: raw attributes, smallest queue reported.
    V6_12,
    /// 7.2: GEN3, shared receive queues, strict context request.
    V7_2,
}

/// Everything that is decided when a device is started.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Hardware generation.
    pub generation: Generation,
    /// Wire protocol.
    pub transport: Transport,
    /// Kernel behaviour.
    pub kernel: KernelVersion,
    /// Flags of [`feature`] that the device does not offer, though its generation has them.
    pub withheld: u64,
    /// The kernel is i40iw, which knows only X722 and reports no limits; the newest ABI version it speaks.
    pub legacy: Option<u8>,
    /// GID table of the port, in order.
    pub gids: Vec<Gid>,
    /// Bytes per OS page of the programs.
    pub page_size: u64,
    /// Push pages that queue pairs can have; kernels of today give out none.
    pub push_pages: u32,
    /// Byte of a push page, and of its doorbell page, that is a queue pair's: 0 on kernels of today.
    pub push_offset: u16,
    /// Seed of what the device chooses at random.
    pub seed: u64,
}

/// `feature_flags` of the alloc-context answer (kernel: `IRDMA_FEATURE_*` in hw/irdma/user.h).
pub mod feature {
    /// The device tells when an iWARP connection is ready to send.
    pub const RTS_AE: u64 = 1 << 0;
    /// CQs can be resized; their shadow area is a registration of its own.
    pub const CQ_RESIZE: u64 = 1 << 1;
    /// CQEs have 64 bytes.
    pub const CQE_64_BYTE: u64 = 1 << 5;
    /// Atomic operations.
    pub const ATOMIC_OPS: u64 = 1 << 6;
    /// Shared receive queues.
    pub const SRQ: u64 = 1 << 7;
    /// Time stamps in CQEs.
    pub const CQE_TIMESTAMPING: u64 = 1 << 8;
}

/// Limits of a generation (kernel: i40iw_hw.c, icrdma_hw.c, ig3rdma_hw.c).
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// `hw_rev`.
    pub hardware_revision: u8,
    /// `IRDMA_FEATURE_*`.
    pub features: u64,
    /// Fragments per WQE.
    pub fragments: u32,
    /// Fragments per RDMA read.
    pub read_fragments: u32,
    /// Bytes of inline data.
    pub inline_bytes: u32,
    /// Quanta of a send queue.
    pub sq_quanta: u32,
    /// Quanta of a receive queue.
    pub rq_quanta: u32,
    /// Quanta of a shared receive queue.
    pub srq_quanta: u32,
    /// Quanta that a WQE never straddles.
    pub sq_chunk: u16,
    /// Smallest queue, in WQEs.
    pub smallest_queue: u16,
    /// CQEs per CQ.
    pub cq_entries: u32,
    /// Work requests per QP, as query_device reports it.
    pub work_requests: u32,
    /// Reads and atomics accepted.
    pub inbound_reads: u32,
    /// Reads and atomics outstanding.
    pub outbound_reads: u32,
    /// Bytes per message.
    pub message_bytes: u32,
    /// Page sizes of memory regions.
    pub page_sizes: u64,
}

/// Bytes of the largest memory region (`IRDMA_MAX_MR_SIZE`).
pub const LARGEST_REGION: u64 = 0x2000_0000_0000;

/// Most protection domains.
pub const PD_COUNT: u32 = 262_141;
/// Most memory regions and windows together.
pub const MR_COUNT: u32 = 262_143;
/// Most completion queues.
pub const CQ_COUNT: u32 = 131_069;
/// Most queue pairs.
pub const QP_COUNT: u32 = 65_533;
/// Most shared receive queues.
pub const SRQ_COUNT: u32 = 32_768;
/// Most address handles.
pub const AH_COUNT: u32 = 65_536;
/// Most multicast groups.
pub const MULTICAST_GROUP_COUNT: u32 = 8192;
/// Most QPs in a multicast group (`IRDMA_MAX_MGS_PER_CTX`).
pub const QPS_PER_MULTICAST_GROUP: u32 = 8;
/// Most push pages (`IRDMA_MAX_PUSH_PAGE_COUNT`).
pub const MOST_PUSH_PAGES: u32 = 1024;
/// Interrupt vectors for completions.
pub const COMPLETION_VECTORS: u32 = 4;

/// Quanta of the send queue that are never used (`IRDMA_SQ_RSVD`).
const SQ_RESERVED: u64 = 258;
/// Quanta of a receive queue that are never used (`IRDMA_RQ_RSVD`).
const RQ_RESERVED: u64 = 1;

/// Size of a work queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSize {
    /// Quanta of 32 bytes.
    pub quanta: u32,
    /// A work request takes `1 << shift` quanta at most.
    pub shift: u8,
    /// Work requests that can be outstanding.
    pub work_requests: u32,
}

impl QueueSize {
    /// Size in WQEs, as `actual_sq_size` and `actual_rq_size` report it.
    pub fn entries(&self) -> u32 {
        self.quanta >> self.shift
    }
}

impl Default for Profile {
    fn default() -> Self {
        Profile {
            generation: Generation::Gen2,
            transport: Transport::Roce,
            kernel: KernelVersion::V7_2,
            withheld: 0,
            legacy: None,
            gids: identity::gids(Generation::Gen2).to_vec(),
            // SAFETY: sysconf has no preconditions.
            page_size: unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64,
            push_pages: 0,
            push_offset: 0,
            seed: 1,
        }
    }
}

impl Profile {
    /// Says what is wrong with a combination that no kernel and card offer.
    pub fn check(&self) -> Result<(), String> {
        match self.generation {
            Generation::Gen1 if self.transport == Transport::Roce => {
                Err("GEN1 (X722) speaks iWARP only: use --transport iwarp".into())
            }
            Generation::Gen3 if self.transport == Transport::Iwarp => {
                Err("GEN3 speaks RoCE only: use --transport roce".into())
            }
            Generation::Gen3 if self.kernel < KernelVersion::V7_2 => {
                Err("GEN3 needs kernel 7.2: older ones do not know it".into())
            }
            Generation::Gen2 | Generation::Gen3 if self.legacy.is_some() => {
                Err("the legacy kernel knows GEN1 only: use --gen 1".into())
            }
            Generation::Gen3 if self.has(feature::SRQ) && !self.has(feature::CQE_64_BYTE) => {
                Err("completions of shared receive queues need 64 bytes: use --without srq too".into())
            }
            Generation::Gen1 if self.push_pages > 0 => Err("GEN1 has no push pages".into()),
            _ if self.push_pages > MOST_PUSH_PAGES => {
                Err(format!("a device has at most {MOST_PUSH_PAGES} push pages"))
            }
            _ if !self.push_offset.is_multiple_of(WINDOW_BYTES as u16)
                || u64::from(self.push_offset) + WINDOW_BYTES as u64 > self.page_size =>
            {
                Err(format!(
                    "an offset in a push page is a multiple of {WINDOW_BYTES} and leaves as many bytes"
                ))
            }
            _ if self.gids.is_empty() || self.gids.len() > self.gid_table_length() as usize => {
                Err(format!("a port has 1 to {} GIDs, not {}", self.gid_table_length(), self.gids.len()))
            }
            _ => Ok(()),
        }
    }

    /// Whether a feature flag is offered.
    pub fn has(&self, flag: u64) -> bool {
        self.limits().features & flag != 0
    }

    /// The numbers of this device.
    pub fn limits(&self) -> Limits {
        let limits = self.generation_limits();
        Limits { features: limits.features & !self.withheld, ..limits }
    }

    /// The numbers of its generation.
    fn generation_limits(&self) -> Limits {
        const KIB_4: u64 = 4 << 10;
        const MIB_2: u64 = 2 << 20;
        const GIB_1: u64 = 1 << 30;
        match self.generation {
            Generation::Gen1 => Limits {
                hardware_revision: 1,
                features: 0,
                fragments: 3,
                read_fragments: 1,
                inline_bytes: 48,
                sq_quanta: 2048,
                rq_quanta: 16384,
                srq_quanta: 0,
                sq_chunk: 2,
                smallest_queue: 4,
                cq_entries: 1_048_575,
                work_requests: (2048 - SQ_RESERVED as u32) / 2,
                inbound_reads: 63,
                outbound_reads: 127,
                message_bytes: 0x7fff_ffff,
                page_sizes: KIB_4 | MIB_2,
            },
            Generation::Gen2 => Limits {
                hardware_revision: 2,
                features: feature::RTS_AE | feature::CQ_RESIZE,
                fragments: 13,
                read_fragments: 13,
                inline_bytes: 101,
                sq_quanta: 32768,
                rq_quanta: 32768,
                srq_quanta: 0,
                sq_chunk: 8,
                smallest_queue: 8,
                cq_entries: 1_048_575,
                work_requests: (32768 - SQ_RESERVED as u32) / 8,
                inbound_reads: 127,
                outbound_reads: 255,
                message_bytes: 0x7fff_ffff,
                page_sizes: KIB_4 | MIB_2 | GIB_1,
            },
            Generation::Gen3 => Limits {
                hardware_revision: 3,
                features: feature::RTS_AE
                    | feature::CQ_RESIZE
                    | feature::CQE_64_BYTE
                    | feature::ATOMIC_OPS
                    | feature::SRQ
                    | feature::CQE_TIMESTAMPING,
                fragments: 14,
                read_fragments: 14,
                inline_bytes: 216,
                sq_quanta: 32768,
                rq_quanta: 32768,
                srq_quanta: 262_144,
                sq_chunk: 8,
                smallest_queue: 16,
                cq_entries: 1_048_575,
                work_requests: (32768 - SQ_RESERVED as u32) / 8,
                inbound_reads: 64,
                outbound_reads: 64,
                message_bytes: 0x7fff_ffff,
                page_sizes: KIB_4 | MIB_2 | GIB_1,
            },
        }
    }

    /// Entries that the GID table has room for (kernel: `irdma_query_port`).
    pub fn gid_table_length(&self) -> u32 {
        match self.transport {
            Transport::Roce => 32,
            Transport::Iwarp => 1,
        }
    }

    /// Bytes of a CQE slot.
    pub fn cqe_size(&self) -> usize {
        if self.has(feature::CQE_64_BYTE) { 64 } else { 32 }
    }

    /// Size class of a WQE for `fragments` fragments and `inline` inline bytes
    /// (kernel: `irdma_get_wqe_shift`).
    fn wqe_shift(&self, fragments: u32, inline: u32) -> u8 {
        if self.generation == Generation::Gen1 {
            match () {
                () if fragments <= 1 && inline <= 16 => 0,
                () if fragments < 4 && inline <= 48 => 1,
                () => 2,
            }
        } else {
            match () {
                () if fragments <= 1 && inline <= 8 => 0,
                () if fragments < 4 && inline <= 39 => 1,
                () if fragments < 8 && inline <= 101 => 2,
                () => 3,
            }
        }
    }

    /// Size class of a send WQE; from GEN2 on an immediate takes a fragment's place.
    pub fn sq_shift(&self, fragments: u32, inline: u32) -> u8 {
        let immediate = u32::from(self.generation != Generation::Gen1);
        self.wqe_shift(fragments.saturating_add(immediate), inline)
    }

    /// Size class of a receive WQE for a program of that ABI version.
    pub fn rq_shift(&self, fragments: u32, abi: u8) -> u8 {
        if self.generation == Generation::Gen1 && abi > 4 { 2 } else { self.wqe_shift(fragments, 0) }
    }

    /// Size of a queue for that many work requests; `None` if the hardware has none as large.
    fn queue_size(&self, work_requests: u32, shift: u8, reserved: u64, largest: u32) -> Option<QueueSize> {
        let smallest = u64::from(self.limits().smallest_queue) << shift;
        let wanted = ((u64::from(work_requests) << shift) + reserved).next_power_of_two();
        // As in the kernel, only a queue above the minimum is held against the maximum.
        let quanta = if wanted < smallest { smallest } else { wanted };
        if wanted >= smallest && quanta > u64::from(largest) {
            return None;
        }
        let quanta = u32::try_from(quanta).ok()?;
        let usable = u64::from(quanta).saturating_sub(reserved);
        Some(QueueSize { quanta, shift, work_requests: (usable >> shift) as u32 })
    }

    /// Size of a send queue.
    pub fn sq_size(&self, work_requests: u32, shift: u8) -> Option<QueueSize> {
        self.queue_size(work_requests, shift, SQ_RESERVED, self.limits().sq_quanta)
    }

    /// Size of a receive queue.
    pub fn rq_size(&self, work_requests: u32, shift: u8) -> Option<QueueSize> {
        self.queue_size(work_requests, shift, RQ_RESERVED, self.limits().rq_quanta)
    }

    /// Size of a shared receive queue.
    pub fn srq_size(&self, work_requests: u32, fragments: u32) -> Option<QueueSize> {
        let shift = self.wqe_shift(fragments, 0);
        self.queue_size(work_requests, shift, RQ_RESERVED, self.limits().srq_quanta)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(generation: Generation) -> Profile {
        Profile { generation, ..Profile::default() }
    }

    #[test]
    fn send_queue_of_an_ordinary_program() {
        let gen2 = profile(Generation::Gen2);
        assert_eq!(gen2.sq_shift(1, 0), 1);
        assert_eq!(gen2.sq_size(128, 1), Some(QueueSize { quanta: 1024, shift: 1, work_requests: 383 }));
    }

    #[test]
    fn small_receive_queue_is_raised_to_the_minimum() {
        let gen2 = profile(Generation::Gen2);
        assert_eq!(gen2.rq_size(1, 0), Some(QueueSize { quanta: 8, shift: 0, work_requests: 7 }));
        let gen3 = profile(Generation::Gen3);
        assert_eq!(gen3.rq_size(4, 3).unwrap().quanta, 128);
    }

    #[test]
    fn queues_end_at_the_hardware_limit() {
        let gen2 = profile(Generation::Gen2);
        assert!(gen2.sq_size(32510, 0).is_some());
        assert!(gen2.sq_size(32511, 0).is_none());
        assert!(gen2.sq_size(u32::MAX, 3).is_none());
    }

    #[test]
    fn gen1_receive_wqes_are_of_one_size() {
        let gen1 = profile(Generation::Gen1);
        assert_eq!(gen1.rq_shift(1, 5), 2);
        assert_eq!(gen1.rq_shift(1, 4), 0);
    }

    #[test]
    fn impossible_devices_are_refused() {
        assert!(profile(Generation::Gen1).check().is_err());
        let old =
            Profile { generation: Generation::Gen3, kernel: KernelVersion::V6_12, ..Profile::default() };
        assert!(old.check().is_err());
        assert!(Profile::default().check().is_ok());
    }
}
