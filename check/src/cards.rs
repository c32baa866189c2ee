//! Intel's NICs that the kernel's irdma driver serves, found on the PCI bus.

use serde::Serialize;

use crate::files::Root;

/// Intel's number among PCI vendors.
pub const INTEL: u32 = 0x8086;

/// A family of NICs: first and last PCI device number, name, generation of irdma.
type Family = (u32, u32, &'static str, u8);

/// Numbers as in the kernel's drivers (ice_devids.h, i40e_devids.h, idpf_devids.h).
#[rustfmt::skip] // one row each
const FAMILIES: &[Family] = &[
    (0x124c, 0x124f, "E823-L", 2),
    (0x12d1, 0x12de, "E830", 2),
    (0x1452, 0x1452, "E2000", 3),
    (0x145c, 0x145c, "E2000, virtual function", 3),
    (0x151d, 0x151d, "E823-L", 2),
    (0x1591, 0x1593, "E810-C", 2),
    (0x1599, 0x159b, "E810-XXV", 2),
    (0x1889, 0x1889, "virtual function", 2),
    (0x188a, 0x188e, "E823-C", 2),
    (0x1890, 0x1894, "E822-C", 2),
    (0x1897, 0x189a, "E822-L", 2),
    (0x374c, 0x374d, "X722", 1),
    (0x37cd, 0x37cd, "X722, virtual function", 1),
    (0x37ce, 0x37d3, "X722", 1),
    (0x37d9, 0x37d9, "X722, virtual function", 1),
    (0x579c, 0x579f, "E825-C", 2),
];

/// A function on the PCI bus that can have an RDMA device.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Card {
    /// Where on the bus.
    pub address: String,
    /// Its family.
    pub name: &'static str,
    /// Generation of irdma.
    pub generation: u8,
    /// The kernel driver of the network device.
    pub driver: Option<String>,
}

/// Name and generation by the PCI device number.
pub fn family(device: u32) -> Option<(&'static str, u8)> {
    let family = FAMILIES.iter().find(|(first, last, ..)| (*first..=*last).contains(&device))?;
    Some((family.2, family.3))
}

/// Every such function.
pub fn find(root: &Root) -> Vec<Card> {
    const BUS: &str = "/sys/bus/pci/devices";
    let cards = root.names(BUS).into_iter().filter_map(|address| {
        let folder = format!("{BUS}/{address}");
        if root.number(format!("{folder}/vendor")) != Some(INTEL) {
            return None;
        }
        let (name, generation) = family(root.number(format!("{folder}/device"))?)?;
        let driver = root.link(format!("{folder}/driver"));
        Some(Card { address: crate::files::shown(&address), name, generation, driver })
    });
    cards.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    #[test]
    fn families_are_in_order_and_apart() {
        assert!(FAMILIES.iter().all(|(first, last, ..)| first <= last));
        assert!(FAMILIES.is_sorted_by(|one, next| one.1 < next.0));
        assert_eq!(family(0x1592), Some(("E810-C", 2)));
        assert_eq!(family(0x37d2), Some(("X722", 1)));
        assert_eq!(family(0x1452), Some(("E2000", 3)));
        assert_eq!(family(0x10fb), None);
    }

    #[test]
    fn cards_are_intels() {
        let tree = Tree::with_device("cards");
        tree.file("sys/bus/pci/devices/0000:01:00.0/vendor", "0x15b3\n");
        tree.file("sys/bus/pci/devices/0000:01:00.0/device", "0x1592\n");
        tree.file("sys/bus/pci/devices/0000:02:00.0/vendor", "garbage\n");
        let found = find(&tree.root());
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].address.as_str(), found[0].generation), ("0000:3b:00.0", 2));
    }
}
