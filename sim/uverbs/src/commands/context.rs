//! Alloc-context: the program and its provider introduce themselves.

use zerocopy::IntoBytes;

use crate::abi::driver::{AllocUcontextReq, AllocUcontextResp, context_mask};
use crate::abi::number::{DRIVER_IN, DRIVER_OUT};
use crate::answer::Answer;
use crate::call::Call;
use crate::errno::{EINVAL, EOPNOTSUPP, Result};
use crate::file::Context;
use crate::profile::{COMPLETION_VECTORS, KernelVersion};
use crate::push::BarLayout;
use crate::request::{driver_request, driver_room};
use irdma_engine::spec::Generation;

/// `enum uverbs_attrs_get_context_attr_ids`.
pub mod attribute {
    #![allow(missing_docs, reason = "the kernel's names")]
    pub const NUM_COMP_VECTORS: u16 = 0;
    pub const CORE_SUPPORT: u16 = 1;
}

/// Version of the driver's ABI (`IRDMA_ABI_VER`).
const ABI: u8 = 5;

/// Room for the answer that the legacy GEN1 provider has: up to `rsvd`.
const LEGACY_ROOM: usize = 16;

/// Bytes that the request has at least: up to `rsvd8`.
const LEAST_REQUEST: usize = 8;

/// `IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS`.
const OPTIONAL_MR_ACCESS: u64 = 1;

/// Bytes of the driver's answer that each kernel knows.
const fn answer_length(kernel: KernelVersion) -> usize {
    match kernel {
        // Ends with hw_rev and rsvd2.
        KernelVersion::V6_1 => 64,
        // comp_mask and min_hw_wq_size were added; the rest is reserved.
        KernelVersion::V6_12 | KernelVersion::V7_2 => size_of::<AllocUcontextResp>(),
    }
}

/// `UVERBS_METHOD_GET_CONTEXT`.
pub fn get_context(call: &mut Call) -> Result<Answer> {
    let request = call.request;
    let mut answer = Answer::new();
    answer.offer(request, attribute::NUM_COMP_VECTORS, &COMPLETION_VECTORS.to_le_bytes());
    answer.offer(request, attribute::CORE_SUPPORT, &OPTIONAL_MR_ACCESS.to_le_bytes());
    if call.file.context.is_some() {
        return Err(EINVAL);
    }
    let profile = &call.hardware.profile;
    driver_room(request, LEGACY_ROOM)?;
    let wanted: AllocUcontextReq = driver_request(request, LEAST_REQUEST)?;
    if profile.kernel >= KernelVersion::V7_2 {
        let known = context_mask::USE_RAW_ATTR | context_mask::SUPPORT_WQE_FORMAT_V2;
        request.extensible::<AllocUcontextReq>(DRIVER_IN)?;
        if wanted.comp_mask & !known != 0 {
            return Err(EOPNOTSUPP);
        }
    }
    if !(4..=ABI).contains(&wanted.userspace_ver) {
        return Err(EINVAL);
    }
    if profile.generation >= Generation::Gen3 && wanted.comp_mask & context_mask::SUPPORT_WQE_FORMAT_V2 == 0 {
        return Err(EOPNOTSUPP);
    }
    if profile.legacy.is_some_and(|newest| wanted.userspace_ver > newest) {
        return Err(EINVAL);
    }
    let limits = profile.limits();
    let mut told = AllocUcontextResp::default();
    let raw_attributes = profile.kernel >= KernelVersion::V6_12
        && profile.legacy.is_none()
        && wanted.comp_mask & context_mask::USE_RAW_ATTR != 0;
    let layout = BarLayout::of(profile);
    let mut context = Context { abi: wanted.userspace_ver, raw_attributes, doorbell: layout.doorbell() };
    if profile.legacy.is_some() || request.length(DRIVER_OUT) == LEGACY_ROOM {
        if profile.generation != Generation::Gen1 {
            return Err(EOPNOTSUPP);
        }
        // The old provider maps the doorbell page at offset 0.
        context.doorbell = layout.legacy_doorbell();
        told.max_qps = crate::profile::QP_COUNT;
        told.max_pds = crate::profile::PD_COUNT;
        told.wq_size = limits.work_requests * 2;
        told.kernel_ver = wanted.userspace_ver;
    } else {
        told.kernel_ver = ABI;
        told.feature_flags = limits.features;
        told.db_mmap_key = context.doorbell;
        told.max_hw_wq_frags = limits.fragments;
        told.max_hw_read_sges = limits.read_fragments;
        told.max_hw_inline = limits.inline_bytes;
        told.max_hw_rq_quanta = limits.rq_quanta;
        told.max_hw_wq_quanta = limits.sq_quanta;
        told.min_hw_cq_size = 1;
        told.max_hw_cq_size = limits.cq_entries;
        told.max_hw_sq_chunk = limits.sq_chunk;
        told.hw_rev = limits.hardware_revision;
        if profile.kernel >= KernelVersion::V6_12 {
            told.comp_mask = context_mask::USE_RAW_ATTR | context_mask::MIN_HW_WQ_SIZE;
            told.min_hw_wq_size = limits.smallest_queue;
        }
        if profile.kernel >= KernelVersion::V7_2 {
            told.comp_mask |= context_mask::MAX_HW_SRQ_QUANTA;
            told.max_hw_srq_quanta = limits.srq_quanta;
        }
    }
    let known = told.as_bytes();
    if profile.legacy.is_some() {
        answer.put(request, DRIVER_OUT, &known[..LEGACY_ROOM])?;
    } else if profile.kernel >= KernelVersion::V7_2 {
        answer.fill(request, DRIVER_OUT, known)?;
    } else {
        // Older kernels copy what they know and leave the rest of the room alone.
        answer.put(request, DRIVER_OUT, &known[..answer_length(profile.kernel)])?;
    }
    call.file.context = Some(context);
    Ok(answer)
}
