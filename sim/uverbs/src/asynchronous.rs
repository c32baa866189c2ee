//! The kernel's reaction to what the device reports: flush codes and events (kernel: `irdma_process_aeq`).

use irdma_engine::event::{AsyncEvent, Source, Subject, code};
use irdma_engine::spec::{QpChange, QpState};

use crate::abi::number::event;
use crate::call::Hardware;
use crate::errno::Result;
use crate::file::OpenFile;
use crate::object::{Cq, IbState, Kind, Qp, Srq};

/// Flush code of work that came to nothing through no fault of its own (`FLUSH_GENERAL_ERR`).
pub const FLUSH_GENERAL: u16 = 1;

/// Further event codes (`IRDMA_AE_*`) that are no errors of a queue pair.
const LLP_DOUBT_REACHABILITY: u16 = 0x050c;
const RESOURCE_EXHAUSTION: u16 = 0x0520;
const RESET_NOT_SENT: u16 = 0x0603;

/// Flush code and event of an error (`irdma_ae_to_qp_err_code`).
pub fn classify(code: u16) -> (u16, u32) {
    match code {
        0x0102..=0x010a | 0x011c => (2, event::QP_ACCESS_ERR),
        0x0112 | 0x020d => (3, event::QP_ACCESS_ERR),
        0x0133 | 0x020a => (4, event::QP_FATAL),
        0x0316 | 0x020e | 0x0505 | 0x0507 => (5, event::QP_FATAL),
        0x0132 | 0x0134 | 0x0135 | 0x0303 | 0x0305 => (6, event::QP_FATAL),
        0x0700 | 0x0703 | 0x0704 | 0x0705 => (7, event::QP_FATAL),
        0x050a => (8, event::QP_FATAL),
        0x0114 | 0x0118 | 0x0119 | 0x011b => (9, event::QP_ACCESS_ERR),
        0x0208 => (10, event::QP_REQ_ERR),
        0x050f => (11, event::QP_FATAL),
        _ => (FLUSH_GENERAL, event::QP_FATAL),
    }
}

/// Deals with an event of an object of `file`.
pub fn react(hardware: &mut Hardware, file: &mut OpenFile, handle: u32, report: AsyncEvent) {
    // The handle comes from the table of owners, so the object is there and of that type.
    match report.subject {
        Subject::Qp(_) => qp_event(hardware, file, handle, report),
        Subject::Cq(_) if report.code == code::CQ_OPERATION_ERROR => {
            if let Some(cq) = file.objects.get_mut(handle).and_then(Cq::of_mut) {
                OpenFile::send_event(&mut file.channels, &mut cq.source, event::CQ_ERR);
            }
        }
        Subject::Srq(_) => {
            let event = match report.code {
                code::SRQ_LIMIT => event::SRQ_LIMIT_REACHED,
                code::SRQ_CATASTROPHIC => event::SRQ_ERR,
                _ => return,
            };
            if let Some(srq) = file.objects.get_mut(handle).and_then(Srq::of_mut) {
                srq.limit = 0;
                OpenFile::send_event(&mut file.channels, &mut srq.source, event);
            }
        }
        Subject::Cq(_) => {}
    }
}

fn qp_event(hardware: &mut Hardware, file: &mut OpenFile, handle: u32, report: AsyncEvent) {
    let Some(qp) = file.objects.get_mut(handle).and_then(Qp::of_mut) else { return };
    let told = match report.code {
        code::CONNECTION_ESTABLISHED => event::COMM_EST,
        code::SUSPEND_COMPLETE if qp.notify_drained => event::SQ_DRAINED,
        code::SUSPEND_COMPLETE | LLP_DOUBT_REACHABILITY | RESET_NOT_SENT | RESOURCE_EXHAUSTION => return,
        // What a flushed queue pair still has to say interests nobody.
        _ if qp.flush_issued => return,
        code => {
            let (flush_code, event) = classify(code);
            let of = |source| if report.source == source { flush_code } else { FLUSH_GENERAL };
            let codes = (of(Source::SendQueue), of(Source::ReceiveQueue));
            // The device has the queue pair; it cannot refuse.
            let _ = move_to_error(hardware, qp, codes.0, codes.1);
            qp.state = IbState::Error;
            event
        }
    };
    OpenFile::send_event(&mut file.channels, &mut qp.source, told);
}

/// Puts a QP into the error state and flushes both queues with those codes.
pub fn move_to_error(hardware: &mut Hardware, qp: &mut Qp, sq: u16, rq: u16) -> Result<()> {
    let change = QpChange { state: Some(QpState::Error), ..QpChange::default() };
    hardware.engine.modify_qp(qp.id, &change)?;
    qp.hardware = QpState::Error;
    qp.lose_connection(&mut hardware.lost);
    if !qp.flush_issued {
        qp.flush_issued = true;
        hardware.engine.flush_qp(qp.id, Some(sq), Some(rq))?;
    }
    Ok(())
}

/// Flushes queues of a QP in the error state once more.
pub fn flush(hardware: &mut Hardware, qp: &mut Qp, sq: bool, rq: bool) -> Result<()> {
    if !sq && !rq {
        return Ok(());
    }
    qp.flush_issued = true;
    hardware.engine.flush_qp(qp.id, sq.then_some(FLUSH_GENERAL), rq.then_some(FLUSH_GENERAL))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_their_flush_codes_and_events() {
        assert_eq!(classify(0x0109), (2, event::QP_ACCESS_ERR));
        assert_eq!(classify(0x020d), (3, event::QP_ACCESS_ERR));
        assert_eq!(classify(0x0303), (6, event::QP_FATAL));
        assert_eq!(classify(0x050a), (8, event::QP_FATAL));
        assert_eq!(classify(0x0208), (10, event::QP_REQ_ERR));
        assert_eq!(classify(0x050f), (11, event::QP_FATAL));
        assert_eq!(classify(0x0301), (FLUSH_GENERAL, event::QP_FATAL));
    }
}
