//! Verbs of shared receive queues.

use std::mem::zeroed;

use rdma_core_sys::bindings::*;
use rdma_core_sys::inline::*;

use super::control::{object, status};
use super::objects::{Objects, free, of};
use super::{tell, work};
use crate::program::Step;

/// Runs a step; `None` if an object it needs is not there.
pub fn perform(objects: &mut Objects<'_>, step: &Step) -> Option<()> {
    // SAFETY: every object in a slot is alive, and every argument valid for its call; all bytes zero is a
    // value of the plain structs.
    unsafe {
        match step {
            Step::CreateSrq { srq, pd, wr, sge, limit } => {
                let pd = of(&objects.pds, *pd)?;
                let place = free(&mut objects.srqs, *srq)?;
                let mut attributes: ibv_srq_init_attr = zeroed();
                attributes.attr = ibv_srq_attr { max_wr: *wr, max_sge: *sge, srq_limit: *limit };
                *place = object("create_srq", || ibv_create_srq(pd, &mut attributes));
                tell_attributes(attributes.attr);
            }
            Step::ModifySrq { srq, mask, wr, limit } => {
                let raw = of(&objects.srqs, *srq)?;
                let mut attributes = ibv_srq_attr { max_wr: *wr, max_sge: 0, srq_limit: *limit };
                status("modify_srq", || ibv_modify_srq(raw, &mut attributes, *mask as i32));
            }
            Step::QuerySrq { srq } => {
                let raw = of(&objects.srqs, *srq)?;
                let mut attributes: ibv_srq_attr = zeroed();
                status("query_srq", || ibv_query_srq(raw, &mut attributes));
                tell_attributes(attributes);
            }
            Step::DestroySrq { srq } => {
                let raw = of(&objects.srqs, *srq)?;
                if status("destroy_srq", || ibv_destroy_srq(raw)) {
                    objects.srqs[usize::from(*srq)] = None;
                }
            }
            Step::PostSrqRecv { srq, list } => {
                let raw = of(&objects.srqs, *srq)?;
                work::post_receives("post_srq_recv", objects, list, |first, bad| {
                    ibv_post_srq_recv(raw, first, bad)
                })?;
            }
            _ => return None,
        }
    }
    Some(())
}

fn tell_attributes(attributes: ibv_srq_attr) {
    tell("srq", |line| {
        line.with("wr", attributes.max_wr).with("sge", attributes.max_sge).with("limit", attributes.srq_limit)
    });
}
