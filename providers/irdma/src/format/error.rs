//! Errors in CQEs: major and minor codes, flush codes, event codes, statuses.

/// Major error of a flushed work request; the minor error is a [`FlushCode`].
pub const MAJOR_FLUSHED: u16 = 1;
/// Major error of a flushed work request of a shared receive queue (GEN3); the
/// minor error is the code of an asynchronous event.
pub const MAJOR_SHARED_FLUSHED: u16 = 0xFFFE;

/// Whether a major error on a datagram QP's send queue is only a note: the work
/// request succeeded, its CQE tells of something that is not fatal.
#[inline(always)]
pub const fn is_datagram_note(major_error: u16) -> bool {
    major_error >> 12 == 0xE
}

/// How a completion ended. The values are those of `enum ibv_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Status {
    /// Success.
    Success = 0,
    /// The message did not fit, or was too long.
    LocalLength = 1,
    /// The QP could not do the operation.
    LocalQueuePairOperation = 2,
    /// A local key does not cover the access.
    LocalProtection = 4,
    /// The QP went into the error state before the work request was done.
    Flushed = 5,
    /// A window could not be bound.
    WindowBind = 6,
    /// The peer refused the request as invalid.
    RemoteInvalidRequest = 9,
    /// A remote key does not cover the access.
    RemoteAccess = 10,
    /// The peer could not do the operation.
    RemoteOperation = 11,
    /// The peer did not answer.
    RetryExceeded = 12,
    /// The peer had no receive posted for too long.
    ReceiverNotReadyExceeded = 13,
    /// An error that ends the QP.
    Fatal = 19,
    /// An error of no known kind.
    General = 21,
}

/// Why the device flushes (`enum irdma_flush_opcode` of the kernel's driver).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushCode(u16);

impl FlushCode {
    /// Flushed for no fault of its own.
    pub const GENERAL: Self = Self(1);
    /// Local protection.
    pub const PROTECTION: Self = Self(2);
    /// Remote access.
    pub const REMOTE_ACCESS: Self = Self(3);
    /// Local operation.
    pub const LOCAL_OPERATION: Self = Self(4);
    /// Remote operation.
    pub const REMOTE_OPERATION: Self = Self(5);
    /// Local length.
    pub const LOCAL_LENGTH: Self = Self(6);
    /// Fatal.
    pub const FATAL: Self = Self(7);
    /// Retries exceeded.
    pub const RETRY_EXCEEDED: Self = Self(8);
    /// Window bind.
    pub const WINDOW_BIND: Self = Self(9);
    /// Remote invalid request.
    pub const REMOTE_INVALID_REQUEST: Self = Self(10);
    /// Receiver-not-ready retries exceeded.
    pub const RECEIVER_NOT_READY: Self = Self(11);

    /// The code in the minor error of a CQE with [`MAJOR_FLUSHED`].
    pub const fn from_minor(minor_error: u16) -> Self {
        Self(minor_error)
    }

    /// The code that stands for an asynchronous event, as a CQE with
    /// [`MAJOR_SHARED_FLUSHED`] names it.
    pub const fn from_event(event: u16) -> Self {
        match event {
            // Unallocated STag, invalid STag, bad QP, bad PD, bad STag key, bad STag
            // index, bounds, rights, wrap; operation denied.
            0x0102..=0x010a | 0x011c => Self::PROTECTION,
            // Datagram from a bad PD; unexpected opcode.
            0x0133 | 0x020a => Self::LOCAL_OPERATION,
            // Datagram too long, too short, bad header length; message too long for
            // the buffer, invalid offset.
            0x0132 | 0x0134 | 0x0135 | 0x0303 | 0x0305 => Self::LOCAL_LENGTH,
            // Invalidate without rights; remote access.
            0x0112 | 0x020d => Self::REMOTE_ACCESS,
            // Window bind: valid STag, invalid rights, invalid bounds, disabled.
            0x0114 | 0x0118 | 0x0119 | 0x011b => Self::WINDOW_BIND,
            0x050a => Self::RETRY_EXCEEDED,
            0x0208 => Self::REMOTE_INVALID_REQUEST,
            // Response length; remote operation; MPA checksum; segment too small.
            0x0316 | 0x020e | 0x0505 | 0x0507 => Self::REMOTE_OPERATION,
            0x050f => Self::RECEIVER_NOT_READY,
            // QP broken: local, remote, either engine.
            0x0700 | 0x0703 | 0x0704 | 0x0705 => Self::FATAL,
            _ => Self::GENERAL,
        }
    }

    /// The code's number.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// What the code is to a program.
    pub const fn status(self) -> Status {
        match self.0 {
            1 => Status::Flushed,
            2 => Status::LocalProtection,
            3 => Status::RemoteAccess,
            4 => Status::LocalQueuePairOperation,
            5 => Status::RemoteOperation,
            6 => Status::LocalLength,
            8 => Status::RetryExceeded,
            9 => Status::WindowBind,
            10 => Status::RemoteInvalidRequest,
            11 => Status::ReceiverNotReadyExceeded,
            _ => Status::Fatal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flush_code_has_its_status() {
        let expected = [
            Status::Fatal,
            Status::Flushed,
            Status::LocalProtection,
            Status::RemoteAccess,
            Status::LocalQueuePairOperation,
            Status::RemoteOperation,
            Status::LocalLength,
            Status::Fatal,
            Status::RetryExceeded,
            Status::WindowBind,
            Status::RemoteInvalidRequest,
            Status::ReceiverNotReadyExceeded,
        ];
        for minor in 0..=u16::MAX {
            let status = expected.get(usize::from(minor)).copied().unwrap_or(Status::Fatal);
            assert_eq!(FlushCode::from_minor(minor).status(), status, "flush code {minor}");
        }
    }

    #[test]
    fn events_become_flush_codes() {
        let known: &[(FlushCode, &[u16])] = &[
            (
                FlushCode::PROTECTION,
                &[0x0102, 0x0103, 0x0104, 0x0105, 0x0106, 0x0107, 0x0108, 0x0109, 0x010a, 0x011c],
            ),
            (FlushCode::LOCAL_OPERATION, &[0x0133, 0x020a]),
            (FlushCode::LOCAL_LENGTH, &[0x0132, 0x0134, 0x0135, 0x0303, 0x0305]),
            (FlushCode::REMOTE_ACCESS, &[0x0112, 0x020d]),
            (FlushCode::WINDOW_BIND, &[0x0114, 0x0118, 0x0119, 0x011b]),
            (FlushCode::RETRY_EXCEEDED, &[0x050a]),
            (FlushCode::REMOTE_INVALID_REQUEST, &[0x0208]),
            (FlushCode::REMOTE_OPERATION, &[0x0316, 0x020e, 0x0505, 0x0507]),
            (FlushCode::RECEIVER_NOT_READY, &[0x050f]),
            (FlushCode::FATAL, &[0x0700, 0x0703, 0x0704, 0x0705]),
        ];
        for event in 0..=u16::MAX {
            let expected = known
                .iter()
                .find(|(_, events)| events.contains(&event))
                .map_or(FlushCode::GENERAL, |(code, _)| *code);
            assert_eq!(FlushCode::from_event(event), expected, "event {event:#x}");
        }
    }

    #[test]
    fn notes_have_a_high_nibble_of_their_own() {
        for major in 0..=u16::MAX {
            assert_eq!(is_datagram_note(major), (0xE000..=0xEFFF).contains(&major));
        }
    }
}
