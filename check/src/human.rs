//! The report for people.

use std::fmt::Write;

use crate::devices::{Device, Port};
use crate::memory::LockedMemory;
use crate::negotiation::Negotiated;
use crate::plugin::Plugin;
use crate::probe::{Answer, Limits};
use crate::report::Report;

/// The report as lines: what there is, and at the end what is wrong.
pub fn text(report: &Report) -> String {
    let mut lines = Lines(String::new());
    lines.row("kernel", &kernel(report));
    lines.row("libibverbs", &library(report));
    for driver in &report.drivers {
        let plugin = driver.plugin.as_ref();
        let leads = plugin.map_or("nowhere: its private interface is not known".to_owned(), |plugin| {
            let owner = if plugin.error.is_none() { plugin.owner() } else { "not usable".to_owned() };
            format!("{}, {owner}", plugin.file)
        });
        lines.row("provider", &format!("{} named by {}: {leads}", driver.name, driver.place()));
    }
    lines.row("locked memory", &memory(&report.locked_memory));
    for card in report.cards.iter().filter(|card| {
        !report.devices.iter().any(|device| device.pci_address.as_ref() == Some(&card.address))
    }) {
        let driver = card.driver.as_deref().map(|driver| format!(", driver {driver}")).unwrap_or_default();
        let (name, generation) = (card.name, card.generation);
        lines.row(
            "card",
            &format!("{name} (generation {generation}) at {}{driver}, no RDMA device", card.address),
        );
    }
    for device in &report.devices {
        lines.device(device, &report.loaded);
    }
    if !report.said.is_empty() {
        lines.0.push_str("\nWhat libibverbs and the provider said:\n");
        for line in &report.said {
            let _ = writeln!(lines.0, "  {line}");
        }
    }
    if report.findings.is_empty() {
        lines.0.push_str("\nNothing is wrong.\n");
    } else {
        lines.0.push_str("\nWhat is wrong:\n");
        for finding in &report.findings {
            let device = finding.device.as_ref().map(|device| format!("{device}: ")).unwrap_or_default();
            let _ = writeln!(lines.0, "  [{}] {device}{}", finding.kind, finding.text);
        }
    }
    lines.0
}

fn kernel(report: &Report) -> String {
    let release = report.kernel.release.as_deref().unwrap_or("of unknown release");
    let module = match &report.kernel.module {
        Some(module) => {
            let version = module.version.as_deref().unwrap_or("the kernel's own");
            format!("module {} loaded ({version})", module.name)
        }
        None => "module irdma not loaded".to_owned(),
    };
    format!("{release}, {module}")
}

fn library(report: &Report) -> String {
    let library = &report.library;
    let Some(file) = &library.file else { return library.error.clone().unwrap_or("none".to_owned()) };
    let mut text = file.clone();
    if let Some(release) = &library.release {
        let _ = write!(text, ", rdma-core {release}");
    }
    match library.private_interface {
        Some(number) => {
            let _ = write!(text, ", private interface {number}");
        }
        None => text.push_str(", no private interface in it"),
    }
    match library.layout {
        Some(layout) => {
            let _ = write!(text, " (layout {layout})");
        }
        None => text.push_str(" (of no layout that is known here)"),
    }
    text
}

fn memory(memory: &LockedMemory) -> String {
    match (memory.limit, memory.is_exempt) {
        (None, _) => "no limit".to_owned(),
        (Some(limit), true) => format!("{} KiB, which does not hold for this user", limit >> 10),
        (Some(limit), false) => format!("{} KiB", limit >> 10),
    }
}

struct Lines(String);

impl Lines {
    fn row(&mut self, title: &str, text: &str) {
        let _ = writeln!(self.0, "{title:<14} {text}");
    }

    fn device(&mut self, device: &Device, loaded: &[Plugin]) {
        let generation = device
            .generation
            .map_or("generation unknown".to_owned(), |number| format!("generation {number}"));
        let transport = if device.iwarp { "iWARP" } else { "RoCEv2" };
        let card = device.card.unwrap_or("unknown card");
        let at = device.pci_address.as_ref().map(|at| format!(" at {at}")).unwrap_or_default();
        let _ = writeln!(self.0, "\n{}", device.name);
        self.row("  device", &format!("{generation}, {transport}, {card}{at}"));
        if let Some(firmware) = &device.firmware {
            self.row("  firmware", firmware);
        }
        if let Some(node) = &device.node {
            let abi = node.abi.map(|abi| format!(", ABI {abi}")).unwrap_or_default();
            self.row("  node", &format!("{}{abi}", node.path));
        }
        match &device.provider {
            Some(plugin) => self.row("  served by", &format!("{}, {}", plugin.owner(), plugin.file)),
            None if device.answer.is_some() => {
                let loaded: String = loaded
                    .iter()
                    .map(|plugin| format!(", loaded is {}, {}", plugin.owner(), plugin.file))
                    .collect();
                self.row("  served by", &format!("none{loaded}"));
            }
            None => {}
        }
        if let Some(answer) = &device.answer {
            self.answer(answer);
        }
        for port in &device.ports {
            self.port(port);
        }
    }

    fn answer(&mut self, answer: &Answer) {
        if let Some(negotiated) = &answer.negotiated {
            self.negotiated(negotiated);
        }
        if let Some(limits) = &answer.limits {
            self.limits(limits);
        }
        let push = answer.trial.as_ref().and_then(|trial| trial.push_page);
        if let Some(push) = push {
            self.row("  push pages", if push { "given to queue pairs" } else { "none given" });
        }
    }

