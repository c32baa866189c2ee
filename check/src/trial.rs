//! A queue pair, made and brought as far as it gets without a peer.
//!
//! Whether a device gives out push pages shows only there: a provider that was given some maps
//! them. A map of shared memory that comes with the queue pair's state is that.

use std::io;
use std::ptr::null_mut;

use rdma_core_sys::bindings::{
    IBV_QP_ACCESS_FLAGS, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY, IBV_QP_SQ_PSN, IBV_QP_STATE,
    IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPT_RC, IBV_QPT_UD, ibv_context, ibv_cq, ibv_pd, ibv_qp,
    ibv_qp_attr, ibv_qp_init_attr,
};
use serde::{Deserialize, Serialize};

use crate::verbs::Verbs;

/// What became of it.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// The call that failed, and why.
    pub error: Option<String>,
    /// Whether the queue pair was given a push page, so that work goes to the device through it.
    pub push_page: Option<bool>,
}

/// Makes a queue pair and takes it away again: a datagram's, or where there are none (iWARP), a
/// connection's, which gets no further than INIT.
///
/// # Safety
/// The context is open.
pub unsafe fn run(verbs: &Verbs, context: *mut ibv_context, iwarp: bool) -> Trial {
    let mut made = Made { verbs, pd: null_mut(), cq: null_mut(), qp: null_mut() };
    // SAFETY: as the caller promises.
    match unsafe { made.make(context, iwarp) } {
        Ok(push_page) => Trial { error: None, push_page },
        Err(error) => Trial { error: Some(error), push_page: None },
    }
}

/// What there is, to be taken away in the opposite order.
struct Made<'verbs> {
    verbs: &'verbs Verbs,
    pd: *mut ibv_pd,
    cq: *mut ibv_cq,
    qp: *mut ibv_qp,
}

impl Made<'_> {
    /// # Safety
    /// The context is open.
    unsafe fn make(&mut self, context: *mut ibv_context, iwarp: bool) -> Result<Option<bool>, String> {
        let failed = |call: &str| format!("{call}: {}", io::Error::last_os_error());
        // SAFETY: as the caller promises.
        self.pd = unsafe { (self.verbs.ibv_alloc_pd)(context) };
        if self.pd.is_null() {
            return Err(failed("ibv_alloc_pd"));
        }
        // SAFETY: as the caller promises.
        self.cq = unsafe { (self.verbs.ibv_create_cq)(context, 1, null_mut(), null_mut(), 0) };
        if self.cq.is_null() {
            return Err(failed("ibv_create_cq"));
        }
        let mut wanted = ibv_qp_init_attr {
            send_cq: self.cq,
            recv_cq: self.cq,
            qp_type: if iwarp { IBV_QPT_RC } else { IBV_QPT_UD },
            ..ibv_qp_init_attr::default()
        };
        wanted.cap.max_send_wr = 1;
        wanted.cap.max_recv_wr = 1;
        wanted.cap.max_send_sge = 1;
        wanted.cap.max_recv_sge = 1;
        // SAFETY: both were made above.
        self.qp = unsafe { (self.verbs.ibv_create_qp)(self.pd, &mut wanted) };
        if self.qp.is_null() {
            return Err(failed("ibv_create_qp"));
        }
        let before = shared_bytes();
        let modify = |state, mask| {
            let mut changes = ibv_qp_attr { qp_state: state, port_num: 1, ..ibv_qp_attr::default() };
            let mask = IBV_QP_STATE | mask;
            // SAFETY: made above.
            match unsafe { (self.verbs.ibv_modify_qp)(self.qp, &mut changes, mask as i32) } {
                0 => Ok(()),
                errno => Err(format!("ibv_modify_qp: {}", io::Error::from_raw_os_error(errno))),
            }
        };
        let key = if iwarp { IBV_QP_ACCESS_FLAGS } else { IBV_QP_QKEY };
        modify(IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | key)?;
        if !iwarp {
            modify(IBV_QPS_RTR, 0)?;
            modify(IBV_QPS_RTS, IBV_QP_SQ_PSN)?;
        }
        Ok(before.zip(shared_bytes()).map(|(before, after)| after > before))
    }
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        // SAFETY: each was made by this library and is not used any more.
        unsafe {
            if !self.qp.is_null() {
                (self.verbs.ibv_destroy_qp)(self.qp);
            }
            if !self.cq.is_null() {
                (self.verbs.ibv_destroy_cq)(self.cq);
            }
            if !self.pd.is_null() {
                (self.verbs.ibv_dealloc_pd)(self.pd);
            }
        }
    }
}

/// Bytes of all shared mappings of this process: pages of a device are among them, queues are not.
fn shared_bytes() -> Option<u64> {
    Some(sum_of_shared(&std::fs::read_to_string("/proc/self/maps").ok()?))
}

fn sum_of_shared(maps: &str) -> u64 {
    let sizes = maps.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        if !words.next()?.ends_with('s') {
            return None;
        }
        u64::from_str_radix(end, 16).ok()?.checked_sub(u64::from_str_radix(start, 16).ok()?)
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_mappings_are_added_up() {
        let maps = "7f0000000000-7f0000001000 -w-s 00001000 00:05 1 /dev/infiniband/uverbs0\n\
                    7f0000002000-7f0000009000 rw-p 00000000 00:00 0\n\
                    7f0000010000-7f0000012000 rw-s 00000000 00:05 1 /dev/infiniband/uverbs0\nx\n";
        assert_eq!(sum_of_shared(maps), 0x3000);
    }
}
