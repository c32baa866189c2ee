//! Push mode: WQEs that are handed to the device through a page of it, which then need not
//! be fetched from the ring.
//!
//! Pushing is an offer on top of posting: the WQE is in the ring as ever, and the ordinary
//! doorbell rings for it as ever. The device takes a push only if it has nothing else to do
//! for the queue, and reports one that it had to drop; then there is no use in pushing on
//! before the queue has been idle.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::send::SendQueue;
use crate::barrier;
use crate::format::{PUSH_WINDOW_QUANTA, PushDoorbell, SendHeader, VALID_WORD};
use crate::generation::WqeFormat;
use crate::ring::{PushPage, PushSlot};

/// What a send queue needs for pushing; without a page nobody looks at it.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Pushing {
    page: PushSlot,
    /// What the header of a WQE says about the page, once there is one.
    said: AtomicU64,
    /// Head of the queue when a doorbell rang last. The poster's.
    rung: AtomicU32,
    /// The last WQE was pushed, and the device has reported no drop since. Set by the
    /// poster, cleared by the poller; a drop that is overlooked comes again.
    under_way: AtomicBool,
}

impl Pushing {
    /// Without a page.
    pub(super) const fn none() -> Self {
        Self {
            page: PushSlot::empty(),
            said: AtomicU64::new(0),
            rung: AtomicU32::new(0),
            under_way: AtomicBool::new(false),
        }
    }
}

impl SendQueue {
    /// Gives the queue a push page, from which on its WQEs say that there is one. `false`,
    /// and nothing is changed, if the queue has one, or if its numbers are beyond what a
    /// push doorbell can say. One call at a time.
    pub fn start_pushing(&self, page: PushPage) -> bool {
        let last_chunk = self.ring.mask() / PUSH_WINDOW_QUANTA;
        let value = PushDoorbell::default().with_queue_pair(self.number).with_index(last_chunk as u16);
        let can_be_said = value.queue_pair() == self.number && u32::from(value.index()) == last_chunk;
        if !can_be_said || self.is_pushing() {
            return false;
        }
        self.pushing.rung.store(self.head.load(Ordering::Relaxed), Ordering::Relaxed);
        self.pushing.page.fill(page);
        // A WQE that says so and is not pushed is as good as any.
        self.pushing.said.store(SendHeader::default().with_push(true).bits(), Ordering::Relaxed);
        true
    }

    /// Whether the queue has a push page.
    #[inline(always)]
    pub fn is_pushing(&self) -> bool {
        self.pushing.page.is_filled()
    }

    /// The header of a WQE, which says if its queue has a push page.
    #[inline(always)]
    pub(super) fn say_pushing<G: WqeFormat>(&self, header: SendHeader) -> SendHeader {
        let said = if G::PUSHES { self.pushing.said.load(Ordering::Relaxed) } else { 0 };
        SendHeader::from_bits(header.bits() | said)
    }

    /// Tells the device of what a batch has placed from `start` to `head`, something at least.
    #[inline(always)]
    pub(super) fn ring<G: WqeFormat>(&self, start: u32, head: u32) {
        if G::PUSHES && self.is_pushing() {
            self.push_each::<G>(start, head);
        }
        self.ring_for::<G>(head);
    }

    /// The same, if it is one WQE of a queue with a push page, `PADDED` or not; else tells nothing,
    /// and returns false. Calls nobody.
    #[inline(always)]
    pub(super) fn ring_for_one<G: WqeFormat, const PADDED: bool>(&self, start: u32, head: u32) -> bool {
        let Some(page) = self.pushing.page.get() else { return false };
        let mut position = start;
        if PADDED {
            if self.tracking.at(start).quanta(start).is_some() {
                return false;
            }
            // Padding goes up to the end of its chunk.
            position = (start | self.chunk_mask).wrapping_add(1);
        }
        let quanta = head.wrapping_sub(position);
        if self.tracking.at(position).end() != head || quanta == 0 || quanta > PUSH_WINDOW_QUANTA {
            return false;
        }
        if PADDED {
            self.push_run(page, start, position.wrapping_sub(start));
        }
        if self.says_pushing(position) {
            self.push_run(page, position, quanta);
        }
        self.ring_for::<G>(head);
        true
    }

