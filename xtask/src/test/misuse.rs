//! What people do wrong, and what goes wrong around them: a clear line and an exit code, never a hang.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::programs::{serve, side};
use super::session::{Session, Verdict};
use crate::process::{self, Finished, Running};
use crate::sim::{Device, Provider, Simulator};

/// Longest time until a wrong call is refused.
const LIMIT: Duration = Duration::from_secs(30);

/// Longest time until programs exchange data, and until they give up on a peer or a device that is gone.
const PATIENCE: Duration = Duration::from_secs(60);

/// Both sides post and poll for much longer than any test.
const PINGPONG: &str = "ibv_rc_pingpong -g 0 -n 100000000";

/// The client always has writes under way, and so learns that the server is gone.
const WRITES: &str = "ib_write_bw -F -N -s 4096 -n 100000000";

/// Wrong calls, then deaths.
pub fn check(session: &mut Session) {
    let wrong: &[(&str, &[&str], &str)] = &[
        ("unknown option", &["run", "--colour", "--", "true"], "--colour"),
        ("unknown command", &["fly"], "fly"),
        ("no program", &["run"], "PROGRAM"),
        ("unknown generation", &["run", "--gen", "9", "--", "true"], "9"),
        ("unknown mode", &["run", "--mode", "guess", "--", "true"], "guess"),
        ("program that does not exist", &["run", "--", "/no/such/program"], "/no/such/program"),
        ("program that is not executable", &["run", "--", "/etc/os-release"], "/etc/os-release"),
        ("fabric that does not run", &["run", "--fabric", "nowhere", "--", "true"], "nowhere"),
        ("plugin that does not exist", &["run", "--plugin", "/no/plugin.so", "--", "true"], "/no/plugin.so"),
    ];
    for &(name, arguments, text) in wrong {
        session.check_on_device("misuse", name, |simulator, folder| {
            refused(simulator.launcher().args(arguments), folder, text)
        });
    }
    session.check_on_device("misuse", "exit code is the program's", |simulator, folder| {
        let mut command = simulator.run(Provider::Ours);
        let finished =
            process::run(command.args(["--", "sh", "-c", "exit 7"]), &folder.join("output"), LIMIT)?;
        let code = finished.status.and_then(|status| status.code());
        ensure!(code == Some(7), "{}", finished.explain());
        Ok(Verdict::Passed)
    });
    session.check_on_device("misuse", "static program", static_program);
    session.check_on_device("misuse", "second device under a name in use", |simulator, folder| {
        let name = name();
        let _device = simulator.start(&name, &[], &folder.join("device"))?;
        refused(simulator.launcher().arg("start").arg(&name), folder, &name)
    });
    for provider in [Provider::Ours, Provider::C] {
        let deaths: [(&str, Death); 3] = [
            ("peer dies", peer_dies),
            ("device dies", device_dies),
            ("device stops answering", device_stops),
        ];
        for (name, death) in deaths {
            session.check_on_device("misuse", &format!("{name}, {provider}"), |simulator, folder| {
                death(simulator, provider, folder)
            });
        }
    }
    session.check_on_device("misuse", "run by a user without rights", unprivileged);
}

type Death = fn(&Simulator, Provider, &Path) -> Result<Verdict>;

/// A device's name that no other run of the tests uses.
fn name() -> String {
    format!("misuse-{}", std::process::id())
}

/// Fails with a line that holds `text`, and by no signal or panic.
fn refused(command: &mut Command, folder: &Path, text: &str) -> Result<Verdict> {
    let finished = process::run(command, &folder.join("output"), LIMIT)?;
    let code = finished.status.and_then(|status| status.code());
    ensure!(code.is_some_and(|code| code != 0 && code != 101), "{}", finished.explain());
    ensure!(finished.output.contains(text), "the message does not name {text}: {}", finished.explain());
    Ok(Verdict::Passed)
}

/// Nothing can be preloaded into a static program.
fn static_program(simulator: &Simulator, folder: &Path) -> Result<Verdict> {
    let (source, program) = (folder.join("static.c"), folder.join("static"));
    fs::write(&source, "int main(void) { return 0; }\n")?;
    let compiled = process::run(
        Command::new("gcc").arg("-static").arg("-o").arg(&program).arg(&source),
        &folder.join("gcc"),
        LIMIT,
    )?;
    ensure!(compiled.succeeded(), "{}", compiled.explain());
    refused(simulator.run(Provider::Ours).arg("--").arg(&program), folder, "static")
}

