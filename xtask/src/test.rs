//! `cargo xtask test`: everything that is checked, and its summary.

mod check;
mod code;
mod connections;
mod dependencies;
mod differential;
mod documents;
mod instructions;
mod lanes;
mod licences;
mod matrix;
mod misuse;
mod object;
mod programs;
mod pyverbs;
mod releases;
mod session;
mod speed;
mod tree;
mod ucx;
mod verbs;
mod vm;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Error, Result};

use crate::{checker, packages, process};
use session::Session;

/// How much of the tests is run.
#[derive(clap::Args)]
pub struct Options {
    /// Run the whole matrix of programs, with more iterations
    #[arg(long)]
    full: bool,
    /// Run what others have left of the checks that run side by side, and leave the outcomes there
    #[arg(long, value_name = "FOLDER", hide = true)]
    lane: Option<PathBuf>,
    /// Run only checks whose name (GROUP/NAME) contains this
    filter: Option<String>,
}

impl Options {
    /// As they would be typed.
    fn arguments(&self) -> Vec<String> {
        let full = self.full.then(|| "--full".to_owned());
        full.into_iter().chain(self.filter.clone()).collect()
    }
}

/// Runs the tests; fails if one of them does.
pub fn run(options: Options) -> Result<ExitCode> {
    process::adopt_orphans()?;
    if let Some(folder) = options.lane {
        let mut session = Session::lane(options.full, options.filter, lanes::Share::of(folder))?;
        check_side_by_side(&mut session);
        return session.hand_over().map(|()| ExitCode::SUCCESS);
    }
    packages::install(
        packages::BUILD.iter().chain(packages::DEMO).chain(packages::TEST).chain(packages::BENCH),
    )?;
    let arguments = options.arguments();
    let mut session = Session::new(options.full, options.filter)?;
    code::check(&mut session);
    dependencies::check(&mut session);
    documents::check(&mut session);
    object::check(&mut session);
    if session.count(check_side_by_side) > 0 {
        // What both lanes need is built before.
        session.simulator().map_err(Error::msg)?;
        verbs::build()?;
        checker::quick()?;
        lanes::run(&mut session, &arguments)?;
    }
    releases::check(&mut session);
    vm::check(&mut session);
    instructions::check(&mut session);
    speed::check(&mut session);
    Ok(if session.conclude() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Checks that measure nothing, the long ones first.
fn check_side_by_side(session: &mut Session) {
    verbs::check(session);
    differential::check(session);
    pyverbs::check(session);
    programs::check(session);
    watch::check(session);
    ucx::check(session);
    connections::check(session);
    misuse::check(session);
    check::check(session);
}
