//! The kernel's part of the software device: uverbs ioctls, irdma's driver data, objects and their events.

pub mod identity;
pub mod profile;

pub use profile::{KernelVersion, Profile, Transport};
