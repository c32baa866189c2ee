//! Names and numbers of the device, the same in the commands' answers and in the sysfs tree shown to programs.

use irdma_engine::spec::{Generation, Gid};

/// Name of the RDMA device.
pub const DEVICE_NAME: &str = "irdma0";

/// Name of the device node under `/dev/infiniband` and of its sysfs directory.
pub const NODE_NAME: &str = "uverbs0";

/// Name of the network interface it claims to belong to.
pub const INTERFACE_NAME: &str = "enp1s0f0";

/// MAC address of that interface (locally administered).
pub const MAC_ADDRESS: [u8; 6] = [0x52, 0x54, 0x00, 0x01, 0x00, 0x01];

/// Node and system image GUID, in the byte order of the wire: the MAC
/// address with `ff:fe` in its middle and the universal bit flipped.
pub const NODE_GUID: [u8; 8] = [
    MAC_ADDRESS[0] ^ 2,
    MAC_ADDRESS[1],
    MAC_ADDRESS[2],
    0xff,
    0xfe,
    MAC_ADDRESS[3],
    MAC_ADDRESS[4],
    MAC_ADDRESS[5],
];

/// PCI vendor: Intel.
pub const PCI_VENDOR: u16 = 0x8086;

/// PCI revision, reported as the hardware version.
pub const PCI_REVISION: u32 = 2;

/// Firmware version, major and minor.
pub const FIRMWARE: (u32, u32) = (1, 60);

/// Board id in sysfs.
pub const BOARD_ID: &str = "INTEL-SOFTWARE-IRDMA";

/// PCI device of a generation. GEN3 devices are matched by the kernel's driver
/// number alone, which a program sees only over RDMA netlink; so the software
/// GEN3 device shows an id that providers do know.
pub const fn pci_device(generation: Generation) -> u16 {
    match generation {
        Generation::Gen1 => 0x37cd,
        Generation::Gen2 | Generation::Gen3 => 0x1592,
    }
}

/// The GUID as sysfs prints it: `5054:00ff:fe01:0001`.
pub fn node_guid_text() -> String {
    NODE_GUID
        .chunks(2)
        .map(|pair| format!("{:02x}{:02x}", pair[0], pair[1]))
        .collect::<Vec<_>>()
        .join(":")
}

/// GIDs of the port: the link-local IPv6 address of the MAC address at index
/// 0, `10.0.0.1` mapped into IPv6 at index 1, both for RoCEv2.
pub fn default_gids() -> Vec<Gid> {
    let mut link_local = [0; 16];
    link_local[0] = 0xfe;
    link_local[1] = 0x80;
    link_local[8..].copy_from_slice(&NODE_GUID);
    let mut mapped = [0; 16];
    mapped[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 1]);
    vec![link_local, mapped]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guid_is_the_mac_address_as_an_eui_64() {
        assert_eq!(node_guid_text(), "5054:00ff:fe01:0001");
    }

    #[test]
    fn first_gid_is_link_local() {
        let gids = default_gids();
        assert_eq!(gids[0][..2], [0xfe, 0x80]);
        assert_eq!(gids[0][8..], NODE_GUID);
    }
}
