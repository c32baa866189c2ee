//! The other side of the rings: a device that does as it is told, for tests.
//!
//! A [`Memory`] stands for what a program maps and the device accesses. The
//! devices below own theirs, make the queue's half of it, and afterwards take
//! what the queue posts ([`SendDevice`], [`ReceiveDevice`]) or complete it
//! ([`CompletionDevice`]). They decide what a ring says with code of their own.

mod completion;
mod memory;
mod pairs;
mod work;

pub use completion::{CompletionDevice, Taken};
pub use memory::{Bell, Memory};
pub use pairs::{Pair, Pairs};
pub use work::{ReceiveDevice, SendDevice, Wqe};
