//! Doorbell pages and shadow areas.

words! {
    /// The arming word of a CQ's shadow area.
    pub struct ArmWord {
        /// SW_CQ_SELECT: resizes whose old ring is finished.
        [13:0] finished_resizes, with_finished_resizes: u16;
        /// ARM_NEXT: an event for the next completion.
        [14:14] any, with_any: bool;
        /// ARM_NEXT_SE: an event for the next solicited completion.
        [15:15] solicited, with_solicited: bool;
        /// ARM_SEQ_NUM: counts requests.
        [17:16] sequence, with_sequence: u8;
    }

    /// The value stored to a push doorbell.
    pub struct PushDoorbell {
        /// QPID: the QP.
        [19:0] queue_pair, with_queue_pair: u32;
        /// WQE_DESC_INDEX: index of the pushed WQE in units of eight quanta.
        [31:20] index, with_index: u16;
    }
}

/// Byte of the doorbell page that takes QP numbers.
pub const SEND_DOORBELL: usize = 0;
/// Byte of the doorbell page that takes CQ numbers.
pub const COMPLETION_DOORBELL: usize = 64;
/// Quanta of a push page's window: index modulo this is a WQE's place in it.
pub const PUSH_WINDOW_QUANTA: u32 = 8;
/// Bytes of a push page's window.
pub const PUSH_WINDOW_BYTES: usize = PUSH_WINDOW_QUANTA as usize * super::QUANTUM_BYTES;
/// Bytes of a shadow area.
pub const SHADOW_BYTES: usize = 64;
/// Word of a shadow area with the index the device reads: next CQE, next SRQ WQE.
pub const SHADOW_INDEX: usize = 0;
/// Word of a CQ's shadow area with [`ArmWord`].
pub const ARM_WORD: usize = 4;
