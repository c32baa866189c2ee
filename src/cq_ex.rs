//! The extended polling interface: one completion at a time, read field by field.
//!
//! The same completions as `ibv_poll_cq` gives, of the same decoder.

use core::ffi::{c_int, c_uint};

use irdma_hw::format::CompletionOpcode;
use irdma_hw::generation::{Gen1, Gen2, Gen3, Generation};
use irdma_hw::limits::{DeviceLimits, Features, HardwareGeneration};
use irdma_hw::queue::{Origin, Outcome, Sink, Usual};
use rdma_core_sys::bindings::{
    IBV_WC_EX_WITH_BYTE_LEN, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, IBV_WC_EX_WITH_DLID_PATH_BITS,
    IBV_WC_EX_WITH_IMM, IBV_WC_EX_WITH_QP_NUM, IBV_WC_EX_WITH_SL, IBV_WC_EX_WITH_SLID, IBV_WC_EX_WITH_SRC_QP,
    IBV_WC_STANDARD_FLAGS, ibv_cq_ex, ibv_poll_cq_attr, ibv_wc_opcode,
};

use crate::cq::CompletionQueue;
use crate::poll_cq::may_have_more;

/// The fields that the device can tell (`IBV_WC_EX_WITH_*`); `None` on GEN1, which has no such interface.
pub fn readable(limits: &DeviceLimits) -> Option<u64> {
    let timestamp = if limits.features.contains(Features::CQE_TIMESTAMPS) {
        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
    } else {
        0
    };
    (limits.generation != HardwareGeneration::Gen1).then_some(u64::from(IBV_WC_STANDARD_FLAGS | timestamp))
}

/// The completion taken last, as far as the readers tell of it: id and status are where programs
/// read them themselves.
#[derive(Clone, Copy, Debug)]
pub struct Current {
    opcode: CompletionOpcode,
    vendor_error: u32,
    length: u32,
    origin: Origin,
    timestamp: u32,
}

impl Current {
    /// What is there before the first one.
    pub const NONE: Current = Current {
        opcode: CompletionOpcode::Send,
        vendor_error: 0,
        length: 0,
        origin: Origin::NONE,
        timestamp: 0,
    };
}

/// Where the poller puts a completion for them.
struct Readable<'cq> {
    current: &'cq mut Current,
    visible: *mut ibv_cq_ex,
}

impl Sink for Readable<'_> {
    #[inline(always)]
    fn put(&mut self, outcome: Outcome, origin: &Origin, timestamp: impl FnOnce() -> u32) {
        // SAFETY: programs read these between the calls that write them.
        unsafe {
            (*self.visible).wr_id = outcome.wr_id;
            (*self.visible).status = outcome.status as u32;
        }
        self.current.opcode = outcome.opcode;
        self.current.vendor_error = outcome.vendor_error;
        self.current.length = outcome.length;
        self.current.origin = *origin;
        self.current.timestamp = timestamp();
    }
}

/// Takes the next completion if it is one of those that most are.
///
/// # Safety
/// The caller holds the lock of the queue.
#[inline(always)]
unsafe fn take_usual<G: Generation>(cq: &CompletionQueue) -> Usual {
    // SAFETY: under the lock.
    unsafe {
        let mut sink = Readable { current: &mut *cq.current(), visible: cq.as_extended() };
        cq.queue().take_usual::<G, _, _>(cq, &mut sink)
    }
}

/// Takes the next completion, which is not usual, or says that there is none.
///
/// # Safety
/// The caller holds the lock of the queue.
#[inline(never)]
unsafe extern "C" fn take<G: Generation>(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: under the lock.
    unsafe {
        let cq = CompletionQueue::of(cq.cast());
        let mut sink = Readable { current: &mut *cq.current(), visible: cq.as_extended() };
        if cq.queue().take_unusual::<G, _, _>(cq, &mut sink) { 0 } else { libc::ENOENT }
    }
}

unsafe extern "C" fn start_poll<G: Generation>(
    cq: *mut ibv_cq_ex,
    attributes: *mut ibv_poll_cq_attr,
) -> c_int {
    // SAFETY: the program polls a queue of ours, with attributes or NULL.
    unsafe {
        if attributes.as_ref().is_some_and(|attributes| attributes.comp_mask != 0) {
            return libc::EINVAL;
        }
        let owner = CompletionQueue::of(cq.cast());
        let Some(guard) = owner.lock().try_lock() else { return start_contended::<G>(cq) };
        match take_usual::<G>(owner) {
            Usual::Completed => {
                // Until `end_poll`.
                guard.keep();
                0
            }
            Usual::Empty if !may_have_more::<G>(owner) => libc::ENOENT,
            Usual::Empty | Usual::Unusual => {
                guard.keep();
                start_locked::<G>(cq)
            }
        }
    }
}

