//! The uverbs commands that carry irdma's driver data.
//!
//! One function per command: it puts the driver's request behind the core
//! command, calls libibverbs, and gives back the driver's response. Every byte
//! that goes to the kernel is set, and what the kernel leaves of a response is
//! zero. Commands without driver data are called where they are needed.

use core::ffi::{c_int, c_void};

use rdma_core_sys::bindings::*;
use rdma_core_sys::calls;
use rdma_core_sys::driver_data::*;
use rdma_core_sys::queue_pair::QueuePairHead;

use crate::errno::{Errno, Result};

/// A core command or response and the driver's data behind it.
#[repr(C)]
struct Message<C, D> {
    core: C,
    driver: D,
}

impl<C: Default, D> Message<C, D> {
    /// A zeroed core part, which libibverbs fills, and the driver's.
    fn with(driver: D) -> Message<C, D> {
        // Nothing between the two or behind them: those bytes would not be set.
        const { assert!(size_of::<Message<C, D>>() == size_of::<C>() + size_of::<D>()) };
        Message { core: C::default(), driver }
    }

    /// Bytes of both.
    const LENGTH: usize = size_of::<Message<C, D>>();
}

/// Asserts where the driver data of a command starts.
macro_rules! driver_data_behind {
    ($($core:ty: $bytes:literal,)*) => {
        $(const _: () = assert!(size_of::<$core>() == $bytes);)*
    };
}

driver_data_behind! {
    ibv_get_context: 16, ib_uverbs_get_context_resp: 8,
    ibv_alloc_pd: 16, ib_uverbs_alloc_pd_resp: 4,
    ibv_reg_mr: 48, ib_uverbs_reg_mr_resp: 12,
    ibv_rereg_mr: 56, ib_uverbs_rereg_mr_resp: 8,
    ibv_alloc_mw: 24, ib_uverbs_alloc_mw_resp: 8,
    ibv_create_cq_ex: 56, ib_uverbs_ex_create_cq_resp: 16,
    ibv_resize_cq: 24, ib_uverbs_resize_cq_resp: 8,
    ibv_create_qp: 64, ib_uverbs_create_qp_resp: 32,
    ibv_modify_qp: 120,
    ibv_modify_qp_ex: 144, ib_uverbs_ex_modify_qp_resp: 8,
    ibv_create_srq: 40, ib_uverbs_create_srq_resp: 16,
    ib_uverbs_create_ah_resp: 4,
}

/// Opens the kernel's context.
///
/// # Safety
/// `context` is one that is being opened.
pub unsafe fn alloc_context(
    context: *mut verbs_context,
    request: AllocContextRequest,
) -> Result<AllocContextResponse> {
    type Command = Message<ibv_get_context, AllocContextRequest>;
    type Response = Message<ib_uverbs_get_context_resp, AllocContextResponse>;
    let mut command = Command::with(request);
    let mut response = Response::with(AllocContextResponse::default());
    // SAFETY: the caller's context; lengths are those of the messages.
    Errno::check(unsafe {
        calls::get_context(
            context,
            (&raw mut command).cast(),
            Command::LENGTH,
            (&raw mut response).cast(),
            Response::LENGTH,
        )
    })?;
    Ok(response.driver)
}

/// Allocates a protection domain.
///
/// # Safety
/// `context` is open, `pd` is writable.
pub unsafe fn alloc_pd(context: *mut ibv_context, pd: *mut ibv_pd) -> Result<AllocPdResponse> {
    type Response = Message<ib_uverbs_alloc_pd_resp, AllocPdResponse>;
    let mut command = ibv_alloc_pd::default();
    let mut response = Response::with(AllocPdResponse::default());
    // SAFETY: as the caller promises; lengths are those of the messages.
    Errno::check(unsafe {
        ibv_cmd_alloc_pd(
            context,
            pd,
            &mut command,
            size_of_val(&command),
            (&raw mut response).cast(),
            Response::LENGTH,
        )
    })?;
    Ok(response.driver)
}

/// Registers memory: the program's, or that of a queue as `kind` says.
///
/// # Safety
/// `pd` is alive, `mr` writable, the memory as the caller of the verb says.
pub unsafe fn register_memory(
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    device_address: u64,
    access: c_int,
    mr: *mut verbs_mr,
    kind: RegisterMemoryRequest,
) -> Result<()> {
    type Command = Message<ibv_reg_mr, RegisterMemoryRequest>;
    let mut command = Command::with(kind);
    let mut response = ib_uverbs_reg_mr_resp::default();
    // SAFETY: as the caller promises; lengths are those of the messages.
    Errno::check(unsafe {
        ibv_cmd_reg_mr(
            pd,
            address,
            length,
            device_address,
            access,
            mr,
            (&raw mut command).cast(),
            Command::LENGTH,
            &mut response,
            size_of_val(&response),
        )
    })
}