    /// Rings the ordinary doorbell.
    #[inline(always)]
    fn ring_for<G: WqeFormat>(&self, head: u32) {
        barrier::before_doorbell();
        self.doorbell.ring(self.number);
        if G::PUSHES {
            self.pushing.rung.store(head, Ordering::Relaxed);
        }
    }

    /// The device has dropped a push.
    #[inline]
    pub(super) fn note_dropped_push(&self) {
        self.pushing.under_way.store(false, Ordering::Relaxed);
    }

    /// Pushes what was placed from `start` to `head`, as far as it makes sense.
    #[expect(clippy::extra_unused_type_parameters, reason = "so that it is compiled with its callers")]
    #[inline(never)]
    fn push_each<G: WqeFormat>(&self, start: u32, head: u32) {
        let Some(page) = self.pushing.page.get() else { return };
        let mut left = head.wrapping_sub(start);
        while left > 0 {
            let position = head.wrapping_sub(left);
            let most = left.min(PUSH_WINDOW_QUANTA - position % PUSH_WINDOW_QUANTA);
            let (quanta, is_padding) = self.run_at(position, most);
            left = left.saturating_sub(quanta);
            if is_padding || self.says_pushing(position) {
                self.push_run(page, position, quanta);
            }
        }
    }

    /// Pushes the WQE at `position`, or the padding from there on, if it makes sense and there is room
    /// in the window; there is one quantum at least.
    #[inline(always)]
    fn push_run(&self, page: PushPage, position: u32, quanta: u32) {
        if !page.has_room(position, quanta) || !self.is_push_due() {
            return;
        }
        barrier::before_write_combining();
        // SAFETY: the window has room, and the ring goes so far, as both are multiples of windows.
        unsafe { page.store(position, self.ring.quanta_from(position), quanta) };
        barrier::write_combining_flush();
        let chunk = (position & self.ring.mask()) / PUSH_WINDOW_QUANTA;
        let number = PushDoorbell::default().with_queue_pair(self.number);
        page.ring(number.with_index(chunk as u16).bits() as u32);
        self.pushing.rung.store(position.wrapping_add(quanta), Ordering::Relaxed);
        self.pushing.under_way.store(true, Ordering::Relaxed);
    }

    /// Quanta of the WQE at `position`, or of the padding from there on, of which `most`
    /// belong together; whether it is padding.
    #[inline(always)]
    fn run_at(&self, position: u32, most: u32) -> (u32, bool) {
        let quanta_at = |position| self.tracking.at(position).quanta(position);
        if let Some(quanta) = quanta_at(position) {
            // Nothing is known of where nothing was placed, which two posts at once could bring about.
            return (quanta.max(1), false);
        }
        let mut quanta = 1;
        while quanta < most && quanta_at(position.wrapping_add(quanta)).is_none() {
            quanta += 1;
        }
        (quanta, true)
    }

    /// Whether the device has nothing else to do: the WQE before was pushed as well, or all
    /// that a doorbell has rung for is complete.
    #[inline]
    fn is_push_due(&self) -> bool {
        let pushing = &self.pushing;
        let tail = self.retired.tail.load(Ordering::Relaxed);
        pushing.under_way.load(Ordering::Relaxed) || pushing.rung.load(Ordering::Relaxed) == tail
    }

    /// Whether a WQE says that its queue has a push page: not one placed before it had.
    #[inline(always)]
    fn says_pushing(&self, position: u32) -> bool {
        SendHeader::from_bits(self.ring.at(position)[VALID_WORD].load()).push()
    }
}
