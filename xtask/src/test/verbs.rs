//! The project's own verbs programs, on both providers.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::code::counted;
use super::session::{Session, Verdict};
use crate::sim::{Provider, Simulator};
use crate::workspace::cargo;

/// Tells the programs which provider they run on.
const PROVIDER_VARIABLE: &str = "IRDMA_TEST_PROVIDER";

/// Runs the package's test binary under the software device: memory windows on a kernel that has
/// them for the E810 family, the removal of a card on a device of its own, the rest on a third.
pub fn check(session: &mut Session) {
    for provider in [Provider::Ours, Provider::C] {
        session.check_on_device("verbs", &provider.to_string(), |simulator, folder| {
            run(simulator, provider, folder, &[], &["--skip", "windows::", "--skip", "removal::"])
        });
        session.check_on_device("verbs", &format!("windows of {provider}"), |simulator, folder| {
            run(simulator, provider, folder, &["--kernel", "6.12"], &["windows::"])
        });
        for (name, options) in [("removal", &[][..]), ("removal with push pages", &["--push", "8"])] {
            session.check_on_device("verbs", &format!("{name} under {provider}"), |simulator, folder| {
                run(simulator, provider, folder, options, &["removal::"])
            });
        }
    }
    // Few push pages, and the programs about them. With parts of pages that are not the first, the
    // C provider does something that one program names.
    let (ours, c) = (Provider::Ours, Provider::C);
    let pushes: [(&str, Provider, &[&str], &str); 5] = [
        ("push pages", ours, &["--push", "8"], "push::"),
        ("push pages", c, &["--push", "8"], "push::"),
        ("parts of push pages", ours, &["--push", "8", "--push-offset", "256"], "push::"),
        ("parts of push pages", c, &["--push", "8", "--push-offset", "256"], "push::a_page_elsewhere"),
        ("push pages over iWARP", ours, &["--push", "8", "--transport", "iwarp"], "push::"),
    ];
    for (name, provider, options, selection) in pushes {
        session.check_on_device("verbs", &format!("{name} of {provider}"), |simulator, folder| {
            run(simulator, provider, folder, options, &[selection])
        });
    }
    // The C provider of rdma-core 44 knows no GEN3; what it makes of the others is not listed.
    let ours: [(&str, &[&str]); 8] = [
        ("GEN3", &["--gen", "3"]),
        // Enough for all programs at once.
        ("GEN2 with push pages", &["--push", "1024"]),
        ("GEN3 with push pages", &["--gen", "3", "--push", "1024"]),
        ("GEN1", &["--gen", "1"]),
        ("GEN1 with the legacy kernel", &["--gen", "1", "--legacy"]),
        ("GEN1 with the oldest kernel", &["--gen", "1", "--legacy=4"]),
        ("GEN2 over iWARP", &["--gen", "2", "--transport", "iwarp"]),
        (
            "GEN2 over iWARP with one WQE to connect",
            &["--gen", "2", "--transport", "iwarp", "--without", "rts-ae"],
        ),
    ];
    for (name, options) in ours {
        session.check_on_device("verbs", &format!("ours on {name}"), |simulator, folder| {
            run(simulator, Provider::Ours, folder, options, &["--skip", "removal::"])
        });
    }
}

/// Runs the programs that `selection` leaves on a device with those options.
fn run(
    simulator: &Simulator,
    provider: Provider,
    folder: &Path,
    options: &[&str],
    selection: &[&str],
) -> Result<Verdict> {
    let binaries = binaries()?;
    let [binary] = &binaries[..] else { bail!("one test binary is expected, not {binaries:?}") };
    let mut command = simulator.run(provider);
    command.args(options).arg("--").arg(binary).args(selection).env(PROVIDER_VARIABLE, provider.to_string());
    counted(&mut command, folder)
}

/// Builds the programs.
pub fn build() -> Result<()> {
    binaries().map(|_| ())
}

/// The integration tests' binaries of the package, built.
fn binaries() -> Result<Vec<PathBuf>> {
    let mut build = cargo("test");
    build.args(["--package", "irdma-tests", "--no-run", "--test", "*"]);
    let output = build.output()?;
    let log = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("the verbs programs do not build:\n{log}");
    }
    // `Executable tests/verbs.rs (target/debug/deps/verbs-0123456789abcdef)`
    Ok(log
        .lines()
        .filter(|line| line.trim_start().starts_with("Executable"))
        .filter_map(|line| line.trim_end().strip_suffix(')')?.rsplit_once('('))
        .map(|(_, path)| crate::workspace::root().join(path))
        .collect())
}
