//! Layouts of the kernel's ABI, in its own names (include/uapi/rdma).

pub mod core;
pub mod driver;
pub mod number;
