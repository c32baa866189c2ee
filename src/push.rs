//! Push pages: when they are asked for, and who keeps them mapped.
//!
//! The kernel may offer two pages of the device on the way of a queue pair to RTS, in its
//! answer to the extended command: one that takes WQEs, one that is their doorbell. Whatever
//! goes wrong with them, the queue pair works without.

use core::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use irdma_hw::format::PUSH_WINDOW_BYTES;
use irdma_hw::limits::{HardwareGeneration, QueuePairCapabilities};
use irdma_hw::ring::{Doorbell, PushPage};
use rdma_core_sys::bindings::{IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, ibv_context, ibv_qp_state};
use rdma_core_sys::driver_data::ModifyQpResponse;

use crate::context::Context;
use crate::environment;
use crate::errno::{Errno, Result};
use crate::log::{self, Level};
use crate::memory::DevicePage;
use crate::qp::QueuePair;
use crate::{post_send, qp_ex};

/// What the person who runs the program wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Push pages are used where they are offered.
    Auto,
    /// The same, and a line in the log where they are not.
    On,
    /// They are not asked for.
    Off,
}

impl Wish {
    /// Looks into the environment.
    ///
    /// # Safety
    /// `context` is being opened.
    pub unsafe fn look_up(context: *mut ibv_context) -> Wish {
        let Some(text) = environment::text(environment::PUSH) else { return Wish::Auto };
        let switch = environment::PUSH.to_string_lossy();
        Wish::parse(&text).unwrap_or_else(|| {
            // SAFETY: as the caller promises.
            unsafe {
                log::line(
                    context,
                    Level::Warning,
                    format_args!("{switch}={text}: neither auto, on nor off; taken for auto"),
                );
            }
            Wish::Auto
        })
    }

    fn parse(text: &str) -> Option<Wish> {
        Some(match text {
            "auto" => Wish::Auto,
            "on" | "1" => Wish::On,
            "off" | "0" => Wish::Off,
            _ => return None,
        })
    }

    /// The state with which a queue pair of these capabilities may be given a push page: on
    /// iWARP the first, as the kernel makes the connection.
    pub fn due_with(
        self,
        generation: HardwareGeneration,
        capabilities: QueuePairCapabilities,
    ) -> Option<ibv_qp_state> {
        let is_possible =
            generation != HardwareGeneration::Gen1 && capabilities.contains(QueuePairCapabilities::PUSH);
        let state =
            if capabilities.contains(QueuePairCapabilities::ROCE) { IBV_QPS_RTS } else { IBV_QPS_INIT };
        (self != Wish::Off && is_possible).then_some(state)
    }
}

/// Whether to ask for a page together with a change to that state: with all of them on the way
/// to RTS, lest one be offered sooner or later than by the drivers that are known.
pub fn is_due(pair: &QueuePair, state: Option<ibv_qp_state>) -> bool {
    pair.push_due_with.is_some()
        && matches!(state, Some(IBV_QPS_INIT | IBV_QPS_RTR | IBV_QPS_RTS))
        && !pair.queues.send.is_pushing()
}

/// Both pages of a queue pair, mapped.
#[derive(Debug)]
struct Pages {
    owner: NonNull<QueuePair>,
    wqes: DevicePage,
    doorbell: DevicePage,
}

/// The push pages of a context. They belong to it and not to the queue pairs: when it is
/// closed, pages of the device are unmapped before anything else.
///
/// In the order of their queue pairs' addresses.
#[derive(Debug, Default)]
pub struct PushPages(Mutex<Vec<Pages>>);

// SAFETY: pointers to queue pairs are only compared.
unsafe impl Send for PushPages {}
// SAFETY: as above, and everything is under the mutex.
unsafe impl Sync for PushPages {}

impl PushPages {
    /// Unmaps the pages of a queue pair that is gone.
    pub fn release(&self, pair: &QueuePair) {
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(index) = pages.binary_search_by_key(&NonNull::from(pair), |pages| pages.owner) {
            pages.remove(index);
        }
    }

