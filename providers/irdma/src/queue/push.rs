//! Push mode: WQEs that are handed to the device through a page of it, which then need not
//! be fetched from the ring.
//!
//! Pushing is an offer on top of posting: the WQE is in the ring as ever, and the ordinary
//! doorbell rings for it as ever. The device takes a push only if it has nothing else to do
//! for the queue, and reports one that it had to drop; then there is no use in pushing on
//! before the queue has been idle.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::send::SendQueue;
use crate::barrier;
use crate::format::{Opcode, PUSH_WINDOW_QUANTA, PushDoorbell, SendHeader, VALID_WORD};
use crate::generation::Generation;
use crate::ring::{PushPage, PushSlot};

/// What a send queue needs for pushing; without a page nobody looks at it.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Pushing {
    page: PushSlot,
    /// Head of the queue when a doorbell rang last. The poster's.
    rung: AtomicU32,
    /// The last WQE was pushed, and the device has reported no drop since. Set by the
    /// poster, cleared by the poller; a drop that is overlooked comes again.
    under_way: AtomicBool,
}

impl Pushing {
    /// Without a page.
    pub(super) const fn none() -> Self {
        Self { page: PushSlot::empty(), rung: AtomicU32::new(0), under_way: AtomicBool::new(false) }
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
        self.pushing.page.fill(page)
    }

    /// Whether the queue has a push page.
    pub fn is_pushing(&self) -> bool {
        self.pushing.page.get().is_some()
    }

    /// The header of a WQE, which says if its queue has a push page.
    #[inline(always)]
    pub(super) fn say_pushing<G: Generation>(&self, header: SendHeader) -> SendHeader {
        if G::PUSHES && self.is_pushing() { header.with_push(true) } else { header }
    }

    /// Tells the device of what a batch has placed from `start` to `head`, something at least.
    #[inline(always)]
    pub(super) fn ring<G: Generation>(&self, start: u32, head: u32) {
        let page = if G::PUSHES { self.pushing.page.get() } else { None };
        if let Some(page) = page {
            self.push_batch(page, start, head);
        }
        barrier::before_doorbell();
        self.doorbell.ring(self.number);
        if page.is_some() {
            self.pushing.rung.store(head, Ordering::Relaxed);
        }
    }

    /// The device has dropped a push.
    pub(super) fn note_dropped_push(&self) {
        self.pushing.under_way.store(false, Ordering::Relaxed);
    }

    /// Pushes what was placed from `start` to `head`, as far as it makes sense.
    #[inline(never)]
    fn push_batch(&self, page: PushPage, start: u32, head: u32) {
        let number = PushDoorbell::default().with_queue_pair(self.number);
        let mut left = head.wrapping_sub(start);
        while left > 0 {
            let position = head.wrapping_sub(left);
            let place = position % PUSH_WINDOW_QUANTA;
            let quanta = self.run_at(position, left.min(PUSH_WINDOW_QUANTA - place));
            left = left.saturating_sub(quanta);
            if quanta > PUSH_WINDOW_QUANTA - place || !self.is_push_due() || !self.says_pushing(position) {
                continue;
            }
            barrier::before_write_combining();
            page.store(place, self.ring.run(position, quanta));
            barrier::write_combining_flush();
            let chunk = (position & self.ring.mask()) / PUSH_WINDOW_QUANTA;
            page.ring(number.with_index(chunk as u16).bits() as u32);
            self.pushing.rung.store(position.wrapping_add(quanta), Ordering::Relaxed);
            self.pushing.under_way.store(true, Ordering::Relaxed);
        }
    }

    /// Quanta of the WQE at `position`, or of the padding from there on, of which `most`
    /// belong together.
    #[inline(always)]
    fn run_at(&self, position: u32, most: u32) -> u32 {
        let quanta_at = |position| self.tracking.at(position).quanta(position);
        if let Some(quanta) = quanta_at(position) {
            // Nothing is known of where nothing was placed, which two posts at once could bring about.
            return quanta.max(1);
        }
        let mut quanta = 1;
        while quanta < most && quanta_at(position.wrapping_add(quanta)).is_none() {
            quanta += 1;
        }
        quanta
    }

    /// Whether the device has nothing else to do: the WQE before was pushed as well, or all
    /// that a doorbell has rung for is complete.
    fn is_push_due(&self) -> bool {
        let pushing = &self.pushing;
        let tail = self.retired.tail.load(Ordering::Relaxed);
        pushing.under_way.load(Ordering::Relaxed) || pushing.rung.load(Ordering::Relaxed) == tail
    }

    /// Whether a WQE says that its queue has a push page: not one placed before it had.
    /// Padding never does.
    fn says_pushing(&self, position: u32) -> bool {
        let header = SendHeader::from_bits(self.ring.at(position)[VALID_WORD].load());
        header.push() || header.opcode() == Opcode::Nop as u8
    }
}
