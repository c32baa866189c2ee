//! Events, taken when they are there.

use std::mem::zeroed;
use std::ptr::null_mut;

use rdma_core_sys::bindings::*;

use super::objects::{Objects, of};
use super::tell;
use crate::program::Slot;

/// Whether something can be read from a descriptor now.
fn readable(descriptor: i32) -> bool {
    irdma_tests::channel::readable(descriptor, std::time::Duration::ZERO)
}

/// Takes all events of a channel.
pub fn take(objects: &Objects<'_>, channel: Slot) -> Option<()> {
    let raw = of(&objects.channels, channel)?;
    // SAFETY: the channel is alive; an event that is there can be taken and acknowledged once.
    unsafe {
        while readable((*raw).fd) {
            let (mut cq, mut user) = (null_mut(), null_mut());
            let result = ibv_get_cq_event(raw, &mut cq, &mut user);
            let slot = objects.cqs.iter().position(|known| known.is_some_and(|known| known.raw == cq));
            tell("event", |line| line.with("result", result).with("cq", format_args!("{slot:?}")));
            if result != 0 {
                break;
            }
            ibv_ack_cq_events(cq, 1);
        }
    }
    Some(())
}

/// Takes all asynchronous events of the context.
pub fn take_asynchronous(objects: &Objects<'_>) -> Option<()> {
    // SAFETY: the context is open; an event that is there can be taken and acknowledged once.
    unsafe {
        while readable((*objects.context).async_fd) {
            let mut event: ibv_async_event = zeroed();
            let result = ibv_get_async_event(objects.context, &mut event);
            let kind = event.event_type;
            let slot = match kind {
                IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => {
                    objects.srqs.iter().position(|known| *known == Some(event.element.srq))
                }
                _ => objects.qps.iter().position(|known| *known == Some(event.element.qp)),
            };
            tell("async", |line| {
                line.with("result", result).with("kind", kind).with("slot", format_args!("{slot:?}"))
            });
            if result != 0 {
                break;
            }
            ibv_ack_async_event(&mut event);
        }
    }
    Some(())
}
