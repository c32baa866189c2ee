//! The software device: built, and put under a program.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::ValueEnum;

use crate::plugin::{self, Plugin};
use crate::process::{Running, wait_until};
use crate::workspace::{cargo, run, target};

/// Which provider a program on the software device loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Provider {
    /// This project's.
    Ours,
    /// The distribution's.
    C,
}

impl fmt::Display for Provider {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Provider::Ours => "ours",
            Provider::C => "c",
        })
    }
}

/// What a person can say about the device; the launcher judges the values.
#[derive(clap::Args)]
pub struct Options {
    /// Whose provider the program loads
    #[arg(long, default_value_t = Provider::Ours)]
    provider: Provider,
    /// Generation of the device
    #[arg(long, value_name = "N")]
    r#gen: Option<String>,
    /// Transport of the device: roce or iwarp
    #[arg(long)]
    transport: Option<String>,
    /// Features that the device lacks, separated by commas
    #[arg(long, value_name = "FEATURE,...")]
    without: Option<String>,
    /// The old i40iw kernel, up to an ABI version
    #[arg(long, value_name = "ABI", num_args = 0..=1, default_missing_value = "5", require_equals = true)]
    legacy: Option<String>,
    /// How doorbells reach the device: trap, poll or step
    #[arg(long)]
    mode: Option<String>,
    /// Kernel release whose behaviour the device shows
    #[arg(long, value_name = "RELEASE")]
    kernel: Option<String>,
    /// Push pages that queue pairs can have
    #[arg(long, value_name = "PAGES")]
    push: Option<String>,
    /// A device that `irdma-sim start` started, instead of one of the program's own
    #[arg(long, value_name = "NAME")]
    fabric: Option<String>,
}

impl Options {
    /// The launcher's command, up to the program.
    pub fn command(&self, simulator: &Simulator) -> Command {
        let mut command = simulator.run(self.provider);
        let options = [
            ("--gen", &self.r#gen),
            ("--transport", &self.transport),
            ("--without", &self.without),
            ("--mode", &self.mode),
            ("--kernel", &self.kernel),
            ("--push", &self.push),
            ("--fabric", &self.fabric),
        ];
        for (name, value) in options {
            command.args(value.iter().flat_map(|value| [name, value]));
        }
        // With an equals sign: else it would be taken for the program.
        command.args(self.legacy.iter().map(|abi| format!("--legacy={abi}")));
        command
    }
}

/// The launcher and the plugin it puts under programs.
pub struct Simulator {
    launcher: PathBuf,
    plugin: Plugin,
}

impl Simulator {
    /// Builds both.
    pub fn build() -> Result<Simulator> {
        let mut device = cargo("build");
        device.args([
            "--quiet",
            "--profile",
            "sim",
            "--package",
            "irdma-sim",
            "--package",
            "irdma-sim-preload",
        ]);
        // The plugin's build ends in one long step on one core.
        let (plugin, device) = thread::scope(|scope| {
            let device = scope.spawn(|| run(&mut device));
            (plugin::build(None), device.join())
        });
        device.map_err(|_| anyhow!("the build of the software device panicked"))??;
        Ok(Simulator { launcher: target().join("sim/irdma-sim"), plugin: plugin? })
    }

    /// The plugin.
    pub fn plugin(&self) -> &Plugin {
        &self.plugin
    }

    /// The launcher.
    pub fn launcher(&self) -> Command {
        Command::new(&self.launcher)
    }

    /// The launcher's command that runs one program on a device of its own, up to the program.
    pub fn run(&self, provider: Provider) -> Command {
        self.run_with(provider, &self.plugin.library)
    }

    /// As [`Simulator::run`], with another build of the plugin: for programs of another release.
    pub fn run_with(&self, provider: Provider, plugin: &Path) -> Command {
        let mut command = self.launcher();
        command.args(["run", "--provider"]).arg(provider.to_string()).arg("--plugin").arg(plugin);
        command
    }

    /// Whether a loaded plugin is that provider's.
    pub fn is_from(&self, provider: Provider, loaded: &Path) -> bool {
        (loaded == self.plugin.library) == (provider == Provider::Ours)
    }

    /// Starts a device that several programs meet on.
    pub fn start(&self, name: &str, options: &[&str], log: &Path) -> Result<Device<'_>> {
        let mut process =
            Running::start(self.launcher().args(["start", "--foreground"]).arg(name).args(options), log)?;
        let ready = wait_until(Duration::from_secs(10), || {
            !process.output().is_empty() || matches!(process.has_ended(), Ok(true) | Err(_))
        });
        if !ready || process.has_ended()? {
            bail!("the software device did not start: {}", process.output().trim_end());
        }
        Ok(Device { simulator: self, name: name.to_owned(), process })
    }
}

/// A running device process; it is told to stop when this value goes.
pub struct Device<'simulator> {
    simulator: &'simulator Simulator,
    name: String,
    process: Running,
}

impl Device<'_> {
    /// `program` on this device.
    pub fn program(&self, provider: Provider, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.simulator.run(provider);
        command.arg("--fabric").arg(&self.name).arg("--").arg(program);
        command
    }

    /// A control command for it.
    pub fn control(&self, command: &str) -> Command {
        let mut control = self.simulator.launcher();
        control.args(["ctl", &self.name, command]);
        control
    }

    /// What it was started by.
    pub fn simulator(&self) -> &Simulator {
        self.simulator
    }

    /// The device process.
    pub fn process(&self) -> &Running {
        &self.process
    }
}

impl Drop for Device<'_> {
    /// A device that does not listen any more is killed with its process's value.
    fn drop(&mut self) {
        let mut stop = self.simulator.launcher();
        let _ = stop.arg("stop").arg(&self.name).output();
    }
}
