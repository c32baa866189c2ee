//! Runs the benchmark program on the software device, under callgrind or alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::callgrind::Dumps;
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

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(String, f64)> for Figures {
    fn from_iter<I: IntoIterator<Item = (String, f64)>>(rows: I) -> Figures {
        Figures(rows.into_iter().collect())
    }
}

/// The benchmark program.
pub struct Program<'simulator> {
    simulator: &'simulator Simulator,
    path: PathBuf,
    folder: PathBuf,
    /// Push pages of the device.
    push_pages: u32,
}

/// More than there are queue pairs.
const PUSH_PAGES: u32 = 64;

impl Program<'_> {
    /// Builds it; its files go into `folder`.
    pub fn build<'simulator>(simulator: &'simulator Simulator, folder: &Path) -> Result<Program<'simulator>> {
        run(cargo("build").args(["--quiet", "--profile", "sim", "--package", "irdma-benches"]))?;
        let path = target().join("sim/irdma-benches");
        Ok(Program { simulator, path, folder: folder.to_owned(), push_pages: 0 })
    }

    /// The same on a device that has push pages for all queue pairs, or none.
    pub fn with_push_pages(self, has_pages: bool) -> Self {
        Program { push_pages: if has_pages { PUSH_PAGES } else { 0 }, ..self }
    }

    /// Instructions per operation of every row whose name contains `filter`.
    pub fn instructions(&self, provider: Provider, generation: u8, filter: &str) -> Result<Figures> {
        let dumps = self.folder.join(format!("callgrind-{provider}"));
        let _ = fs::remove_dir_all(&dumps);
        fs::create_dir_all(&dumps)?;
        let out = format!("--callgrind-out-file={}", dumps.join("dump").display());
        let valgrind = ["valgrind", "--quiet", "--tool=callgrind", "--collect-atstart=no", &out];
        let output = self.output(provider, generation, &valgrind, &["count", filter])?;
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

    /// Time of every row whose name contains `filter`, ours as a part of the C provider's: the median of `runs`.
    ///
    /// Program and device share a processor, so that both find the queues in its caches.
    pub fn time_ratios(&self, generation: u8, filter: &str, runs: usize) -> Result<Figures> {
        let everywhere = sched_getaffinity(None)?;
        let here = (0..CpuSet::MAX_CPU).rev().find(|&cpu| everywhere.is_set(cpu));
        let mut only = CpuSet::new();
        only.set(here.context("no processor to run on")?);
        sched_setaffinity(None, &only)?;
        let ratios = self.interleaved(generation, filter, runs);
        sched_setaffinity(None, &everywhere)?;
        ratios
    }

    fn interleaved(&self, generation: u8, filter: &str, runs: usize) -> Result<Figures> {
        let runs = (0..runs)
            .map(|_| {
                let times = |provider| self.times(provider, generation, filter);
                Ok((times(Provider::Ours)?, times(Provider::C)?))
            })
            .collect::<Result<Vec<_>>>()?;
        let (first, _) = runs.first().context("no run")?;
        let ratios = first.names().filter_map(|name| {
            let ratio = |(ours, c): &(Figures, Figures)| Some(ours.of(name)? / c.of(name)?);
            let mut ratios: Vec<f64> = runs.iter().filter_map(ratio).collect();
            ratios.sort_by(f64::total_cmp);
            Some((name.to_owned(), *ratios.get(ratios.len() / 2)?))
        });
        Ok(ratios.collect())
    }

    /// Nanoseconds per operation.
    fn times(&self, provider: Provider, generation: u8, filter: &str) -> Result<Figures> {
        let output = self.output(provider, generation, &[], &["time", filter])?;
        lines(&output)
            .map(|fields| {
                Ok((fields[0].to_owned(), fields.get(1).context("a line without a time")?.parse()?))
            })
            .collect()
    }

    /// What the program prints on a device of its own.
    fn output(
        &self,
        provider: Provider,
        generation: u8,
        before: &[&str],
        arguments: &[&str],
    ) -> Result<String> {
        let mut command = self.simulator.run(provider);
        command.args(["--mode", "step", "--gen", &generation.to_string()]);
        command.args(["--push", &self.push_pages.to_string(), "--"]);
        command.args(before).arg(&self.path).args(arguments);
        let finished = process::run(&mut command, &self.folder.join("output"), LIMIT)?;
        ensure!(finished.succeeded(), anyhow!("{}", finished.explain()));
        Ok(finished.output)
    }
}

/// Lines of fields that tabs separate; other lines are somebody else's.
fn lines(output: &str) -> impl Iterator<Item = Vec<&str>> {
    output.lines().filter(|line| line.contains('\t')).map(|line| line.split('\t').collect())
}
