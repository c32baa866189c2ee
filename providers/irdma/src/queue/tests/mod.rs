//! Tests of the queues against the mock device.

mod abandoned;
mod flushing;
mod golden_receive;
mod golden_send;
mod held;
mod hostile;
mod polling;
mod push;
mod resizing;
mod ring_laws;
