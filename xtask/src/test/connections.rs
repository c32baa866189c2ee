//! Programs that connect through the connection manager (librdmacm), on both transports.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::programs::rows;
use super::session::{Session, Verdict};
use crate::process::{self, Finished, Running, descendants, wait_until};
use crate::sim::{Device, Provider, Simulator};

/// Longest time one program may take.
const LIMIT: Duration = Duration::from_secs(120);
/// Longest time until a server waits for clients.
const START_LIMIT: Duration = Duration::from_secs(60);

/// How often a pair may start.
const ATTEMPTS: usize = 3;

/// A pair of programs.
struct Pair {
    /// Options of the device.
    device: &'static [&'static str],
    /// Whose provider it runs with.
    providers: &'static [Provider],
    /// The server's command.
    server: &'static str,
    /// What the client has instead of or behind it.
    client: &'static str,
    /// What `irdma-sim ctl NAME connections` says when the server is ready.
    ready: &'static str,
    /// What both say in the end.
    says: &'static str,
}

const BOTH: &[Provider] = &[Provider::Ours, Provider::C];
/// The C provider of rdma-core 44 knows no third generation. Over iWARP it takes the completion of
/// the kernel's own first work request for one of the program's if the program has posted by then,
/// which perftest has.
const OURS: &[Provider] = &[Provider::Ours];

const ROCE: &[&str] = &[];
const IWARP: &[&str] = &["--transport", "iwarp"];
/// The kernel connects after it has given out the push page.
const IWARP_WITH_PAGES: &[&str] = &["--transport", "iwarp", "--push", "8"];
const GEN1: &[&str] = &["--gen", "1"];
const LEGACY: &[&str] = &["--gen", "1", "--legacy"];
const GEN3: &[&str] = &["--gen", "3"];

const DATA: &str = "ping data: rdma-ping-9:";
/// A line of figures of perftest, which its client prints at least.
const FIGURES: &str = "";

const fn pair(
    device: &'static [&'static str],
    providers: &'static [Provider],
    server: &'static str,
    client: &'static str,
    says: &'static str,
) -> Pair {
    Pair { device, providers, server, client, ready: " Listen ", says }
}

const PAIRS: &[Pair] = &[
    pair(ROCE, BOTH, "rping -s -v -C 10", "rping -c -v -C 10 -a 192.0.2.1", DATA),
    pair(ROCE, BOTH, "rping -s -v -C 10 -a ::1", "rping -c -v -C 10 -a ::1", DATA),
    pair(ROCE, BOTH, "ucmatose -C 20", "ucmatose -C 20 -s 127.0.0.1", "return status 0"),
    pair(ROCE, BOTH, "udaddy -C 5", "udaddy -C 5 -s 127.0.0.1", "return status 0"),
    pair(ROCE, BOTH, "rstream -S 1024 -C 10", "rstream -S 1024 -C 10 -s 127.0.0.1", "custom"),
    pair(ROCE, BOTH, "ib_write_bw -R -F -n 100", "ib_write_bw -R -F -n 100 127.0.0.1", FIGURES),
    pair(ROCE, BOTH, "ib_send_lat -R -F -n 100 -I 64", "ib_send_lat -R -F -n 100 -I 64 127.0.0.1", FIGURES),
    pair(ROCE, BOTH, "ib_send_bw -R -F -n 100 -q 4", "ib_send_bw -R -F -n 100 -q 4 127.0.0.1", FIGURES),
    pair(
        ROCE,
        BOTH,
        "ib_send_bw -R -c UD -F -n 100 -s 1024",
        "ib_send_bw -R -c UD -F -n 100 -s 1024 127.0.0.1",
        FIGURES,
    ),
    Pair {
        ready: "memberships 1",
        ..pair(
            ROCE,
            BOTH,
            "mckey -m 239.1.1.1 -b 192.0.2.1",
            "mckey -m 239.1.1.1 -b 192.0.2.1 -s",
            "return status 0",
        )
    },
    pair(GEN3, OURS, "rping -s -v -C 10", "rping -c -v -C 10 -a 192.0.2.1", DATA),
    pair(GEN3, OURS, "ib_write_bw -R -F -n 100", "ib_write_bw -R -F -n 100 127.0.0.1", FIGURES),
    pair(IWARP, BOTH, "rping -s -v -C 10", "rping -c -v -C 10 -a 192.0.2.1", DATA),
    pair(IWARP, OURS, "ib_write_bw -R -F -n 100", "ib_write_bw -R -F -n 100 127.0.0.1", FIGURES),
    pair(IWARP, OURS, "ib_read_bw -R -F -n 100 -q 2", "ib_read_bw -R -F -n 100 -q 2 127.0.0.1", FIGURES),
    pair(IWARP, OURS, "rstream -S 1024 -C 10", "rstream -S 1024 -C 10 -s 127.0.0.1", "custom"),
    pair(IWARP_WITH_PAGES, BOTH, "rping -s -v -C 10", "rping -c -v -C 10 -a 192.0.2.1", DATA),
    pair(GEN1, BOTH, "rping -s -v -C 10", "rping -c -v -C 10 -a 192.0.2.1", DATA),
    pair(GEN1, OURS, "ib_write_bw -R -F -n 100", "ib_write_bw -R -F -n 100 127.0.0.1", FIGURES),
    pair(GEN1, OURS, "ib_send_bw -R -F -n 100 -b", "ib_send_bw -R -F -n 100 -b 127.0.0.1", FIGURES),
    pair(LEGACY, OURS, "rping -s -v -C 10", "rping -c -v -C 10 -a 192.0.2.1", DATA),
];

