//! What is wrong, why it matters, and what to do.

use serde::Serialize;

use crate::devices::{Device, Port};
use crate::drivers::Drivers;
use crate::memory;
use crate::report::Report;

/// Something that is wrong.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is, for programs: one word that stays.
    pub kind: &'static str,
    /// The device that it is about.
    pub device: Option<String>,
    /// What it is and what to do, for people.
    pub text: String,
}

/// How the C library calls `EOPNOTSUPP`.
const NOT_SUPPORTED: &str = "Operation not supported";

/// Everything that is wrong.
pub fn all(report: &Report, drivers: &Drivers) -> Vec<Finding> {
    let mut findings = Findings(Vec::new());
    findings.kernel(report);
    findings.library(report);
    findings.drivers(report, drivers);
    for device in &report.devices {
        findings.device(report, device);
    }
    if report.locked_memory.is_too_low() {
        let limit = report.locked_memory.limit.unwrap_or_default() >> 10;
        findings.add(
            "locked-memory",
            None,
            format!(
                "this user may lock {limit} KiB of memory; regions of more, and queues, fail with \"Cannot allocate \
                 memory\". Give it at least {} KiB, better no limit: `ulimit -l unlimited`, memlock in \
                 /etc/security/limits.conf, LimitMEMLOCK= of a service",
                memory::LEAST >> 10
            ),
        );
    }
    findings.0
}

struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, kind: &'static str, device: Option<&Device>, text: String) {
        self.0.push(Finding { kind, device: device.map(|device| device.name.clone()), text });
    }

    fn kernel(&mut self, report: &Report) {
        if !report.devices.is_empty() {
            return;
        }
        match (report.cards.first(), &report.kernel.module) {
            (_, None) if !report.cards.is_empty() => self.add(
                "module",
                None,
                "there is a card, but the kernel's irdma module is not loaded: `modprobe irdma`".to_owned(),
            ),
            (Some(card), Some(module)) => self.add(
                "no-device",
                None,
                format!(
                    "the module {} is loaded but has made no RDMA device of the card at {}: `dmesg | grep irdma` says \
                     why (an old firmware, RDMA switched off in the card or by devlink)",
                    module.name, card.address
                ),
            ),
            _ => self.add(
                "no-card",
                None,
                "no card of Intel's that irdma serves, and no RDMA device of one".to_owned(),
            ),
        }
    }

    fn library(&mut self, report: &Report) {
        let library = &report.library;
        match (&library.file, &library.error) {
            (None, None) => self.add(
                "no-libibverbs",
                None,
                "there is no libibverbs: install rdma-core (Debian: libibverbs1, Fedora: libibverbs)"
                    .to_owned(),
            ),
            (_, Some(error)) => {
                self.add("no-libibverbs", None, format!("libibverbs cannot be used: {error}"))
            }
            (Some(_), None) => {}
        }
        if let Some((device, how)) = &report.failure {
            let device =
                device.as_ref().and_then(|name| report.devices.iter().find(|device| device.name == *name));
            self.add("failure", device, format!("opening devices through libibverbs failed: {how}"));
        }
    }

    fn drivers(&mut self, report: &Report, drivers: &Drivers) {
        for (file, error) in &drivers.unreadable {
            self.add("driver-file", None, format!("{file} cannot be read: {error}"));
        }
        if drivers.named.is_empty() && report.library.file.is_some() {
            self.add(
                "no-driver",
                None,
                "neither a driver file nor RDMAV_DRIVERS names irdma, so libibverbs offers none of its devices: \
                 install ibverbs-providers or this provider"
                    .to_owned(),
            );
        }
        let files = drivers.files();
        if files.len() > 1 {
            self.add(
                "two-driver-files",
                None,
                format!(
                    "{} driver files name irdma ({}): which provider is used is up to the order in which they are read. \
                     Leave one",
                    files.len(),
                    files.join(", ")
                ),
            );
        }
        let mut seen = Vec::new();
        for driver in &drivers.named {
            let Some(plugin) = &driver.plugin else { continue };
            if seen.contains(&&plugin.file) {
                continue;
            }
            seen.push(&plugin.file);
            let (place, file) = (driver.place(), &plugin.file);
            if !driver.exists {
                self.add(
                    "missing-plugin",
                    None,
                    format!("{place} names {}, for which there is no {file}", driver.name),
                );
            } else if let Some(error) = &plugin.error {
                self.add("broken-plugin", None, format!("{place} names {file}: {error}"));
            } else if let Some((of, has)) = plugin.differs(&report.library) {
                self.add(
                    "other-layout",
                    None,
                    format!(
                        "{place} names {file}, which was built for {of}; libibverbs has {has} and refuses it"
                    ),
                );
            }
        }
    }

    fn device(&mut self, report: &Report, device: &Device) {
        let reachable = self.node(device);
        for port in &device.ports {
            self.port(device, port);
        }
        let Some(answer) = device.answer.as_ref().filter(|_| reachable) else { return };
        if let Some(error) = &answer.kernel_error {
            self.add(
                "kernel",
                Some(device),
                format!("the kernel's driver does not open the device: {error}"),
            );
        }
        if let Some(error) = &answer.open_error {
            let hint = if error.contains(NOT_SUPPORTED) {
                ". The provider does not know this generation, or is for another libibverbs"
            } else {
                ""
            };
            self.add("open", Some(device), format!("libibverbs does not open the device: {error}{hint}"));
        } else if answer.is_offered == Some(false) {
            let text = "libibverbs does not offer the device to programs: no provider for it was loaded";
            let said = if report.said.is_empty() { "" } else { ", see what it said" };
            self.add("not-offered", Some(device), format!("{text}{said}"));
        }
        if let Some(error) = answer.trial.as_ref().and_then(|trial| trial.error.as_ref()) {
            self.add("queue-pair", Some(device), format!("a queue pair cannot be made: {error}"));
        }
    }

    /// Whether programs reach the device.
    fn node(&mut self, device: &Device) -> bool {
        let Some(node) = &device.node else {
            let text = "the kernel has no node for programs: `modprobe ib_uverbs`";
            self.add("no-uverbs", Some(device), text.to_owned());
            return false;
        };
        if !node.exists {
            self.add(
                "no-node",
                Some(device),
                format!("there is no {}: udev has not made it, or a container was not given it", node.path),
            );
        } else if !node.is_allowed {
            self.add(
                "no-rights",
                Some(device),
                format!("this user may not read and write {}: its mode is usually 0666", node.path),
            );
        }
        node.exists && node.is_allowed
    }

    fn port(&mut self, device: &Device, port: &Port) {
        let number = port.number;
        let name = port.interface.as_ref().map(|interface| interface.name.as_str());
        if port.state.as_deref() != Some("ACTIVE") {
            let state = port.state.as_deref().unwrap_or("in no known state");
            let up = name.map(|name| format!(", `ip link set {name} up`")).unwrap_or_default();
            self.add(
                "port",
                Some(device),
                format!("port {number} is {state}, not ACTIVE: cable, switch{up}"),
            );
        }
        let Some(interface) = &port.interface else {
            let text =
                format!("port {number} has no network device, so there are no addresses to reach it by");
            self.add("no-interface", Some(device), text);
            return;
        };
        let name = &interface.name;
        let has_address = if device.iwarp {
            let addresses = interface.addresses.as_ref();
            addresses.is_none_or(|addresses| addresses.iter().any(|address| !address.starts_with("fe80:")))
        } else {
            port.gids.iter().any(|gid| gid.is_routable)
        };
        if !has_address {
            let what = if device.iwarp { "address" } else { "GID" };
            self.add(
                "no-address",
                Some(device),
                format!(
                    "port {number} has no {what} beyond the link's own: give {name} an IP address, `ip address add \
                     ADDRESS/PREFIX dev {name}`"
                ),
            );
        }
    }
}
