//! Opening the kernel's context: which ABI version, which device.

use rdma_core_sys::bindings::verbs_context;
use rdma_core_sys::driver_data::{
    ABI_VERSION, ABI_VERSION_OLDEST, AllocContextRequest, AllocContextResponse, SUPPORT_WQE_FORMAT_V2,
    USE_RAW_ATTR,
};

use crate::capabilities::{Capabilities, Refusal};
use crate::command;
use crate::errno::{Errno, Result};
use crate::log::{self, Level};

/// What an opened context has.
pub struct Opened {
    /// What it can do.
    pub capabilities: Capabilities,
    /// mmap offset of the doorbell page.
    pub doorbell_key: u64,
}

/// Opens the kernel's context, and says so if the device cannot be used.
///
/// # Safety
/// `context` is being opened.
pub unsafe fn open(context: *mut verbs_context) -> Result<Opened> {
    // SAFETY: as the caller promises.
    let (response, version) = agree(|request| unsafe { command::alloc_context(context, request) })?;
    // SAFETY: as above, for the lines.
    let say = |level, line: core::fmt::Arguments<'_>| unsafe {
        log::line(&raw mut (*context).context, level, line)
    };
    let capabilities = Capabilities::from_response(&response, version).map_err(|refusal| match refusal {
        Refusal::UnknownRevision(revision) => {
            say(
                Level::Error,
                format_args!("open: hardware revision {revision} is beyond those that are known, 0 to 4"),
            );
            Errno::NOT_SUPPORTED
        }
        Refusal::Impossible(limit) => {
            say(Level::Error, format_args!("open: the kernel reports an impossible limit: {limit}"));
            Errno::PROTOCOL
        }
    })?;
    let revision = capabilities.hardware_revision;
    if revision > Capabilities::NEWEST_KNOWN_REVISION {
        say(Level::Warning, format_args!("open: hardware revision {revision} is taken for revision 3"));
    }
    // The legacy kernel has its doorbell page at the start of the file, and no field for it.
    let doorbell_key = if capabilities.is_legacy() { 0 } else { response.db_mmap_key };
    Ok(Opened { capabilities, doorbell_key })
}

/// Asks with the newest version, and with the oldest if the kernel knows no such.
///
/// Any other failure stays as it is: a second attempt would hide it.
fn agree(
    mut ask: impl FnMut(AllocContextRequest) -> Result<AllocContextResponse>,
) -> Result<(AllocContextResponse, u8)> {
    let request = |userspace_ver| AllocContextRequest {
        userspace_ver,
        comp_mask: USE_RAW_ATTR | SUPPORT_WQE_FORMAT_V2,
        ..AllocContextRequest::default()
    };
    match ask(request(ABI_VERSION)) {
        Err(Errno::INVALID) => Ok((ask(request(ABI_VERSION_OLDEST))?, ABI_VERSION_OLDEST)),
        answer => Ok((answer?, ABI_VERSION)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel that answers each request in turn, and what it was asked.
    fn asked_of(answers: &[Result<()>]) -> (Result<u8>, Vec<u8>) {
        let (mut answers, mut asked) = (answers.iter(), Vec::new());
        let agreed = agree(|request| {
            assert_eq!(request.comp_mask, 0b1001);
            asked.push(request.userspace_ver);
            answers.next().expect("one request too many").map(|()| AllocContextResponse::default())
        });
        (agreed.map(|(_, version)| version), asked)
    }

    #[test]
    fn the_newest_version_first() {
        assert_eq!(asked_of(&[Ok(())]), (Ok(5), vec![5]));
    }

    #[test]
    fn the_oldest_after_an_invalid_one() {
        assert_eq!(asked_of(&[Err(Errno::INVALID), Ok(())]), (Ok(4), vec![5, 4]));
        assert_eq!(asked_of(&[Err(Errno::INVALID); 2]), (Err(Errno::INVALID), vec![5, 4]));
    }

    #[test]
    fn other_failures_stay_and_are_not_repeated() {
        for errno in [Errno::NO_MEMORY, Errno::NOT_SUPPORTED, Errno::PROTOCOL] {
            assert_eq!(asked_of(&[Err(errno)]), (Err(errno), vec![5]));
        }
    }
}
