//! Work requests made once and posted again and again.

use std::ptr::null_mut;

use irdma_tests::sys::*;

/// Requests of one round.
pub struct Requests<W> {
    requests: Box<[W]>,
    heads: Vec<*mut W>,
    _lists: Box<[ibv_sge]>,
}

/// A work request as far as lists are concerned.
pub trait Linked: Clone {
    /// Points to the next request and to the elements.
    fn link(&mut self, number: usize, next: *mut Self, list: *mut ibv_sge, count: usize);
}

macro_rules! linked {
    ($request:ty) => {
        impl Linked for $request {
            fn link(&mut self, number: usize, next: *mut Self, list: *mut ibv_sge, count: usize) {
                self.wr_id = number as u64;
                self.next = next;
                self.sg_list = list;
                self.num_sge = count as i32;
            }
        }
    };
}
linked!(ibv_send_wr);
linked!(ibv_recv_wr);

impl<W: Linked> Requests<W> {
    /// `count` requests like `like`, in lists of `length`, each with those elements.
    pub fn new(count: usize, length: usize, like: &W, elements: &[ibv_sge]) -> Requests<W> {
        assert!(count.is_multiple_of(length));
        let mut lists: Box<[ibv_sge]> = elements.repeat(count).into();
        let mut requests: Box<[W]> = vec![like.clone(); count].into();
        let first = requests.as_mut_ptr();
        let at = |number: usize| first.wrapping_add(number);
        for (number, request) in requests.iter_mut().enumerate() {
            let next = if (number + 1).is_multiple_of(length) { null_mut() } else { at(number + 1) };
            let list = lists.as_mut_ptr().wrapping_add(number * elements.len());
            request.link(number, next, list, elements.len());
        }
        let heads = (0..count).step_by(length).map(at).collect();
        Requests { requests, heads, _lists: lists }
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.requests.len()
    }

    /// In how many lists.
    pub fn lists(&self) -> usize {
        self.heads.len()
    }
}

impl Requests<ibv_send_wr> {
    /// Posts every list; 0 if all were taken.
    #[inline(always)]
    pub fn post(&self, qp: *mut ibv_qp) -> i64 {
        let mut refused = null_mut();
        let mut outcome = 0;
        for &head in &self.heads {
            // SAFETY: a list of this owner, posted to a live queue pair.
            outcome |= unsafe { ibv_post_send(qp, head, &mut refused) };
        }
        outcome.into()
    }
}

impl Requests<ibv_recv_wr> {
    /// Posts every list; 0 if all were taken.
    #[inline(always)]
    pub fn post(&self, qp: *mut ibv_qp) -> i64 {
        let mut refused = null_mut();
        let mut outcome = 0;
        for &head in &self.heads {
            // SAFETY: a list of this owner, posted to a live queue pair.
            outcome |= unsafe { ibv_post_recv(qp, head, &mut refused) };
        }
        outcome.into()
    }

    /// Posts every list to a shared receive queue; 0 if all were taken.
    #[inline(always)]
    pub fn post_shared(&self, srq: *mut ibv_srq) -> i64 {
        let mut refused = null_mut();
        let mut outcome = 0;
        for &head in &self.heads {
            // SAFETY: a list of this owner, posted to a live queue.
            outcome |= unsafe { ibv_post_srq_recv(srq, head, &mut refused) };
        }
        outcome.into()
    }
}