/// Starts to poll a queue that another thread has locked.
///
/// # Safety
/// As of [`start_poll`].
#[cold]
#[inline(never)]
unsafe extern "C" fn start_contended<G: Generation>(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        let owner = CompletionQueue::of(cq.cast());
        owner.lock().lock().keep();
        if take_usual::<G>(owner) == Usual::Completed { 0 } else { start_locked::<G>(cq) }
    }
}

/// Starts to poll a queue that this thread has locked, when what comes next is not usual; unlocks it if
/// there is nothing.
///
/// # Safety
/// As of [`start_poll`]; the lock is held.
#[inline(never)]
unsafe extern "C" fn start_locked<G: Generation>(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        let status = take::<G>(cq);
        if status != 0 {
            CompletionQueue::of(cq.cast()).lock().unlock();
        }
        status
    }
}

unsafe extern "C" fn next_poll<G: Generation>(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: the lock is held since `start_poll`.
    unsafe {
        let owner = CompletionQueue::of(cq.cast());
        match take_usual::<G>(owner) {
            Usual::Completed => 0,
            Usual::Empty if !may_have_more::<G>(owner) => libc::ENOENT,
            Usual::Empty | Usual::Unusual => take::<G>(cq),
        }
    }
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: the lock is held since `start_poll`.
    unsafe { CompletionQueue::of(cq.cast()).lock().unlock() }
}

/// The completion taken last.
///
/// # Safety
/// The program is between `start_poll` and `end_poll`, so holds the lock.
#[inline(always)]
unsafe fn current<'a>(cq: *mut ibv_cq_ex) -> &'a Current {
    // SAFETY: as the caller promises.
    unsafe { &*CompletionQueue::of(cq.cast()).current() }
}

/// Functions that read a field of the current completion.
macro_rules! readers {
    ($($name:ident -> $type:ty: |$current:ident| $value:expr;)*) => {
        $(unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $type {
            // SAFETY: read only between `start_poll` and `end_poll`.
            let $current = unsafe { current(cq) };
            $value
        })*
    };
}

readers! {
    read_opcode -> ibv_wc_opcode: |current| current.opcode as u32;
    read_vendor_err -> u32: |current| current.vendor_error;
    read_wc_flags -> c_uint: |current| current.origin.flags.bits();
    read_byte_len -> u32: |current| current.length;
    // Also the invalidated key: libibverbs reads both with this.
    read_imm_data -> u32: |current| current.origin.data;
    read_qp_num -> u32: |current| current.origin.queue_pair;
    read_src_qp -> u32: |current| current.origin.source_queue_pair;
    // RoCE and iWARP have neither LIDs nor service levels; programs ask for all the standard fields at once.
    read_slid -> u32: |_current| 0;
    read_sl -> u8: |_current| 0;
    read_dlid_path_bits -> u8: |_current| 0;
    read_completion_ts -> u64: |current| current.timestamp.into();
}

/// Fills the functions of the interface, those of fields as the program asked for them.
pub fn install(cq: &CompletionQueue, limits: &DeviceLimits, wc_flags: u64) {
    // SAFETY: not handed out yet, so nobody else looks at it.
    let cq = unsafe { &mut *cq.as_extended() };
    let asked = |flag: u32| wc_flags & u64::from(flag) != 0;
    (cq.start_poll, cq.next_poll) = match limits.generation {
        HardwareGeneration::Gen1 => (Some(start_poll::<Gen1> as _), Some(next_poll::<Gen1> as _)),
        HardwareGeneration::Gen2 => (Some(start_poll::<Gen2> as _), Some(next_poll::<Gen2> as _)),
        HardwareGeneration::Gen3 => (Some(start_poll::<Gen3> as _), Some(next_poll::<Gen3> as _)),
    };
    cq.end_poll = Some(end_poll);
    cq.read_opcode = Some(read_opcode);
    cq.read_vendor_err = Some(read_vendor_err);
    cq.read_wc_flags = Some(read_wc_flags);
    cq.read_byte_len = asked(IBV_WC_EX_WITH_BYTE_LEN).then_some(read_byte_len);
    cq.read_imm_data = asked(IBV_WC_EX_WITH_IMM).then_some(read_imm_data);
    cq.read_qp_num = asked(IBV_WC_EX_WITH_QP_NUM).then_some(read_qp_num);
    cq.read_src_qp = asked(IBV_WC_EX_WITH_SRC_QP).then_some(read_src_qp);
    cq.read_slid = asked(IBV_WC_EX_WITH_SLID).then_some(read_slid);
    cq.read_sl = asked(IBV_WC_EX_WITH_SL).then_some(read_sl);
    cq.read_dlid_path_bits = asked(IBV_WC_EX_WITH_DLID_PATH_BITS).then_some(read_dlid_path_bits);
    cq.read_completion_ts = asked(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP).then_some(read_completion_ts);
}
