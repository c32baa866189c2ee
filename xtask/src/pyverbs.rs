//! `cargo xtask pyverbs`: rdma-core's own Python tests on the software device.

mod failures;
mod report;
mod skips;
mod suite;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

pub use report::Report;
pub use suite::{Suite, outcomes};

use crate::sim::{Provider, Simulator};
use crate::workspace::target;
use crate::{packages, process};

/// Which of the runs there are is done.
#[derive(clap::Args)]
pub struct Options {
    /// Whose provider the tests load (both without this)
    #[arg(long)]
    provider: Option<Provider>,
    /// Generation of the device (2 and 3 without this)
    #[arg(long, value_name = "N")]
    r#gen: Option<u32>,
    /// Release of rdma-core whose tests are run: 44 or 65 (both without this)
    #[arg(long, value_name = "RELEASE")]
    suite: Option<u32>,
    /// Show each test that was skipped or failed, not only how many
    #[arg(long)]
    list: bool,
    /// Run only tests whose name contains this
    filter: Option<String>,
}

/// A suite on a device.
pub struct Run {
    /// The suite's release.
    pub suite: u32,
    /// Whose provider.
    pub provider: Provider,
    /// Generation of the device.
    pub generation: u32,
    /// Kernel that the device shows, if not the newest.
    pub kernel: Option<&'static str>,
    /// Whether the kernel is a real one, and not the software device's.
    pub real_kernel: bool,
}

const fn run_of(suite: u32, provider: Provider, generation: u32, kernel: Option<&'static str>) -> Run {
    Run { suite, provider, generation, kernel, real_kernel: false }
}

/// Every run. The C provider of rdma-core 44 knows no GEN3; the kernel of Debian 12 has memory
/// windows on GEN2, newer ones have not.
pub const RUNS: &[Run] = &[
    run_of(44, Provider::Ours, 2, None),
    run_of(44, Provider::C, 2, None),
    run_of(44, Provider::Ours, 2, Some("6.1")),
    run_of(44, Provider::C, 2, Some("6.1")),
    run_of(44, Provider::Ours, 3, None),
    run_of(65, Provider::Ours, 2, None),
    run_of(65, Provider::C, 2, None),
    run_of(65, Provider::Ours, 3, None),
    run_of(65, Provider::C, 3, None),
];

impl Run {
    /// What it is called.
    pub fn name(&self) -> String {
        let kernel = self.kernel.map(|kernel| format!(" of kernel {kernel}")).unwrap_or_default();
        format!("suite {} on GEN{}{kernel}, {}", self.suite, self.generation, self.provider)
    }

    /// Runs the tests whose names contain `word`.
    pub fn carry_out(&self, suite: &Suite, simulator: &Simulator, word: &str, logs: &Path) -> Result<Report> {
        Ok(Report::of(self, suite.run(simulator, self, word, logs)?))
    }
}

/// Runs what was asked for and shows what came of it; fails if a test failed that should not.
pub fn run(options: Options) -> Result<ExitCode> {
    packages::install(packages::BUILD.iter().chain(packages::DEMO).chain(packages::TEST))?;
    process::adopt_orphans()?;
    let simulator = Simulator::build()?;
    let word = options.filter.as_deref().unwrap_or_default();
    let chosen = RUNS.iter().filter(|run| {
        options.provider.is_none_or(|provider| run.provider == provider)
            && options.r#gen.is_none_or(|generation| run.generation == generation)
            && options.suite.is_none_or(|suite| run.suite == suite)
    });
    let mut suites = BTreeMap::new();
    let mut reports = Vec::new();
    for run in chosen {
        let suite = match suites.entry(run.suite) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(Suite::of_release(run.suite, &simulator)?),
        };
        let name = run.name();
        let logs = target().join("pyverbs-logs").join(name.replace(|c: char| !c.is_alphanumeric(), "_"));
        println!("\n{name}");
        let report = run.carry_out(suite, &simulator, word, &logs)?;
        report.print(options.list);
        reports.push((name, report));
    }
    Ok(report::conclude(&reports))
}
