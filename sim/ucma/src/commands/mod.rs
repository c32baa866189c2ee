//! The commands, by what they are about.

pub mod addresses;
pub mod connections;
pub mod life;
pub mod multicast;
pub mod options;
pub mod queries;
