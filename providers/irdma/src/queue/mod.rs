//! Send, receive, shared receive and completion queues.
//!
//! A queue is one side of a ring; the device is the other. Posting and polling
//! may run at the same time on different threads. Two posts to one queue, or
//! two polls of one completion queue, must not: the owner's locks see to that.
//! A send queue's batches are therefore made by `unsafe` functions. Two posts to a
//! receive queue would mix up its receives, but it is made of atomics throughout.
//!
//! Indices are free-running 32-bit positions: the low bits are the index in the
//! ring, the bit above them tells the lap and with it the polarity of the valid
//! bit.

mod abandoned;
mod completion;
mod completion_queue;
mod cqe;
mod fragments;
mod held_batch;
mod inline_data;
mod poll;
mod push;
mod queue_pair;
mod receive;
mod room;
mod send;
mod send_batch;
mod send_message;
mod send_operation;
mod shared;
mod slots;
mod unusual;
mod work;

pub use completion::{Completion, CompletionFlags, Directory, Member, Origin, Outcome, Side, Sink};
pub use completion_queue::{CompletionQueue, CompletionQueueParts};
pub use held_batch::{Held, HeldBatch};
pub use poll::Usual;
pub use queue_pair::{QueuePair, Service};
pub use receive::{ReceiveBatch, ReceiveQueue, ReceiveQueueParts, SimpleRun};
pub use send::{SendQueue, SendQueueParts};
pub use send_batch::{SendBatch, Started};
pub use send_message::{Obstacle, Taker};
pub use shared::{SharedReceiveBatch, SharedReceiveQueue, SharedReceiveQueueParts};
pub use slots::OutOfMemory;
pub use work::{Atomic, Bind, Refusal, SendRequest, Sge};

#[cfg(test)]
mod tests;
