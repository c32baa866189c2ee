//! Who the software device is: names, addresses and PCI numbers.
//!
//! Shown in two places that must agree, the answers to commands and the
//! sysfs tree that programs see.

use std::net::Ipv4Addr;

use irdma_engine::spec::{Generation, Gid};

/// Name of the device.
pub const DEVICE_NAME: &str = "irdma0";
/// Name of its device node.
pub const NODE_NAME: &str = "uverbs0";
/// Interface that its GIDs belong to.
pub const INTERFACE: &str = "lo";
/// MAC address, locally administered.
pub const MAC: [u8; 6] = [0x52, 0x54, 0x00, 0x01, 0x00, 0x01];
/// Node GUID: the MAC address as modified EUI-64 (kernel: `addrconf_addr_eui48`).
pub const NODE_GUID: u64 = 0x5054_00ff_fe01_0001;
/// ABI version of the driver (kernel: `IRDMA_ABI_VER`).
pub const ABI_VERSION: u32 = 5;
/// PCI vendor, Intel.
pub const VENDOR_ID: u32 = 0x8086;
/// PCI revision, reported as hardware version.
pub const PCI_REVISION: u32 = 2;
/// Firmware version, major and minor.
pub const FIRMWARE: (u32, u32) = (1, 60);
/// PCI address shown in sysfs.
pub const PCI_ADDRESS: &str = "0000:af:00.0";
/// The one P_Key of a RoCE port, default partition, full member.
pub const P_KEY: u16 = 0xffff;

/// IPv4 address of its interface (RFC 5737: documentation only).
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// Link-local GID, from the MAC address.
const LINK_LOCAL: Gid = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x50, 0x54, 0, 0xff, 0xfe, 0x01, 0, 0x01];
/// GID of [`ADDRESS`].
const IPV4: Gid = Ipv4Addr::to_ipv6_mapped(&ADDRESS).octets();
/// GID of an iWARP port: the MAC address (kernel: `irdma_query_gid`).
pub const IWARP: Gid = [0x52, 0x54, 0x00, 0x01, 0x00, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// PCI device of a generation. GEN3 cards are matched by driver number alone,
/// which programs learn over netlink only; without it a device from the
/// provider's table has to stand in.
pub fn part_id(generation: Generation) -> u32 {
    match generation {
        Generation::Gen1 => 0x37d2,
        Generation::Gen2 => 0x1592,
        Generation::Gen3 => 0x1593,
    }
}

/// The `modalias` by which libibverbs finds the provider.
pub fn modalias(generation: Generation) -> String {
    format!("pci:v{VENDOR_ID:08X}d{:08X}sv{VENDOR_ID:08X}sd00000002bc02sc00i00", part_id(generation))
}

/// Filled entries of the GID table, from index 0.
pub fn gids(generation: Generation) -> &'static [Gid] {
    match generation {
        Generation::Gen1 => &[IWARP],
        Generation::Gen2 | Generation::Gen3 => &[LINK_LOCAL, IPV4],
    }
}

/// Entries the GID table has room for (kernel: `irdma_query_port`).
pub fn gid_table_length(generation: Generation) -> u32 {
    match generation {
        Generation::Gen1 => 1,
        Generation::Gen2 | Generation::Gen3 => 32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_local_gid_and_guid_come_from_the_mac_address() {
        assert_eq!(LINK_LOCAL[8..], NODE_GUID.to_be_bytes());
        let guid = NODE_GUID.to_be_bytes();
        assert_eq!([guid[0] ^ 2, guid[1], guid[2], guid[5], guid[6], guid[7]], MAC);
        assert_eq!(IWARP[..6], MAC);
    }
}
