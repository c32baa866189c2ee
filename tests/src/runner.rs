//! Runs the programs: each in a process of its own, with a time limit.
//!
//! `cargo xtask test` starts the test binary once per provider, under
//! `irdma-sim run --provider ours|c -- BINARY`, with `IRDMA_TEST_PROVIDER` set to
//! `ours` or `c`. Without that variable there is no device to run on: every
//! program is then listed as ignored, with a line that says how to run it.
//!
//! A program that crashes or hangs fails alone. One that runs into a known fault
//! of the C provider is marked so in its list ([`Test::fails_on_c`]): there it
//! must fail, is counted as an expected failure, and an unexpected success is
//! reported as a failure so that the mark goes away with the fault. A fault that
//! only some releases of it have is marked with [`Test::may_fail_on_c`].

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};

use crate::control::try_control;

/// Environment variable with the name of the provider under test.
pub const PROVIDER_VARIABLE: &str = "IRDMA_TEST_PROVIDER";

/// Exit code of a program that found that it has nothing to test here.
const SKIPPED: u8 = 77;

/// Longest time one program may take; the longest takes two seconds on an idle machine.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// First argument of the process that runs one program.
const RUN_ONE: &str = "--run-one";

/// Which provider the programs run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// This project's.
    Ours,
    /// rdma-core's, for comparison.
    C,
}

/// The provider under test, if this process runs under `cargo xtask test`.
pub fn provider() -> Option<Provider> {
    match std::env::var(PROVIDER_VARIABLE).ok()?.as_str() {
        "ours" => Some(Provider::Ours),
        "c" => Some(Provider::C),
        other => panic!("{PROVIDER_VARIABLE}={other}: neither \"ours\" nor \"c\""),
    }
}

/// Whether the C provider is under test.
pub fn on_c_provider() -> bool {
    provider() == Some(Provider::C)
}

/// One program.
#[derive(Clone, Copy)]
pub struct Test {
    name: &'static str,
    run: fn(),
    c_fault: Option<CFault>,
    alone: bool,
}

/// A known fault of the C provider.
#[derive(Clone, Copy)]
struct CFault {
    description: &'static str,
    in_every_release: bool,
}

impl Test {
    /// A program and its name, see [`crate::test`].
    pub const fn new(name: &'static str, run: fn()) -> Test {
        Test { name, run, c_fault: None, alone: false }
    }

    /// The C provider has a fault that makes this program fail.
    pub const fn fails_on_c(self, description: &'static str) -> Test {
        Test { c_fault: Some(CFault { description, in_every_release: true }), ..self }
    }

    /// Some releases of the C provider have a fault that makes this program fail.
    pub const fn may_fail_on_c(self, description: &'static str) -> Test {
        Test { c_fault: Some(CFault { description, in_every_release: false }), ..self }
    }

    /// No other program may run at the same time (it counts what the device holds, or makes commands fail).
    pub const fn alone(self) -> Test {
        Test { alone: true, ..self }
    }
}

/// Ends the program, which has nothing to test on this device; the summary says so.
pub fn skip(reason: &str) -> ! {
    println!("{reason}");
    std::process::exit(i32::from(SKIPPED))
}

/// An entry of a list of programs, named after its function.
#[macro_export]
macro_rules! test {
    ($function:ident) => {
        $crate::runner::Test::new(concat!(module_path!(), "::", stringify!($function)), $function)
    };
}

/// The main function of a test binary.
pub fn main(lists: &[&[Test]]) -> ExitCode {
    let tests: Vec<Test> = lists.concat();
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(RUN_ONE) {
        return run_one(&tests, &arguments.next().unwrap_or_default());
    }
    run_all(&tests)
}

/// Runs the program called `name` in this process.
fn run_one(tests: &[Test], name: &str) -> ExitCode {
    let Some(test) = tests.iter().find(|test| test.name == name) else {
        eprintln!("no program is called {name}");
        return ExitCode::from(2);
    };
    (test.run)();
    ExitCode::SUCCESS
}

