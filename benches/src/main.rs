//! Measures the verbs of the data path of whichever provider libibverbs loads.
//!
//! Started by `cargo xtask bench` on the software device in step mode: doorbells
//! are plain memory, and the device works only when told to, between what is
//! measured. `irdma-benches count SET [FILTER]` runs under `valgrind --tool=callgrind
//! --collect-atstart=no`; without it `time SET [FILTER]` measures the same rows, `threads
//! [FILTER]` those of two threads, `memory` what objects take, and `open PLUGIN` what loading and opening do. The filter is part of
//! the names of the rows to be measured.
//!
//! Every row of the first two is run twice, on the provider and on a [hollow] one whose functions
//! do nothing: the difference is what the provider takes.

mod bed;
mod callgrind;
mod contention;
mod hollow;
mod memory;
mod open;
mod requests;
mod row;
mod rows;

use std::process::ExitCode;

use bed::Beds;
use row::{Rounds, Row};
use rows::Set;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["count", set, ref filter @ ..] if let Some(set) = Set::named(set) => each_row(set, filter, count),
        ["time", set, ref filter @ ..] if let Some(set) = Set::named(set) => each_row(set, filter, time),
        ["threads", ref filter @ ..] => contention::measure(filter.first().unwrap_or(&"")),
        ["memory"] => memory::measure(),
        ["open", plugin] => open::measure(plugin),
        _ => {
            eprintln!(
                "usage: irdma-benches count|time usual|pushing|large [FILTER], irdma-benches threads [FILTER], \
                 irdma-benches memory or irdma-benches open PLUGIN, on the software device in step mode"
            );
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

/// Measures the rows of a set whose names contain the filter.
fn each_row(set: Set, filter: &[&str], measure: fn(&str, &dyn Row)) {
    let beds = Beds::new();
    let filter = filter.first().unwrap_or(&"");
    for row in set.rows().iter().filter(|row| row.name.contains(filter)) {
        // What the provider does not offer is left out.
        if let Some(made) = (row.make)(&beds) {
            measure(row.name, &*made);
        }
    }
}

/// Counts instructions: one dump of the profiler per run, named `NAME|RUN|ROUNDS`.
///
/// Prints a line `NAME TAB OPERATIONS TAB CALLS`, both per round.
fn count(name: &str, row: &dyn Row) {
    assert!(callgrind::is_running(), "\"count\" works under valgrind --tool=callgrind only");
    for _ in 0..row.rounds().warm_up {
        row::run(row, callgrind::collecting);
    }
    callgrind::zero();
    for rounds in row.rounds().counted {
        for _ in 0..rounds {
            row::run(row, callgrind::collecting);
        }
        callgrind::dump(&format!("{name}|provider|{rounds}"));
        for _ in 0..rounds {
            row::run_hollow(row, callgrind::collecting);
        }
        callgrind::dump(&format!("{name}|hollow|{rounds}"));
    }
    println!("{name}\t{}\t{}", row.operations(), row.calls());
}

/// Prints a line `NAME TAB NANOSECONDS`, per operation.
fn time(name: &str, row: &dyn Row) {
    let Rounds { warm_up, timed, .. } = row.rounds();
    for _ in 0..warm_up {
        row::run(row, row::timing(row.clock(), &mut 0));
    }
    let (mut provider, mut hollow) = (vec![0; timed], vec![0; timed]);
    for (provider, hollow) in provider.iter_mut().zip(&mut hollow) {
        row::run(row, row::timing(row.clock(), provider));
        row::run_hollow(row, row::timing(row.clock(), hollow));
    }
    let net = (median(&mut provider) - median(&mut hollow)).max(0.0);
    println!("{name}\t{:.3}", net / f64::from(row.operations()));
}

/// The middle one.
fn median(times: &mut [u64]) -> f64 {
    *times.select_nth_unstable(times.len() / 2).1 as f64
}
