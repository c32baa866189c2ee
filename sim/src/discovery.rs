//! The files by which programs find a device: a piece of `/sys`, and its node in `/dev`.
//!
//! What libibverbs needs, what other tools like to see, in the kernel's wording
//! (kernel: drivers/infiniband/core/sysfs.c, user_verbs.c; PCI's device attributes).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use irdma_engine::spec::{Generation, Gid};
use irdma_uverbs::{Profile, Transport, identity};

/// The character device that stands for a node: the preload library puts the
/// real thing in its place at the first ioctl.
pub const NODE: &str = "/dev/null";
/// Its number, as in sysfs.
const NODE_NUMBER: &str = "1:3";
/// Name of the connection manager, in `/dev/infiniband` and in `/sys/class/misc`.
pub const MANAGER: &str = "rdma_cm";
/// `abi_version` of uverbs (kernel: `IB_USER_VERBS_ABI_VERSION`).
const UVERBS_ABI_VERSION: u32 = 6;

/// A folder under construction.
struct Branch(PathBuf);

impl Branch {
    fn new(path: PathBuf) -> Result<Branch> {
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Branch(path))
    }

    fn branch(&self, name: impl AsRef<Path>) -> Result<Branch> {
        Branch::new(self.0.join(name))
    }

    /// A file with a line of text.
    fn file(&self, name: impl AsRef<Path>, text: impl std::fmt::Display) -> Result<()> {
        let path = self.0.join(name);
        fs::write(&path, format!("{text}\n")).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Writes `sys/` and `dev/` of a device of that profile below `root`.
pub fn write_tree(root: &Path, profile: &Profile) -> Result<()> {
    let generation = profile.generation;
    let class = Branch::new(root.join("sys/class"))?;
    write_verbs(&class.branch("infiniband_verbs")?, generation)?;
    write_device(&class.branch("infiniband")?.branch(identity::DEVICE_NAME)?, profile)?;
    let nodes = Branch::new(root.join("dev/infiniband"))?;
    for name in [identity::NODE_NAME, MANAGER] {
        symlink(NODE, nodes.0.join(name)).context("cannot make the device node")?;
    }
    let manager = class.branch("misc")?.branch(MANAGER)?;
    manager.file("abi_version", irdma_ucma::ABI_VERSION)?;
    manager.file("dev", NODE_NUMBER)
}

fn write_verbs(verbs: &Branch, generation: Generation) -> Result<()> {
    verbs.file("abi_version", UVERBS_ABI_VERSION)?;
    let node = verbs.branch(identity::NODE_NAME)?;
    node.file("ibdev", identity::DEVICE_NAME)?;
    node.file("dev", NODE_NUMBER)?;
    node.file("abi_version", identity::ABI_VERSION)?;
    write_pci(&node.branch("device")?, generation)
}

fn write_device(device: &Branch, profile: &Profile) -> Result<()> {
    let iwarp = profile.transport == Transport::Iwarp;
    device.file("node_type", if iwarp { "4: RNIC" } else { "1: CA" })?;
    device.file("node_guid", guid(identity::NODE_GUID))?;
    device.file("sys_image_guid", guid(identity::NODE_GUID))?;
    device.file("node_desc", "irdma software device")?;
    let (major, minor) = identity::FIRMWARE;
    device.file("fw_ver", format_args!("{major}.{minor}"))?;
    let function = device.branch("device")?;
    write_pci(&function, profile.generation)?;
    // Whose addresses are the port's.
    function.branch("net")?.branch(identity::INTERFACE)?;

    let port = device.branch("ports/1")?;
    port.file("state", "4: ACTIVE")?;
    port.file("phys_state", "5: LinkUp")?;
    port.file("link_layer", "Ethernet")?;
    port.file("rate", "100 Gb/sec (4X EDR)")?;
    port.file("lid", "0x1")?;
    port.file("lid_mask_count", "0")?;
    port.file("sm_lid", "0x0")?;
    port.file("sm_sl", "0")?;
    port.file("cap_mask", "0x00050000")?;
    if !iwarp {
        port.branch("pkeys")?.file("0", format_args!("{:#06x}", identity::P_KEY))?;
    }
    let gids = port.branch("gids")?;
    let kinds = port.branch("gid_attrs/types")?;
    let interfaces = port.branch("gid_attrs/ndevs")?;
    let filled = &profile.gids;
    for index in 0..profile.gid_table_length() as usize {
        let name = index.to_string();
        gids.file(&name, gid(filled.get(index).unwrap_or(&[0; 16])))?;
        if index < filled.len() {
            kinds.file(&name, if iwarp { "IB/RoCE v1" } else { "RoCE v2" })?;
            interfaces.file(&name, identity::INTERFACE)?;
        }
    }
    Ok(())
}

/// Attributes of the PCI function.
fn write_pci(function: &Branch, generation: Generation) -> Result<()> {
    let number = |value: u32| format!("{value:#06x}");
    function.file("modalias", identity::modalias(generation))?;
    function.file("vendor", number(identity::VENDOR_ID))?;
    function.file("device", number(identity::part_id(generation)))?;
    function.file("subsystem_vendor", number(identity::VENDOR_ID))?;
    function.file("subsystem_device", number(0x0002))?;
    function.file("revision", format_args!("{:#04x}", identity::PCI_REVISION))?;
    function.file("class", "0x020000")?;
    function.file("numa_node", "-1")?;
    function.file(
        "uevent",
        format_args!(
            "DRIVER=ice\nPCI_SLOT_NAME={}\nMODALIAS={}",
            identity::PCI_ADDRESS,
            identity::modalias(generation)
        ),
    )
}

/// A GUID as sysfs writes it.
fn guid(guid: u64) -> String {
    let words = [guid >> 48, guid >> 32, guid >> 16, guid].map(|word| format!("{:04x}", word as u16));
    words.join(":")
}

/// A GID as sysfs writes it.
fn gid(gid: &Gid) -> String {
    let words: Vec<String> = gid.chunks(2).map(|word| format!("{:02x}{:02x}", word[0], word[1])).collect();
    words.join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_has_what_libibverbs_reads() {
        let root = std::env::temp_dir().join(format!("irdma-sim-tree-{}", std::process::id()));
        write_tree(&root, &Profile::default()).unwrap();
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
        assert_eq!(read("sys/class/infiniband_verbs/abi_version"), "6\n");
        assert_eq!(read("sys/class/infiniband_verbs/uverbs0/ibdev"), "irdma0\n");
        assert_eq!(read("sys/class/infiniband_verbs/uverbs0/dev"), "1:3\n");
        assert!(read("sys/class/infiniband/irdma0/device/modalias").starts_with("pci:v00008086d00001592sv"));
        assert_eq!(read("sys/class/infiniband/irdma0/node_guid"), "5054:00ff:fe01:0001\n");
        assert_eq!(read("sys/class/infiniband/irdma0/ports/1/pkeys/0"), "0xffff\n");
        assert!(root.join("sys/class/infiniband/irdma0/device/net/lo").is_dir());
        let gids = "sys/class/infiniband/irdma0/ports/1/gids";
        assert_eq!(read(&format!("{gids}/0")), "fe80:0000:0000:0000:5054:00ff:fe01:0001\n");
        assert_eq!(read(&format!("{gids}/31")), "0000:0000:0000:0000:0000:0000:0000:0000\n");
        assert_eq!(fs::read_link(root.join("dev/infiniband/uverbs0")).unwrap(), Path::new("/dev/null"));
        assert_eq!(fs::read_link(root.join("dev/infiniband/rdma_cm")).unwrap(), Path::new("/dev/null"));
        assert_eq!(read("sys/class/misc/rdma_cm/abi_version"), "4\n");
        assert_eq!(read("sys/class/infiniband/irdma0/node_type"), "1: CA\n");
        fs::remove_dir_all(&root).unwrap();
        // The transport is the device's, not its generation's.
        let iwarp =
            Profile { transport: Transport::Iwarp, gids: vec![identity::IWARP], ..Profile::default() };
        write_tree(&root, &iwarp).unwrap();
        assert_eq!(read("sys/class/infiniband/irdma0/node_type"), "4: RNIC\n");
        assert_eq!(read(&format!("{gids}/0")), "5254:0001:0001:0000:0000:0000:0000:0000\n");
        fs::remove_dir_all(root).unwrap();
    }
}
