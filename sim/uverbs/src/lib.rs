//! The kernel's part of the software device: uverbs ioctls, irdma's driver data, objects and their events.

mod errno;
mod events;
mod handles;
pub mod identity;
mod platform;
pub mod profile;
mod program;

pub use profile::{KernelVersion, Profile, Transport};
