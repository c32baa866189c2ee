//! UCX over our provider: its transports `rc_verbs` and `ud_verbs`, on a device with shared
//! receive queues, without which it has no `rc_verbs`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::session::{Session, Verdict};
use crate::process::{self, Running};
use crate::sim::{Device, Provider, Simulator};
use crate::workspace::{cargo, run, target};

/// Longest time one program may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Longest time until a server listens.
const START_LIMIT: Duration = Duration::from_secs(60);

/// What both sides are told: no other device, and which GID. With an IPv4 one, UCX 1.13 drops every
/// datagram: it takes the service level in a completion for the kind of packet that mlx5 has there.
const SETTINGS: &[(&str, &str)] = &[("UCX_NET_DEVICES", "irdma0:1"), ("UCX_IB_GID_INDEX", "0")];

/// Reliable and unreliable.
const TRANSPORTS: &[&str] = &["rc_v", "ud_v"];

/// `ucx_perftest`: messages with tags, active messages, and what goes to memory.
const TESTS: &[&str] = &[
    "-t tag_lat -s 8 -n 300 -w 30",
    "-t tag_bw -s 65536 -n 100 -w 10",
    "-t ucp_am_lat -s 1024 -n 300 -w 30",
    "-t ucp_am_bw -s 65536 -n 100 -w 10",
    "-t ucp_put_lat -s 8 -n 300 -w 30",
    "-t ucp_put_bw -s 65536 -n 100 -w 10",
    "-t ucp_get -s 8 -n 300 -w 30",
    "-t ucp_get -s 65536 -n 100 -w 10",
    "-t ucp_fadd -s 8 -n 300 -w 30",
];

/// What it has, and over both transports the program that looks at the data (tests/ucx) and every test
/// of `ucx_perftest`, which does not.
pub fn check(session: &mut Session) {
    session.check_on_device("ucx", "ucx_info -d -e", |simulator, folder| {
        let mut command = simulator.run(Provider::Ours);
        command.args(["--gen", "3", "--", "ucx_info", "-u", "t", "-d", "-e"]);
        command.envs(SETTINGS.iter().copied());
        let finished = process::run(&mut command, &folder.join("output"), LIMIT)?;
        ensure!(finished.succeeded(), "{}", finished.explain());
        for text in ["Transport: rc_verbs", "Transport: ud_verbs", "# UCP endpoint"] {
            ensure!(finished.output.contains(text), "no {text}:\n{}", finished.explain());
        }
        Ok(Verdict::Passed)
    });
    for transport in TRANSPORTS {
        let name = format!("every byte over {transport}");
        session.check_on_device("ucx", &name, |simulator, folder| {
            run(cargo("build").args(["--quiet", "--package", "irdma-ucx"]))?;
            let mut command = simulator.run(Provider::Ours);
            command.args(["--gen", "3", "--"]).arg(target().join("debug/irdma-ucx"));
            command.envs(SETTINGS.iter().copied()).env("UCX_TLS", transport);
            let finished = process::run(&mut command, &folder.join("output"), LIMIT)?;
            ensure!(finished.succeeded(), "{}", finished.explain());
            ensure!(finished.output.contains("all as sent"), "{}", finished.explain());
            Ok(Verdict::Passed)
        });
        for test in TESTS {
            let name = format!("ucx_perftest {test} over {transport}");
            session.check_on_device("ucx", &name, |simulator, folder| {
                let pair = Pair::start(simulator, transport, test, folder)?;
                let client = pair.client.wait(LIMIT)?;
                ensure!(client.succeeded(), "{}", client.explain());
                ensure!(client.output.contains("Final:"), "no result: {}", client.explain());
                let server = pair.server.wait(LIMIT)?;
                ensure!(server.succeeded(), "{}", server.explain());
                Ok(Verdict::Passed)
            });
        }
    }
}

/// Both sides of a program.
struct Pair<'simulator> {
    client: Running,
    server: Running,
    _device: Device<'simulator>,
}

impl Pair<'_> {
    /// Starts `ucx_perftest` with `arguments` twice, with no other transport.
    fn start<'simulator>(
        simulator: &'simulator Simulator,
        transport: &str,
        arguments: &str,
        folder: &Path,
    ) -> Result<Pair<'simulator>> {
        let name = format!("ucx-{}", std::process::id());
        let device = simulator.start(&name, &["--gen", "3"], &folder.join("device"))?;
        let port = process::free_port()?;
        let side = || -> Command {
            let mut side = device.program(Provider::Ours, "ucx_perftest");
            side.args(arguments.split_whitespace()).arg("-p").arg(port.to_string());
            side.envs(SETTINGS.iter().copied()).env("UCX_TLS", transport);
            side
        };
        let mut server = Running::start(&mut side(), &folder.join("server"))?;
        let listens = process::wait_until(START_LIMIT, || {
            process::listens(port) || !matches!(server.has_ended(), Ok(false))
        });
        ensure!(listens && !server.has_ended()?, "the server does not listen:\n{}", server.output());
        let client = Running::start(side().arg("127.0.0.1"), &folder.join("client"))?;
        Ok(Pair { client, server, _device: device })
    }
}
