//! What loading a provider and opening a device with it takes, beside the C provider.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use super::measure::{Figures, Program};
use crate::layout::triplet;

/// Programs that are started with each provider.
const RUNS: usize = 81;

/// The same where memory alone matters, which depends on next to nothing.
const RUNS_FOR_MEMORY: usize = 5;

/// One that the C provider of every release knows.
const GENERATION: u8 = 2;

/// What it takes with one provider: figures of programs.
struct Opening(Vec<Figures>);

impl Opening {
    /// The end of the quickest quarter of a figure's programs: other work on the machine makes any longer.
    fn quartile(&self, name: &str) -> f64 {
        let mut figures: Vec<f64> = self.0.iter().filter_map(|run| run.of(name)).collect();
        figures.sort_by(f64::total_cmp);
        figures.get(figures.len() / 4).copied().unwrap_or(f64::NAN)
    }
}

/// Programs that alternate between this provider and the C provider.
fn measure(program: &Program, ours: &Path, runs: usize) -> Result<[Opening; 2]> {
    let folder = PathBuf::from(format!("/usr/lib/{}/libibverbs", triplet()));
    let plugins = [ours.to_owned(), folder.join(ours.file_name().unwrap_or_default())];
    let mut openings = [Opening(Vec::new()), Opening(Vec::new())];
    for _ in 0..runs {
        for (plugin, opening) in plugins.iter().zip(&mut openings) {
            opening.0.push(program.opening(plugin, GENERATION)?);
        }
    }
    Ok(openings)
}

/// Fails if an open context takes more memory than the C provider's.
pub fn check_memory(program: &Program, ours: &Path) -> Result<()> {
    let [ours, c] = measure(program, ours, RUNS_FOR_MEMORY)?;
    for name in ["heap", "mapped", "own"] {
        let (ours, c) = (ours.quartile(name), c.quartile(name));
        ensure!(ours <= c, "{name}: {ours} bytes, {c} with the C provider");
    }
    Ok(())
}

/// Prints the end of the quickest quarter of each figure.
pub fn print(program: &Program, ours: &Path) -> Result<()> {
    let [ours, c] = measure(program, ours, RUNS)?;
    println!("{:<40}{:>12}{:>12}", format!("GEN{GENERATION}, best quarter of {RUNS}"), "ours", "C");
    for (name, label, unit) in [
        ("load", "load the plugin, us", 1e3),
        ("open", "ibv_open_device, us", 1e3),
        ("heap", "open context: heap, bytes", 1.0),
        ("mapped", "open context: newly mapped, KiB", 1024.0),
        ("own", "open context: newly resident, KiB", 1024.0),
        ("file", "the same of the plugin's file, KiB", 1024.0),
    ] {
        println!("{label:<40}{:>12.1}{:>12.1}", ours.quartile(name) / unit, c.quartile(name) / unit);
    }
    Ok(())
}
