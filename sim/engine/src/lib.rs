//! The NIC: queue pairs, completion queues, memory regions, WQE execution and
//! the rules of RoCE, with no idea of who drives it.
//!
//! Two fronts use it: the software device (`irdma-uverbs`, memory reached with
//! `process_vm_readv`) and the virtual machine's PCI device (guest memory).
//! What differs between them is in [`Platform`].

mod ah;
mod arm;
mod connected;
pub mod counters;
mod cq;
mod cqe;
mod datagram;
mod engine;
pub mod event;
mod fast_register;
mod flush;
mod format;
mod mr;
mod mw;
mod payload;
pub mod platform;
pub mod push;
mod qp;
mod random;
mod receive;
mod ring;
mod send;
pub mod spec;
mod srq;
mod table;
mod timer;
mod wire;
mod wqe;

pub use engine::Engine;
pub use platform::{CopyFault, MemoryFault, Platform};
