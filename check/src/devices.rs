//! RDMA devices of irdma as sysfs has them: ports, GIDs, network devices, nodes.

use std::net::Ipv6Addr;

use serde::Serialize;

use crate::addresses;
use crate::cards::{self, INTEL};
use crate::files::Root;
use crate::node::{self, Node};
use crate::plugin::Plugin;
use crate::probe::Answer;

const CLASS: &str = "/sys/class/infiniband";

/// An RDMA device.
#[derive(Debug, Serialize)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// The family of its NIC, if known.
    pub card: Option<&'static str>,
    /// Generation of irdma: as the kernel says, else by the card.
    pub generation: Option<u8>,
    /// Whether it speaks iWARP; else RoCEv2.
    pub iwarp: bool,
    /// Where on the PCI bus.
    pub pci_address: Option<String>,
    /// Version of the firmware.
    pub firmware: Option<String>,
    /// Its node, through which programs reach it.
    pub node: Option<Node>,
    /// Its ports.
    pub ports: Vec<Port>,
    /// The plugin that serves it.
    pub provider: Option<Plugin>,
    /// What was learnt by opening it.
    pub answer: Option<Answer>,
}

/// A port.
#[derive(Debug, Serialize)]
pub struct Port {
    /// Its number, from 1.
    pub number: u32,
    /// Such as `ACTIVE`.
    pub state: Option<String>,
    /// Such as `100 Gb/sec (4X EDR)`.
    pub rate: Option<String>,
    /// Its network device.
    pub interface: Option<Interface>,
    /// Its filled GIDs.
    pub gids: Vec<Gid>,
}

/// A network device.
#[derive(Debug, Serialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Such as `up`; none if there is no such device here.
    pub state: Option<String>,
    /// Bytes of the longest packet.
    pub mtu: Option<u32>,
    /// Its IP addresses; none if another system is looked at.
    pub addresses: Option<Vec<String>>,
}

/// An entry of the GID table.
#[derive(Debug, Serialize)]
pub struct Gid {
    /// Its place in the table.
    pub index: u32,
    /// As an IPv6 address, if it is one.
    pub gid: String,
    /// Such as `RoCE v2`.
    pub kind: Option<String>,
    /// The network device whose address it is.
    pub interface: Option<String>,
    /// Whether it is an address beyond the link.
    #[serde(skip)]
    pub is_routable: bool,
}

/// Every device of irdma: of an Intel card, with Ethernet ports.
pub fn find(root: &Root) -> Vec<Device> {
    root.names(CLASS).into_iter().filter_map(|name| device(root, name)).collect()
}

fn device(root: &Root, name: String) -> Option<Device> {
    let folder = format!("{CLASS}/{name}");
    let ports: Vec<u32> =
        root.names(format!("{folder}/ports")).iter().filter_map(|port| port.parse().ok()).collect();
    let is_ethernet = |port: &u32| {
        root.line(format!("{folder}/ports/{port}/link_layer")).is_some_and(|layer| layer == "Ethernet")
    };
    if root.number(format!("{folder}/device/vendor")) != Some(INTEL) || !ports.iter().any(is_ethernet) {
        return None;
    }
    let family = root.number(format!("{folder}/device/device")).and_then(cards::family);
    let uevent = root.text(format!("{folder}/device/uevent")).unwrap_or_default();
    let slot = uevent.lines().find_map(|line| line.strip_prefix("PCI_SLOT_NAME="));
    Some(Device {
        card: family.map(|(card, _)| card),
        generation: family.map(|(_, generation)| generation),
        iwarp: root.line(format!("{folder}/node_type")).is_some_and(|kind| kind.starts_with('4')),
        pci_address: slot.map(|slot| crate::files::shown(slot.trim())),
        firmware: root.line(format!("{folder}/fw_ver")),
        node: node::of(root, &name),
        ports: ports.into_iter().map(|number| port(root, &folder, number)).collect(),
        provider: None,
        answer: None,
        name: crate::files::shown(&name),
    })
}

