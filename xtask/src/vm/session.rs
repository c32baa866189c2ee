//! The list of tests, for each provider in a machine of its own.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;

use super::fleet::{Fleet, Parts};
use super::list::{self, Group, Outcome, Test};
use super::report::Report;
use super::{case, kernel_log, python};
use crate::sim::Provider;

/// Which tests are run.
pub struct Selection<'words> {
    /// Generation of the device.
    pub generation: u32,
    /// Only the short list.
    pub is_short: bool,
    /// Only tests whose `GROUP/NAME` contains this.
    pub word: &'words str,
}

impl Selection<'_> {
    /// Whether it is the whole list.
    pub fn is_whole(&self) -> bool {
        self.word.is_empty() && !self.is_short
    }

    /// Of the Python tests, the word that their names are to contain, if any are run.
    fn python(&self) -> Option<&str> {
        let word = if self.word.is_empty() { Some("") } else { self.word.strip_prefix("python/") };
        word.filter(|_| !self.is_short)
    }

    fn has(&self, group: &str, test: &Test) -> bool {
        (test.is_short || !self.is_short)
            && test.only.is_none_or(|only| only == self.generation)
            && format!("{group}/{}", test.name).contains(self.word)
    }
}

/// Runs the selected tests with one provider; what happens is noted in `report`.
pub fn run(
    parts: &Parts,
    selection: &Selection,
    provider: Provider,
    (guests, functions): (u32, u32),
    logs: &Path,
    report: &mut Report,
) {
    let started = Instant::now();
    let mut fleet = match Fleet::boot(parts, provider, guests, functions, logs) {
        Ok(fleet) => fleet,
        Err(error) => return report.trouble(format!("{provider}: the guest does not come up: {error:#}")),
    };
    println!("        {provider}: booted in {:.1} s", started.elapsed().as_secs_f64());
    for guest in &fleet.guests {
        if let Some(line) = kernel_log::trouble(guest.kernel(0), &[]) {
            report.trouble(format!("{provider}: the kernel says while it boots: {line}"));
        }
    }
    let result = run_all(&mut fleet, selection, provider, logs, report);
    if let Err(error) = result.and_then(|()| fleet.end()) {
        report.trouble(format!("{provider}: {error:#}"));
    }
    println!("        {provider}: {:.1} s", started.elapsed().as_secs_f64());
}

fn run_all(
    fleet: &mut Fleet,
    selection: &Selection,
    provider: Provider,
    logs: &Path,
    report: &mut Report,
) -> Result<()> {
    for group in list::groups() {
        run_group(fleet, &group, selection, provider, logs, report)?;
    }
    if let Some(word) = selection.python() {
        python::run(fleet, word, selection.generation, provider, logs, report)?;
    }
    run_group(fleet, &list::faults(), selection, provider, logs, report)
}

fn run_group(
    fleet: &mut Fleet,
    group: &Group,
    selection: &Selection,
    provider: Provider,
    logs: &Path,
    report: &mut Report,
) -> Result<()> {
    for test in group.tests.iter().filter(|test| selection.has(group.name, test)) {
        let started = Instant::now();
        let result = case::carry_out(fleet, group.name, test, logs);
        let outcome = match &result {
            Ok(outcome) => match test.c_fault.filter(|_| provider == Provider::C) {
                Some(fault) => outcome.clone().of_known_fault(fault),
                None => outcome.clone(),
            },
            Err(error) => Outcome::Failed(format!("{error:#}")),
        };
        let seconds = started.elapsed().as_secs_f64();
        println!("{seconds:>6.1} s  {provider}/{}/{}: {outcome}", group.name, test.name);
        report.note(group.name, test.name, (selection.generation, provider), outcome);
        result?;
    }
    Ok(())
}
