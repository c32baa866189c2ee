//! The kernel's part of the software device: uverbs ioctls, irdma's driver data, objects and their events.
//!
//! [`Device`] is driven by the device process: it opens and closes device
//! nodes, hands over ioctls and doorbells, and lets time pass. Programs are
//! reached through [`program::Program`].

mod abi;
mod answer;
mod asynchronous;
mod call;
mod command;
mod commands;
mod connection;
mod control;
mod device;
mod errno;
mod events;
mod faults;
mod file;
mod handles;
pub mod identity;
mod method;
mod object;
mod platform;
pub mod profile;
pub mod program;
pub mod push;
mod request;
#[cfg(test)]
mod tests;
mod transition;

pub use abi::core::{AhAttr, EventsReported};
pub use connection::ConnectionEnd;
pub use device::{Device, Granted};
pub use errno::Errno;
pub use file::Token;
pub use profile::{KernelVersion, Profile, Transport};
pub use transition::mask;
