//! Runs the matrix of programs on both providers.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::matrix::{Case, Expect, Processes, cases, pushed, third_generation};
use super::session::{Session, Verdict};
use crate::process::{self, Finished, Running};
use crate::sim::{Device, Provider, Simulator};
use crate::workspace::root;

/// Longest time one program may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Longest time until a server listens.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Every case on both providers, the programs in Python, and what must be equal for both.
pub fn check(session: &mut Session) {
    for provider in [Provider::Ours, Provider::C] {
        let group = format!("programs/{provider}");
        for case in cases(session.full) {
            session.check_on_device(&group, &case.name(), |simulator, folder| {
                run(&case, simulator, provider, folder).map(|()| Verdict::Passed)
            });
        }
        for case in pushed() {
            let name = format!("{} on {}", case.name(), case.device.join(" "));
            session.check_on_device(&format!("{group} with push pages"), &name, |simulator, folder| {
                run(&case, simulator, provider, folder).map(|()| Verdict::Passed)
            });
        }
        for (group, options) in
            [(group.clone(), &[][..]), (format!("{group} with push pages"), &["--push", "16"])]
        {
            for program in ["rc_traffic", "extended_cq", "events"] {
                session.check_on_device(&group, program, |simulator, folder| {
                    let script = root().join("tests/programs").join(program).with_extension("py");
                    // The interpreter that Debian's pyverbs belongs to.
                    let mut command = simulator.run(provider);
                    command.args(options).arg("--").args(["/usr/bin/python3", "-B"]).arg(script);
                    succeed(&mut command, folder).map(|_| Verdict::Passed)
                });
            }
        }
        session.check_on_device(&group, "loads the provider", |simulator, folder| {
            loads(simulator, provider, folder).map(|()| Verdict::Passed)
        });
    }
    for case in third_generation() {
        session.check_on_device("programs/ours on GEN3", &case.name(), |simulator, folder| {
            run(&case, simulator, Provider::Ours, folder).map(|()| Verdict::Passed)
        });
    }
    session.check_on_device("programs", "ibv_devinfo is equal for both", |simulator, folder| {
        let show = |provider: Provider| -> Result<String> {
            let mut command = simulator.run(provider);
            Ok(succeed(command.args(["--", "ibv_devinfo", "-v"]), &folder.join(provider.to_string()))?.output)
        };
        equal_but_for_faults(&show(Provider::Ours)?, &show(Provider::C)?).map(|()| Verdict::Passed)
    });
}

/// Known faults of the C provider in what `ibv_devinfo -v` prints: it reports the kernel's limit,
/// of which half can be created, since its rings have two entries for each completion.
const C_FAULTS: &[&str] = &["max_cqe:"];

/// Line by line equal, except where a fault is known; there the lines must differ.
fn equal_but_for_faults(ours: &str, c: &str) -> Result<()> {
    ensure!(ours.lines().count() == c.lines().count(), "one output is longer");
    for (ours, c) in ours.lines().zip(c.lines()) {
        let is_fault = C_FAULTS.iter().any(|start| c.trim_start().starts_with(start));
        ensure!((ours == c) != is_fault, "ours: {ours}\n    c:    {c}");
    }
    Ok(())
}

impl Case {
    /// As typed, with how often.
    fn name(&self) -> String {
        let command = self.command.join(" ");
        match self.processes {
            Processes::Pairs(pairs) if pairs > 1 => format!("{command}, {} processes", 2 * pairs),
            _ => command,
        }
    }
}

/// Runs a case to its end and looks at what it shows.
fn run(case: &Case, simulator: &Simulator, provider: Provider, folder: &Path) -> Result<()> {
    match case.processes {
        Processes::Alone => {
            let mut command = simulator.run(provider);
            let finished = process::run(
                command.args(case.device).arg("--").args(&case.command),
                &folder.join("output"),
                LIMIT,
            )?;
            case.expect.met_by(&finished)
        }
        Processes::Pairs(pairs) => {
            let device = simulator.start(
                &format!("test-{}", std::process::id()),
                case.device,
                &folder.join("device"),
            )?;
            let mut servers = Vec::new();
            let mut clients = Vec::new();
            for pair in 0..pairs {
                let port = process::free_port()?;
                let server =
                    serve(&device, provider, &case.command, port, &folder.join(format!("server{pair}")))?;
                servers.push(server);
                let mut client = side(&device, provider, &case.command, port);
                client.arg("127.0.0.1");
                clients.push(Running::start(&mut client, &folder.join(format!("client{pair}")))?);
            }
            for client in clients {
                case.expect.met_by(&client.wait(LIMIT)?)?;
            }
            for server in servers {
                case.expect.of_server().met_by(&server.wait(LIMIT)?)?;
            }
            Ok(())
        }
    }
}