/// Changes a registration of the program's memory.
///
/// # Safety
/// `mr` is registered; `pd` is alive if `flags` say that it changes.
pub unsafe fn reregister_memory(
    mr: *mut verbs_mr,
    flags: u32,
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    access: c_int,
) -> Result<()> {
    type Command = Message<ibv_rereg_mr, RegisterMemoryRequest>;
    let mut command = Command::with(RegisterMemoryRequest::default());
    let mut response = ib_uverbs_rereg_mr_resp::default();
    // SAFETY: as the caller promises; lengths are those of the messages.
    Errno::check(unsafe {
        ibv_cmd_rereg_mr(
            mr,
            flags,
            address,
            length,
            address.expose_provenance() as u64,
            access,
            pd,
            (&raw mut command).cast(),
            Command::LENGTH,
            &mut response,
            size_of_val(&response),
        )
    })
}

/// Allocates a memory window.
///
/// # Safety
/// `pd` is alive, `mw` writable.
pub unsafe fn alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type, mw: *mut ibv_mw) -> Result<()> {
    let mut command = ibv_alloc_mw::default();
    let mut response = ib_uverbs_alloc_mw_resp::default();
    // SAFETY: as the caller promises; lengths are those of the messages.
    Errno::check(unsafe {
        ibv_cmd_alloc_mw(
            pd,
            kind,
            mw,
            &mut command,
            size_of_val(&command),
            &mut response,
            size_of_val(&response),
        )
    })
}

/// Creates an address handle.
///
/// # Safety
/// `pd` is alive, `ah` writable, `attributes` valid.
pub unsafe fn create_ah(
    pd: *mut ibv_pd,
    ah: *mut ibv_ah,
    attributes: *mut ibv_ah_attr,
) -> Result<CreateAhResponse> {
    type Response = Message<ib_uverbs_create_ah_resp, CreateAhResponse>;
    let mut response = Response::with(CreateAhResponse::default());
    // SAFETY: as the caller promises; the length is that of the message.
    Errno::check(unsafe {
        ibv_cmd_create_ah(pd, ah, attributes, (&raw mut response).cast(), Response::LENGTH)
    })?;
    Ok(response.driver)
}

/// Creates a completion queue.
///
/// # Safety
/// `context` is open, `attributes` valid, `cq` writable; the request's addresses
/// are registered.
pub unsafe fn create_cq(
    context: *mut ibv_context,
    attributes: *const ibv_cq_init_attr_ex,
    cq: *mut verbs_cq,
    flags: u32,
    request: CreateCqRequest,
) -> Result<CreateCqResponse> {
    type Command = Message<ibv_create_cq_ex, CreateCqRequest>;
    type Response = Message<ib_uverbs_ex_create_cq_resp, CreateCqResponse>;
    let mut command = Command::with(request);
    let mut response = Response::with(CreateCqResponse::default());
    // SAFETY: as the caller promises; lengths are those of the messages.
    Errno::check(unsafe {
        calls::create_cq_ex(
            context,
            attributes,
            cq,
            (&raw mut command).cast(),
            Command::LENGTH,
            (&raw mut response).cast(),
            Response::LENGTH,
            flags,
        )
    })?;
    Ok(response.driver)
}

/// Moves a completion queue to another ring of `entries`.
///
/// # Safety
/// `cq` is alive; the request's address is registered.
pub unsafe fn resize_cq(cq: *mut ibv_cq, entries: c_int, request: ResizeCqRequest) -> Result<()> {
    type Command = Message<ibv_resize_cq, ResizeCqRequest>;
    let mut command = Command::with(request);
    let mut response = ib_uverbs_resize_cq_resp::default();
    // SAFETY: as the caller promises; lengths are those of the messages.
    Errno::check(unsafe {
        ibv_cmd_resize_cq(
            cq,
            entries,
            (&raw mut command).cast(),
            Command::LENGTH,
            &mut response,
            size_of_val(&response),
        )
    })
}

/// Creates a shared receive queue. The library writes what was created into `attributes`.
///
/// # Safety
/// `pd` is alive, `srq` writable; the request's addresses are registered.
pub unsafe fn create_srq(
    pd: *mut ibv_pd,
    srq: *mut ibv_srq,
    attributes: &mut ibv_srq_init_attr,
    request: CreateSrqRequest,
) -> Result<CreateSrqResponse> {
    type Command = Message<ibv_create_srq, CreateSrqRequest>;
    type Response = Message<ib_uverbs_create_srq_resp, CreateSrqResponse>;
    let mut command = Command::with(request);
    let mut response = Response::with(CreateSrqResponse::default());
    // SAFETY: as the caller promises; lengths are those of the messages.
    Errno::check(unsafe {
        ibv_cmd_create_srq(
            pd,
            srq,
            attributes,
            (&raw mut command).cast(),
            Command::LENGTH,
            (&raw mut response).cast(),
            Response::LENGTH,
        )
    })?;
    Ok(response.driver)
}

