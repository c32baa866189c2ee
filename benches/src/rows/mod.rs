//! Every row, by name.

mod arm;
mod batch;
mod creation;
mod crowd;
mod extended;
mod mix;
pub mod poll;
mod post_recv;
pub mod post_send;

use irdma_tests::device::{Device, feature};
use irdma_tests::sys::*;

use crate::bed::{Bed, Beds, MESSAGE};
use crate::row::Row;
use std::rc::Rc;

use batch::{Data, WorkBatches};
use crowd::Crowd;
use poll::Side;
use post_send::{PostSend, compare_swap, fetch_add, immediate, read, send, write};

/// A row and its name.
pub struct Named {
    /// As in the table.
    pub name: &'static str,
    /// Makes it; none if the provider does not offer what it takes.
    pub make: Box<Make>,
}

type Make = dyn Fn(&Beds) -> Option<Box<dyn Row>>;

fn row<R: Row + 'static>(name: &'static str, make: impl Fn(&Beds) -> R + 'static) -> Named {
    optional(name, move |beds| Some(make(beds)))
}

fn optional<R: Row + 'static>(name: &'static str, make: impl Fn(&Beds) -> Option<R> + 'static) -> Named {
    Named { name, make: Box::new(move |beds| Some(Box::new(make(beds)?))) }
}

fn on<R>(bed: &Option<Rc<Bed>>, make: impl Fn(&Rc<Bed>) -> R) -> Option<R> {
    bed.as_ref().map(make)
}

/// Whether the device speaks RoCE: iWARP has no immediates.
fn roce() -> bool {
    Device::present().roce
}

/// Whether the device has atomic operations.
fn atomics() -> bool {
    Device::present().has(feature::ATOMIC_OPS)
}

/// Rows that are measured together.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Set {
    /// Verbs of the data path.
    Usual,
    /// Posting to queue pairs with push pages, on a device that has some.
    Pushing,
    /// So many queue pairs that it takes long.
    Large,
}

impl Set {
    /// By its name.
    pub fn named(name: &str) -> Option<Set> {
        [("usual", Set::Usual), ("pushing", Set::Pushing), ("large", Set::Large)]
            .into_iter()
            .find_map(|(own, set)| (own == name).then_some(set))
    }

    /// Its rows, in the order of the table.
    pub fn rows(self) -> Vec<Named> {
        match self {
            Set::Usual => usual(),
            Set::Pushing => pushing(),
            Set::Large => large(),
        }
    }
}

/// Posting to a queue pair with a push page.
fn pushing() -> Vec<Named> {
    let posts = |bed: &Rc<Bed>, like: ibv_send_wr, list| PostSend::new(bed, like, list, &[MESSAGE]);
    let inline =
        |beds: &Beds, bytes: usize| PostSend::new(&beds.connected, post_send::inline(send()), 1, &[bytes]);
    vec![
        row("post_send: send, push page", move |beds| posts(&beds.connected, send(), 1)),
        row("post_send: write, push page", move |beds| posts(&beds.connected, write(), 1)),
        row("post_send: send with immediate, push page", move |beds| posts(&beds.connected, immediate(), 1)),
        row("post_send: send, lists of 16, push page", move |beds| posts(&beds.connected, send(), 16)),
        row("post_send: send, 4 elements, push page", |beds| {
            PostSend::new(&beds.connected, send(), 1, &[8; 4])
        }),
        row("post_send: send, 32 bytes inline, push page", move |beds| inline(beds, 32)),
        row("post_send: send, 101 bytes inline, push page", move |beds| inline(beds, 101)),
        optional("ibv_wr: send + set_sge, batches of 16, push page", |beds| {
            on(&beds.building, |bed| WorkBatches::new(bed, Data::Element))
        }),
        row("message rate: 64 posts, polls of 16, push page", |beds| mix::MessageRate::new(&beds.connected)),
    ]
}

/// Many queue pairs.
fn large() -> Vec<Named> {
    use creation::{Creation, Half};
    vec![
        row("create_qp, a thousand", |beds| Creation::new(beds, Half::Create)),
        row("destroy_qp, a thousand", |beds| Creation::new(beds, Half::Destroy)),
        optional("post and poll: 8192 queue pairs on a CQ", |beds| crowd(beds, 8192)),
    ]
}

/// Setting up many iWARP connections overflows the queue of the C provider, which keeps what completes then.
fn crowd(beds: &Beds, count: usize) -> Option<Crowd> {
    roce().then(|| Crowd::new(beds, count))
}

