//! `cargo xtask differential`: random programs on this provider and on the C provider, compared.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::newest::Newest;
use crate::packages;
use crate::sim::Simulator;
use crate::workspace::{cargo, run as build, target};

/// What is compared.
#[derive(clap::Args)]
pub struct Options {
    /// How many programs
    #[arg(long, default_value_t = 100_000)]
    programs: u64,
    /// Seed of the first program; each further one has the next
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run only the program in this file, as printed for a difference
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// Change a bit of what this provider did, to see that it is found
    #[arg(long)]
    plant: bool,
    /// Print both traces of every program
    #[arg(long)]
    verbose: bool,
    /// Compare with rdma-core 65, which knows GEN3: both sides run on Debian forky's libraries
    #[arg(long)]
    with_65: bool,
    /// Options of the device, such as --gen 1 --transport iwarp
    #[arg(last = true)]
    device: Vec<String>,
}

/// Runs programs until the end or until enough differences are found.
pub fn run(options: Options) -> Result<ExitCode> {
    packages::install(packages::BUILD.iter().chain(packages::DEMO))?;
    let simulator = Simulator::build()?;
    let mut command = if options.with_65 {
        let newest = Newest::build()?;
        let mut command = command(&simulator, &newest.plugin, options.programs, options.seed)?;
        command.args(["--release", "65"]);
        command.args(newest.words().into_iter().flat_map(|word| ["--under".into(), word]));
        command
    } else {
        command(&simulator, &simulator.plugin().library, options.programs, options.seed)?
    };
    command.args(options.replay.iter().flat_map(|file| ["--replay".as_ref(), file.as_os_str()]));
    command.args(options.plant.then_some("--plant")).args(options.verbose.then_some("--verbose"));
    let device = if options.with_65 { newest(&options.device) } else { device_options(&options.device) };
    let status = command.args(device).status();
    let status = status.context("the comparing program does not start")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The options of the device that are asked for, and the kernel that the C provider of Debian 12 was
/// made for, unless it is another.
pub fn device_options(asked: &[String]) -> Vec<String> {
    let mut options = newest(asked);
    if !options.iter().any(|option| option.starts_with("--kernel")) {
        options.extend(["--kernel", "6.1"].map(str::to_owned));
    }
    options
}

/// The options of the device that are asked for, behind the mark that they begin there; the kernel is the newest.
fn newest(asked: &[String]) -> Vec<String> {
    std::iter::once("--".to_owned()).chain(asked.iter().cloned()).collect()
}

/// The comparing program, built, up to the options of the device.
pub fn command(simulator: &Simulator, plugin: &Path, programs: u64, seed: u64) -> Result<Command> {
    build(cargo("build").args(["--quiet", "--profile", "sim", "--package", "irdma-differential"]))?;
    let mut command = Command::new(target().join("sim/irdma-differential"));
    command.arg("compare").arg("--launcher").arg(simulator.launcher().get_program());
    command.arg("--plugin").arg(plugin);
    command.args(["--programs", &programs.to_string(), "--seed", &seed.to_string()]);
    Ok(command)
}
