//! irdma's driver data (irdma-abi.h), field by field as the kernel names them.
#![allow(missing_docs, reason = "the kernel's names; their meaning is where they are filled and read")]

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// `comp_mask` of the context request and answer.
pub mod context_mask {
    #![allow(missing_docs, reason = "the kernel's names")]
    pub const USE_RAW_ATTR: u64 = 1;
    pub const MIN_HW_WQ_SIZE: u64 = 2;
    pub const MAX_HW_SRQ_QUANTA: u64 = 4;
    pub const SUPPORT_WQE_FORMAT_V2: u64 = 8;
}

/// `enum irdma_memreg_type`.
pub mod memory_type {
    #![allow(missing_docs, reason = "the kernel's names")]
    pub const MEM: u16 = 0;
    pub const QP: u16 = 1;
    pub const CQ: u16 = 2;
    pub const SRQ: u16 = 3;
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
pub struct AllocUcontextReq {
    pub rsvd32: u32,
    pub userspace_ver: u8,
    pub rsvd8: [u8; 3],
    pub comp_mask: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
pub struct AllocUcontextResp {
    pub max_pds: u32,
    pub max_qps: u32,
    pub wq_size: u32,
    pub kernel_ver: u8,
    pub rsvd: [u8; 3],
    pub feature_flags: u64,
    pub db_mmap_key: u64,
    pub max_hw_wq_frags: u32,
    pub max_hw_read_sges: u32,
    pub max_hw_inline: u32,
    pub max_hw_rq_quanta: u32,
    pub max_hw_wq_quanta: u32,
    pub min_hw_cq_size: u32,
    pub max_hw_cq_size: u32,
    pub max_hw_sq_chunk: u16,
    pub hw_rev: u8,
    pub rsvd2: u8,
    pub comp_mask: u64,
    pub min_hw_wq_size: u16,
    pub rsvd3: [u8; 2],
    pub max_hw_srq_quanta: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
pub struct AllocPdResp {
    pub pd_id: u32,
    pub rsvd: [u8; 4],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
pub struct MemRegReq {
    pub reg_type: u16,
    pub cq_pages: u16,
    pub rq_pages: u16,
    pub sq_pages: u16,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
pub struct CreateCqReq {
    pub user_cq_buf: u64,
    pub user_shadow_area: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
pub struct CreateCqResp {
    pub cq_id: u32,
    pub cq_size: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
pub struct ResizeCqReq {
    pub user_cq_buffer: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
pub struct CreateSrqReq {
    pub user_srq_buf: u64,
    pub user_shadow_area: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
pub struct CreateSrqResp {
    pub srq_id: u32,
    pub srq_size: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
pub struct CreateQpReq {
    pub user_wqe_bufs: u64,
    pub user_compl_ctx: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
pub struct CreateQpResp {
    pub qp_id: u32,
    pub actual_sq_size: u32,
    pub actual_rq_size: u32,
    pub irdma_drv_opt: u32,
    pub push_idx: u16,
    pub lsmm: u8,
    pub rsvd: u8,
    pub qp_caps: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
pub struct ModifyQpReq {
    pub sq_flush: u8,
    pub rq_flush: u8,
    pub rsvd: [u8; 6],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
pub struct ModifyQpResp {
    pub push_wqe_mmap_key: u64,
    pub push_db_mmap_key: u64,
    pub push_offset: u16,
    pub push_valid: u8,
    pub rsvd: [u8; 5],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
pub struct CreateAhResp {
    pub ah_id: u32,
    pub rsvd: [u8; 4],
}

/// `qp_caps` of the create-QP answer.
pub mod qp_caps {
    #![allow(missing_docs, reason = "the kernel's names")]
    pub const WRITE_WITH_IMM: u32 = 1;
    pub const SEND_WITH_IMM: u32 = 2;
    pub const ROCE: u32 = 4;
    pub const PUSH_MODE: u32 = 8;
}

const _: () = {
    assert!(size_of::<AllocUcontextReq>() == 16);
    assert!(size_of::<AllocUcontextResp>() == 80);
    assert!(size_of::<MemRegReq>() == 8);
    assert!(size_of::<CreateQpResp>() == 24);
    assert!(size_of::<ModifyQpResp>() == 24);
};
