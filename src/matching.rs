//! Which devices are ours.

use core::ptr::null_mut;

use rdma_core_sys::bindings::{
    VERBS_MATCH_DRIVER_ID, VERBS_MATCH_PCI, VERBS_MATCH_SENTINEL, verbs_match_ent,
    verbs_match_ent__bindgen_ty_1,
};

/// Number of irdma among the kernel's RDMA drivers (`RDMA_DRIVER_IRDMA`, which it took
/// over from i40iw; linux/include/uapi/rdma/ib_user_ioctl_verbs.h).
pub const DRIVER_ID: u32 = 9;

/// Intel's number among PCI vendors.
const INTEL: u16 = 0x8086;

/// PCI device numbers, for where the kernel's driver is not known by its own number.
/// Devices that came later (E825-C, E830, E2000) are found by [`DRIVER_ID`] only.
#[rustfmt::skip]
const PCI_DEVICES: [u16; 35] = [
    // E823-L
    0x124c, 0x124d, 0x124e, 0x124f, 0x151d,
    // E810-C, E810-XXV
    0x1591, 0x1592, 0x1593, 0x1599, 0x159a, 0x159b,
    // E823-C
    0x188a, 0x188b, 0x188c, 0x188d, 0x188e,
    // E822-C, E822-L
    0x1890, 0x1891, 0x1892, 0x1893, 0x1894, 0x1897, 0x1898, 0x1899, 0x189a,
    // X722
    0x374c, 0x374d, 0x37cd, 0x37ce, 0x37cf, 0x37d0, 0x37d1, 0x37d2, 0x37d3, 0x37d9,
];

/// The match table that libibverbs reads: [`DRIVER_ID`], the devices, the end.
pub struct MatchTable([verbs_match_ent; PCI_DEVICES.len() + 2]);

// SAFETY: constant; its pointers are all NULL.
unsafe impl Sync for MatchTable {}

/// The match table.
pub static MATCH_TABLE: MatchTable = MatchTable({
    let mut entries = [entry(VERBS_MATCH_SENTINEL, 0, 0); PCI_DEVICES.len() + 2];
    entries[0] = entry(VERBS_MATCH_DRIVER_ID, DRIVER_ID, 0);
    let mut at = 0;
    while at < PCI_DEVICES.len() {
        entries[at + 1] = entry(VERBS_MATCH_PCI, 0, PCI_DEVICES[at]);
        at += 1;
    }
    entries
});

impl MatchTable {
    /// As libibverbs takes it.
    pub const fn as_ptr(&self) -> *const verbs_match_ent {
        self.0.as_ptr()
    }
}

/// One entry.
const fn entry(kind: u32, driver_id: u32, device: u16) -> verbs_match_ent {
    verbs_match_ent {
        driver_data: null_mut(),
        u: verbs_match_ent__bindgen_ty_1 { driver_id: driver_id as u64 },
        vendor: INTEL,
        device,
        kind: kind as u8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_starts_with_the_driver_and_ends() {
        let entries = &MATCH_TABLE.0;
        assert_eq!(entries[0].kind, VERBS_MATCH_DRIVER_ID as u8);
        // SAFETY: the field of this kind of entry.
        assert_eq!(unsafe { entries[0].u.driver_id }, 9);
        let devices = &entries[1..entries.len() - 1];
        assert!(devices.iter().all(|entry| entry.kind == VERBS_MATCH_PCI as u8 && entry.vendor == 0x8086));
        assert!(devices.iter().any(|entry| entry.device == 0x1592));
        assert_eq!(entries.last().map(|entry| entry.kind), Some(VERBS_MATCH_SENTINEL as u8));
    }
}
