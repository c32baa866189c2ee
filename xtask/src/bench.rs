//! `cargo xtask bench`: what a verb costs, beside the C provider.

mod accepted;
mod callgrind;
mod measure;

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::packages;
use crate::sim::{Provider, Simulator};
use crate::workspace::target;
pub use accepted::Accepted;
pub use measure::{Figures, Program};

/// Interleaved runs of both providers whose median is the ratio of times.
const TIMED_RUNS: usize = 7;

/// What is measured.
#[derive(clap::Args)]
pub struct Options {
    /// Write the table to this file as well
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Generations of the device
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "2")]
    r#gen: Vec<u8>,
    /// Count instructions only
    #[arg(long)]
    instructions: bool,
    /// Make this provider's instruction counts those that `cargo xtask test` holds it to
    #[arg(long)]
    accept: bool,
    /// On a device that offers push pages, for which no figures are held
    #[arg(long, conflicts_with = "accept")]
    push: bool,
    /// Measure only rows whose name contains this
    filter: Option<String>,
}

/// A row of the table. What a provider does not offer has no figure.
struct Row {
    name: String,
    generation: u8,
    ours: Option<f64>,
    c: Option<f64>,
    time_ratio: Option<f64>,
}

/// Measures and prints the table.
pub fn run(options: Options) -> Result<ExitCode> {
    packages::install(packages::BUILD.iter().chain(packages::DEMO).chain(packages::BENCH))?;
    let simulator = Simulator::build()?;
    let program = Program::build(&simulator, &target().join("bench"))?.with_push_pages(options.push);
    let filter = options.filter.as_deref().unwrap_or_default();
    let mut rows = Vec::new();
    for &generation in &options.r#gen {
        let figures = |provider| -> Result<Figures> {
            // rdma-core's provider of this machine may not know the generation.
            let figures = program.instructions(provider, generation, filter);
            if provider == Provider::C && generation > 2 { Ok(figures.unwrap_or_default()) } else { figures }
        };
        let (ours, c) = (figures(Provider::Ours)?, figures(Provider::C)?);
        let ratios = if options.instructions || c.is_empty() {
            Figures::default()
        } else {
            program.time_ratios(generation, filter, TIMED_RUNS)?
        };
        if options.accept && generation == Accepted::GENERATION {
            Accepted::load()?.replace(&ours).save()?;
        }
        rows.extend(ours.names().map(|name| Row {
            name: name.to_owned(),
            generation,
            ours: ours.of(name),
            c: c.of(name),
            time_ratio: ratios.of(name),
        }));
    }
    if rows.is_empty() {
        bail!("no row has such a name");
    }
    print!("{}", table(&rows));
    if let Some(file) = options.json {
        fs::write(&file, json(&rows)).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// For people.
fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<58} {:>3} {:>9} {:>9} {:>6} {:>6}\n",
        "instructions per operation", "gen", "ours", "C", "ours/C", "time"
    );
    let shown = |figure: Option<f64>, digits| match figure {
        Some(figure) => format!("{figure:.digits$}"),
        None => "-".to_owned(),
    };
    for row in rows {
        let ratio = row.ours.zip(row.c).map(|(ours, c)| ours / c);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<58} {:>3} {:>9} {:>9} {:>6} {:>6}",
            row.name,
            row.generation,
            shown(row.ours, 1),
            shown(row.c, 1),
            shown(ratio, 2),
            shown(row.time_ratio, 2)
        );
    }
    for (what, ratios) in [
        ("instructions", ratios(rows, |row| Some(row.ours? / row.c?))),
        ("time", ratios(rows, |row| row.time_ratio)),
    ] {
        if !ratios.is_empty() {
            let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
            let _ = writeln!(text, "mean of ours/C, {what}: {mean:.2}");
        }
    }
    text
}

fn ratios(rows: &[Row], ratio: impl Fn(&Row) -> Option<f64>) -> Vec<f64> {
    rows.iter().filter_map(ratio).collect()
}

/// For programs. Names of rows have no characters that JSON writes otherwise than Rust.
fn json(rows: &[Row]) -> String {
    let number = |figure: Option<f64>| figure.map_or("null".to_owned(), |figure| format!("{figure:.3}"));
    let rows: Vec<String> = rows
        .iter()
        .map(|row| {
            format!(
                "{{\"name\": {:?}, \"generation\": {}, \"ours_instructions\": {}, \"c_instructions\": {}, \
                 \"time_ratio\": {}}}",
                row.name,
                row.generation,
                number(row.ours),
                number(row.c),
                number(row.time_ratio)
            )
        })
        .collect();
    format!("{{\"rows\": [\n  {}\n]}}\n", rows.join(",\n  "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> [Row; 2] {
        let row = |name: &str, c, time_ratio| Row {
            name: name.to_owned(),
            generation: 2,
            ours: Some(50.0),
            c,
            time_ratio,
        };
        [row("a", Some(200.0), Some(0.5)), row("b", None, None)]
    }

    #[test]
    fn a_figure_that_there_is_not_is_a_dash_or_null() {
        let table = table(&rows());
        let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["a", "2", "50.0", "200.0", "0.25", "0.50"]);
        assert_eq!(lines[2], ["b", "2", "50.0", "-", "-", "-"]);
        let json = json(&rows());
        assert!(json.contains(r#""ours_instructions": 50.000, "c_instructions": null, "time_ratio": null"#));
    }

    #[test]
    fn means_leave_out_what_there_is_not() {
        assert!(table(&rows()).ends_with("mean of ours/C, instructions: 0.25\nmean of ours/C, time: 0.50\n"));
    }
}
