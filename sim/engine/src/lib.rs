//! The NIC: queue pairs, completion queues, memory regions, WQE execution and
//! the rules of RoCE, with no idea of who drives it.
//!
//! Two fronts use it: the software device (`irdma-uverbs`, memory reached with
//! `process_vm_readv`) and the virtual machine's PCI device (guest memory).
//! What differs between them is in [`Platform`].

pub mod event;
pub mod platform;
pub mod spec;

pub use platform::{MemoryFault, Platform};
