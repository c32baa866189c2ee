//! The public API as C has it: libibverbs' functions and the static inline ones.

pub use rdma_core_sys::bindings::*;
pub use rdma_core_sys::inline::*;
