//! irdma's driver data in each uverbs command, as linux/include/uapi/rdma/irdma-abi.h
//! has it (kernel 7.2).
//!
//! Requests and responses are of plain integers, little-endian, without padding.

use core::mem::offset_of;

/// ABI version spoken with irdma, and tried first with everyone.
pub const ABI_VERSION: u8 = 5;
/// ABI version of the oldest i40iw kernels.
pub const ABI_VERSION_OLDEST: u8 = 4;

/// `comp_mask` of [`AllocContextRequest`] and [`AllocContextResponse`]: sizes are raw, as the program gave them.
pub const USE_RAW_ATTR: u64 = 1 << 0;
/// `comp_mask` of [`AllocContextResponse`]: `min_hw_wq_size` is valid.
pub const MIN_HW_WQ_SIZE: u64 = 1 << 1;
/// `comp_mask` of [`AllocContextResponse`]: `max_hw_srq_quanta` is valid.
pub const MAX_HW_SRQ_QUANTA: u64 = 1 << 2;
/// `comp_mask` of [`AllocContextRequest`]: 32 and 64 byte formats of GEN3 are understood.
pub const SUPPORT_WQE_FORMAT_V2: u64 = 1 << 3;

/// `reg_type` of [`RegisterMemoryRequest`]: the program's memory.
pub const MEMORY_REGION: u16 = 0;
/// `reg_type`: send queue, receive queue and shadow area of a QP.
pub const QUEUE_PAIR: u16 = 1;
/// `reg_type`: ring or shadow area of a CQ.
pub const COMPLETION_QUEUE: u16 = 2;
/// `reg_type`: ring and shadow area of an SRQ.
pub const SHARED_RECEIVE_QUEUE: u16 = 3;

