//! The kernel's connection manager, as programs meet it in `/dev/infiniband/rdma_cm`.
//!
//! [`Manager`] is driven by the device process: it opens nodes, hands over what
//! programs write to them, and lets time pass. Both ends of every connection live
//! here, so that a message of the connection protocol is a call that reaches the
//! other end at once. What moves queue pairs (iWARP) is asked of a [`Card`].

mod abi;
mod address;
mod call;
mod card;
mod commands;
mod datagram;
mod event;
mod id;
mod iwarp;
mod manager;
mod node;
mod path;
mod reliable;
mod table;
#[cfg(test)]
mod tests;

pub use abi::VERSION as ABI_VERSION;
pub use card::{Card, End};
pub use manager::Manager;
