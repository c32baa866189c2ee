//! `cargo xtask vm`: the real kernel in a virtual machine.

mod archive;
mod case;
mod device;
mod disk;
mod fleet;
mod guest;
mod initrd;
mod kernel;
mod kernel_log;
mod list;
mod machine;
mod packages;
mod python;
mod report;
mod session;
mod stand_in;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use irdma_vm_agent::End;

use crate::sim::Provider;
use crate::workspace::target;
use crate::{packages as machine_packages, process};
use fleet::{Fleet, Parts};
use packages::Set;
use report::Report;
use session::Selection;

/// What is done.
#[derive(clap::Args)]
pub struct Options {
    /// Generation of the device: 3 (stock idpf.ko) or 2 (a stand-in for ice.ko)
    /// (the tests: both without this; a command: 3)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=3))]
    r#gen: Option<u32>,
    /// Whose provider the guest has (the tests: both without this; a command: ours)
    #[arg(long)]
    provider: Option<Provider>,
    /// How many guests are on the device
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=2))]
    guests: u32,
    /// How many functions of the device a guest has: clients run on the last one
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=2))]
    functions: u32,
    /// Boot a guest with this terminal as its console
    #[arg(long, conflicts_with_all = ["update", "command"])]
    shell: bool,
    /// Only the short list of tests
    #[arg(long, conflicts_with = "command")]
    short: bool,
    /// Only tests whose GROUP/NAME contains this
    #[arg(long, value_name = "WORD", default_value = "", conflicts_with = "command")]
    filter: String,
    /// Seconds after which a command is killed
    #[arg(long, default_value_t = 600)]
    limit: u32,
    /// Pin the versions of the machine's packages that the mirror has now, and do nothing else
    #[arg(long)]
    update: bool,
    /// Write what came of the last whole lists to docs/compatibility.md, and do nothing else
    #[arg(long)]
    table: bool,
    /// Send nothing over the device's ordinary network side
    #[arg(long)]
    without_lan: bool,
    /// Another program that plays the device
    #[arg(long, value_name = "PROGRAM")]
    device: Option<PathBuf>,
    /// A command to run in the guest, instead of the tests
    #[arg(last = true)]
    command: Vec<String>,
}

/// Does it.
pub fn run(options: Options) -> Result<ExitCode> {
    if options.update {
        packages::update()?;
        return Ok(ExitCode::SUCCESS);
    }
    if options.table {
        return table::write().map(|()| ExitCode::SUCCESS);
    }
    machine_packages::install(machine_packages::BUILD)?;
    process::adopt_orphans()?;
    let logs = target().join(LOGS);
    let parts = |generation| Parts::build(generation, !options.without_lan, options.device.as_deref());
    if options.shell || !options.command.is_empty() {
        let parts = parts(options.r#gen.unwrap_or(3))?;
        if !options.shell {
            return command(&parts, &options, &logs.join("command"));
        }
        let provider = options.provider.unwrap_or(Provider::Ours);
        let status = fleet::shell(&parts, provider, &logs.join("shell"))?;
        return Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let generations = options.r#gen.map_or(vec![3, 2], |generation| vec![generation]);
    let providers = options.provider.map_or(vec![Provider::Ours, Provider::C], |provider| vec![provider]);
    let mut report = Report::default();
    let mut columns = Vec::new();
    for generation in generations {
        let parts = parts(generation)?;
        let selection = Selection { generation, is_short: options.short, word: &options.filter };
        for &provider in &providers {
            let column = (generation, provider);
            let logs = table::logs(column);
            let number = (options.guests, options.functions);
            session::run(&parts, &selection, provider, number, &logs, &mut report);
            if number == (1, 1) {
                table::keep(column, &report, selection.is_whole())?;
            }
            columns.push(column);
        }
    }
    let has_passed = report.print(&columns);
    println!("The output of every test and the logs of the machines are under {}.", logs.display());
    Ok(if has_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// In the target directory: what runs leave behind.
const LOGS: &str = "vm-logs";

/// Whether what a machine of GEN3 is made of is here.
pub fn is_fetched() -> bool {
    Set::Machine.is_fetched() && Set::Guest.is_fetched()
}

/// Runs the short list on GEN3 with this provider: passed tests, and what failed and was skipped.
pub fn short(logs: &Path) -> Result<(usize, Vec<String>, Vec<String>)> {
    let parts = Parts::build(3, true, None)?;
    let selection = Selection { generation: 3, is_short: true, word: "" };
    let mut report = Report::default();
    session::run(&parts, &selection, Provider::Ours, (1, 1), logs, &mut report);
    Ok(report.counted())
}

/// Runs the command of the options in a guest; ends with its exit code.
fn command(parts: &Parts, options: &Options, logs: &Path) -> Result<ExitCode> {
    let provider = options.provider.unwrap_or(Provider::Ours);
    let mut fleet = Fleet::boot(parts, provider, options.guests, options.functions, logs)?;
    let guest = &mut fleet.guests[0];
    let script = options.command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
    let run = guest.start(&script, options.limit, 0)?;
    guest.shown = Some(run);
    let finished = guest.finish(run)?;
    let trouble = kernel_log::trouble(guest.kernel(0), &[]).map(str::to_owned);
    fleet.end()?;
    if let Some(line) = trouble {
        bail!("the guest's kernel says: {line}; its log is in {}", logs.display());
    }
    Ok(match finished.end {
        End::Exit(code) => ExitCode::from(code),
        other => {
            eprintln!("the command ended by {other:?}");
            ExitCode::FAILURE
        }
    })
}

/// A word as the shell takes it for one.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}
