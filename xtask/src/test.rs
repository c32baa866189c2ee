//! `cargo xtask test`: everything that is checked, and its summary.

mod code;
mod connections;
mod differential;
mod instructions;
mod matrix;
mod misuse;
mod object;
mod programs;
mod pyverbs;
mod releases;
mod session;
mod speed;
mod ucx;
mod verbs;
mod vm;
mod watch;

use std::process::ExitCode;

use anyhow::Result;

use crate::{packages, process};
use session::Session;

/// How much of the tests is run.
#[derive(clap::Args)]
pub struct Options {
    /// Run the whole matrix of programs, with more iterations
    #[arg(long)]
    full: bool,
    /// Run only checks whose name (GROUP/NAME) contains this
    filter: Option<String>,
}

/// Runs the tests; fails if one of them does.
pub fn run(options: Options) -> Result<ExitCode> {
    packages::install(
        packages::BUILD.iter().chain(packages::DEMO).chain(packages::TEST).chain(packages::BENCH),
    )?;
    process::adopt_orphans()?;
    let mut session = Session::new(options.full, options.filter)?;
    code::check(&mut session);
    object::check(&mut session);
    programs::check(&mut session);
    watch::check(&mut session);
    ucx::check(&mut session);
    connections::check(&mut session);
    verbs::check(&mut session);
    pyverbs::check(&mut session);
    releases::check(&mut session);
    differential::check(&mut session);
    misuse::check(&mut session);
    vm::check(&mut session);
    instructions::check(&mut session);
    speed::check(&mut session);
    Ok(if session.conclude() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
