//! What a person waits for, measured on the device with our provider.
//!
//! Only timing noise is a reason to measure again: the best of a few runs counts.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};

use super::programs::{rows, serve, side};
use super::session::{Session, Verdict};
use crate::process::{self, Running};
use crate::sim::{Provider, Simulator};

/// How often a figure may miss its bound before it counts.
const ATTEMPTS: usize = 4;

/// Longest time one program may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Every figure and its bound.
pub fn check(session: &mut Session) {
    session.check_on_device("speed", "ibv_devinfo in less than 0.3 s", |simulator, folder| {
        below(0.3, "s", || {
            let mut command = simulator.run(Provider::Ours);
            let finished = process::run(command.args(["--", "ibv_devinfo"]), &folder.join("output"), LIMIT)?;
            ensure!(finished.succeeded(), "{}", finished.explain());
            Ok(finished.elapsed.as_secs_f64())
        })
    });
    session.check_on_device("speed", "ib_write_lat of 8 bytes at most 60 us", |simulator, folder| {
        below(60.0, "us", || {
            // Columns: bytes, iterations, minimum, maximum, typical ...
            column(&pair(simulator, "ib_write_lat -F -s 8 -I 64 -n 2000", folder)?, 4)
        })
    });
    session.check_on_device("speed", "ibv_rc_pingpong at most 200 us each", |simulator, folder| {
        below(200.0, "us", || {
            // `1000 iters in 0.03 seconds = 28.50 usec/iter`
            let output = pair(simulator, "ibv_rc_pingpong -g 0 -n 2000", folder)?;
            let words: Vec<&str> = output.split_whitespace().collect();
            let unit = words.iter().position(|word| *word == "usec/iter").context("no result line")?;
            Ok(words[unit - 1].parse()?)
        })
    });
    session.check_on_device("speed", "ib_write_bw of 64 KiB above 1 GB/s", |simulator, folder| {
        // Columns: bytes, iterations, peak, average in MiB/s.
        let least = 1e9 / f64::from(1 << 20);
        best(
            |figure| figure > least,
            |figure| format!("{figure:.0} MiB/s, below {least:.0}"),
            || column(&pair(simulator, "ib_write_bw -F -s 65536 -n 2000", folder)?, 3),
        )
    });
    session.check_on_device("speed", "an idle program takes no processor time", idle);
}

/// Measures until a figure is within its bound.
fn best(
    is_good: impl Fn(f64) -> bool,
    complaint: impl Fn(f64) -> String,
    mut measure: impl FnMut() -> Result<f64>,
) -> Result<Verdict> {
    let mut figure = 0.0;
    for _ in 0..ATTEMPTS {
        figure = measure()?;
        if is_good(figure) {
            return Ok(Verdict::Measured(figure));
        }
    }
    Err(anyhow!("{}", complaint(figure)))
}

fn below(most: f64, unit: &str, measure: impl FnMut() -> Result<f64>) -> Result<Verdict> {
    best(|figure| figure <= most, |figure| format!("{figure:.2} {unit}, above {most} {unit}"), measure)
}

/// A figure of a single result line.
fn column(output: &str, index: usize) -> Result<f64> {
    rows(output).first().and_then(|row| row.get(index)).copied().context("no result line")
}

/// Runs server and client; what the client prints.
fn pair(simulator: &Simulator, command: &str, folder: &Path) -> Result<String> {
    let command: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
    let device = simulator.start(&format!("speed-{}", std::process::id()), &[], &folder.join("device"))?;
    let port = process::free_port()?;
    let server = serve(&device, Provider::Ours, &command, port, &folder.join("server"))?;
    let mut client = side(&device, Provider::Ours, &command, port);
    let client = process::run(client.arg("127.0.0.1"), &folder.join("client"), LIMIT)?;
    ensure!(client.succeeded(), "{}", client.explain());
    let server = server.wait(LIMIT)?;
    ensure!(server.succeeded(), "{}", server.explain());
    Ok(client.output)
}

/// A program that waits for an event, and its device, sleep.
fn idle(simulator: &Simulator, folder: &Path) -> Result<Verdict> {
    let mut command = simulator.run(Provider::Ours);
    let mut program = Running::start(command.args(["--", "ibv_asyncwatch"]), &folder.join("output"))?;
    let waits =
        process::wait_until(Duration::from_secs(10), || process::loaded_provider(program.pid()).is_some());
    ensure!(waits && !program.has_ended()?, "ibv_asyncwatch does not start:\n{}", program.output());
    std::thread::sleep(Duration::from_millis(500));
    let processes = process::descendants(std::process::id());
    let used = || processes.iter().map(|&pid| process::processor_time(pid)).sum::<Duration>();
    let before = used();
    std::thread::sleep(Duration::from_secs(2));
    let spent = used() - before;
    ensure!(!program.has_ended()?, "ibv_asyncwatch has ended:\n{}", program.output());
    program.interrupt();
    ensure!(spent <= Duration::from_millis(10), "{} ms of processor time in 2 s", spent.as_millis());
    Ok(Verdict::Measured(spent.as_secs_f64()))
}
