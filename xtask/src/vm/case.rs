//! One test, carried out in the guests.

use std::fs;
use std::path::Path;

use anyhow::Result;
use irdma_vm_agent::End;

use super::fleet::Fleet;
use super::guest::Finished;
use super::kernel_log;
use super::list::{Listens, Outcome, Test, What};

/// Exit code of a test that could not be made.
const SKIP: u8 = 77;

/// Carries out a test; its output goes to files in `logs`. An error is the end of the guests.
pub fn carry_out(fleet: &mut Fleet, group: &str, test: &Test, logs: &Path) -> Result<Outcome> {
    let before: Vec<usize> = fleet.guests.iter().map(|guest| guest.kernel(0).len()).collect();
    let name = format!("{group}-{}", test.name).replace(|c: char| !c.is_alphanumeric(), "-");
    let keep = |kind: &str, finished: &Finished| {
        fs::write(
            logs.join(format!("{name}{kind}.log")),
            format!("{}\n{:?}\n", finished.output, finished.end),
        )
    };
    let outcome = match &test.what {
        What::Alone(command) => {
            let limit = test.limit * fleet.slowness;
            let guest = &mut fleet.guests[0];
            let run = guest.start(command, limit, 0)?;
            let finished = guest.finish(run)?;
            keep("", &finished)?;
            judge(&finished)
        }
        What::Pair { server, client, listens } => {
            let (server, client) = pair(fleet, test, server, client, *listens)?;
            keep("-server", &server)?;
            keep("-client", &client)?;
            match (judge(&client), judge(&server)) {
                (Outcome::Failed(client), Outcome::Failed(server)) => {
                    Outcome::Failed(format!("client: {client}; server: {server}"))
                }
                (Outcome::Failed(client), _) => Outcome::Failed(format!("client: {client}")),
                (_, Outcome::Failed(server)) => Outcome::Failed(format!("server: {server}")),
                (client, _) => client,
            }
        }
    };
    for (guest, start) in fleet.guests.iter().zip(before) {
        if let Some(line) = kernel_log::trouble(guest.kernel(start), test.warnings) {
            return Ok(Outcome::Failed(format!("the kernel says: {line}")));
        }
    }
    Ok(outcome)
}

/// Runs the server in the first guest and the client in the last.
fn pair(
    fleet: &mut Fleet,
    test: &Test,
    server: &str,
    client: &str,
    listens: Listens,
) -> Result<(Finished, Finished)> {
    let (limit, wait) = (test.limit * fleet.slowness, WAIT * fleet.slowness);
    let address = "export SERVER=192.0.2.1 SERVER6=fd00:2::1\n";
    let serving = fleet.guests[0].start(&format!("{address}{server}"), limit, 0)?;
    let guest = &mut fleet.guests[0];
    let waiting = match listens {
        Listens::Tcp(port) => Some(guest.start("true", wait, port)?),
        Listens::Connections(port) => Some(guest.start(&format!("await-connections {port}"), wait, 0)?),
        Listens::Nowhere => None,
    };
    if let Some(waiting) = waiting {
        guest.finish_during(waiting, serving)?;
    }
    let last = fleet.guests.len() - 1;
    let mut client = format!("{address}{client}");
    if fleet.functions > 1 {
        client = on_second_function(&client);
    }
    let asking = fleet.guests[last].start(&client, limit, 0)?;
    let client = fleet.guests[last].finish(asking)?;
    if client.end != End::Exit(0) && client.end != End::TimeOut {
        // Its server would wait for another one until the limit.
        let guest = &mut fleet.guests[0];
        guest.run("sleep 1", wait)?;
        guest.kill(serving)?;
    }
    Ok((fleet.guests[0].finish(serving)?, client))
}

/// A script that runs on the guest's second function, in whose network namespace the first is not.
fn on_second_function(script: &str) -> String {
    format!(
        "cat >/tmp/on-second <<'END_OF_SCRIPT'\n. /run/irdma-vm/second\n{script}\nEND_OF_SCRIPT\n\
         exec ip netns exec second sh /tmp/on-second"
    )
}

/// Longest time until a server listens, in seconds. A client that cannot reach it fails by itself.
const WAIT: u32 = 15;

fn judge(finished: &Finished) -> Outcome {
    let last = finished.output.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    match finished.end {
        End::Exit(0) if finished.left_over > 0 => {
            Outcome::Failed(format!("{} processes were left behind", finished.left_over))
        }
        End::Exit(0) => Outcome::Passed,
        End::Exit(SKIP) => Outcome::Skipped(last.to_owned()),
        End::Exit(code) => Outcome::Failed(format!("exit code {code}: {last}")),
        End::Signal(signal) => Outcome::Failed(format!("ended by signal {signal}: {last}")),
        End::TimeOut => Outcome::Failed(format!("did not end in time: {last}")),
        End::NotStarted => Outcome::Failed(format!("did not start: {last}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(end: End, output: &str, left_over: u32) -> Finished {
        Finished { end, output: output.to_owned(), left_over }
    }

    #[test]
    fn only_a_clean_end_passes() {
        assert_eq!(judge(&finished(End::Exit(0), "x\n", 0)), Outcome::Passed);
        for bad in [
            finished(End::Exit(0), "", 1),
            finished(End::Exit(1), "", 0),
            finished(End::Signal(11), "", 0),
            finished(End::TimeOut, "", 0),
            finished(End::NotStarted, "", 0),
        ] {
            assert!(matches!(judge(&bad), Outcome::Failed(_)), "{bad:?}");
        }
    }

    #[test]
    fn skip_has_its_last_line_as_reason() {
        let skip = finished(End::Exit(77), "one\nno such thing\n\n", 0);
        assert_eq!(judge(&skip), Outcome::Skipped("no such thing".to_owned()));
    }
}
