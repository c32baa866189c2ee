//! `irdma-sim`: runs programs on a software irdma device.
//!
//! The launcher half: it starts device processes, shows programs the files of
//! a device, and runs them with the preload library. See docs/architecture.md.

mod cli;
mod client;
mod device;
mod discovery;
mod fabric;
mod isolation;
mod lock;
mod options;
mod plugin;
mod program;
mod run;
mod runtime;
mod signals;
mod watch;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::execute() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("irdma-sim: {error:#}");
            // Of the errors that are not the command line's, only this one has a number of its own.
            if error.is::<program::NotFound>() { ExitCode::from(127) } else { ExitCode::FAILURE }
        }
    }
}
