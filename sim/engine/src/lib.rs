//! The NIC: queue pairs, completion queues, memory regions, WQE execution and
//! the rules of RoCE, with no idea of who drives it.
//!
//! Two fronts use it: the software device (`irdma-uverbs`, memory reached with
//! `process_vm_readv`) and the virtual machine's PCI device (guest memory).
//! What differs between them is in [`Platform`].

mod ah;
mod arm;
mod cq;
mod cqe;
mod engine;
pub mod event;
mod format;
mod mr;
mod mw;
pub mod platform;
mod qp;
mod random;
mod ring;
mod send;
pub mod spec;
mod srq;
mod table;
mod timer;

pub use engine::Engine;
pub use platform::{CopyFault, MemoryFault, Platform};
