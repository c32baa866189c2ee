//! `ibv_asyncwatch`: told of what happens to the device while it waits.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::session::{Session, Verdict};
use crate::process::{self, Running};
use crate::sim::{Provider, Simulator};

/// Longest time until an event is shown.
const LIMIT: Duration = Duration::from_secs(60);

/// With both providers.
pub fn check(session: &mut Session) {
    for provider in [Provider::Ours, Provider::C] {
        session.check_on_device(
            &format!("programs/{provider}"),
            "ibv_asyncwatch sees a port go down and come up",
            |simulator, folder| watch(simulator, provider, folder),
        );
    }
}

fn watch(simulator: &Simulator, provider: Provider, folder: &Path) -> Result<Verdict> {
    let name = format!("watch-{}", std::process::id());
    let device = simulator.start(&name, &[], &folder.join("device"))?;
    // Its lines do not come before the buffer of a pipe is full otherwise.
    let mut command = device.program(provider, "stdbuf");
    let mut program = Running::start(command.args(["-oL", "ibv_asyncwatch"]), &folder.join("output"))?;
    let mut shows = |text: &str| -> Result<()> {
        let shown = process::wait_until(LIMIT, || {
            program.output().contains(text) || !matches!(program.has_ended(), Ok(false))
        });
        ensure!(shown && program.output().contains(text), "no \"{text}\":\n{}", program.output());
        Ok(())
    };
    shows("irdma0: async event FD")?;
    for (state, event) in [("down", "IBV_EVENT_PORT_ERR"), ("up", "IBV_EVENT_PORT_ACTIVE")] {
        let mut control = simulator.launcher();
        let finished =
            process::run(control.arg("ctl").arg(&name).args(["port", state]), &folder.join(state), LIMIT)?;
        ensure!(finished.succeeded(), "{}", finished.explain());
        shows(event)?;
    }
    program.terminate();
    let ended = program.wait(LIMIT)?;
    // 128 and the number of SIGTERM.
    let code = ended.status.context("it does not end")?.code();
    ensure!(code == Some(143), "{}", ended.explain());
    Ok(Verdict::Passed)
}
