//! What each method and command does.

pub mod ah;
pub mod channel;
pub mod context;
pub mod cq;
pub mod device;
pub mod mr;
pub mod mr_method;
pub mod multicast;
pub mod mw;
pub mod pd;
pub mod qp;
pub mod qp_modify;
pub mod qp_query;
pub mod srq;
