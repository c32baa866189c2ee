//! Completions, all of their fields, and what they should be.

use crate::runner::on_c_provider;
use crate::sys::*;

/// Every byte of a completion before it is polled.
pub const POISON: u8 = 0xa5;

/// Major error of a flush completion, as it stands in `vendor_err`.
pub const FLUSHED: u32 = 1 << 16;

/// A completion, field by field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wc {
    /// As posted.
    pub wr_id: u64,
    /// `IBV_WC_*` status.
    pub status: u32,
    /// `IBV_WC_*` opcode.
    pub opcode: u32,
    /// Major error << 16 | minor error.
    pub vendor_err: u32,
    /// Bytes.
    pub byte_len: u32,
    /// Immediate data in host order, or the invalidated rkey.
    pub immediate: u32,
    /// QP it was posted on.
    pub qp_num: u32,
    /// Sender.
    pub src_qp: u32,
    /// `IBV_WC_GRH` and so on.
    pub flags: u32,
    /// P_Key index.
    pub pkey_index: u16,
    /// Source LID; Ethernet has none.
    pub slid: u16,
    /// Service level; Ethernet has none.
    pub sl: u8,
    /// Path bits; Ethernet has none.
    pub path_bits: u8,
}

impl Wc {
    /// What the library's struct says.
    pub fn from_raw(raw: &ibv_wc) -> Wc {
        // SAFETY: both members of the union are 32-bit integers.
        let word = unsafe { raw.__bindgen_anon_1.invalidated_rkey };
        let immediate = if raw.wc_flags & IBV_WC_WITH_IMM != 0 { u32::from_be(word) } else { word };
        Wc {
            wr_id: raw.wr_id,
            status: raw.status,
            opcode: raw.opcode,
            vendor_err: raw.vendor_err,
            byte_len: raw.byte_len,
            immediate,
            qp_num: raw.qp_num,
            src_qp: raw.src_qp,
            flags: raw.wc_flags,
            pkey_index: raw.pkey_index,
            slid: raw.slid,
            sl: raw.sl,
            path_bits: raw.dlid_path_bits,
        }
    }

    /// A successful send-side completion of QP `qp_num`.
    pub fn sent(qp_num: u32, wr_id: u64, opcode: u32, byte_len: u32) -> Wc {
        Wc { wr_id, opcode, byte_len, qp_num, src_qp: qp_num, ..Wc::default() }
    }

    /// A successful receive of an RC QP.
    pub fn received(qp_num: u32, wr_id: u64, byte_len: u32) -> Wc {
        Wc { wr_id, opcode: IBV_WC_RECV, byte_len, qp_num, src_qp: qp_num, ..Wc::default() }
    }

    /// A successful receive of a UD QP; `payload` without the 40 bytes of the GRH.
    pub fn datagram(qp_num: u32, wr_id: u64, payload: u32, src_qp: u32) -> Wc {
        Wc {
            wr_id,
            opcode: IBV_WC_RECV,
            byte_len: payload + 40,
            qp_num,
            src_qp,
            flags: IBV_WC_GRH,
            ..Wc::default()
        }
    }

    /// The same with immediate data.
    pub fn with_immediate(self, immediate: u32) -> Wc {
        Wc { immediate, flags: self.flags | IBV_WC_WITH_IMM, ..self }
    }

    /// The same with an invalidated rkey.
    pub fn with_invalidated(self, rkey: u32) -> Wc {
        Wc { immediate: rkey, flags: self.flags | IBV_WC_WITH_INV, ..self }
    }

    /// The same with another opcode.
    pub fn with_opcode(self, opcode: u32) -> Wc {
        Wc { opcode, ..self }
    }

    /// The same, failed; `code` is the flush code of the completion.
    pub fn failed(self, status: u32, code: u32) -> Wc {
        Wc { status, vendor_err: FLUSHED | code, ..self }
    }

    /// The same, flushed without an error of its own.
    pub fn flushed(self) -> Wc {
        self.failed(IBV_WC_WR_FLUSH_ERR, 1)
    }

    /// Whether it is of the receive queue.
    pub fn is_receive(&self) -> bool {
        self.opcode & IBV_WC_RECV != 0
    }

    /// As far as the C provider goes: without the fields that it leaves as they were in the caller's memory or sets
    /// without a meaning, and without two differences that some releases lost: between the kinds of receive, and between
    /// exhausted RNR retries and any other failure. [`assert_completions`] compares completions of that provider so; programs of their own show the faults.
    fn as_far_as_c_goes(&self) -> Wc {
        let mut wc = self.clone();
        if wc.status == IBV_WC_SUCCESS {
            wc.vendor_err = 0;
        }
        if wc.flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV) == 0 {
            wc.immediate = 0;
        }
        if !wc.is_receive() {
            wc.flags &= !IBV_WC_GRH;
        }
        if wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM {
            wc.opcode = IBV_WC_RECV;
        }
        if wc.status == IBV_WC_RNR_RETRY_EXC_ERR {
            wc.status = IBV_WC_FATAL_ERR;
        }
        (wc.pkey_index, wc.slid, wc.sl, wc.path_bits) = (0, 0, 0, 0);
        wc
    }

    /// With the sender blanked on the send side, where it has no meaning but must be a number the provider chose.
    fn comparable(&self) -> Wc {
        let mut wc = if on_c_provider() { self.as_far_as_c_goes() } else { self.clone() };
        if !wc.is_receive() && (wc.src_qp == wc.qp_num || wc.src_qp == 0) {
            wc.src_qp = wc.qp_num;
        }
        wc
    }
}

/// Compares every field of every completion.
#[track_caller]
pub fn assert_completions(actual: &[Wc], expected: &[Wc]) {
    for (index, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        assert_eq!(
            actual.comparable(),
            expected.comparable(),
            "completion {index} (left: polled, right: expected)"
        );
    }
    assert_eq!(actual.len(), expected.len(), "number of completions: {actual:#?}");
}
