//! Tests of the queues against the mock device.

mod abandoned;
mod flushing;
mod golden_inline;
mod golden_operations;
mod golden_receive;
mod golden_send;
mod held;
mod hostile;
mod polling;
mod push;
mod refused;
mod resizing;
mod ring_laws;
mod shared_ways;
mod short_ways;

use super::{Held, HeldBatch, SendBatch, SendQueue};
use crate::generation::WqeFormat;

/// Starts to post.
fn start_batch<G: WqeFormat>(queue: &SendQueue) -> SendBatch<'_, G> {
    // SAFETY: in no test more than one thread posts to a queue.
    unsafe { queue.batch() }
}

/// Goes on with a held batch.
fn resume<'queue, G: WqeFormat>(queue: &'queue SendQueue, held: &Held) -> HeldBatch<'queue, G> {
    // SAFETY: as above.
    unsafe { queue.resume(held) }
}
