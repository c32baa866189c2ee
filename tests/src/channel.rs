//! Events: completion channels and the asynchronous events of a device.

use std::sync::Arc;
use std::time::Duration;

use crate::context::{Context, check_destroyed};
use crate::sys::*;
use crate::{Errno, clear_errno, last_errno};

/// How long an event or a completion that is due may take: a busy machine is slow to run the device.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How long to wait before it is believed that no event comes.
pub const SILENCE: Duration = Duration::from_millis(50);

/// Whether the descriptor becomes readable within `time`.
pub fn readable(descriptor: i32, time: Duration) -> bool {
    let mut poll = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid entry.
    let count = unsafe { libc::poll(&mut poll, 1, time.as_millis() as i32) };
    assert!(count >= 0, "poll: errno {}", last_errno());
    count == 1 && poll.revents & libc::POLLIN != 0
}

/// A completion channel.
pub struct Channel {
    raw: *mut ibv_comp_channel,
    _context: Arc<Context>,
}

// SAFETY: libibverbs objects may be used from any thread.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

impl Channel {
    /// Creates one.
    pub fn try_new(context: &Arc<Context>) -> Result<Arc<Channel>, Errno> {
        clear_errno();
        // SAFETY: the context is alive.
        let raw = unsafe { ibv_create_comp_channel(context.raw()) };
        if raw.is_null() {
            return Err(last_errno());
        }
        Ok(Arc::new(Channel { raw, _context: Arc::clone(context) }))
    }

    /// Creates one, which must succeed.
    pub fn new(context: &Arc<Context>) -> Arc<Channel> {
        Channel::try_new(context).unwrap_or_else(|errno| panic!("create_comp_channel: errno {errno}"))
    }

    /// The library's object.
    pub fn raw(&self) -> *mut ibv_comp_channel {
        self.raw
    }

    /// Its descriptor.
    pub fn descriptor(&self) -> i32 {
        // SAFETY: the channel is alive.
        unsafe { (*self.raw).fd }
    }

    /// Takes the next event, if one comes within `time`; returns the CQ it is about. Not acknowledged.
    pub fn next_within(&self, time: Duration) -> Option<*mut ibv_cq> {
        if !readable(self.descriptor(), time) {
            return None;
        }
        let mut cq = std::ptr::null_mut();
        let mut user = std::ptr::null_mut();
        // SAFETY: the channel is alive and readable, the results are valid for the call.
        let result = unsafe { ibv_get_cq_event(self.raw, &mut cq, &mut user) };
        assert_eq!(result, 0, "get_cq_event: errno {}", last_errno());
        Some(cq)
    }

    /// Takes and acknowledges the event that is due.
    pub fn expect_event(&self) {
        let cq = self.next_within(PATIENCE).expect("a completion event is due");
        // SAFETY: the CQ that the event names is alive: it cannot be destroyed before the acknowledgement.
        unsafe { ibv_ack_cq_events(cq, 1) };
    }

    /// Nothing may come.
    pub fn expect_silence(&self) {
        assert!(!readable(self.descriptor(), SILENCE), "a completion event that nobody asked for");
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: every CQ on the channel holds a reference to it, so all are gone.
        let result = unsafe { ibv_destroy_comp_channel(self.raw) };
        check_destroyed("destroy_comp_channel", result);
    }
}

/// An asynchronous event, acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// Its type.
    pub kind: u32,
    /// Address of the object it is about (or the port number).
    pub element: usize,
}

/// Takes and acknowledges the next asynchronous event, if one comes within `time`.
pub fn async_event_within(context: &Context, time: Duration) -> Option<AsyncEvent> {
    if !readable(context.async_fd(), time) {
        return None;
    }
    // SAFETY: an all-zero event is a valid value of the plain struct.
    let mut event: ibv_async_event = unsafe { std::mem::zeroed() };
    // SAFETY: the context is alive and an event is there.
    let result = unsafe { ibv_get_async_event(context.raw(), &mut event) };
    assert_eq!(result, 0, "get_async_event: errno {}", last_errno());
    // SAFETY: every member of the union has the size of a pointer or less, and the rest was zero.
    let element = unsafe { event.element.qp } as usize;
    let taken = AsyncEvent { kind: event.event_type, element };
    // SAFETY: exactly the event just taken.
    unsafe { ibv_ack_async_event(&mut event) };
    Some(taken)
}

/// The next asynchronous event must be of that kind and about that object.
pub fn expect_async_event<T>(context: &Context, kind: u32, element: *const T) {
    let event = async_event_within(context, PATIENCE)
        .unwrap_or_else(|| panic!("asynchronous event {kind} is due, none came"));
    assert_eq!(event, AsyncEvent { kind, element: element as usize });
}

/// No asynchronous event may come.
pub fn expect_no_async_event(context: &Context) {
    if let Some(event) = async_event_within(context, SILENCE) {
        panic!("unexpected {event:?}");
    }
}
