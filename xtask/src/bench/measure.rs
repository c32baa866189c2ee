//! Runs the benchmark program on the software device, under callgrind or alone.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::callgrind::Dumps;
use crate::newest::Newest;
use crate::process;
use crate::sim::{Provider, Simulator};
use crate::workspace::{cargo, run, target};

/// Longest time of a run; one under callgrind takes ten seconds on an idle machine.
const LIMIT: Duration = Duration::from_secs(180);

/// A figure per row, in the order of the table.
#[derive(Default)]
pub struct Figures(Vec<(String, f64)>);

impl Figures {
    /// Names of the rows.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// The figure of a row.
    pub fn of(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, figure)| *figure)
    }

    /// Rows and their figures.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(name, figure)| (name.as_str(), *figure))
    }
}

impl FromIterator<(String, f64)> for Figures {
    fn from_iter<I: IntoIterator<Item = (String, f64)>>(rows: I) -> Figures {
        Figures(rows.into_iter().collect())
    }
}

/// Rows that are measured in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// Verbs of the data path.
    Usual,
    /// Posting to queue pairs with push pages, on a device that has some.
    Pushing,
    /// So many queue pairs that it takes long.
    Large,
}

impl Set {
    /// Those that there are for a generation; the first one has no push pages.
    pub fn of_generation(generation: u8) -> &'static [Set] {
        if generation == 1 { &[Set::Usual, Set::Large] } else { &[Set::Usual, Set::Pushing, Set::Large] }
    }

    fn name(self) -> &'static str {
        match self {
            Set::Usual => "usual",
            Set::Pushing => "pushing",
            Set::Large => "large",
        }
    }

    /// Runs of each provider whose median is the ratio of times.
    fn timed_runs(self) -> usize {
        // Long ones have less to fear from what else the machine does.
        if self == Set::Large { 3 } else { 7 }
    }

    /// Options of the device: push pages, more than there are queue pairs.
    fn device(self) -> &'static [&'static str] {
        if self == Set::Pushing { &["--push", "64"] } else { &[] }
    }
}

/// The benchmark program, on the libibverbs of a release and its C provider.
pub struct Program<'simulator> {
    simulator: &'simulator Simulator,
    /// This project's plugin for that libibverbs.
    plugin: PathBuf,
    /// Words in front of a program that have it run on the release, if that is not this machine's.
    words: Vec<OsString>,
    path: PathBuf,
    folder: PathBuf,
}

