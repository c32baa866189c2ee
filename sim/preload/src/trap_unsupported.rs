//! Trap mode needs a decoder of the machine's store instructions; this machine's is not written.

use crate::report;

/// Says so. The launcher refuses trap mode here, so only a hand-made environment leads to this.
pub fn install() {
    report::line(format_args!(
        "trap mode is supported on x86-64 only: doorbells will be fatal; use poll mode"
    ));
}
