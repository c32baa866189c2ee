//! What loading a provider and opening a device with it takes, beside the C provider.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::measure::{Figures, Program};
use crate::layout::triplet;

/// Programs that are started with each provider.
const RUNS: usize = 41;

/// One that the C provider of every release knows.
const GENERATION: u8 = 2;

/// Prints medians of programs that alternate between both providers.
pub fn print(program: &Program, ours: &Path) -> Result<()> {
    let folder = PathBuf::from(format!("/usr/lib/{}/libibverbs", triplet()));
    let plugins = [ours.to_owned(), folder.join(ours.file_name().unwrap_or_default())];
    let mut runs = [Vec::new(), Vec::new()];
    for _ in 0..RUNS {
        for (plugin, runs) in plugins.iter().zip(&mut runs) {
            runs.push(program.opening(plugin, GENERATION)?);
        }
    }
    println!("{:<40}{:>12}{:>12}", format!("GEN{GENERATION}, median of {RUNS}"), "ours", "C");
    for (name, label, unit) in [
        ("load", "load the plugin, us", 1e3),
        ("open", "ibv_open_device, us", 1e3),
        ("heap", "open context: heap, bytes", 1.0),
        ("mapped", "open context: newly mapped, KiB", 1024.0),
        ("resident", "open context: newly resident, KiB", 1024.0),
    ] {
        let median = |runs: &[Figures]| {
            let mut figures: Vec<f64> = runs.iter().filter_map(|run| run.of(name)).collect();
            figures.sort_by(f64::total_cmp);
            figures.get(figures.len() / 2).map_or(f64::NAN, |figure| figure / unit)
        };
        println!("{label:<40}{:>12.1}{:>12.1}", median(&runs[0]), median(&runs[1]));
    }
    Ok(())
}