    fn negotiated(&mut self, negotiated: &Negotiated) {
        let features =
            if negotiated.features.is_empty() { "none".to_owned() } else { negotiated.features.join(", ") };
        let raw = if negotiated.raw_attributes { "raw" } else { "rounded" };
        self.row(
            "  negotiated",
            &format!(
                "ABI {}, hardware revision {}, {raw} sizes",
                negotiated.abi, negotiated.hardware_revision
            ),
        );
        self.row("  features", &features);
        if negotiated.hardware_revision != 0 {
            let shared = negotiated.shared_quanta.map(|quanta| format!(", SRQ {quanta}")).unwrap_or_default();
            let (send, receive) = (negotiated.send_quanta, negotiated.receive_quanta);
            self.row("  quanta", &format!("SQ {send}, RQ {receive}{shared}"));
            self.row("  inline", &format!("{} bytes", negotiated.inline_bytes));
        }
        self.row("  doorbell page", &format!("at {:#x}", negotiated.doorbell_page));
    }

    fn limits(&mut self, limits: &Limits) {
        let Limits { max_qp, max_cq, max_mr, max_pd, max_ah, max_srq, .. } = limits;
        self.row(
            "  objects",
            &format!("QP {max_qp}, CQ {max_cq}, SRQ {max_srq}, MR {max_mr}, PD {max_pd}, AH {max_ah}"),
        );
        let Limits { max_qp_wr, max_sge, max_sge_rd, max_cqe, .. } = limits;
        self.row(
            "  work requests",
            &format!("{max_qp_wr} of {max_sge} SGEs (reads {max_sge_rd}), {max_cqe} completions"),
        );
        self.row("  atomics", if limits.atomics { "yes" } else { "no" });
    }

    fn port(&mut self, port: &Port) {
        let state = port.state.as_deref().unwrap_or("state unknown");
        let rate = port.rate.as_ref().map(|rate| format!(", {rate}")).unwrap_or_default();
        self.row(&format!("  port {}", port.number), &format!("{state}{rate}"));
        if let Some(interface) = &port.interface {
            let state = interface.state.as_deref().unwrap_or("not here");
            let mtu = interface.mtu.map(|mtu| format!(", MTU {mtu}")).unwrap_or_default();
            let addresses = match interface.addresses.as_deref() {
                Some([]) => ", no IP address".to_owned(),
                Some(addresses) => format!(", {}", addresses.join(", ")),
                None => String::new(),
            };
            self.row("    network", &format!("{}, {state}{mtu}{addresses}", interface.name));
        }
        for gid in &port.gids {
            let kind = gid.kind.as_ref().map(|kind| format!(", {kind}")).unwrap_or_default();
            self.row(&format!("    GID {}", gid.index), &format!("{}{kind}", gid.gid));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use crate::tree::Tree;

    fn shown(tree: &Tree) -> String {
        text(&Report::of(&tree.root(), OsStr::new("libibverbs.so.1"), |_| None))
    }

    #[test]
    fn what_there_is_has_a_line() {
        let text = shown(&Tree::with_device("human"));
        for line in [
            "kernel         6.12.0, module irdma loaded (the kernel's own)",
            "libibverbs     /usr/lib64/libibverbs.so.1.14.44.0, rdma-core 44.0, private interface 34 (layout 34)",
            "provider       irdma named by /etc/libibverbs.d/irdma.driver:1: \
             /usr/lib64/libibverbs/libirdma-rdmav34.so, rdma-core's",
            "  device       generation 2, RoCEv2, E810-C at 0000:3b:00.0",
            "  node         /dev/infiniband/uverbs0, ABI 5",
            "  port 1       ACTIVE, 100 Gb/sec (4X EDR)",
            "    network    ens1, up, MTU 1500",
            "    GID 1      ::ffff:10.0.0.1, RoCE v2",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line}\n---\n{text}");
        }
    }

    #[test]
    fn a_card_without_a_device_has_a_line() {
        let tree = Tree::with_device("human-card");
        tree.remove("sys/class/infiniband");
        let text = shown(&tree);
        assert!(
            text.contains("card           E810-C (generation 2) at 0000:3b:00.0, no RDMA device"),
            "{text}"
        );
        assert!(text.contains("What is wrong:\n  [no-device] the module irdma is loaded but"), "{text}");
    }

    #[test]
    fn nothing_that_a_terminal_obeys_is_printed() {
        let tree = Tree::with_device("human-hostile");
        let port = "sys/class/infiniband/irdma0/ports/1";
        for file in [
            "proc/sys/kernel/osrelease",
            "sys/module/irdma/version",
            "sys/class/infiniband/irdma0/fw_ver",
            "sys/class/net/ens1/operstate",
            &format!("{port}/state"),
            &format!("{port}/rate"),
            &format!("{port}/gids/0"),
            &format!("{port}/gid_attrs/types/0"),
            &format!("{port}/gid_attrs/ndevs/1"),
        ] {
            tree.file(file, "\x1b[2J\x07\u{9b}2J");
        }
        tree.file("etc/libibverbs.d/irdma.driver", "driver /\x1b[2J/libirdma\n");
        let text = shown(&tree);
        assert!(text.contains("[2J"));
        assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()), "{text:?}");
    }
}
