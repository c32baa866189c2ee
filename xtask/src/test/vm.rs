//! The short list in the virtual machine, where its packages are.

use super::session::{Counts, Session, Verdict};
use crate::vm;

/// On GEN3, with this provider.
pub fn check(session: &mut Session) {
    session.check("vm", "short list on GEN3", |folder| {
        if !vm::is_fetched() {
            let reason = "the machine's packages are not here; `cargo xtask vm --short` fetches them";
            return Ok(Verdict::Skipped(reason.to_owned()));
        }
        let (passed, failed, skipped) = vm::short(folder)?;
        Ok(Verdict::Counted(Counts { passed, failed, skipped }))
    });
}