/// Changes a shared receive queue as far as `mask` says.
///
/// # Safety
/// `srq` is alive, `attributes` valid.
pub unsafe fn modify_srq(srq: *mut ibv_srq, attributes: *mut ibv_srq_attr, mask: c_int) -> Result<()> {
    let mut command = ibv_modify_srq::default();
    // SAFETY: as the caller promises; the length is that of the command.
    Errno::check(unsafe { ibv_cmd_modify_srq(srq, attributes, mask, &mut command, size_of_val(&command)) })
}

/// Reads back a shared receive queue.
///
/// # Safety
/// `srq` is alive, `attributes` writable.
pub unsafe fn query_srq(srq: *mut ibv_srq, attributes: *mut ibv_srq_attr) -> Result<()> {
    let mut command = ibv_query_srq::default();
    // SAFETY: as the caller promises; the length is that of the command.
    Errno::check(unsafe { ibv_cmd_query_srq(srq, attributes, &mut command, size_of_val(&command)) })
}

/// Creates a queue pair. The library writes the created capacities into `attributes`.
///
/// # Safety
/// `context` is open, `attributes` valid, `qp` writable; the request's address is
/// registered.
pub unsafe fn create_qp(
    context: *mut ibv_context,
    qp: *mut QueuePairHead,
    attributes: *mut ibv_qp_init_attr_ex,
    request: CreateQpRequest,
) -> Result<CreateQpResponse> {
    type Command = Message<ibv_create_qp, CreateQpRequest>;
    type Response = Message<ib_uverbs_create_qp_resp, CreateQpResponse>;
    let mut command = Command::with(request);
    let mut response = Response::with(CreateQpResponse::default());
    // SAFETY: as the caller promises; lengths are those of the messages.
    Errno::check(unsafe {
        ibv_cmd_create_qp_ex(
            context,
            qp.cast(),
            attributes,
            (&raw mut command).cast(),
            Command::LENGTH,
            (&raw mut response).cast(),
            Response::LENGTH,
        )
    })?;
    Ok(response.driver)
}

/// Changes a queue pair by the plain command, which has no driver data.
///
/// # Safety
/// `qp` is alive, `attributes` valid as far as `mask` says.
pub unsafe fn modify_qp(qp: *mut ibv_qp, attributes: *mut ibv_qp_attr, mask: c_int) -> Result<()> {
    let mut command = ibv_modify_qp::default();
    // SAFETY: as the caller promises; the length is that of the command.
    Errno::check(unsafe { ibv_cmd_modify_qp(qp, attributes, mask, &mut command, size_of_val(&command)) })
}

/// Changes a queue pair by the extended command, with driver data.
///
/// # Safety
/// `qp` is alive, `attributes` valid as far as `mask` says.
pub unsafe fn modify_qp_ex(
    qp: *mut ibv_qp,
    attributes: *mut ibv_qp_attr,
    mask: c_int,
    request: ModifyQpRequest,
) -> Result<ModifyQpResponse> {
    type Command = Message<ibv_modify_qp_ex, ModifyQpRequest>;
    type Response = Message<ib_uverbs_ex_modify_qp_resp, ModifyQpResponse>;
    let mut command = Command::with(request);
    let mut response = Response::with(ModifyQpResponse::default());
    // SAFETY: as the caller promises; lengths are those of the messages.
    Errno::check(unsafe {
        ibv_cmd_modify_qp_ex(
            qp,
            attributes,
            mask,
            (&raw mut command).cast(),
            Command::LENGTH,
            (&raw mut response).cast(),
            Response::LENGTH,
        )
    })?;
    Ok(response.driver)
}

/// Reads back a queue pair.
///
/// # Safety
/// `qp` is alive, the others writable.
pub unsafe fn query_qp(
    qp: *mut ibv_qp,
    attributes: *mut ibv_qp_attr,
    mask: c_int,
    created: *mut ibv_qp_init_attr,
) -> Result<()> {
    let mut command = ibv_query_qp::default();
    // SAFETY: as the caller promises; the length is that of the command.
    Errno::check(unsafe {
        ibv_cmd_query_qp(qp, attributes, mask, created, &mut command, size_of_val(&command))
    })
}

/// Reads the state of a port; fills as much of `attributes` as the library knows.
///
/// # Safety
/// `context` is open, `attributes` writable.
pub unsafe fn query_port(context: *mut ibv_context, port: u8, attributes: *mut ibv_port_attr) -> Result<()> {
    let mut command = ibv_query_port::default();
    // SAFETY: as the caller promises; the length is that of the command.
    Errno::check(unsafe {
        ibv_cmd_query_port(context, port, attributes, &mut command, size_of_val(&command))
    })
}
