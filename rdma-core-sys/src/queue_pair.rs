//! The `verbs_qp` at the head of a provider's queue pair.
//!
//! `ibv_qp_ex` grew within layout 34 (on x86-64 344 bytes up to rdma-core 43, 352 in 44,
//! 360 since), and libibverbs keeps `comp_mask` right behind it. A provider that
//! serves every release of the layout leaves room for the largest and finds out
//! where the library it runs on looks.

use crate::bindings::{VERBS_QP_EX, ibv_qp, ibv_qp_ex, ibv_qp_to_qp_ex, pthread_mutex_t, verbs_qp};

/// Bytes of a mutex, one of which is in every queue pair: 40 on x86-64, 48 on arm64.
const MUTEX: usize = size_of::<pthread_mutex_t>();

/// Where releases keep `verbs_qp.comp_mask`, in bytes.
const COMP_MASK_OFFSETS: [usize; 3] = [304 + MUTEX, 312 + MUTEX, 320 + MUTEX];

/// Bytes of the largest `verbs_qp`.
const LARGEST: usize = 336 + MUTEX;

/// Room for the `verbs_qp` of every supported release; zeroed by [`Default`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union QueuePairHead {
    /// The plain queue pair.
    pub qp: ibv_qp,
    /// The queue pair with the work request builders.
    pub qp_ex: ibv_qp_ex,
    /// As libibverbs' own calls take it.
    pub verbs: verbs_qp,
    room: [u64; LARGEST / 8],
}

const _: () = assert!(size_of::<QueuePairHead>() == LARGEST && align_of::<QueuePairHead>() == 8);

impl Default for QueuePairHead {
    fn default() -> QueuePairHead {
        QueuePairHead { room: [0; LARGEST / 8] }
    }
}

/// Where the loaded libibverbs looks for `comp_mask`, found by asking it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompMaskOffset(usize);

impl CompMaskOffset {
    /// Asks `ibv_qp_to_qp_ex()` about queue pairs marked at each known place;
    /// `None` if it looks at none of them, so is of no supported layout.
    pub fn probe() -> Option<CompMaskOffset> {
        COMP_MASK_OFFSETS.map(CompMaskOffset).into_iter().find(|&candidate| {
            let mut head = QueuePairHead::default();
            candidate.mark_extended(&mut head);
            // SAFETY: the call reads comp_mask, somewhere in the buffer, and nothing else.
            let extended = unsafe { ibv_qp_to_qp_ex(&raw mut head.qp) };
            !extended.is_null()
        })
    }

    /// Says that the work request builders of `head` are filled.
    ///
    /// For after `ibv_cmd_create_qp*`, which clears the mark.
    pub fn mark_extended(self, head: &mut QueuePairHead) {
        let head: *mut QueuePairHead = head;
        // SAFETY: each offset and four bytes more are within the union, and a multiple of four.
        unsafe { *head.byte_add(self.0).cast::<u32>() |= VERBS_QP_EX };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_agrees_with_the_header_built_against() {
        let declared = CompMaskOffset(core::mem::offset_of!(verbs_qp, comp_mask));
        assert_eq!(CompMaskOffset::probe(), Some(declared));
    }

    #[test]
    fn a_plain_queue_pair_is_not_extended() {
        let mut head = QueuePairHead::default();
        // SAFETY: as in the probe.
        assert!(unsafe { ibv_qp_to_qp_ex(&raw mut head.qp) }.is_null());
    }
}
