//! The libibverbs provider of Intel's irdma RDMA NICs.
//!
//! Libibverbs loads this library, a constructor registers it, and libibverbs then
//! opens the devices that `matching` names. Each file is one kind of verbs
//! object; the hardware's formats and queues are in the crate `irdma-hw`.

mod ah;
#[cfg(no_backtraces)]
mod backtrace;
mod boundary;
mod capabilities;
mod command;
mod context;
mod cq;
mod cq_create;
mod cq_ex;
mod destination;
mod domain;
mod environment;
mod errno;
mod holdings;
mod lock;
mod log;
mod mark;
mod matching;
mod memory;
mod mr;
mod multicast;
mod mw;
mod negotiation;
mod objects;
mod operations;
mod pd;
mod poll_cq;
mod post_atomic;
mod post_message;
mod post_recv;
mod post_send;
mod post_srq_recv;
mod process_barrier;
mod push;
mod qp;
mod qp_batch;
mod qp_create;
mod qp_ex;
mod qp_state;
mod query;
mod refusal;
mod registration;
mod send_header;
mod srq;
mod table;
mod work_request;