/// The verbs of the data path.
fn usual() -> Vec<Named> {
    use post_recv::PostReceive;
    let posts = |bed: &Rc<Bed>, like: ibv_send_wr, list| PostSend::new(bed, like, list, &[MESSAGE]);
    let inline = |beds: &Beds, bytes: usize| {
        let bed = &beds.connected;
        (bytes <= bed.qp.caps.max_inline_data as usize)
            .then(|| PostSend::new(bed, post_send::inline(send()), 1, &[bytes]))
    };
    let gather = |beds: &Beds, elements: usize, list| {
        let bed = &beds.connected;
        (elements <= bed.qp.caps.max_send_sge as usize)
            .then(|| PostSend::new(bed, send(), list, &vec![8; elements]))
    };
    vec![
        row("post_send: send", move |beds| posts(&beds.connected, send(), 1)),
        row("post_send: write", move |beds| posts(&beds.connected, write(), 1)),
        row("post_send: read", move |beds| posts(&beds.connected, read(), 1)),
        optional("post_send: send with immediate", move |beds| {
            roce().then(|| posts(&beds.connected, immediate(), 1))
        }),
        row("post_send: unsignaled write", |beds| PostSend::unsignaled(&beds.connected)),
        optional("post_send: datagram", move |beds| on(&beds.datagram, |bed| posts(bed, send(), 1))),
        row("post_send: send, lists of 16", move |beds| posts(&beds.connected, send(), 16)),
        row("post_send: write, lists of 16", move |beds| posts(&beds.connected, write(), 16)),
        row("post_send: read, lists of 16", move |beds| posts(&beds.connected, read(), 16)),
        optional("post_send: fetch-and-add", move |beds| {
            atomics().then(|| PostSend::new(&beds.connected, fetch_add(), 1, &[8]))
        }),
        optional("post_send: compare-and-swap", move |beds| {
            atomics().then(|| PostSend::new(&beds.connected, compare_swap(), 1, &[8]))
        }),
        optional("post_send: send, 3 elements", move |beds| gather(beds, 3, 1)),
        optional("post_send: send, 4 elements", move |beds| gather(beds, 4, 1)),
        optional("post_send: send, 13 elements", move |beds| gather(beds, 13, 1)),
        optional("post_send: send, 4 elements, lists of 16", move |beds| gather(beds, 4, 16)),
        optional("post_send: send, 8 bytes inline", move |beds| inline(beds, 8)),
        optional("post_send: send, 32 bytes inline", move |beds| inline(beds, 32)),
        optional("post_send: send, 64 bytes inline", move |beds| inline(beds, 64)),
        optional("post_send: send, 101 bytes inline", move |beds| inline(beds, 101)),
        optional("post_send: send, thread domain", move |beds| on(&beds.single, |bed| posts(bed, send(), 1))),
        optional("ibv_wr: send + set_sge, batches of 16", |beds| {
            on(&beds.building, |bed| WorkBatches::new(bed, Data::Element))
        }),
        optional("ibv_wr: write + set_inline_data of 32 bytes, batches of 16", |beds| {
            on(&beds.building, |bed| WorkBatches::new(bed, Data::Inline))
        }),
        optional("ibv_wr: send + set_sge, batches of 16, thread domain", |beds| {
            on(&beds.single_building, |bed| WorkBatches::new(bed, Data::Element))
        }),
        row("post_recv", |beds| PostReceive::new(&beds.connected, 1)),
        row("post_recv, lists of 16", |beds| PostReceive::new(&beds.connected, 16)),
        optional("post_recv, thread domain", |beds| on(&beds.single, |bed| PostReceive::new(bed, 1))),
        optional("post_srq_recv", |beds| on(&beds.shared, |bed| PostReceive::new(bed, 1))),
        optional("post_srq_recv, lists of 16", |beds| on(&beds.shared, |bed| PostReceive::new(bed, 16))),
        row("poll_cq: sends, 16 per call", |beds| poll::Poll::new(&beds.connected, Side::Send, write(), 16)),
        row("poll_cq: sends, 1 per call", |beds| poll::Poll::new(&beds.connected, Side::Send, write(), 1)),
        row("poll_cq: receives, 16 per call", |beds| {
            poll::Poll::new(&beds.connected, Side::Receive, send(), 16)
        }),
        row("poll_cq: receives, 1 per call", |beds| {
            poll::Poll::new(&beds.connected, Side::Receive, send(), 1)
        }),
        optional("poll_cq: receives with immediate, 16 per call", |beds| {
            roce().then(|| poll::Poll::new(&beds.connected, Side::Receive, immediate(), 16))
        }),
        optional("poll_cq: receives with immediate, 1 per call", |beds| {
            roce().then(|| poll::Poll::new(&beds.connected, Side::Receive, immediate(), 1))
        }),
        optional("poll_cq: received datagrams, 16 per call", |beds| {
            on(&beds.datagram, |bed| poll::Poll::new(bed, Side::Receive, send(), 16))
        }),
        optional("poll_cq: received datagrams, 1 per call", |beds| {
            on(&beds.datagram, |bed| poll::Poll::new(bed, Side::Receive, send(), 1))
        }),
        optional("poll_cq: sends, 16 per call, single thread", |beds| {
            on(&beds.single, |bed| poll::Poll::new(bed, Side::Send, write(), 16))
        }),
        optional("poll_cq: shared receives, 16 per call", |beds| {
            on(&beds.shared, |bed| poll::Poll::new(bed, Side::Receive, send(), 16))
        }),
        optional("poll_cq: shared receives, 1 per call", |beds| {
            on(&beds.shared, |bed| poll::Poll::new(bed, Side::Receive, send(), 1))
        }),
        row("poll_cq: nothing there", |beds| poll::PollNothing::new(&beds.connected)),
        optional("extended poll + 3 reads: sends, 16 per batch", |beds| {
            on(&beds.extended, |bed| extended::ExtendedPoll::new(bed, Side::Send))
        }),
        optional("extended poll + 3 reads: receives, 16 per batch", |beds| {
            on(&beds.extended, |bed| extended::ExtendedPoll::new(bed, Side::Receive))
        }),
        row("req_notify_cq", |beds| arm::Arm::new(&beds.connected)),
        row("ping-pong: post_recv, post_send, 2 polls", |beds| mix::PingPong::new(&beds.connected)),
        row("message rate: 64 posts, polls of 16", |beds| mix::MessageRate::new(&beds.connected)),
        optional("post and poll: 1 queue pair on a CQ", |beds| crowd(beds, 1)),
        optional("post and poll: 64 queue pairs on a CQ", |beds| crowd(beds, 64)),
        optional("post and poll: 1024 queue pairs on a CQ", |beds| crowd(beds, 1024)),
    ]
}
