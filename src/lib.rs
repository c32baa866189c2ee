//! The libibverbs provider of Intel's irdma RDMA NICs.
//!
//! Libibverbs loads this library, a constructor registers it, and libibverbs then
//! opens the devices that `matching` names. The hardware's formats and queues are in
//! the crate `irdma-hw`; here is, by file:
//!
//! - posting and polling: `post_*`, `poll_cq`, `qp_ex` and `qp_batch` (`ibv_wr_*`), `cq_ex`,
//!   with `work_request`, `send_header`, `destination` and `push` below them, and `refusal`,
//!   which says why a post was refused;
//! - verbs objects: `context`, `pd`, `domain`, `mr`, `mw`, `ah`, `multicast`, `srq`, `cq` and
//!   `cq_create`, `qp`, `qp_create` and `qp_state`, with `query` and `registration`;
//! - what a context keeps: `holdings` (made with its first object), `objects`, `table`,
//!   `capabilities` as `negotiation` found them;
//! - the borders: `operations` (libibverbs' table of functions), `boundary` (results and panics),
//!   `command` and `errno` (the kernel), `memory`, `environment`, `log`;
//! - and `lock` and `process_barrier` for threads, `mark` (the file's ELF note), `backtrace`.

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
