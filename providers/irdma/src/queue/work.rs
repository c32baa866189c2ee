//! What is asked of a queue, and why it may be refused.

use crate::format::SendHeader;
use crate::generation::WqeFormat;

/// A piece of the program's memory. Laid out as `struct ibv_sge`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Sge {
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub length: u32,
    /// The region's local key.
    pub key: u32,
}

impl Sge {
    /// Length in the lower half, key in the upper half: as they lie in memory.
    #[inline(always)]
    pub(super) fn length_and_key(&self) -> u64 {
        const { assert!(core::mem::offset_of!(Sge, key) == core::mem::offset_of!(Sge, length) + 4) };
        // SAFETY: both fields, which follow each other.
        u64::from_le(unsafe { (&raw const self.length).cast::<u64>().read_unaligned() })
    }
}

/// Why a work request was not taken. The queue is as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The request is beyond what the queue or the device can do.
    Invalid,
    /// The queue is full.
    Full,
}

/// What a send WQE is to do, besides the data that it moves.
#[derive(Clone, Copy, Debug, Default)]
pub struct SendRequest {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// The header, as far as it does not follow from the data and the place in the ring: operation,
    /// flags, and in its lower 32 bits the remote key, key to invalidate or address handle.
    pub header: SendHeader,
    /// Word 2: remote address, or a
    /// [`DatagramDestination`](crate::format::DatagramDestination).
    pub remote: u64,
}

/// Operands of an atomic.
#[derive(Clone, Copy, Debug)]
pub struct Atomic {
    /// Value to add, or to put in.
    pub operand: u64,
    /// Value to compare with; 0 for fetch-and-add.
    pub compare: u64,
}

/// A window to bind.
#[derive(Clone, Copy, Debug)]
pub struct Bind {
    /// The window's new key.
    pub window_key: u32,
    /// Key of the region below it.
    pub region_key: u32,
    /// First byte; `None` if addresses count from zero.
    pub address: Option<u64>,
    /// Bytes.
    pub length: u64,
    /// The peer may read.
    pub remote_read: bool,
    /// The peer may write.
    pub remote_write: bool,
    /// The peer may use atomics.
    pub remote_atomic: bool,
    /// A type-1 window.
    pub type_1: bool,
}

/// Total bytes of a list, if each piece and all together can be expressed.
#[inline(always)]
pub(super) fn total_length<G: WqeFormat>(list: &[Sge]) -> Option<u32> {
    let (total, lengths) = list
        .iter()
        .fold((0, 0), |(total, lengths), sge| (total + u64::from(sge.length), lengths | sge.length));
    // The longest fragment is a power of two less one, so all are short enough
    // exactly if their disjunction is.
    if lengths > G::MAX_FRAGMENT_BYTES {
        return None;
    }
    u32::try_from(total).ok()
}

/// Whether each piece of a list of a receive can be expressed. All together may be longer than any
/// message is.
#[inline(always)]
pub(super) fn are_expressible<G: WqeFormat>(list: &[Sge]) -> bool {
    // As in `total_length`.
    list.iter().fold(0, |lengths, sge| lengths | sge.length) <= G::MAX_FRAGMENT_BYTES
}