/// Every pair, and what happens when one of them dies.
pub fn check(session: &mut Session) {
    for pair in PAIRS {
        for provider in pair.providers {
            let group = format!("connections/{provider}");
            let name = [pair.device.join(" ").as_str(), pair.client].join(" ").trim().to_owned();
            session.check_on_device(&group, &name, |simulator, folder| {
                run(pair, simulator, *provider, folder).map(|()| Verdict::Passed)
            });
        }
    }
    for (name, device) in [("RoCE", ROCE), ("iWARP", IWARP)] {
        let check = format!("the peer of a killed program hears of it, {name}");
        session.check_on_device("connections", &check, |simulator, folder| {
            killed(simulator, device, folder).map(|()| Verdict::Passed)
        });
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_whitespace()
}

fn start(device: &Device, provider: Provider, command: &str, log: &Path) -> Result<Running> {
    let mut words = words(command);
    let mut program = device.program(provider, words.next().context("an empty command")?);
    Running::start(program.args(words), log)
}

/// What the connection manager knows.
fn connections(device: &Device) -> Result<String> {
    let output = device.control("connections").output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Starts a server and waits until it is ready for clients.
fn serve(device: &Device, provider: Provider, command: &str, ready: &str, log: &Path) -> Result<Running> {
    let mut server = start(device, provider, command, log)?;
    let mut ended = false;
    let is_ready = wait_until(START_LIMIT, || {
        ended = !matches!(server.has_ended(), Ok(false));
        ended || connections(device).is_ok_and(|text| text.contains(ready))
    });
    ensure!(is_ready && !ended, "the server is not ready:\n    {}", server.output().trim_end());
    Ok(server)
}

fn run(pair: &Pair, simulator: &Simulator, provider: Provider, folder: &Path) -> Result<()> {
    let name = format!("test-{}", std::process::id());
    let device = simulator.start(&name, pair.device, &folder.join("device"))?;
    // perftest meets over TCP as well, where another pair may be at its usual port.
    let port = process::free_port()?;
    let command = |command: &str| match command.strip_prefix("ib_") {
        Some(_) => format!("{command} -p {port}"),
        None => command.to_owned(),
    };
    let exchange = || -> Result<(Running, Finished)> {
        let server = serve(&device, provider, &command(pair.server), pair.ready, &folder.join("server"))?;
        let client = start(&device, provider, &command(pair.client), &folder.join("client"))?;
        Ok((server, client.wait(LIMIT)?))
    };
    let (mut server, mut client) = exchange()?;
    for _ in 1..ATTEMPTS {
        if !came_too_early(&client) {
            break;
        }
        drop(server);
        nothing_left(&device)?;
        (server, client) = exchange()?;
    }
    for finished in [&client, &server.wait(LIMIT)?] {
        ensure!(says(finished, pair.says), "{}", finished.explain());
    }
    ensure!(pair.says != FIGURES || rows(&client.output).len() == 1, "{}", client.explain());
    nothing_left(&device)
}

/// Whether perftest's client has lost a race that is perftest's own. Its sides meet on a first connection, and
/// then the server listens for a second one while the client asks for it already. A client that comes
/// too early should ask again, but crashes at that (perftest 4.5).
fn came_too_early(client: &Finished) -> bool {
    /// What it hears of connections over RoCE, of datagrams, and of connections over iWARP.
    const NOBODY_LISTENS: &[&str] = &[
        "RDMA_CM_EVENT_REJECTED; error: 8.",
        "RDMA_CM_EVENT_UNREACHABLE; error: 1.",
        "RDMA_CM_EVENT_REJECTED; error: -111.",
    ];
    /// How the launcher tells of SIGSEGV.
    const CRASHED: i32 = 128 + 11;
    client.command.contains(" ib_")
        && client.status.is_some_and(|status| status.code() == Some(CRASHED))
        && NOBODY_LISTENS.iter().any(|event| client.output.contains(event))
}

fn says(finished: &Finished, text: &str) -> bool {
    finished.succeeded() && finished.output.contains(text)
}

/// What programs made is gone with them, as soon as the device has noticed.
fn nothing_left(device: &Device) -> Result<()> {
    let mut left = String::new();
    let gone = wait_until(START_LIMIT, || {
        left = connections(device).unwrap_or_default();
        left == "nodes 0 memberships 0\n"
    });
    ensure!(gone, "left behind: {left}");
    Ok(())
}

fn killed(simulator: &Simulator, options: &[&str], folder: &Path) -> Result<()> {
    let name = format!("test-{}", std::process::id());
    let device = simulator.start(&name, options, &folder.join("device"))?;
    let count = "100000000";
    let command = format!("rping -s -C {count}");
    let server = serve(&device, Provider::Ours, &command, " Listen ", &folder.join("server"))?;
    let command = format!("rping -c -C {count} -a 192.0.2.1");
    let client = start(&device, Provider::Ours, &command, &folder.join("client"))?;
    let connected = wait_until(START_LIMIT, || {
        connections(&device).is_ok_and(|text| text.matches(" Established").count() == 2)
    });
    ensure!(connected, "they do not connect:\n    {}", client.output().trim_end());
    // The launcher waits for the program.
    let program = descendants(client.pid()).first().and_then(|pid| Pid::from_raw(*pid as i32));
    let program = program.context("the client has no process")?;
    // Stopped first: a server that is in the middle of something would learn of it by an error of that.
    kill_process(program, Signal::STOP)?;
    std::thread::sleep(Duration::from_millis(500));
    kill_process(program, Signal::KILL)?;
    client.wait(LIMIT)?;
    let finished = server.wait(LIMIT)?;
    ensure!(finished.output.contains("server DISCONNECT EVENT"), "{}", finished.explain());
    nothing_left(&device)
}
