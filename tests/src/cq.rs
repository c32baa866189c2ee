//! Completion queues: creation, polling into poisoned memory, arming.

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::channel::{Channel, PATIENCE, SILENCE};
use crate::context::{Context, check_destroyed};
use crate::device::{Device, feature};
use crate::sys::*;
use crate::wc::{POISON, Wc};
use crate::{Errno, clear_errno, last_errno};

/// A completion queue.
pub struct Cq {
    raw: *mut ibv_cq,
    context: Arc<Context>,
    _channel: Option<Arc<Channel>>,
}

// SAFETY: libibverbs objects may be used from any thread.
unsafe impl Send for Cq {}
// SAFETY: as above.
unsafe impl Sync for Cq {}

impl Cq {
    /// Creates one of at least `entries`, on `channel` if given.
    pub fn try_new(
        context: &Arc<Context>,
        entries: i32,
        channel: Option<&Arc<Channel>>,
    ) -> Result<Arc<Cq>, Errno> {
        clear_errno();
        let channel_raw = channel.map_or(std::ptr::null_mut(), |channel| channel.raw());
        // SAFETY: context and channel are alive.
        let raw = unsafe { ibv_create_cq(context.raw(), entries, std::ptr::null_mut(), channel_raw, 0) };
        if raw.is_null() {
            return Err(last_errno());
        }
        Ok(Arc::new(Cq::own(raw, context, channel)))
    }

    /// Takes over a queue made by the library.
    pub(crate) fn own(raw: *mut ibv_cq, context: &Arc<Context>, channel: Option<&Arc<Channel>>) -> Cq {
        Cq { raw, context: Arc::clone(context), _channel: channel.cloned() }
    }

    /// Creates one without a channel, which must succeed.
    pub fn new(context: &Arc<Context>, entries: i32) -> Arc<Cq> {
        Cq::try_new(context, entries, None)
            .unwrap_or_else(|errno| panic!("create_cq({entries}): errno {errno}"))
    }

    /// Creates one on a channel, which must succeed.
    pub fn on_channel(channel: &Arc<Channel>, context: &Arc<Context>, entries: i32) -> Arc<Cq> {
        Cq::try_new(context, entries, Some(channel))
            .unwrap_or_else(|errno| panic!("create_cq({entries}): errno {errno}"))
    }

    /// The library's object.
    pub fn raw(&self) -> *mut ibv_cq {
        self.raw
    }

    /// The device it belongs to.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Entries it says it has.
    pub fn entries(&self) -> i32 {
        // SAFETY: the queue is alive.
        unsafe { (*self.raw).cqe }
    }

    /// Polls once for at most `limit` completions; checks that nothing beyond the returned ones was written.
    pub fn poll(&self, limit: usize) -> Vec<Wc> {
        // SAFETY: any bytes are a valid value of the plain struct.
        let poison: ibv_wc = unsafe {
            let mut poison = MaybeUninit::<ibv_wc>::uninit();
            std::ptr::write_bytes(poison.as_mut_ptr(), POISON, 1);
            poison.assume_init()
        };
        let mut completions = vec![poison; limit + 1];
        // SAFETY: room for `limit` completions, the queue is alive.
        let count = unsafe { ibv_poll_cq(self.raw, limit as i32, completions.as_mut_ptr()) };
        assert!(count >= 0 && count as usize <= limit, "poll_cq({limit}) returned {count}");
        let untouched = Wc::from_raw(&poison);
        let (polled, rest) = completions.split_at(count as usize);
        assert_eq!(Wc::from_raw(&rest[rest.len() - 1]), untouched, "poll_cq wrote beyond the caller's array");
        polled.iter().map(Wc::from_raw).collect()
    }

    /// Polls, in calls of at most `batch`, until `count` have come; more is a failure.
    #[track_caller]
    pub fn wait_in_batches(&self, count: usize, batch: usize) -> Vec<Wc> {
        let end = Instant::now() + PATIENCE;
        let mut all = Vec::new();
        loop {
            let some = self.poll(batch);
            let idle = some.is_empty();
            all.extend(some);
            assert!(all.len() <= count, "{count} completions expected, more came: {all:#?}");
            if all.len() == count {
                return all;
            }
            if idle {
                assert!(Instant::now() < end, "{count} completions expected, only these came: {all:#?}");
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    }

    /// Waits for `count` completions.
    #[track_caller]
    pub fn wait(&self, count: usize) -> Vec<Wc> {
        self.wait_in_batches(count, count.max(1))
    }

    /// Waits for one completion.
    #[track_caller]
    pub fn wait_one(&self) -> Wc {
        self.wait(1).remove(0)
    }

    /// Nothing may be there.
    #[track_caller]
    pub fn expect_empty(&self) {
        let some = self.poll(4);
        assert!(some.is_empty(), "completions that should not be: {some:#?}");
    }

    /// Nothing may come for a while.
    #[track_caller]
    pub fn expect_silence(&self) {
        self.expect_empty();
        std::thread::sleep(SILENCE);
        self.expect_empty();
    }

    /// Asks for an event at the next completion, or at the next solicited one.
    pub fn arm(&self, solicited_only: bool) {
        // SAFETY: the queue is alive.
        let result = unsafe { ibv_req_notify_cq(self.raw, i32::from(solicited_only)) };
        assert_eq!(result, 0, "req_notify_cq");
    }

    /// Changes its size; ends the program where a device cannot.
    pub fn resize(&self, entries: i32) -> Result<(), Errno> {
        Device::present().require(feature::CQ_RESIZE, "resizing of completion queues");
        // SAFETY: the queue is alive.
        match unsafe { ibv_resize_cq(self.raw, entries) } {
            0 => Ok(()),
            errno => Err(errno),
        }
    }

    /// Tries to destroy it while others hold it: must be refused with the returned error number.
    pub fn refused_destroy(&self) -> Errno {
        // SAFETY: the queue is alive; a refused destroy leaves it so, a success ends the program.
        let result = unsafe { ibv_destroy_cq(self.raw) };
        assert_ne!(result, 0, "destroy_cq of a queue in use");
        result
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: every QP on the queue holds a reference to it, so all are gone.
        let result = unsafe { ibv_destroy_cq(self.raw) };
        check_destroyed("destroy_cq", result);
    }
}
