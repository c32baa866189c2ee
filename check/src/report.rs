//! Everything that is found, put together.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::cards::{self, Card};
use crate::devices::{self, Device};
use crate::drivers::{Driver, Drivers};
use crate::files::Root;
use crate::findings::{self, Finding};
use crate::inquiry::{self, Inquiry};
use crate::kernel::Kernel;
use crate::library::Library;
use crate::memory::LockedMemory;
use crate::plugin::Plugin;

/// What there is and what is wrong. `--json` prints it.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Version of this program.
    pub version: &'static str,
    /// The kernel and its driver.
    pub kernel: Kernel,
    /// NICs that irdma serves.
    pub cards: Vec<Card>,
    /// libibverbs.
    pub library: Library,
    /// Who names a provider for irdma.
    pub drivers: Vec<Driver>,
    /// The plugins of irdma that a program loads.
    pub loaded: Vec<Plugin>,
    /// The RDMA devices.
    pub devices: Vec<Device>,
    /// How much memory programs may lock.
    pub locked_memory: LockedMemory,
    /// What libibverbs and the provider wrote while devices were opened.
    pub said: Vec<String>,
    /// Where the opening of devices ended, and how, if not well.
    #[serde(skip)]
    pub failure: Option<(Option<String>, String)>,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Looks at a system. Only the machine itself is asked more than what its files say.
    pub fn of(root: &Root, library: &OsStr, variable: impl Fn(&str) -> Option<String>) -> Report {
        let devices = devices::find(root);
        let inquiry = if root.is_machine() {
            let names: Vec<String> = devices.iter().map(|device| device.name.clone()).collect();
            inquiry::make(library, &names)
        } else {
            Inquiry::default()
        };
        // Named by its path, and not by the name by which every program gets one.
        let library = Path::new(library);
        let named = (library.components().count() > 1).then(|| library.to_string_lossy().into_owned());
        let inquiry = Inquiry { library: inquiry.library.or(named), ..inquiry };
        Report::with(root, devices, inquiry, variable)
    }

    fn with(
        root: &Root,
        mut devices: Vec<Device>,
        inquiry: Inquiry,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Report {
        let mut library = Library::find(root, inquiry.library.as_ref().map(Path::new));
        if library.file.is_some() || inquiry.library_error.is_none() {
            library.error = inquiry.library_error.or(library.error);
        }
        for (name, mut answer) in inquiry.answers {
            let Some(device) = devices.iter_mut().find(|device| device.name == name) else { continue };
            if let Some(negotiated) = &answer.negotiated {
                device.generation = Some(negotiated.generation());
            }
            device.provider = answer.provider.take().map(|file| {
                let file = PathBuf::from(file);
                Plugin::of(root, &file.canonicalize().unwrap_or(file))
            });
            device.answer = Some(answer);
        }
        let mut drivers = Drivers::find(root, &library, variable);
        let mut report = Report {
            version: env!("CARGO_PKG_VERSION"),
            kernel: Kernel::find(root),
            cards: cards::find(root),
            drivers: Vec::new(),
            library,
            loaded: inquiry.loaded.iter().map(|file| Plugin::of(root, Path::new(file))).collect(),
            devices,
            locked_memory: LockedMemory::of_process(root),
            said: inquiry.said,
            failure: inquiry.failure,
            findings: Vec::new(),
        };
        report.findings = findings::all(&report, &drivers);
        report.drivers = std::mem::take(&mut drivers.named);
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Answer;
    use crate::tree::Tree;

    fn report(tree: &Tree) -> Report {
        Report::of(&tree.root(), OsStr::new("libibverbs.so.1"), |_| None)
    }

    /// What is wrong, but for the limit of whoever runs the test.
    fn kinds(report: &Report) -> Vec<&'static str> {
        let kinds = report.findings.iter().map(|finding| finding.kind);
        kinds.filter(|kind| *kind != "locked-memory").collect()
    }

    #[test]
    fn nothing_is_wrong_where_everything_is_right() {
        let report = report(&Tree::with_device("right"));
        assert_eq!(kinds(&report), [""; 0], "{:?}", report.findings);
        assert_eq!(report.cards.len(), 1);
    }

    #[test]
    fn nothing_at_all_is_told_as_such() {
        assert_eq!(kinds(&report(&Tree::new("nothing"))), ["no-card", "no-libibverbs"]);
    }

    /// A change to the system with everything, and what is wrong then.
    fn broken(name: &str, change: impl FnOnce(&Tree)) -> Vec<&'static str> {
        let tree = Tree::with_device(name);
        change(&tree);
        kinds(&report(&tree))
    }

    const PORT: &str = "sys/class/infiniband/irdma0/ports/1";

    #[test]
    fn the_kernels_part_may_be_missing() {
        let gone = |tree: &Tree| tree.remove("sys/class/infiniband");
        assert_eq!(broken("no-device", gone), ["no-device"]);
        let module = |tree: &Tree| {
            gone(tree);
            tree.remove("sys/module/irdma");
        };
        assert_eq!(broken("module", module), ["module"]);
        assert_eq!(broken("builtin", |tree| tree.remove("sys/module/irdma")), [""; 0]);
        assert_eq!(broken("no-uverbs", |tree| tree.remove("sys/class/infiniband_verbs")), ["no-uverbs"]);
        assert_eq!(broken("no-node", |tree| tree.remove("dev/infiniband")), ["no-node"]);
    }

    #[test]
    fn a_port_may_not_be_ready() {
        let down = |tree: &Tree| tree.file(&format!("{PORT}/state"), "1: DOWN\n");
        assert_eq!(broken("down", down), ["port"]);
        assert_eq!(broken("no-state", |tree| tree.remove(&format!("{PORT}/state"))), ["port"]);
        assert_eq!(broken("link-local", |tree| tree.remove(&format!("{PORT}/gids/1"))), ["no-address"]);
        assert_eq!(broken("no-gid", |tree| tree.remove(&format!("{PORT}/gids"))), ["no-address"]);
        let alone = |tree: &Tree| {
            tree.remove(&format!("{PORT}/gid_attrs"));
            tree.remove("sys/class/infiniband/irdma0/device/net");
        };
        assert_eq!(broken("no-interface", alone), ["no-interface"]);
    }

    #[test]
    fn driver_files_may_be_wrong() {
        let second = |tree: &Tree| tree.file("etc/libibverbs.d/b.driver", "driver irdma\n");
        assert_eq!(broken("second", second), ["two-driver-files"]);
        assert_eq!(broken("no-driver", |tree| tree.remove("etc/libibverbs.d/irdma.driver")), ["no-driver"]);
        let missing = |tree: &Tree| tree.file("etc/libibverbs.d/irdma.driver", "driver /opt/libirdma\n");
        assert_eq!(broken("missing", missing), ["missing-plugin"]);
        let unreadable = |tree: &Tree| tree.link("etc/libibverbs.d/x.driver", "x.driver");
        assert_eq!(broken("unreadable", unreadable), ["driver-file"]);
    }

    #[test]
    fn a_plugin_may_be_wrong() {
        const PLUGIN: &str = "usr/lib64/libibverbs/libirdma-rdmav34.so";
        let other = |tree: &Tree| tree.bytes(PLUGIN, b"IBVERBS_PRIVATE_65\0");
        assert_eq!(broken("other", other), ["other-layout"]);
        assert_eq!(broken("broken", |tree| tree.file(PLUGIN, "text")), ["broken-plugin"]);
        let pipe = |tree: &Tree| {
            tree.remove(PLUGIN);
            tree.pipe(PLUGIN);
        };
        assert_eq!(broken("pipe", pipe), ["broken-plugin"]);
    }

    #[test]
    fn what_opening_shows_is_told_of_the_device() {
        let found = |answer: Answer| {
            let tree = Tree::with_device("opening");
            let inquiry = Inquiry { answers: vec![("irdma0".to_owned(), answer)], ..Inquiry::default() };
            let root = tree.root();
            kinds(&Report::with(&root, devices::find(&root), inquiry, |_| None))
        };
        let failed = || Some("failed".to_owned());
        assert_eq!(found(Answer { is_offered: Some(true), ..Answer::default() }), [""; 0]);
        assert_eq!(found(Answer { is_offered: Some(false), ..Answer::default() }), ["not-offered"]);
        assert_eq!(found(Answer { open_error: failed(), ..Answer::default() }), ["open"]);
        assert_eq!(found(Answer { kernel_error: failed(), ..Answer::default() }), ["kernel"]);
        let trial = crate::trial::Trial { error: failed(), push_page: None };
        assert_eq!(found(Answer { trial: Some(trial), ..Answer::default() }), ["queue-pair"]);
    }

    /// What is wrong after a change to a report in which nothing is.
    fn changed(name: &str, change: impl FnOnce(&mut Report)) -> Vec<String> {
        let tree = Tree::with_device(name);
        let mut report = report(&tree);
        report.locked_memory = LockedMemory { limit: None, is_exempt: false };
        change(&mut report);
        let drivers = Drivers::find(&tree.root(), &report.library, |_| None);
        findings::all(&report, &drivers).iter().map(|finding| finding.kind.to_owned()).collect()
    }

    #[test]
    fn what_root_never_sees_is_told() {
        let node = |report: &mut Report| report.devices[0].node.as_mut().unwrap().is_allowed = false;
        assert_eq!(changed("rights", node), ["no-rights"]);
        let low = |report: &mut Report| report.locked_memory.limit = Some(8 << 20);
        assert_eq!(changed("low", low), ["locked-memory"]);
        let exempt = |report: &mut Report| {
            report.locked_memory = LockedMemory { limit: Some(8 << 20), is_exempt: true };
        };
        assert_eq!(changed("exempt", exempt), [""; 0]);
    }

    #[test]
    fn over_iwarp_the_addresses_of_the_network_device_count() {
        let with = |addresses: Option<&[&str]>| {
            changed("iwarp", |report| {
                let device = &mut report.devices[0];
                device.iwarp = true;
                let addresses = addresses.map(|all| all.iter().map(|text| (*text).to_owned()).collect());
                device.ports[0].interface.as_mut().unwrap().addresses = addresses;
            })
        };
        assert_eq!(with(Some(&["10.0.0.1", "fe80::1"])), [""; 0]);
        assert_eq!(with(Some(&["fe80::1"])), ["no-address"]);
        assert_eq!(with(Some(&[])), ["no-address"]);
        assert_eq!(with(None), [""; 0]);
    }

    #[test]
    fn a_failure_is_told_with_its_device() {
        let tree = Tree::with_device("failure");
        let failure = Some((Some("irdma0".to_owned()), "it was killed by signal 11".to_owned()));
        let root = tree.root();
        let inquiry = Inquiry { failure, ..Inquiry::default() };
        let report = Report::with(&root, devices::find(&root), inquiry, |_| None);
        assert_eq!(kinds(&report), ["failure"]);
        assert_eq!(report.findings[0].device.as_deref(), Some("irdma0"));
    }
}