    /// Unmaps them all.
    pub fn unmap(&mut self) {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Takes what the kernel offers, if it does, in its answer to a change to `state`.
///
/// # Safety
/// `context` is open, and that of the queue pair.
pub unsafe fn accept(
    context: *mut ibv_context,
    pair: &QueuePair,
    state: Option<ibv_qp_state>,
    answer: &ModifyQpResponse,
) {
    // SAFETY: as the caller promises.
    unsafe {
        let owner = Context::of(context);
        let number = (*pair.as_ibv()).qp_num;
        if answer.push_valid != 0 {
            if let Err(errno) = start(context, owner, pair, answer) {
                let message =
                    format_args!("QP {number}: its push page cannot be used: errno {}", errno.number());
                log::line(context, Level::Warning, message);
            }
        } else if owner.push_wish() == Wish::On && state == pair.push_due_with {
            log::line(context, Level::Warning, format_args!("QP {number}: no push page is offered"));
        }
    }
}

/// Maps both pages and has the queue pair use them.
///
/// # Safety
/// As for [`accept`].
unsafe fn start(
    context: *mut ibv_context,
    owner: &Context,
    pair: &QueuePair,
    answer: &ModifyQpResponse,
) -> Result<()> {
    // SAFETY: as the caller promises.
    let descriptor = unsafe { (*context).cmd_fd };
    let pages = Pages {
        owner: NonNull::from(pair),
        wqes: DevicePage::map(descriptor, answer.push_wqe_mmap_key)?,
        doorbell: DevicePage::map(descriptor, answer.push_db_mmap_key)?,
    };
    let offset = usize::from(answer.push_offset);
    let window = pages.wqes.at(offset, PUSH_WINDOW_BYTES);
    let register = pages.doorbell.at(offset, size_of::<u32>());
    let (Some(window), Some(register), true) = (window, register, offset.is_multiple_of(8)) else {
        return Err(Errno::PROTOCOL);
    };
    // SAFETY: inside the pages, which are the device's, aligned, and mapped as long as the queue
    // pair is posted to.
    let page = unsafe { PushPage::new(window, Doorbell::new(register)) };

    // One at a time.
    let mut kept = owner.push_pages()?.0.lock().unwrap_or_else(PoisonError::into_inner);
    kept.try_reserve(1).map_err(|_| Errno::NO_MEMORY)?;
    if !pair.queues.send.start_pushing(page) {
        return Err(Errno::PROTOCOL);
    }
    let index = kept.partition_point(|kept| kept.owner < pages.owner);
    kept.insert(index, pages);
    drop(kept);
    // SAFETY: as the caller promises.
    unsafe { post_send::install_pushing(context, owner.limits().generation) };
    if let Some(operations) = pair.operations {
        qp_ex::install_pushing(pair, owner.limits().generation, operations);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_words_or_digits() {
        let cases =
            [("auto", Wish::Auto), ("on", Wish::On), ("1", Wish::On), ("off", Wish::Off), ("0", Wish::Off)];
        for (text, wish) in cases {
            assert_eq!(Wish::parse(text), Some(wish), "{text}");
        }
        for text in ["", "ON", "yes", "2", "off "] {
            assert_eq!(Wish::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_page_is_for_those_that_the_kernel_names() {
        let (iwarp, none) = (QueuePairCapabilities::PUSH, QueuePairCapabilities::empty());
        let roce = iwarp | QueuePairCapabilities::ROCE;
        for wish in [Wish::Auto, Wish::On] {
            assert_eq!(wish.due_with(HardwareGeneration::Gen2, roce), Some(IBV_QPS_RTS));
            assert_eq!(wish.due_with(HardwareGeneration::Gen2, iwarp), Some(IBV_QPS_INIT));
            assert_eq!(wish.due_with(HardwareGeneration::Gen3, roce), Some(IBV_QPS_RTS));
            assert_eq!(wish.due_with(HardwareGeneration::Gen1, iwarp), None);
            assert_eq!(wish.due_with(HardwareGeneration::Gen2, none), None);
        }
        assert_eq!(Wish::Off.due_with(HardwareGeneration::Gen2, roce), None);
    }
}
