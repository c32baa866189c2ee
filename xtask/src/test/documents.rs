//! The documents against what they are about: sources, options, files, each other.

mod commands;
mod figures;
mod findings;
mod links;
mod log_lines;
mod manuals;
mod markdown;
mod rooms;
mod sources;
mod variables;

use anyhow::Result;

use super::session::{Session, Verdict};

/// Each kind of statement that can be compared.
pub fn check(session: &mut Session) {
    let mut compare = |name: &str, check: fn() -> Result<()>| {
        session.check("documents", name, |_| check().map(|()| Verdict::Passed));
    };
    compare("log lines", log_lines::check);
    compare("findings of irdma-check", findings::check);
    compare("variables", variables::check);
    compare("manual pages", manuals::check);
    compare("figures", figures::check);
    compare("commands", commands::check);
    compare("links", links::check);
    compare("rooms", rooms::check);
}
