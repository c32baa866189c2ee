//! `irdma-check`: how the irdma devices of a machine are set up, and what is wrong.
//!
//! Everything that files say is read here; libibverbs and devices are opened in a second process
//! ([`probe`]), so that neither a plugin that crashes nor a device that hangs ends the report.

mod addresses;
mod cards;
mod devices;
mod drivers;
mod files;
mod findings;
mod human;
mod inquiry;
mod kernel;
mod layouts;
mod library;
mod marks;
mod memory;
mod negotiation;
mod node;
mod plugin;
mod probe;
mod report;
#[cfg(test)]
mod tree;
mod trial;
mod verbs;

use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use files::Root;
use report::Report;

/// Shows how the irdma devices of this machine are set up, and what is wrong
///
/// Ends with 0 if nothing is wrong, with 1 if something is, with 2 if the command line is.
#[derive(Parser)]
#[command(name = "irdma-check", version)]
struct CommandLine {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The libibverbs to look at, instead of the one that programs get
    #[arg(long, value_name = "FILE", default_value = "libibverbs.so.1")]
    libibverbs: OsString,
    /// Look at the files of another system, of which nothing is loaded or opened
    #[arg(long, value_name = "FOLDER", default_value = "/", hide = true)]
    root: PathBuf,
    /// Be the process that opens the devices of these names
    #[arg(long, value_name = "NAME", num_args = 0.., hide = true)]
    probe: Option<Vec<String>>,
}

fn main() -> ExitCode {
    let arguments = CommandLine::parse();
    if let Some(names) = &arguments.probe {
        return ended(probe::run(&arguments.libibverbs, names), ExitCode::SUCCESS);
    }
    let variable = |name: &str| Some(std::env::var_os(name)?.to_string_lossy().into_owned());
    let report = Report::of(&Root::new(arguments.root), &arguments.libibverbs, variable);
    let code = if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    ended(print(&report, arguments.json), code)
}

fn print(report: &Report, json: bool) -> io::Result<()> {
    let mut text = if json { serde_json::to_string_pretty(report)? } else { human::text(report) };
    if json {
        text.push('\n');
    }
    io::stdout().write_all(text.as_bytes())
}

/// The exit code, unless what was to be printed could not be.
fn ended(result: io::Result<()>, code: ExitCode) -> ExitCode {
    match result {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            eprintln!("irdma-check: {error}");
            ExitCode::FAILURE
        }
        _ => code,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::CommandLine;

    const MANUAL: &str = include_str!("../../packaging/irdma-check.1");

    /// The options that begin the paragraphs of a section.
    fn explained(section: &str) -> BTreeSet<String> {
        let manual = MANUAL.replace("\\-", "-");
        let (_, behind) = manual.split_once(&format!(".SH {section}\n")).expect("the section is there");
        let section = behind.split(".SH").next().unwrap_or_default();
        let tags = section.split(".TP\n").skip(1).filter_map(|paragraph| paragraph.lines().next());
        let words = tags.flat_map(str::split_whitespace).filter(|word| word.starts_with('-'));
        words.map(str::to_owned).collect()
    }

    #[test]
    fn the_manual_page_explains_the_options_that_help_shows() {
        let mut command = CommandLine::command();
        command.build();
        let mut shown = BTreeSet::new();
        for option in command.get_arguments().filter(|option| !option.is_hide_set()) {
            shown.extend(option.get_long().map(|name| format!("--{name}")));
            shown.extend(option.get_short().map(|name| format!("-{name}")));
        }
        assert_eq!(explained("OPTIONS"), shown);
    }
}
