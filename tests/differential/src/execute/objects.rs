//! The objects of a program, by slot.

use rdma_core_sys::bindings::*;

use super::{control, queues, shared};
use crate::laws;
use crate::program::{Key, Step};
use crate::program::{Place, Slot, slots};

/// A completion queue.
#[derive(Clone, Copy, Debug)]
pub struct Cq {
    /// The library's object.
    pub raw: *mut ibv_cq,
    /// `wc_flags` of one with the extended interface.
    pub extended: Option<u64>,
}

/// All of them. Empty slots hold `None`.
#[allow(missing_docs, reason = "the names say it")]
pub struct Objects<'a> {
    gids: &'a [ibv_gid],
    pub context: *mut ibv_context,
    pub pds: [Option<*mut ibv_pd>; slots::PDS as usize],
    pub mrs: [Option<*mut ibv_mr>; slots::MRS as usize],
    pub mws: [Option<*mut ibv_mw>; slots::MWS as usize],
    pub channels: [Option<*mut ibv_comp_channel>; slots::CHANNELS as usize],
    pub cqs: [Option<Cq>; slots::CQS as usize],
    pub srqs: [Option<*mut ibv_srq>; slots::SRQS as usize],
    pub qps: [Option<*mut ibv_qp>; slots::QPS as usize],
    pub ahs: [Option<*mut ibv_ah>; slots::AHS as usize],
    /// The `wr_id` of the next work request. None has 0.
    pub posted: u64,
    /// See [`Step::Careful`].
    pub careful: bool,
    /// Whether it posts to queue pairs in error.
    pub posts_on: bool,
}

/// What is in a slot.
pub fn of<T: Copy>(table: &[Option<T>], slot: Slot) -> Option<T> {
    table.get(usize::from(slot)).copied().flatten()
}

/// A slot that is free.
pub fn free<T>(table: &mut [Option<T>], slot: Slot) -> Option<&mut Option<T>> {
    table.get_mut(usize::from(slot)).filter(|place| place.is_none())
}

impl<'a> Objects<'a> {
    /// None yet, on a port with those GIDs.
    pub fn new(context: *mut ibv_context, gids: &'a [ibv_gid]) -> Objects<'a> {
        Objects {
            gids,
            context,
            pds: Default::default(),
            mrs: Default::default(),
            mws: Default::default(),
            channels: Default::default(),
            cqs: Default::default(),
            srqs: Default::default(),
            qps: Default::default(),
            ahs: Default::default(),
            posted: laws::FIRST_ID,
            careful: false,
            posts_on: true,
        }
    }

    /// The queue pair in that slot, if the program would post to it.
    pub fn to_post_to(&self, slot: Slot) -> Option<*mut ibv_qp> {
        // SAFETY: what is in a slot is alive.
        of(&self.qps, slot).filter(|qp| self.posts_on || unsafe { (**qp).state } != IBV_QPS_ERR)
    }

    /// The GID of that index of the port, or one of nobody.
    pub fn gid(&self, index: u8) -> ibv_gid {
        self.gids.get(usize::from(index)).copied().unwrap_or(ibv_gid { raw: [0xfe; 16] })
    }

    /// The key that `place` is named by to the device as local memory.
    pub fn local_key(&self, key: Key) -> Option<u32> {
        match key {
            // SAFETY: what is in a slot is alive.
            Key::Mr(slot) => of(&self.mrs, slot).map(|mr| unsafe { (*mr).lkey }),
            // SAFETY: as above.
            Key::Mw(slot) => of(&self.mws, slot).map(|mw| unsafe { (*mw).rkey }),
            Key::Number(number) => Some(number),
        }
    }

    /// The same as remote memory.
    pub fn remote_key(&self, place: Place) -> Option<u32> {
        match place.key {
            // SAFETY: what is in a slot is alive.
            Key::Mr(slot) => of(&self.mrs, slot).map(|mr| unsafe { (*mr).rkey }),
            key => self.local_key(key),
        }
    }

    /// Destroys what is left, users before what they use.
    pub fn destroy_all(&mut self) {
        let each = |slots: u8, step: fn(Slot) -> Step| (0..slots).map(step);
        let steps = each(slots::AHS, |ah| Step::DestroyAh { ah })
            .chain(each(slots::QPS, |qp| Step::DestroyQp { qp }))
            .chain(each(slots::SRQS, |srq| Step::DestroySrq { srq }))
            .chain(each(slots::CQS, |cq| Step::DestroyCq { cq }))
            .chain(each(slots::CHANNELS, |channel| Step::DestroyChannel { channel }))
            .chain(each(slots::MWS, |mw| Step::DeallocMw { mw }))
            .chain(each(slots::MRS, |mr| Step::DeregMr { mr }))
            .chain(each(slots::PDS, |pd| Step::DeallocPd { pd }));
        control::perform(self, &Step::FailNoMore);
        for step in steps {
            // A slot without an object has nothing to destroy.
            let _ = match step {
                Step::DestroyQp { .. } | Step::DestroyCq { .. } => queues::perform(self, &step),
                Step::DestroySrq { .. } => shared::perform(self, &step),
                _ => control::perform(self, &step),
            };
        }
    }
}