fn port(root: &Root, device: &str, number: u32) -> Port {
    let folder = format!("{device}/ports/{number}");
    let gids = gids(root, &folder);
    // The one of the first address, else the function's own.
    let interface = gids.iter().find_map(|gid| gid.interface.clone());
    let interface = interface.or_else(|| root.names(format!("{device}/device/net")).into_iter().next());
    let state = root.line(format!("{folder}/state"));
    Port {
        number,
        state: state.map(|state| state.split_once(": ").map_or(state.clone(), |(_, word)| word.to_owned())),
        rate: root.line(format!("{folder}/rate")),
        interface: interface.map(|name| Interface {
            state: root.line(format!("/sys/class/net/{name}/operstate")),
            mtu: root.number(format!("/sys/class/net/{name}/mtu")),
            addresses: root.is_machine().then(|| addresses::of(&name)),
            name: crate::files::shown(&name),
        }),
        gids,
    }
}

fn gids(root: &Root, port: &str) -> Vec<Gid> {
    let entries = root.names(format!("{port}/gids")).into_iter().filter_map(|name| {
        let index = name.parse().ok()?;
        let text = root.line(format!("{port}/gids/{index}"))?;
        let address = text.parse::<Ipv6Addr>().ok();
        if address.is_some_and(|address| address.is_unspecified()) {
            return None;
        }
        Some(Gid {
            index,
            is_routable: address.is_some_and(|address| !address.is_unicast_link_local()),
            gid: address.map_or(text, |address| address.to_string()),
            kind: root.line(format!("{port}/gid_attrs/types/{index}")),
            // A name, not a path.
            interface: root
                .line(format!("{port}/gid_attrs/ndevs/{index}"))
                .filter(|name| !name.contains('/')),
        })
    });
    entries.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    #[test]
    fn a_device_has_what_sysfs_says() {
        let tree = Tree::with_device("device");
        let found = find(&tree.root());
        let [device] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            (device.name.as_str(), device.card, device.generation),
            ("irdma0", Some("E810-C"), Some(2))
        );
        assert_eq!(device.pci_address.as_deref(), Some("0000:3b:00.0"));
        assert!(!device.iwarp);
        let [port] = &device.ports[..] else { panic!("{device:?}") };
        assert_eq!(port.state.as_deref(), Some("ACTIVE"));
        let interface = port.interface.as_ref().unwrap();
        assert_eq!((interface.name.as_str(), interface.mtu), ("ens1", Some(1500)));
        // Not this machine's.
        assert_eq!(interface.addresses, None);
        let gids: Vec<_> =
            port.gids.iter().map(|gid| (gid.index, gid.gid.as_str(), gid.is_routable)).collect();
        assert_eq!(gids, [(0, "fe80::5054:ff:fe01:1", false), (1, "::ffff:10.0.0.1", true)]);
    }

    #[test]
    fn others_devices_are_left_alone() {
        let tree = Tree::with_device("others");
        tree.file("sys/class/infiniband/irdma0/device/vendor", "0x15b3\n");
        assert!(find(&tree.root()).is_empty());
        // Intel's Omni-Path.
        tree.file("sys/class/infiniband/irdma0/device/vendor", "0x8086\n");
        tree.file("sys/class/infiniband/irdma0/ports/1/link_layer", "InfiniBand\n");
        assert!(find(&tree.root()).is_empty());
    }

    #[test]
    fn nonsense_is_shown_and_never_followed() {
        let tree = Tree::with_device("nonsense");
        let port = "sys/class/infiniband/irdma0/ports/1";
        tree.file(&format!("{port}/gids/1"), "no gid \x1b[1m\n");
        tree.file(&format!("{port}/gids/x"), "fe80::1\n");
        tree.file(&format!("{port}/gid_attrs/ndevs/0"), "../../../../etc/shadow\n");
        tree.file(&format!("{port}/state"), "?\n");
        tree.file("sys/class/infiniband/irdma0/ports/one/state", "4: ACTIVE\n");
        tree.file("sys/class/infiniband/irdma0/device/uevent", "PCI_SLOT_NAME=\x07\n");
        let found = find(&tree.root());
        let device = &found[0];
        assert_eq!(device.ports.len(), 1);
        assert_eq!(device.pci_address.as_deref(), Some("\\u{7}"));
        let port = &device.ports[0];
        assert_eq!(port.state.as_deref(), Some("?"));
        assert_eq!(port.gids.len(), 2);
        assert_eq!((port.gids[1].gid.as_str(), port.gids[1].is_routable), ("no gid \\u{1b}[1m", false));
        assert_eq!(port.gids[0].interface, None);
    }
}