impl Program<'_> {
    /// Builds it, for this machine's rdma-core; its files go into `folder`.
    pub fn build<'simulator>(simulator: &'simulator Simulator, folder: &Path) -> Result<Program<'simulator>> {
        run(cargo("build").args(["--quiet", "--profile", "sim", "--package", "irdma-benches"]))?;
        Ok(Program {
            simulator,
            plugin: simulator.plugin().library.clone(),
            words: Vec::new(),
            path: target().join("sim/irdma-benches"),
            folder: folder.to_owned(),
        })
    }

    /// The same on the newest rdma-core.
    pub fn on(self, newest: &Newest) -> Self {
        Program { plugin: newest.plugin.clone(), words: newest.words(), ..self }
    }

    /// Instructions per operation of the rows of a set whose names contain `filter`.
    pub fn instructions(
        &self,
        provider: Provider,
        generation: u8,
        set: Set,
        filter: &str,
    ) -> Result<Figures> {
        let dumps = self.folder.join(format!("callgrind-{provider}"));
        let _ = fs::remove_dir_all(&dumps);
        fs::create_dir_all(&dumps)?;
        let out = format!("--callgrind-out-file={}", dumps.join("dump").display());
        let valgrind = ["valgrind", "--quiet", "--tool=callgrind", "--collect-atstart=no", &out];
        let mut command = self.command(provider, generation, set, &valgrind);
        let output = self.output(command.args(["count", set.name(), filter]))?;
        let dumps = Dumps::read(&dumps)?;
        lines(&output)
            .map(|fields| {
                let number = |index: usize| -> Result<u32> {
                    Ok(fields.get(index).context("a line without a number")?.parse()?)
                };
                let name = fields[0].to_owned();
                let figure = dumps.per_operation(&name, number(1)?, number(2)?)?;
                Ok((name, figure))
            })
            .collect()
    }

    /// Time of the rows of a set whose names contain `filter`, ours as a part of the C provider's.
    ///
    /// Program and device share a processor, so that both find the queues in its caches.
    pub fn time_ratios(&self, generation: u8, set: Set, filter: &str) -> Result<Figures> {
        let everywhere = sched_getaffinity(None)?;
        let here = (0..CpuSet::MAX_CPU).rev().find(|&cpu| everywhere.is_set(cpu));
        let mut only = CpuSet::new();
        only.set(here.context("no processor to run on")?);
        sched_setaffinity(None, &only)?;
        let ratios = interleaved(set.timed_runs(), |provider| {
            let mut command = self.command(provider, generation, set, &[]);
            figures(&self.output(command.args(["time", set.name(), filter]))?)
        });
        sched_setaffinity(None, &everywhere)?;
        ratios
    }

    /// The same for the rows of two threads; none on a machine of one processor.
    pub fn thread_ratios(&self, generation: u8, filter: &str) -> Result<Figures> {
        if sched_getaffinity(None)?.count() < 2 {
            return Ok(Figures::default());
        }
        interleaved(Set::Usual.timed_runs(), |provider| {
            let mut command = self.command(provider, generation, Set::Usual, &[]);
            figures(&self.output(command.args(["threads", filter]))?)
        })
    }

    /// Whether the C provider works on a generation; those of old releases do not on the third.
    pub fn c_knows(&self, generation: u8) -> bool {
        generation < 3 || self.memory(Provider::C, generation).is_ok()
    }

    /// Bytes of the program's memory that objects take.
    pub fn memory(&self, provider: Provider, generation: u8) -> Result<Figures> {
        figures(&self.output(self.command(provider, generation, Set::Usual, &[]).arg("memory"))?)
    }

    /// What it takes to load a plugin and to open a device with it.
    pub fn opening(&self, plugin: &Path, generation: u8) -> Result<Figures> {
        let mut command = self.command(Provider::C, generation, Set::Usual, &[]);
        figures(&self.output(command.arg("open").arg(plugin))?)
    }

    /// The program on a device of its own, up to its arguments.
    fn command(&self, provider: Provider, generation: u8, set: Set, before: &[&str]) -> Command {
        let mut command = self.simulator.run_with(provider, &self.plugin);
        command.args(["--mode", "step", "--gen", &generation.to_string()]).args(set.device());
        command.arg("--").args(&self.words).args(before).arg(&self.path);
        command
    }

    /// What it prints.
    fn output(&self, command: &mut Command) -> Result<String> {
        let finished = process::run(command, &self.folder.join("output"), LIMIT)?;
        ensure!(finished.succeeded(), anyhow!("{}", finished.explain()));
        Ok(finished.output)
    }
}

/// Times of this provider as parts of the C provider's: the median of runs that alternate between both.
fn interleaved(runs: usize, times: impl Fn(Provider) -> Result<Figures>) -> Result<Figures> {
    let runs =
        (0..runs).map(|_| Ok((times(Provider::Ours)?, times(Provider::C)?))).collect::<Result<Vec<_>>>()?;
    let (first, _) = runs.first().context("no run")?;
    let ratios = first.names().filter_map(|name| {
        let ratio = |(ours, c): &(Figures, Figures)| Some(ours.of(name)? / c.of(name)?);
        let mut ratios: Vec<f64> = runs.iter().filter_map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        Some((name.to_owned(), *ratios.get(ratios.len() / 2)?))
    });
    Ok(ratios.collect())
}

/// Lines of a name and a figure.
fn figures(output: &str) -> Result<Figures> {
    lines(output)
        .map(|fields| Ok((fields[0].to_owned(), fields.get(1).context("a line without a figure")?.parse()?)))
        .collect()
}

/// Lines of fields that tabs separate; other lines are somebody else's.
fn lines(output: &str) -> impl Iterator<Item = Vec<&str>> {
    output.lines().filter(|line| line.contains('\t')).map(|line| line.split('\t').collect())
}
