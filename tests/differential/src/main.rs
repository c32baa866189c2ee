//! Random programs of verbs calls, run on this project's provider and on the C provider.
//!
//! Both run on software devices that are alike, in step mode, where nothing happens by
//! chance. Ioctls, work queue elements, doorbells, results and completions must be
//! equal, except where a fault of the C provider that [`faults`] lists explains the
//! difference. Whatever else differs is made as short as it gets and printed.

mod compare;
mod execute;
mod faults;
mod generate;
mod laws;
mod program;
mod random;
mod session;
mod shrink;
mod side;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Runs random verbs programs on both providers and compares what they do")]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run programs and compare
    Compare(Options),
    /// Run the programs that come on the standard input, on the software device
    Execute,
}

/// What is compared.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// The software device's launcher
    #[arg(long)]
    launcher: PathBuf,
    /// This project's provider
    #[arg(long)]
    plugin: PathBuf,
    /// Release of rdma-core whose C provider it is compared with
    #[arg(long, default_value_t = 44)]
    release: u32,
    /// Words in front of the program that runs the verbs, such as of a tool that gives it other libraries; one each
    #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
    under: Vec<OsString>,
    /// How many programs
    #[arg(long, default_value_t = 1000)]
    programs: u64,
    /// Seed of the first program; each further one has the next
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run only the program in this file, as printed for a difference
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// Change a bit of what this project's provider did, to see that it is found
    #[arg(long)]
    plant: bool,
    /// Print both traces of every program
    #[arg(long)]
    verbose: bool,
    /// Options of the device
    #[arg(last = true)]
    device: Vec<String>,
}

fn main() -> ExitCode {
    let result: Result<ExitCode> = match Arguments::parse().command {
        Task::Compare(options) => session::run(&options),
        Task::Execute => execute::run().map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
