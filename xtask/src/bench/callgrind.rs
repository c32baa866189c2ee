//! Reads what callgrind has written: one dump per run of a row.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// The run that a dump is of, as the program named it: `NAME|RUN|ROUNDS`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Run {
    row: String,
    hollow: bool,
    rounds: u32,
}

/// Instructions of every run.
pub struct Dumps(HashMap<Run, u64>);

impl Dumps {
    /// Those whose files are in `folder`.
    pub fn read(folder: &Path) -> Result<Dumps> {
        let mut dumps = HashMap::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let text = fs::read_to_string(&path).with_context(|| format!("no dump: {}", path.display()))?;
            dumps.extend(parse(&text));
        }
        Ok(Dumps(dumps))
    }

    /// Instructions that the provider takes per operation of a row.
    ///
    /// The difference between two run lengths, so that what only the first rounds do is left out, less that of
    /// the same calls to hollow functions, which are one instruction each.
    pub fn per_operation(&self, row: &str, operations: u32, calls: u32) -> Result<f64> {
        let slope = |hollow| -> Result<f64> {
            let mut runs: Vec<_> =
                self.0.iter().filter(|(run, _)| run.row == row && run.hollow == hollow).collect();
            runs.sort_by_key(|(run, _)| run.rounds);
            ensure!(runs.len() == 2, "two run lengths are expected of \"{row}\", not {}", runs.len());
            let [(short, few), (long, many)] = [runs[0], runs[1]];
            Ok((*many as f64 - *few as f64) / f64::from(long.rounds - short.rounds))
        };
        Ok((slope(false)? - slope(true)? + f64::from(calls)) / f64::from(operations))
    }
}

/// The run of a dump and its instructions; nothing of the dump at the program's end, which is of no run.
fn parse(text: &str) -> Option<(Run, u64)> {
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
    let mut name = value("desc: Trigger: Client Request: ")?.rsplitn(3, '|');
    let rounds = name.next()?.parse().ok()?;
    let hollow = name.next()? == "hollow";
    let run = Run { row: name.next()?.to_owned(), hollow, rounds };
    Some((run, value("totals: ")?.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump(run: &str, total: u64) -> (Run, u64) {
        let text = format!(
            "# callgrind format\nversion: 1\ndesc: Timerange: Basic block 0 - 9\n\
             desc: Trigger: Client Request: {run}\n\nevents: Ir\nsummary: {total}\n\nfn=(1) f\n7 {total}\n\n\
             totals: {total}\n"
        );
        parse(&text).unwrap()
    }

    #[test]
    fn set_up_and_the_calls_themselves_cancel() {
        // 1000 once, then 64 operations of 100 instructions and 20 around each; hollow functions take one.
        let total = |rounds: u64, each: u64| rounds * 64 * (each + 20);
        let dumps = Dumps(HashMap::from([
            dump("post: a|provider|6", 1000 + total(6, 100)),
            dump("post: a|provider|38", 1000 + total(38, 100)),
            dump("post: a|hollow|6", total(6, 1)),
            dump("post: a|hollow|38", total(38, 1)),
        ]));
        assert_eq!(dumps.per_operation("post: a", 64, 64).unwrap(), 100.0);
        assert!(dumps.per_operation("post: b", 64, 64).is_err());
    }

    #[test]
    fn the_last_dump_is_of_no_run() {
        assert_eq!(parse("desc: Trigger: Program termination\nsummary: 5\ntotals: 5\n"), None);
    }
}
