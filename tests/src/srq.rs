//! Shared receive queues.

use std::sync::Arc;

use crate::context::{Pd, check_destroyed};
use crate::sys::*;
use crate::work::{ReceiveWork, Refused, refusal_of_receives};
use crate::{Errno, clear_errno, last_errno};

/// A shared receive queue.
pub struct Srq {
    raw: *mut ibv_srq,
    _pd: Arc<Pd>,
    /// Attributes as create_srq returned them.
    pub attributes: ibv_srq_attr,
}

// SAFETY: libibverbs objects may be used from any thread.
unsafe impl Send for Srq {}
// SAFETY: as above.
unsafe impl Sync for Srq {}

impl Srq {
    /// Creates one.
    pub fn try_new(pd: &Arc<Pd>, max_wr: u32, max_sge: u32) -> Result<Arc<Srq>, Errno> {
        let attr = ibv_srq_attr { max_wr, max_sge, srq_limit: 0 };
        let mut attributes = ibv_srq_init_attr { attr, ..ibv_srq_init_attr::default() };
        clear_errno();
        // SAFETY: the PD is alive, `attributes` valid for the call.
        let raw = unsafe { ibv_create_srq(pd.raw(), &mut attributes) };
        if raw.is_null() {
            return Err(last_errno());
        }
        Ok(Arc::new(Srq { raw, _pd: Arc::clone(pd), attributes: attributes.attr }))
    }

    /// Creates one, which must succeed.
    pub fn new(pd: &Arc<Pd>, max_wr: u32, max_sge: u32) -> Arc<Srq> {
        Srq::try_new(pd, max_wr, max_sge).unwrap_or_else(|errno| panic!("create_srq: errno {errno}"))
    }

    /// The library's object.
    pub fn raw(&self) -> *mut ibv_srq {
        self.raw
    }

    /// Posts a list of receives.
    pub fn try_receive(&self, receives: &mut [ReceiveWork]) -> Result<(), Refused> {
        refusal_of_receives(receives, |first, bad| {
            // SAFETY: the list is linked, its scatter lists live in `receives`; the queue is alive.
            unsafe { ibv_post_srq_recv(self.raw, first, bad) }
        })
    }

    /// Posts one receive, which must be accepted.
    #[track_caller]
    pub fn receive(&self, receive: ReceiveWork) {
        assert_eq!(self.try_receive(&mut [receive]), Ok(()), "post_srq_recv");
    }

    /// Posts receives without elements until one is refused; how many were taken.
    pub fn fill(&self) -> usize {
        (0..).take_while(|&wr_id| self.try_receive(&mut [ReceiveWork::new(wr_id)]).is_ok()).count()
    }

    /// Changes attributes; 0 or an error number.
    pub fn modify(&self, attributes: ibv_srq_attr, mask: u32) -> Errno {
        let mut attributes = attributes;
        // SAFETY: the queue is alive, `attributes` valid for the call.
        unsafe { ibv_modify_srq(self.raw, &mut attributes, mask as i32) }
    }

    /// Asks for an event when fewer than `limit` receives are left.
    pub fn set_limit(&self, limit: u32) -> Errno {
        self.modify(ibv_srq_attr { srq_limit: limit, ..ibv_srq_attr::default() }, IBV_SRQ_LIMIT)
    }

    /// Attributes as the device has them.
    pub fn query(&self) -> ibv_srq_attr {
        let mut attributes = ibv_srq_attr::default();
        // SAFETY: the queue is alive, `attributes` valid for the call.
        assert_eq!(unsafe { ibv_query_srq(self.raw, &mut attributes) }, 0, "query_srq");
        attributes
    }

    /// Tries to destroy it while queue pairs are on it: must be refused with the returned error number.
    pub fn refused_destroy(&self) -> Errno {
        // SAFETY: the queue is alive; a refused destroy leaves it so, a success ends the program.
        let result = unsafe { ibv_destroy_srq(self.raw) };
        assert_ne!(result, 0, "destroy_srq of a queue in use");
        result
    }
}

impl Drop for Srq {
    fn drop(&mut self) {
        // SAFETY: every QP on the queue holds a reference to it, so all are gone.
        let result = unsafe { ibv_destroy_srq(self.raw) };
        check_destroyed("destroy_srq", result);
    }
}
