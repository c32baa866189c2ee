//! Words of send and receive WQEs.

words! {
    /// Word 3 of a send WQE: what to do, and the valid bit. Written last.
    pub struct SendHeader {
        /// REMSTAG: rkey of the remote memory, or the STag to invalidate at the peer.
        [31:0] remote_key, with_remote_key: u32;
        /// OPCODE: see [`Opcode`](super::Opcode).
        [37:32] opcode, with_opcode: u8;
        /// ADDFRAGCNT: fragments beyond the first.
        [41:38] more_fragments, with_more_fragments: u8;
        /// L4LEN: length of a UD header given inline; not used by this provider.
        [45:42] l4_length, with_l4_length: u8;
        /// REPORT_RTT: the CQE tells the round-trip time.
        [46:46] report_round_trip, with_report_round_trip: bool;
        /// IMMDATAFLAG: word 0 holds an immediate.
        [47:47] immediate, with_immediate: bool;
        /// INLINEDATALEN: bytes of inline data.
        [55:48] inline_length, with_inline_length: u8;
        /// PUSHWQE: the QP has a push page.
        [56:56] push, with_push: bool;
        /// INLINEDATAFLAG: data lies in the WQE.
        [57:57] inline, with_inline: bool;
        /// STREAMMODE: only in the kernel's connection WQEs.
        [58:58] stream_mode, with_stream_mode: bool;
        /// WAITFORRCVPDU: only in the kernel's connection WQEs.
        [59:59] wait_for_receive, with_wait_for_receive: bool;
        /// READFENCE: wait for earlier reads and atomics.
        [60:60] read_fence, with_read_fence: bool;
        /// LOCALFENCE: wait for earlier local operations.
        [61:61] local_fence, with_local_fence: bool;
        /// SIGCOMPL: a successful completion is reported.
        [62:62] signaled, with_signaled: bool;
        /// VALID: compared with the lap's polarity.
        [63:63] valid, with_valid: bool;
    }
    overlays {
        /// AHID: address handle of a datagram. The C provider of rdma-core cuts it to 17 bits.
        [24:0] address_handle, with_address_handle: u32;
        /// STAGRIGHTS: rights of a window, bit 2 remote read, bit 3 remote write.
        [52:48] rights, with_rights: u8;
        /// VABASEDTO: addresses of a window are virtual, not counted from zero.
        [53:53] virtual_addresses, with_virtual_addresses: bool;
        /// MEMWINDOWTYPE: a type-1 window.
        [54:54] window_type_1, with_window_type_1: bool;
        /// REMOTE_ATOMICS_EN: remote atomics on a window (GEN3).
        [55:55] remote_atomics, with_remote_atomics: bool;
    }

    /// Word 3 of a receive WQE. Written last.
    pub struct ReceiveHeader {
        /// ADDFRAGCNT: fragments beyond the first.
        [41:38] more_fragments, with_more_fragments: u8;
        /// VALID: compared with the lap's polarity.
        [63:63] valid, with_valid: bool;
    }

    /// Second word of a fragment on GEN2 and GEN3; the first is the address.
    pub struct Fragment {
        /// FRAG_STAG: lkey.
        [31:0] key, with_key: u32;
        /// FRAG_LEN: bytes, below 2^31.
        [62:32] length, with_length: u32;
        /// FRAG_VALID: compared with the lap's polarity.
        [63:63] valid, with_valid: bool;
    }
    overlays {
        /// GEN1_FRAG_LEN: bytes, in the form of GEN1.
        [31:0] gen1_length, with_gen1_length: u32;
        /// GEN1_FRAG_STAG: lkey, in the form of GEN1.
        [63:32] gen1_key, with_gen1_key: u32;
    }

    /// Word 2 of a send on a datagram QP.
    pub struct DatagramDestination {
        /// DESTQKEY: Q_Key of the remote QP.
        [31:0] q_key, with_q_key: u32;
        /// DESTQPN: number of the remote QP.
        [55:32] queue_pair, with_queue_pair: u32;
    }

    /// Word 1 of a window bind on GEN2 and GEN3; GEN1 has the keys the other way round.
    pub struct BindKeys {
        /// MWSTAG: rkey of the window.
        [31:0] window, with_window: u32;
        /// PARENTMRSTAG: rkey of the region below it.
        [63:32] region, with_region: u32;
    }
}
