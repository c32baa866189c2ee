//! `irdma-check` on the software device: what it shows of each provider and generation, and what it
//! finds wrong.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::session::{Session, Verdict};
use crate::process;
use crate::sim::{Provider, Simulator};
use crate::workspace::target;

/// Longest time it may take.
const LIMIT: Duration = Duration::from_secs(60);

/// What is wrong with the machine that runs the tests, and not with the device.
const MACHINES: &[&str] = &["locked-memory"];

const GEN3_FEATURES: &[&str] =
    &["RTS_AE", "CQ_RESIZE", "64_BYTE_CQE", "ATOMIC_OPS", "SRQ", "CQE_TIMESTAMPING"];

/// Options of the device, whose provider, and what is shown: generation, features, whether there
/// are push pages, what is wrong.
type Device = (&'static [&'static str], Provider, u8, &'static [&'static str], bool, &'static [&'static str]);

const DEVICES: &[Device] = &[
    (&["--gen", "1"], Provider::Ours, 1, &[], false, &[]),
    (&["--gen", "1"], Provider::C, 1, &[], false, &[]),
    (&["--gen", "1", "--legacy=4"], Provider::Ours, 1, &[], false, &[]),
    (&["--gen", "2"], Provider::Ours, 2, &["RTS_AE", "CQ_RESIZE"], false, &[]),
    (&["--gen", "2"], Provider::C, 2, &["RTS_AE", "CQ_RESIZE"], false, &[]),
    (&["--push", "4", "--isolation", "rewrite"], Provider::Ours, 2, &["RTS_AE", "CQ_RESIZE"], true, &[]),
    (&["--push", "4"], Provider::C, 2, &["RTS_AE", "CQ_RESIZE"], true, &[]),
    (&["--push", "4", "--transport", "iwarp"], Provider::Ours, 2, &["RTS_AE", "CQ_RESIZE"], true, &[]),
    (&["--gen", "3", "--without", "srq"], Provider::Ours, 3, &GEN3_WITHOUT_SRQ, false, &[]),
    (&["--gen", "3", "--push", "4"], Provider::Ours, 3, GEN3_FEATURES, true, &[]),
    // The C provider of rdma-core 44 does not know it.
    (&["--gen", "3"], Provider::C, 3, GEN3_FEATURES, false, &["open"]),
];
const GEN3_WITHOUT_SRQ: [&str; 5] = ["RTS_AE", "CQ_RESIZE", "64_BYTE_CQE", "ATOMIC_OPS", "CQE_TIMESTAMPING"];

/// The program, built before.
fn program() -> PathBuf {
    target().join("debug/irdma-check")
}

