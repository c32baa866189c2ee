//! Hardware half of the irdma provider: formats, barriers, sizing rules and queues.
//!
//! Nothing here knows libibverbs, system calls or an allocator beyond a queue's
//! own bookkeeping. Memory shared with the device is only reached through
//! [`ring`], whose types keep every access inside the ring; everything above it
//! is safe code over positions and 64-bit words.
//!
//! Layers, each using only those above it in this list:
//! [`format`] and [`generation`] (what the words mean), [`barrier`], [`registers`],
//! [`limits`] (how large things may be), [`ring`] (device memory), [`queue`]
//! (send, receive, shared receive and completion queues).

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod barrier;
pub mod format;
pub mod generation;
pub mod limits;
#[cfg(any(test, feature = "test-utils"))]
pub mod mock;
pub mod queue;
pub mod registers;
pub mod ring;