/// One side of a pair; the client's address is still to be added.
pub fn side(device: &Device, provider: Provider, command: &[String], port: u16) -> Command {
    let mut side = device.program(provider, &command[0]);
    side.args(&command[1..]).arg("-p").arg(port.to_string());
    side
}

/// Starts a server and waits until it listens, or has ended before.
pub fn serve(
    device: &Device,
    provider: Provider,
    command: &[String],
    port: u16,
    log: &Path,
) -> Result<Running> {
    let mut server = Running::start(&mut side(device, provider, command, port), log)?;
    let mut ended = false;
    let ready = process::wait_until(START_LIMIT, || {
        ended = !matches!(server.has_ended(), Ok(false));
        ended || process::listens(port)
    });
    ensure!(ready, "the server does not listen:\n    {}", server.output().trim_end());
    if !ended {
        let loaded =
            process::loaded_provider(server.pid()).context("the server has loaded no irdma provider")?;
        ensure!(device.simulator().is_from(provider, &loaded), "the server has loaded {}", loaded.display());
    }
    Ok(server)
}

/// A program that must end well.
fn succeed(command: &mut Command, folder: &Path) -> Result<Finished> {
    let finished = process::run(command, &folder.join("output"), LIMIT)?;
    if !finished.succeeded() {
        bail!("{}", finished.explain());
    }
    Ok(finished)
}

/// The dynamic loader tells which provider a short-lived program gets.
fn loads(simulator: &Simulator, provider: Provider, folder: &Path) -> Result<()> {
    let mut command = simulator.run(provider);
    let finished = succeed(command.args(["--", "ibv_devinfo"]).env("LD_DEBUG", "files"), folder)?;
    let loaded: Vec<&str> = finished
        .output
        .lines()
        .filter_map(|line| line.split_once("calling init: "))
        .map(|(_, path)| path)
        .filter(|path| path.contains("/libirdma-rdmav"))
        .collect();
    let [path] = loaded[..] else { bail!("one irdma provider is expected, not {loaded:?}") };
    ensure!(simulator.is_from(provider, Path::new(path)), "ibv_devinfo has loaded {path}");
    Ok(())
}

impl Expect {
    /// A server of perftest may leave the results to its client.
    fn of_server(self) -> Expect {
        match self {
            Expect::Sizes(_) => Expect::Texts(&[]),
            other => other,
        }
    }

    fn met_by(self, finished: &Finished) -> Result<()> {
        let met = match self {
            Expect::Texts(texts) => {
                finished.succeeded() && texts.iter().all(|text| finished.output.contains(text))
            }
            Expect::Refusal(text) => {
                finished.status.is_some_and(|status| status.code().is_some_and(|code| code != 0))
                    && finished.output.contains(text)
            }
            Expect::Sizes(sizes) => {
                let rows = rows(&finished.output);
                ensure!(
                    rows.len() == sizes,
                    "{} sizes instead of {sizes}: {}",
                    rows.len(),
                    finished.explain()
                );
                finished.succeeded()
            }
        };
        ensure!(met, "{}", finished.explain());
        Ok(())
    }
}

/// The result lines of a perftest program: size, iterations and figures.
pub fn rows(output: &str) -> Vec<Vec<f64>> {
    output
        .lines()
        .map(|line| line.split_whitespace().map_while(|word| word.parse().ok()).collect::<Vec<f64>>())
        .filter(|numbers| numbers.len() >= 4)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_differ_just_where_a_fault_is_known() {
        assert!(equal_but_for_faults("a\n max_cqe: 1\n", "a\n max_cqe: 2\n").is_ok());
        for (ours, c) in [("a\n", "b\n"), ("a\n", "a\na\n"), (" max_cqe: 2\n", " max_cqe: 2\n")] {
            assert!(equal_but_for_faults(ours, c).is_err(), "{ours} {c}");
        }
    }

    #[test]
    fn result_lines_are_told_from_headings() {
        let output = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n \
                      65536      5000             6457.2             6400.1               0.102\n---\n";
        assert_eq!(rows(output), [[65536.0, 5000.0, 6457.2, 6400.1, 0.102]]);
    }
}
