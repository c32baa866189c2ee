//! What a person waits for, measured on the device with our provider.
//!
//! The aims are for a machine with nothing else to do, and stand in each row's name. A
//! row fails only far from its aim, where no busy machine is an excuse: other work on two
//! processors alone makes a hand-over several times slower. The best of a few runs counts.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::programs::{rows, serve, side};
use super::session::{Session, Verdict};
use crate::process::{self, Running};
use crate::sim::{Provider, Simulator};

/// How often a figure may miss its bound before it counts.
const ATTEMPTS: usize = 4;

/// How far from its aim a figure may be.
const MARGIN: f64 = 10.0;

/// Longest time one program may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Every figure and its bound.
pub fn check(session: &mut Session) {
    session.check_on_device("speed", "s, ibv_devinfo: the aim is 0.3", |simulator, folder| {
        below(0.3, "s", || {
            let mut command = simulator.run(Provider::Ours);
            let finished = process::run(command.args(["--", "ibv_devinfo"]), &folder.join("output"), LIMIT)?;
            ensure!(finished.succeeded(), "{}", finished.explain());
            Ok(finished.elapsed.as_secs_f64())
        })
    });
    session.check_on_device("speed", "us, ib_write_lat of 8 bytes: the aim is 60", |simulator, folder| {
        below(60.0, "us", || {
            // Columns: bytes, iterations, minimum, maximum, typical ...
            column(&pair(simulator, "ib_write_lat -F -s 8 -I 64 -n 2000", folder)?, 4)
        })
    });
    session.check_on_device("speed", "us, ibv_rc_pingpong: the aim is 200 each", |simulator, folder| {
        below(200.0, "us", || {
            // `1000 iters in 0.03 seconds = 28.50 usec/iter`
            let output = pair(simulator, "ibv_rc_pingpong -g 0 -n 2000", folder)?;
            let words: Vec<&str> = output.split_whitespace().collect();
            let unit = words.iter().position(|word| *word == "usec/iter").context("no result line")?;
            Ok(words[unit - 1].parse()?)
        })
    });
    session.check_on_device(
        "speed",
        "MiB/s, ib_write_bw of 64 KiB: the aim is 954 (1 GB/s)",
        |simulator, folder| {
            // Columns: bytes, iterations, peak, average in MiB/s.
            let aim = 1e9 / f64::from(1 << 20);
            let least = aim / MARGIN;
            best(
                |figure| figure >= aim,
                |figure| figure > least,
                f64::max,
                |figure| format!("{figure:.0} MiB/s, below {least:.0}"),
                || column(&pair(simulator, "ib_write_bw -F -s 65536 -n 2000", folder)?, 3),
            )
        },
    );
    session.check_on_device("speed", "an idle program takes no processor time", idle);
}

/// Measures until a figure reaches its aim; the best one, if it is within its bound.
fn best(
    is_good: impl Fn(f64) -> bool,
    is_bearable: impl Fn(f64) -> bool,
    better: impl Fn(f64, f64) -> f64,
    complaint: impl Fn(f64) -> String,
    mut measure: impl FnMut() -> Result<f64>,
) -> Result<Verdict> {
    let mut figure = measure()?;
    for _ in 1..ATTEMPTS {
        if is_good(figure) {
            break;
        }
        figure = better(figure, measure()?);
    }
    ensure!(is_bearable(figure), "{}", complaint(figure));
    Ok(Verdict::Measured(figure))
}

fn below(aim: f64, unit: &str, measure: impl FnMut() -> Result<f64>) -> Result<Verdict> {
    let most = aim * MARGIN;
    best(
        |figure| figure <= aim,
        |figure| figure <= most,
        f64::min,
        |figure| format!("{figure:.2} {unit}, above {most} {unit}"),
        measure,
    )
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
    let waits = process::wait_until(LIMIT, || process::loaded_provider(program.pid()).is_some());
    ensure!(waits && !program.has_ended()?, "ibv_asyncwatch does not start:\n{}", program.output());
    std::thread::sleep(Duration::from_millis(500));
    let processes = process::descendants(std::process::id());
    let used = || processes.iter().map(|&pid| process::processor_time(pid)).sum::<Duration>();
    let before = used();
    std::thread::sleep(Duration::from_secs(2));
    let spent = used() - before;
    ensure!(!program.has_ended()?, "ibv_asyncwatch has ended:\n{}", program.output());
    program.terminate();
    ensure!(spent <= Duration::from_millis(10), "{} ms of processor time in 2 s", spent.as_millis());
    Ok(Verdict::Measured(spent.as_secs_f64()))
}
