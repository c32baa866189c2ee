//! The project's commands: `cargo xtask demo`, `build`, `install`, `uninstall`, `package`, `test`, `pyverbs`, `bench`, `differential`,
//! `arm64`, `vm`, `sim`.

mod apt;
mod arm64;
mod bench;
mod checker;
mod demo;
mod differential;
mod fences;
mod inspect;
mod install;
mod layout;
mod newest;
mod package;
mod packages;
mod plugin;
mod process;
mod pyverbs;
mod shipped;
mod sim;
mod suites;
mod test;
mod vm;
mod workspace;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

use crate::sim::Simulator;

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "The commands of the irdma provider's source tree"
)]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install what is missing, build, and show the provider at work
    Demo(demo::Options),
    /// Build the plugin: target/provider/LAYOUT/libirdma-rdmavNN.so and irdma.driver
    Build(plugin::Options),
    /// Put the plugin in the place of the distribution's, which is kept
    Install(install::Options),
    /// Undo what install has done
    Uninstall(install::Place),
    /// Build the plugin as a package
    Package(package::Options),
    /// Install what is missing and run all tests
    Test(test::Options),
    /// Run rdma-core's own Python tests on the software device
    Pyverbs(pyverbs::Options),
    /// Measure the verbs of the data path, beside the C provider
    Bench(bench::Options),
    /// Run random programs on this provider and on the C provider, and compare what they do
    Differential(differential::Options),
    /// Build the plugin for arm64, look at its barriers, and run the unit tests in an emulator
    Arm64,
    /// Boot the real kernel in a virtual machine and run the tests, or a command, in it
    Vm(vm::Options),
    /// Run a program on the software device
    Sim {
        #[command(flatten)]
        options: sim::Options,
        /// The program and its arguments
        #[arg(last = true, required = true, value_name = "PROGRAM")]
        program: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    match perform(Arguments::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn perform(task: Task) -> Result<ExitCode> {
    match task {
        Task::Demo(options) => demo::run(options),
        Task::Build(options) => plugin::run(&options),
        Task::Install(options) => install::install(&options),
        Task::Uninstall(place) => install::uninstall(&place),
        Task::Package(options) => package::run(&options),
        Task::Test(options) => test::run(options),
        Task::Pyverbs(options) => pyverbs::run(options),
        Task::Bench(options) => bench::run(options),
        Task::Differential(options) => differential::run(options),
        Task::Arm64 => arm64::run(),
        Task::Vm(options) => vm::run(options),
        Task::Sim { options, program } => {
            packages::install(packages::BUILD.iter().chain(packages::DEMO))?;
            let mut command = options.command(&Simulator::build()?);
            // The launcher takes xtask's place: its signals and exit code are the program's.
            Err(command.arg("--").args(program).exec()).context("cannot start the software device")
        }
    }
}
