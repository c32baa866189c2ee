//! Words of CQEs.

words! {
    /// Word 0 of a CQE.
    pub struct CqePayload {
        /// PAYLDLEN: bytes received.
        [31:0] length, with_length: u32;
        /// TCPSQN_ROCEPSN_RTT_TS: packet sequence number, round-trip time or timestamp.
        [63:32] timestamp, with_timestamp: u32;
    }

    /// Word 2 of a CQE.
    pub struct CqeIdentity {
        /// INVSTAG: the STag that a peer's send invalidated (RC).
        [31:0] invalidated_key, with_invalidated_key: u32;
        /// QPID: the QP.
        [55:32] queue_pair, with_queue_pair: u32;
    }
    overlays {
        /// UDSRCQPN: the QP that sent the datagram (UD).
        [31:0] source_queue_pair, with_source_queue_pair: u32;
    }

    /// Word 3 of a CQE: what happened, and the valid bit. The device writes it last.
    pub struct CqeStatus {
        /// MINERR: minor error; a flush code if the major error says so.
        [15:0] minor_error, with_minor_error: u16;
        /// MAJERR: major error.
        [31:16] major_error, with_major_error: u16;
        /// WQEIDX: index of the WQE's first quantum.
        [46:32] wqe_index, with_wqe_index: u16;
        /// EXTCQE: there is an extension.
        [50:50] extended, with_extended: bool;
        /// PSHDROP: the device dropped a push.
        [51:51] push_dropped, with_push_dropped: bool;
        /// SRQ: the receive came from a shared receive queue.
        [52:52] shared, with_shared: bool;
        /// STAG: a peer's send invalidated an STag (RC); IPv4 (UD).
        [53:53] key_invalidated, with_key_invalidated: bool;
        /// SOEVENT: solicited.
        [54:54] solicited, with_solicited: bool;
        /// ERROR: see `major_error`, `minor_error`.
        [55:55] error, with_error: bool;
        /// OP: opcode of the WQE or of the wire.
        [61:56] opcode, with_opcode: u8;
        /// SQ: the CQE is of a send queue.
        [62:62] send, with_send: bool;
        /// VALID: compared with the lap's polarity.
        [63:63] valid, with_valid: bool;
    }

    /// Word 3 of a CQE's extension.
    pub struct CqeExtensionFlags {
        /// UDVLANVALID: the extension names a VLAN.
        [60:60] has_vlan, with_has_vlan: bool;
        /// UDSMACVALID: the extension names the sender's MAC address.
        [61:61] has_source_mac, with_has_source_mac: bool;
        /// IMMVALID: the extension holds an immediate.
        [62:62] has_immediate, with_has_immediate: bool;
        /// VALID: compared with the polarity of the extension's own slot.
        [63:63] valid, with_valid: bool;
    }

    /// The consumer's index in the shadow area of a CQ.
    pub struct CqeIndex {
        /// CQEIDX: slot that is read next.
        [19:0] index, with_index: u32;
    }
}

impl CqeStatus {
    /// OP with the two bits above it, for decoders that do not look at those.
    #[inline(always)]
    pub const fn opcode_and_more(self) -> u8 {
        (self.bits() >> 56) as u8
    }
}

/// Word of an extension with the immediate, in the byte order of the words.
pub const EXTENSION_IMMEDIATE: usize = 0;
/// Word of an extension with the QP's completion context, for a shared receive queue.
pub const EXTENSION_SHARED_CONTEXT: usize = 1;
/// Word of an extension with [`CqeExtensionFlags`].
pub const EXTENSION_FLAGS: usize = 3;
