//! Measures the verbs of the data path of whichever provider libibverbs loads.
//!
//! Started by `cargo xtask bench` on the software device in step mode: doorbells
//! are plain memory, and the device works only when told to, between what is
//! measured. `irdma-benches count [FILTER]` under `valgrind --tool=callgrind
//! --collect-atstart=no`, `irdma-benches time [FILTER]` without; the filter is part
//! of the names of the rows to be measured.
//!
//! Every row is run twice, on the provider and on a [hollow] one whose functions
//! do nothing: the difference is what the provider takes.

mod bed;
mod callgrind;
mod hollow;
mod requests;
mod row;
mod rows;

use std::process::ExitCode;

use bed::Beds;
use row::Row;

/// Rounds of the two runs whose difference is counted: what the first rounds do beside their work cancels.
const COUNTED_ROUNDS: [u32; 2] = [6, 38];

/// Rounds before any is measured: every code path has been taken, every cache is filled.
const WARM_UP_ROUNDS: u32 = 4;

/// Rounds whose median is a row's time.
const TIMED_ROUNDS: usize = 101;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (measure, filter): (fn(&str, &dyn Row), &str) = match arguments[..] {
        ["count"] => (count, ""),
        ["count", filter] => (count, filter),
        ["time"] => (time, ""),
        ["time", filter] => (time, filter),
        _ => {
            eprintln!("usage: irdma-benches count|time [FILTER], on the software device in step mode");
            return ExitCode::from(2);
        }
    };
    let beds = Beds::new();
    for row in rows::all().iter().filter(|row| row.name.contains(filter)) {
        // What the provider does not offer is left out.
        if let Some(made) = (row.make)(&beds) {
            measure(row.name, &*made);
        }
    }
    ExitCode::SUCCESS
}

/// Counts instructions: one dump of the profiler per run, named `NAME|RUN|ROUNDS`.
///
/// Prints a line `NAME TAB OPERATIONS TAB CALLS`, both per round.
fn count(name: &str, row: &dyn Row) {
    assert!(callgrind::is_running(), "\"count\" works under valgrind --tool=callgrind only");
    for _ in 0..WARM_UP_ROUNDS {
        row::run(row, callgrind::collecting);
    }
    callgrind::zero();
    for rounds in COUNTED_ROUNDS {
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
    for _ in 0..WARM_UP_ROUNDS {
        row::run(row, row::timing(&mut 0));
    }
    let (mut provider, mut hollow) = ([0; TIMED_ROUNDS], [0; TIMED_ROUNDS]);
    for (provider, hollow) in provider.iter_mut().zip(&mut hollow) {
        row::run(row, row::timing(provider));
        row::run_hollow(row, row::timing(hollow));
    }
    let median = |times: &mut [u64]| *times.select_nth_unstable(TIMED_ROUNDS / 2).1 as f64;
    let net = (median(&mut provider) - median(&mut hollow)).max(0.0);
    println!("{name}\t{:.3}", net / f64::from(row.operations()));
}
