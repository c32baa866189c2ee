//! The extended polling interface: every reader, as a [`Wc`].

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::channel::{Channel, PATIENCE};
use crate::context::Context;
use crate::cq::Cq;
use crate::device::Device;
use crate::sys::*;
use crate::wc::Wc;
use crate::{Errno, clear_errno, last_errno};

/// The readers that [`CqEx`] asks for.
pub const READERS: u32 = IBV_WC_STANDARD_FLAGS;

/// A completion queue with the extended polling interface.
pub struct CqEx {
    raw: *mut ibv_cq_ex,
    cq: Arc<Cq>,
}

impl CqEx {
    /// Creation attributes, on a device that has such queues, for `entries` completions and the readers `wc_flags`.
    pub fn attributes(entries: u32, wc_flags: u64) -> ibv_cq_init_attr_ex {
        Device::present().require_extended_queues();
        ibv_cq_init_attr_ex { cqe: entries, wc_flags, ..ibv_cq_init_attr_ex::default() }
    }

    /// Creates one.
    pub fn try_new(
        context: &Arc<Context>,
        channel: Option<&Arc<Channel>>,
        attributes: &mut ibv_cq_init_attr_ex,
    ) -> Result<CqEx, Errno> {
        attributes.channel = channel.map_or(std::ptr::null_mut(), |channel| channel.raw());
        clear_errno();
        // SAFETY: the context and the channel are alive, the attributes valid for the call.
        let raw = unsafe { ibv_create_cq_ex(context.raw(), attributes) };
        if raw.is_null() {
            return Err(last_errno());
        }
        let cq = Arc::new(Cq::own(ibv_cq_ex_to_cq(raw), context, channel));
        Ok(CqEx { raw, cq })
    }

    /// Creates one with every reader, which must succeed.
    pub fn new(context: &Arc<Context>, entries: u32) -> CqEx {
        CqEx::try_new(context, None, &mut CqEx::attributes(entries, u64::from(READERS)))
            .unwrap_or_else(|errno| panic!("create_cq_ex: errno {errno}"))
    }

    /// The same queue for whoever wants a plain one.
    pub fn plain(&self) -> &Arc<Cq> {
        &self.cq
    }

    /// The library's object.
    pub fn raw_ex(&self) -> *mut ibv_cq_ex {
        self.raw
    }

    /// Takes what is there, at most `limit` completions, in one batch.
    pub fn poll_batch(&self, limit: usize) -> Vec<Wc> {
        let mut attributes = ibv_poll_cq_attr { comp_mask: 0 };
        let mut completions = Vec::new();
        // SAFETY: the queue is alive, the attributes valid for the call.
        let mut result = unsafe { ibv_start_poll(self.raw, &mut attributes) };
        if result == libc::ENOENT {
            return completions;
        }
        assert_eq!(result, 0, "start_poll");
        while result == 0 {
            completions.push(self.current());
            if completions.len() == limit {
                break;
            }
            // SAFETY: within a batch.
            result = unsafe { ibv_next_poll(self.raw) };
        }
        assert!(result == 0 || result == libc::ENOENT, "next_poll returned {result}");
        // SAFETY: ends the batch.
        unsafe { ibv_end_poll(self.raw) };
        completions
    }

    /// Waits for `count` completions; more is a failure.
    #[track_caller]
    pub fn wait_batch(&self, count: usize) -> Vec<Wc> {
        let end = Instant::now() + PATIENCE;
        let mut all = Vec::new();
        while all.len() < count {
            let some = self.poll_batch(count - all.len());
            if some.is_empty() {
                assert!(Instant::now() < end, "{count} completions expected, only these came: {all:#?}");
                std::thread::sleep(Duration::from_micros(50));
            }
            all.extend(some);
        }
        all
    }

    /// The current completion of the batch, through every reader.
    fn current(&self) -> Wc {
        let cq = self.raw;
        // SAFETY: within a batch that has a current completion; all the readers were asked for at creation.
        unsafe {
            let status = (*cq).status;
            let flags = ibv_wc_read_wc_flags(cq);
            let immediate = match flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV) {
                0 => 0,
                IBV_WC_WITH_IMM => u32::from_be(ibv_wc_read_imm_data(cq)),
                _ => ibv_wc_read_invalidated_rkey(cq),
            };
            Wc {
                wr_id: (*cq).wr_id,
                status,
                opcode: ibv_wc_read_opcode(cq),
                vendor_err: if status == IBV_WC_SUCCESS { 0 } else { ibv_wc_read_vendor_err(cq) },
                byte_len: ibv_wc_read_byte_len(cq),
                immediate,
                qp_num: ibv_wc_read_qp_num(cq),
                src_qp: ibv_wc_read_src_qp(cq),
                flags,
                pkey_index: 0,
                slid: ibv_wc_read_slid(cq) as u16,
                sl: ibv_wc_read_sl(cq),
                path_bits: 0,
            }
        }
    }
}

impl Deref for CqEx {
    type Target = Cq;

    fn deref(&self) -> &Cq {
        &self.cq
    }
}