/// Two sides of a program that does not end by itself.
struct Traffic<'simulator> {
    device: Device<'simulator>,
    server: Running,
    client: Running,
}

fn traffic<'simulator>(
    command: &str,
    simulator: &'simulator Simulator,
    provider: Provider,
    folder: &Path,
) -> Result<Traffic<'simulator>> {
    let command: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
    let device = simulator.start(&name(), &[], &folder.join("device"))?;
    let port = process::free_port()?;
    let server = serve(&device, provider, &command, port, &folder.join("server"))?;
    let mut client =
        Running::start(side(&device, provider, &command, port).arg("127.0.0.1"), &folder.join("client"))?;
    // A device that works has messages to carry.
    let work = || process::processor_time(device.process().pid());
    let before = work();
    let runs = process::wait_until(PATIENCE, || work() >= before + Duration::from_millis(100));
    ensure!(runs && !client.has_ended()?, "no traffic:\n{}", client.output());
    Ok(Traffic { device, server, client })
}

/// The other side gets an error, and the device serves on.
fn peer_dies(simulator: &Simulator, provider: Provider, folder: &Path) -> Result<Verdict> {
    let traffic = traffic(WRITES, simulator, provider, folder)?;
    for pid in process::descendants(traffic.server.pid()).into_iter().chain([traffic.server.pid()]) {
        signal(pid, Signal::KILL)?;
    }
    gives_up(&traffic.client.wait(PATIENCE)?)?;
    let mut devinfo = traffic.device.program(provider, "ibv_devinfo");
    let finished = process::run(&mut devinfo, &folder.join("devinfo"), LIMIT)?;
    ensure!(finished.succeeded(), "the device is of no use any more: {}", finished.explain());
    Ok(Verdict::Passed)
}

/// Both sides end by themselves.
fn device_dies(simulator: &Simulator, provider: Provider, folder: &Path) -> Result<Verdict> {
    let traffic = traffic(PINGPONG, simulator, provider, folder)?;
    signal(traffic.device.process().pid(), Signal::KILL)?;
    gives_up(&traffic.client.wait(PATIENCE)?)?;
    gives_up(&traffic.server.wait(PATIENCE)?)?;
    Ok(Verdict::Passed)
}

/// As if it had died.
fn device_stops(simulator: &Simulator, provider: Provider, folder: &Path) -> Result<Verdict> {
    let traffic = traffic(PINGPONG, simulator, provider, folder)?;
    signal(traffic.device.process().pid(), Signal::STOP)?;
    gives_up(&traffic.client.wait(PATIENCE)?)?;
    gives_up(&traffic.server.wait(PATIENCE)?)?;
    Ok(Verdict::Passed)
}

/// Ended in time, with a failure of its own making.
fn gives_up(finished: &Finished) -> Result<()> {
    let code = finished.status.and_then(|status| status.code());
    ensure!(code.is_some_and(|code| code != 0), "{}", finished.explain());
    Ok(())
}

fn signal(pid: u32, signal: Signal) -> Result<()> {
    let pid = Pid::from_raw(pid as i32).ok_or_else(|| anyhow::anyhow!("no process {pid}"))?;
    // One that has ended meanwhile needs no signal.
    let _ = kill_process(pid, signal);
    Ok(())
}

/// Nobody has no rights to mount anything, and no files of their own.
fn unprivileged(simulator: &Simulator, folder: &Path) -> Result<Verdict> {
    if !rustix::process::geteuid().is_root() {
        return Ok(Verdict::Skipped("the tests run without rights already".to_owned()));
    }
    let nobody = |command: &Command| {
        let mut wrapped = Command::new("setpriv");
        wrapped.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        wrapped.arg(command.get_program()).args(command.get_args());
        wrapped
    };
    let launcher = simulator.launcher();
    let mut readable = Command::new("test");
    readable.arg("-x").arg(launcher.get_program());
    if !process::run(&mut nobody(&readable), &folder.join("readable"), LIMIT)?.succeeded() {
        return Ok(Verdict::Skipped("the build is in a folder that only its owner may enter".to_owned()));
    }
    let mut command = simulator.run(Provider::Ours);
    let finished =
        process::run(&mut nobody(command.args(["--", "ibv_devinfo"])), &folder.join("output"), LIMIT)?;
    ensure!(finished.succeeded(), "{}", finished.explain());
    Ok(Verdict::Passed)
}