/// Runs those that the command line selects and sums up.
fn run_all(tests: &[Test]) -> ExitCode {
    let arguments = Arguments::from_args();
    let provider = provider();
    if provider.is_none() && !arguments.list {
        eprintln!(
            "The verbs programs need the software device: run them with `cargo xtask test`. Ignored here."
        );
    }
    let tally = Arc::new(Tally::default());
    let exclusion = Arc::new(RwLock::new(()));
    let trials = tests
        .iter()
        .map(|&test| {
            let tally = Arc::clone(&tally);
            let exclusion = Arc::clone(&exclusion);
            let name = test.name.split_once("::").map_or(test.name, |(_, rest)| rest);
            Trial::test(name, move || run_apart(test, provider, &tally, &exclusion))
                .with_ignored_flag(provider.is_none())
        })
        .collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    let (expected, skipped) = (count(&tally.expected_failures), count(&tally.skipped));
    if expected > 0 {
        println!("{expected} of the passed are expected failures: known faults of the C provider\n");
    }
    if skipped > 0 {
        println!("{skipped} of the passed were skipped, see above\n");
    }
    conclusion.exit_code()
}

/// What a passed program may be beside passed.
#[derive(Default)]
struct Tally {
    expected_failures: AtomicUsize,
    skipped: AtomicUsize,
}

/// Runs a program in a child process and judges how it ended.
fn run_apart(
    test: Test,
    provider: Option<Provider>,
    tally: &Tally,
    exclusion: &RwLock<()>,
) -> Result<(), Failed> {
    let Some(provider) = provider else {
        return Err(
            format!("no software device: {PROVIDER_VARIABLE} is not set; run `cargo xtask test`").into()
        );
    };
    let poisoned = "a runner thread panicked";
    let (_shared, _exclusive) = if test.alone {
        (None, Some(exclusion.write().map_err(|_| poisoned)?))
    } else {
        (Some(exclusion.read().map_err(|_| poisoned)?), None)
    };
    let (outcome, output) = spawn_and_wait(test.name)?;
    if test.alone {
        // A program that ended early may have left faults of the device behind.
        try_control("fail clear")?;
    }
    let fault = test.c_fault.filter(|_| provider == Provider::C);
    match (outcome, fault) {
        (Outcome::Skipped, _) => {
            tally.skipped.fetch_add(1, Ordering::Relaxed);
            println!("skipped: {}: {}", test.name, output.trim_end());
            Ok(())
        }
        (Outcome::Passed, None) => Ok(()),
        (Outcome::Passed, Some(fault)) if fault.in_every_release => Err(format!(
            "passes on the C provider, though it is marked as failing there: {}",
            fault.description
        )
        .into()),
        (Outcome::Passed, Some(_)) => Ok(()),
        (Outcome::Failed(failure), None) => Err(format!("{failure}\n{output}").into()),
        (Outcome::Failed(failure), Some(fault)) => {
            tally.expected_failures.fetch_add(1, Ordering::Relaxed);
            println!("expected failure of the C provider: {}: {} ({failure})", test.name, fault.description);
            Ok(())
        }
    }
}

/// How a program ended.
enum Outcome {
    Passed,
    Skipped,
    Failed(String),
}

/// How a process ended and what it printed.
fn spawn_and_wait(name: &str) -> Result<(Outcome, String), Failed> {
    let mut child = Command::new(std::env::current_exe()?)
        .args([RUN_ONE, name])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let readers = [child.stdout.take().map(collect), child.stderr.take().map(collect)];
    let status = wait_with_limit(&mut child)?;
    let output = readers.into_iter().flatten().map(|reader| reader.join().unwrap_or_default()).collect();
    let outcome = match status {
        None => Outcome::Failed(format!("no end after {} seconds", TIME_LIMIT.as_secs())),
        Some(status) => match (status.code(), status.signal()) {
            (Some(0), _) => Outcome::Passed,
            (Some(code), _) if code == i32::from(SKIPPED) => Outcome::Skipped,
            (Some(code), _) => Outcome::Failed(format!("exit code {code}")),
            (None, signal) => Outcome::Failed(format!("killed by signal {}", signal.unwrap_or(0))),
        },
    };
    Ok((outcome, output))
}

/// Reads a pipe to its end in a thread, so that the child never blocks on it.
fn collect(mut pipe: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What could be read up to an error is all there is to show.
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Waits for a child; kills it and returns `None` when it takes too long.
fn wait_with_limit(child: &mut Child) -> std::io::Result<Option<ExitStatus>> {
    let end = Instant::now() + TIME_LIMIT;
    let mut pause = Duration::from_millis(1);
    while Instant::now() < end {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}