/// Declares one driver data struct and checks its layout where it is compiled.
macro_rules! driver_data {
    ($(#[$attribute:meta])* $name:ident: $size:literal {
        $($(#[$field_attribute:meta])* $offset:literal $field:ident: $type:ty,)*
    }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(C)]
        pub struct $name {
            $($(#[$field_attribute])* pub $field: $type,)*
        }

        const _: () = {
            assert!(size_of::<$name>() == $size);
            $(assert!(offset_of!($name, $field) == $offset);)*
            // No padding, so every byte that goes to the kernel is one that was set.
            assert!(0 $(+ size_of::<$type>())* == $size);
        };
    };
}

driver_data! {
    /// GET_CONTEXT, request.
    AllocContextRequest: 16 {
        /// Zero.
        0 rsvd32: u32,
        /// [`ABI_VERSION`] or [`ABI_VERSION_OLDEST`].
        4 userspace_ver: u8,
        /// Zero.
        5 rsvd8: [u8; 3],
        /// [`USE_RAW_ATTR`], [`SUPPORT_WQE_FORMAT_V2`].
        8 comp_mask: u64,
    }
}

driver_data! {
    /// GET_CONTEXT, response. Older kernels fill less of it: what is left stays zero.
    AllocContextResponse: 80 {
        /// Protection domains.
        0 max_pds: u32,
        /// Queue pairs.
        4 max_qps: u32,
        /// Size of the work queues in the mapped area (legacy).
        8 wq_size: u32,
        /// ABI version of the kernel.
        12 kernel_ver: u8,
        /// Zero.
        13 rsvd: [u8; 3],
        /// Feature flags.
        16 feature_flags: u64,
        /// mmap offset of the doorbell page.
        24 db_mmap_key: u64,
        /// Fragments per WQE.
        32 max_hw_wq_frags: u32,
        /// SGEs of an RDMA read.
        36 max_hw_read_sges: u32,
        /// Inline bytes per WQE.
        40 max_hw_inline: u32,
        /// Quanta of a receive queue.
        44 max_hw_rq_quanta: u32,
        /// Quanta of a send queue.
        48 max_hw_wq_quanta: u32,
        /// Entries of the smallest CQ.
        52 min_hw_cq_size: u32,
        /// Entries of the largest CQ.
        56 max_hw_cq_size: u32,
        /// Quanta that a WQE must not cross a multiple of.
        60 max_hw_sq_chunk: u16,
        /// Hardware revision; 0 from i40iw.
        62 hw_rev: u8,
        /// Zero.
        63 rsvd2: u8,
        /// [`USE_RAW_ATTR`], [`MIN_HW_WQ_SIZE`], [`MAX_HW_SRQ_QUANTA`].
        64 comp_mask: u64,
        /// WQEs of the smallest work queue.
        72 min_hw_wq_size: u16,
        /// Zero.
        74 rsvd3: [u8; 2],
        /// Quanta of a shared receive queue.
        76 max_hw_srq_quanta: u32,
    }
}

driver_data! {
    /// ALLOC_PD, response.
    AllocPdResponse: 8 {
        /// Number of the protection domain.
        0 pd_id: u32,
        /// Zero.
        4 rsvd: [u8; 4],
    }
}

driver_data! {
    /// REG_MR and REREG_MR, request. Pages are of 4096 bytes, shadow areas not counted.
    RegisterMemoryRequest: 8 {
        /// [`MEMORY_REGION`], [`QUEUE_PAIR`], [`COMPLETION_QUEUE`] or [`SHARED_RECEIVE_QUEUE`].
        0 reg_type: u16,
        /// Pages of the CQ ring.
        2 cq_pages: u16,
        /// Pages of the receive ring.
        4 rq_pages: u16,
        /// Pages of the send ring.
        6 sq_pages: u16,
    }
}

driver_data! {
    /// CREATE_CQ, request.
    CreateCqRequest: 16 {
        /// Address of the ring.
        0 user_cq_buf: u64,
        /// Address of the shadow area; 0 if it follows the ring.
        8 user_shadow_area: u64,
    }
}

driver_data! {
    /// CREATE_CQ, response.
    CreateCqResponse: 8 {
        /// Number of the CQ, as its doorbell takes it.
        0 cq_id: u32,
        /// Entries.
        4 cq_size: u32,
    }
}

driver_data! {
    /// RESIZE_CQ, request.
    ResizeCqRequest: 8 {
        /// Address of the new ring.
        0 user_cq_buffer: u64,
    }
}

driver_data! {
    /// CREATE_SRQ, request.
    CreateSrqRequest: 16 {
        /// Address of the ring.
        0 user_srq_buf: u64,
        /// Address of the shadow area.
        8 user_shadow_area: u64,
    }
}

driver_data! {
    /// CREATE_SRQ, response.
    CreateSrqResponse: 8 {
        /// Number of the SRQ.
        0 srq_id: u32,
        /// WQEs.
        4 srq_size: u32,
    }
}

driver_data! {
    /// CREATE_QP, request.
    CreateQpRequest: 16 {
        /// Address of the rings.
        0 user_wqe_bufs: u64,
        /// Comes back in the completions.
        8 user_compl_ctx: u64,
    }
}

driver_data! {
    /// CREATE_QP, response.
    CreateQpResponse: 24 {
        /// Number of the QP.
        0 qp_id: u32,
        /// WQEs of the send queue.
        4 actual_sq_size: u32,
        /// WQEs of the receive queue.
        8 actual_rq_size: u32,
        /// Options of the driver.
        12 irdma_drv_opt: u32,
        /// Push page.
        16 push_idx: u16,
        /// The kernel sends the first message (iWARP).
        18 lsmm: u8,
        /// Zero.
        19 rsvd: u8,
        /// QP capability flags.
        20 qp_caps: u32,
    }
}

driver_data! {
    /// EX_MODIFY_QP, request.
    ModifyQpRequest: 8 {
        /// Flush the send queue.
        0 sq_flush: u8,
        /// Flush the receive queue.
        1 rq_flush: u8,
        /// Zero.
        2 rsvd: [u8; 6],
    }
}

driver_data! {
    /// EX_MODIFY_QP, response.
    ModifyQpResponse: 24 {
        /// mmap offset of the push page for WQEs.
        0 push_wqe_mmap_key: u64,
        /// mmap offset of the page of its doorbell.
        8 push_db_mmap_key: u64,
        /// Byte within both pages.
        16 push_offset: u16,
        /// The three above are valid.
        18 push_valid: u8,
        /// Zero.
        19 rsvd: [u8; 5],
    }
}

driver_data! {
    /// CREATE_AH, response.
    CreateAhResponse: 8 {
        /// Number of the address handle, as a UD send takes it.
        0 ah_id: u32,
        /// Zero.
        4 rsvd: [u8; 4],
    }
}
