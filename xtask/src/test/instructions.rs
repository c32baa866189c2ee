//! What the verbs of the data path cost, against the figures that were accepted, and what an open context
//! takes, against the C provider.

use super::session::{Counts, Session, Verdict};
use crate::bench::{self, Accepted, Program};

/// Every accepted figure, and memory.
pub fn check(session: &mut Session) {
    session.check_on_device(
        "instructions",
        "memory of an open context: at most the C provider's",
        |simulator, folder| {
            let program = Program::build(simulator, folder)?;
            bench::check_memory(&program, &simulator.plugin().library).map(|()| Verdict::Passed)
        },
    );
    session.check_on_device("instructions", "accepted figures", |simulator, folder| {
        let program = Program::build(simulator, folder)?;
        let measured = Accepted::measure(&program, "")?;
        let accepted = Accepted::load()?;
        let comparison = accepted.compare(&measured);
        if !comparison.better.is_empty() {
            println!("        better, to be committed (`cargo xtask bench --accept`):");
        }
        for line in &comparison.better {
            println!("            {line}");
        }
        Ok(Verdict::Counted(Counts {
            passed: accepted.len() - comparison.worse.len(),
            failed: comparison.worse,
            skipped: Vec::new(),
        }))
    });
}
