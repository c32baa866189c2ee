//! Which operations libibverbs gets, by what the device can do.

use rdma_core_sys::bindings::verbs_context_ops;

use crate::capabilities::Capabilities;
use crate::{ah, context, cq, domain, mr, multicast, mw, pd, qp, query, srq};

/// The operations of a context. What is left out, libibverbs refuses with `EOPNOTSUPP`.
pub fn table(capabilities: &Capabilities) -> verbs_context_ops {
    let mut operations = verbs_context_ops::default();
    context::install(&mut operations);
    query::install(&mut operations);
    pd::install(&mut operations);
    domain::install(&mut operations);
    mr::install(&mut operations);
    mw::install(&mut operations);
    ah::install(&mut operations);
    multicast::install(&mut operations);
    cq::install(&mut operations, capabilities);
    qp::install(&mut operations, capabilities);
    srq::install(&mut operations, capabilities);
    operations
}