/// Every device, and what can be wrong with a machine.
pub fn check(session: &mut Session) {
    for device in DEVICES {
        let name = format!("{} of {}", device.0.join(" "), device.1);
        session.check_on_device("check", &name, |simulator, folder| {
            shows(device, simulator, folder).map(|()| Verdict::Passed)
        });
    }
    let mut finds = |name: &str, check: &dyn Fn(&Simulator, &Path) -> Result<()>| {
        session.check_on_device("check", name, |simulator, folder| {
            check(simulator, folder).map(|()| Verdict::Passed)
        });
    };
    finds("for people", &|simulator, folder| {
        let mut command = simulator.run(Provider::Ours);
        let finished = process::run(command.arg("--").arg(program()), &folder.join("output"), LIMIT)?;
        let plugin = simulator.plugin();
        let (layout, file) = (plugin.layout.number, plugin.library.display());
        let version = env!("CARGO_PKG_VERSION");
        for line in [
            "  device       generation 2, RoCEv2, E810-C at ".to_owned(),
            format!("  served by    irdma-provider {version} (layout {layout}), {file}\n"),
            "  features     RTS_AE, CQ_RESIZE\n".to_owned(),
            "  push pages   none given\n".to_owned(),
            "  port 1       ACTIVE, ".to_owned(),
            ", RoCE v2\n".to_owned(),
        ] {
            ensure!(finished.output.contains(&line), "no line {line}: {}", finished.explain());
        }
        Ok(())
    });
    finds("without libibverbs", &|simulator, folder| {
        let report =
            report(simulator.run(Provider::Ours), &["--libibverbs", "/none/libibverbs.so.1"], folder)?;
        is_wrong(&report, &["no-libibverbs"])?;
        let revision = &report["devices"][0]["answer"]["negotiated"]["hardware_revision"];
        ensure!(*revision == 2, "the kernel was not asked: {report:#}");
        Ok(())
    });
    finds("a plugin that is missing", &|simulator, folder| {
        let mut command = simulator.run(Provider::Ours);
        command.args(["--", "env", "RDMAV_DRIVERS=/none/libirdma"]);
        let report = report(command, &[], folder)?;
        is_wrong(&report, &["missing-plugin"])?;
        ensure!(provider(&report).as_ref() == Some(&simulator.plugin().library), "{report:#}");
        Ok(())
    });
    finds("a plugin of another libibverbs", &|simulator, folder| {
        let plugin = simulator.plugin();
        let [own, other] = [plugin.layout.pabi, 9].map(|number| format!("IBVERBS_PRIVATE_{number:02}"));
        let mut bytes = fs::read(&plugin.library)?;
        let at = bytes.windows(own.len()).position(|bytes| bytes == own.as_bytes());
        let at = at.context("the plugin needs no private interface")?;
        bytes[at..at + other.len()].copy_from_slice(other.as_bytes());
        let folder = folder.canonicalize()?;
        let disguised = folder.join(plugin.library.file_name().context("a plugin has a name")?);
        fs::write(&disguised, bytes)?;
        let report = report(simulator.run_with(Provider::Ours, &disguised), &[], &folder)?;
        is_wrong(&report, &["other-layout", "not-offered"])?;
        let said = report["said"].to_string();
        ensure!(said.contains(&other), "nothing was said of {other}: {report:#}");
        Ok(())
    });
}

/// A device is shown as it is.
fn shows(device: &Device, simulator: &Simulator, folder: &Path) -> Result<()> {
    let &(options, whose, generation, features, push_page, wrong) = device;
    let mut command = simulator.run(whose);
    command.args(options);
    let report = report(command, &[], folder)?;
    is_wrong(&report, wrong)?;
    let shown = &report["devices"][0];
    ensure!(shown["generation"] == generation, "another generation: {report:#}");
    ensure!(shown["answer"]["negotiated"]["features"] == Value::from(features.to_vec()), "{report:#}");
    if wrong.is_empty() {
        let loaded = provider(&report).context("no provider is named")?;
        ensure!(simulator.is_from(whose, &loaded), "another provider: {report:#}");
        let is_ours = shown["provider"]["version"] == env!("CARGO_PKG_VERSION");
        ensure!(is_ours == (whose == Provider::Ours), "taken for another's: {report:#}");
        ensure!(shown["answer"]["trial"]["push_page"] == push_page, "{report:#}");
        ensure!(shown["answer"]["limits"]["max_qp"].as_i64() > Some(0), "no limits: {report:#}");
    }
    Ok(())
}

/// The file of the plugin that serves the device.
fn provider(report: &Value) -> Option<PathBuf> {
    Some(report["devices"][0]["provider"]["file"].as_str()?.into())
}

/// Runs it below the launcher's command, and reads what it prints.
fn report(mut command: Command, options: &[&str], folder: &Path) -> Result<Value> {
    if !command.get_args().any(|argument| argument == "--") {
        command.arg("--");
    }
    command.arg(program()).arg("--json").args(options);
    let finished = process::run(&mut command, &folder.join("output"), LIMIT)?;
    let report: Value = serde_json::from_str(&finished.output).with_context(|| finished.explain())?;
    let is_well = report["findings"].as_array().context("no findings")?.is_empty();
    let code = finished.status.and_then(|status| status.code());
    ensure!(code == Some(i32::from(!is_well)), "{}", finished.explain());
    Ok(report)
}

/// Just that is wrong, beside what is with the machine.
fn is_wrong(report: &Value, wrong: &[&str]) -> Result<()> {
    let findings = report["findings"].as_array().context("no findings")?;
    let kinds: Vec<&str> = findings.iter().filter_map(|finding| finding["kind"].as_str()).collect();
    let kinds: Vec<&str> = kinds.into_iter().filter(|kind| !MACHINES.contains(kind)).collect();
    ensure!(kinds == wrong, "{wrong:?} should be wrong: {report:#}");
    Ok(())
}
