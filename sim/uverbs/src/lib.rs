//! See docs/architecture.md.

pub mod identity;
