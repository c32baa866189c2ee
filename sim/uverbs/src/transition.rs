//! Which state changes of a queue pair are allowed with which attributes (kernel: `ib_modify_qp_is_ok`).

use crate::object::{IbState, QpKind};

/// `enum ib_qp_attr_mask`.
pub mod mask {
    #![allow(missing_docs, reason = "the kernel's names")]
    pub const STATE: u32 = 1;
    pub const CUR_STATE: u32 = 1 << 1;
    pub const EN_SQD_ASYNC_NOTIFY: u32 = 1 << 2;
    pub const ACCESS_FLAGS: u32 = 1 << 3;
    pub const PKEY_INDEX: u32 = 1 << 4;
    pub const PORT: u32 = 1 << 5;
    pub const QKEY: u32 = 1 << 6;
    pub const AV: u32 = 1 << 7;
    pub const PATH_MTU: u32 = 1 << 8;
    pub const TIMEOUT: u32 = 1 << 9;
    pub const RETRY_CNT: u32 = 1 << 10;
    pub const RNR_RETRY: u32 = 1 << 11;
    pub const RQ_PSN: u32 = 1 << 12;
    pub const MAX_QP_RD_ATOMIC: u32 = 1 << 13;
    pub const ALT_PATH: u32 = 1 << 14;
    pub const MIN_RNR_TIMER: u32 = 1 << 15;
    pub const SQ_PSN: u32 = 1 << 16;
    pub const MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
    pub const PATH_MIG_STATE: u32 = 1 << 18;
    pub const DEST_QPN: u32 = 1 << 20;
    pub const RATE_LIMIT: u32 = 1 << 25;
    /// `IB_QP_ATTR_STANDARD_BITS`.
    pub const STANDARD: u32 = (1 << 21) - 1;
}

use mask::*;

/// Attributes that a change needs and may have; `None` if there is no such change.
fn rule(from: IbState, to: IbState, kind: QpKind) -> Option<(u32, u32)> {
    use IbState::*;
    use QpKind::*;
    let bind = match kind {
        Ud => PKEY_INDEX | PORT | QKEY,
        Rc => PKEY_INDEX | PORT | ACCESS_FLAGS,
    };
    Some(match (from, to, kind) {
        (_, Reset, _) => (0, 0),
        (Reset, Init, _) => (bind, 0),
        (Reset, _, _) => return None,
        (_, Error, _) => (0, 0),
        (Init, Init, _) => (0, bind),
        (Init, ReadyToReceive, Ud) => (0, PKEY_INDEX | QKEY),
        (Init, ReadyToReceive, Rc) => (
            AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER,
            ALT_PATH | ACCESS_FLAGS | PKEY_INDEX,
        ),
        (ReadyToReceive, ReadyToSend, Ud) => (SQ_PSN, CUR_STATE | QKEY),
        (ReadyToReceive, ReadyToSend, Rc) => (
            TIMEOUT | RETRY_CNT | RNR_RETRY | SQ_PSN | MAX_QP_RD_ATOMIC,
            CUR_STATE | ALT_PATH | ACCESS_FLAGS | MIN_RNR_TIMER | PATH_MIG_STATE,
        ),
        (ReadyToSend | SendQueueDrained | SendQueueError, ReadyToSend, Ud) => (0, CUR_STATE | QKEY),
        (ReadyToSend | SendQueueDrained, ReadyToSend, Rc) => {
            (0, CUR_STATE | ACCESS_FLAGS | ALT_PATH | PATH_MIG_STATE | MIN_RNR_TIMER)
        }
        (SendQueueError, ReadyToSend, Rc) => (0, 0),
        (ReadyToSend, SendQueueDrained, _) => (0, EN_SQD_ASYNC_NOTIFY),
        (SendQueueDrained, SendQueueDrained, Ud) => (0, PKEY_INDEX | QKEY),
        (SendQueueDrained, SendQueueDrained, Rc) => (
            0,
            PORT | AV
                | TIMEOUT
                | RETRY_CNT
                | RNR_RETRY
                | MAX_QP_RD_ATOMIC
                | MAX_DEST_RD_ATOMIC
                | ALT_PATH
                | ACCESS_FLAGS
                | PKEY_INDEX
                | MIN_RNR_TIMER
                | PATH_MIG_STATE,
        ),
        _ => return None,
    })
}

/// Whether a QP may go from one state to another with those attributes.
pub fn is_allowed(from: IbState, to: IbState, kind: QpKind, attributes: u32) -> bool {
    use IbState::*;
    let tells_state = matches!(from, ReadyToReceive | ReadyToSend | SendQueueDrained | SendQueueError);
    if attributes & CUR_STATE != 0 && !tells_state {
        return false;
    }
    let Some((needed, optional)) = rule(from, to, kind) else { return false };
    attributes & needed == needed && attributes & !(needed | optional | STATE | RATE_LIMIT) == 0
}

#[cfg(test)]
mod tests {
    use super::IbState::*;
    use super::*;

    #[test]
    fn the_usual_way_up() {
        // Masks that libibverbs' own example programs send.
        assert!(is_allowed(Reset, Init, QpKind::Rc, 0x39));
        assert!(is_allowed(Init, ReadyToReceive, QpKind::Rc, 0x129181));
        assert!(is_allowed(ReadyToReceive, ReadyToSend, QpKind::Rc, 0x12e01));
        assert!(is_allowed(Reset, Init, QpKind::Ud, 0x71));
        assert!(is_allowed(Init, ReadyToReceive, QpKind::Ud, 0x1));
        assert!(is_allowed(ReadyToReceive, ReadyToSend, QpKind::Ud, 0x10001));
    }

    #[test]
    fn missing_and_foreign_attributes_are_refused() {
        assert!(!is_allowed(Reset, Init, QpKind::Rc, STATE | PORT | ACCESS_FLAGS));
        assert!(!is_allowed(Reset, Init, QpKind::Rc, 0x39 | QKEY));
        assert!(!is_allowed(Init, ReadyToReceive, QpKind::Ud, STATE | AV));
        assert!(!is_allowed(Reset, Init, QpKind::Rc, 0x39 | CUR_STATE));
    }

    #[test]
    fn forbidden_steps() {
        for to in [ReadyToReceive, ReadyToSend, SendQueueDrained, SendQueueError, Error] {
            assert!(!is_allowed(Reset, to, QpKind::Rc, STATE));
        }
        for to in [Init, ReadyToReceive, ReadyToSend, SendQueueDrained] {
            assert!(!is_allowed(Error, to, QpKind::Rc, STATE));
        }
        assert!(!is_allowed(ReadyToSend, ReadyToReceive, QpKind::Rc, STATE));
        assert!(is_allowed(Error, Reset, QpKind::Rc, STATE));
        assert!(is_allowed(Error, Error, QpKind::Rc, STATE));
        assert!(is_allowed(Init, Error, QpKind::Ud, STATE));
    }
}
