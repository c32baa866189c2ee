//! The way to the other end: what the subnet administrator of InfiniBand would tell, and Ethernet makes up.

use irdma_engine::spec::Gid;
use irdma_uverbs::identity::P_KEY;
use zerocopy::FromZeros;

use crate::abi::{AhAttr, UserPath};

/// "Exactly", for MTU, rate and lifetime (`IB_SA_EQ`).
const EXACTLY: u8 = 2;
/// `CMA_IBOE_PACKET_LIFETIME`: 4.096 us times a power of two.
const LIFETIME: u8 = 16;
/// Hops of packets that stay on this machine (kernel: `ip4_dst_hoplimit`).
const HOPS: u8 = 64;
/// `IB_MTU_1024`, for an Ethernet MTU of 1500.
const MTU_1024: u8 = 3;
/// The one port.
pub const PORT: u8 = 1;

/// A path record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The other end.
    pub destination: Gid,
    /// This end.
    pub source: Gid,
    flow_label: u32,
    hop_limit: u8,
    traffic_class: u8,
    reversible: bool,
    p_key: u16,
    service_level: u8,
    /// `enum ib_mtu`.
    pub mtu: u8,
    rate: u8,
    /// 4.096 us times a power of two.
    pub lifetime: u8,
}

impl Path {
    /// The path of an Ethernet port (kernel: `cma_resolve_iboe_route`).
    pub fn of_ethernet(source: Gid, destination: Gid, service_type: u8, ack_timeout: Option<u8>) -> Path {
        let lifetime = ack_timeout.filter(|timeout| *timeout > 0).map_or(LIFETIME, |timeout| timeout - 1);
        Path {
            destination,
            source,
            flow_label: 0,
            hop_limit: HOPS,
            traffic_class: service_type,
            reversible: true,
            p_key: P_KEY,
            service_level: 0,
            mtu: MTU_1024,
            rate: 0,
            lifetime: lifetime & 0x3f,
        }
    }

    /// As the other end sees it.
    pub fn reversed(self) -> Path {
        Path { destination: self.source, source: self.destination, ..self }
    }

    /// As the subnet administrator's packets have it (InfiniBand specification, PathRecord).
    pub fn pack(&self) -> [u8; 64] {
        let mut record = [0; 64];
        record[8..24].copy_from_slice(&self.destination);
        record[24..40].copy_from_slice(&self.source);
        let word = (self.flow_label & 0xf_ffff) << 8 | u32::from(self.hop_limit);
        record[44..48].copy_from_slice(&word.to_be_bytes());
        record[48] = self.traffic_class;
        record[49] = u8::from(self.reversible) << 7;
        record[50..52].copy_from_slice(&self.p_key.to_be_bytes());
        record[53] = self.service_level & 0xf;
        record[54] = EXACTLY << 6 | self.mtu & 0x3f;
        record[55] = EXACTLY << 6 | self.rate & 0x3f;
        record[56] = EXACTLY << 6 | self.lifetime & 0x3f;
        record
    }

    /// The reverse of [`Path::pack`].
    pub fn unpack(record: &[u8; 64]) -> Path {
        let gid = |from: usize| -> Gid { core::array::from_fn(|index| record[from + index]) };
        let word = u32::from_be_bytes([record[44], record[45], record[46], record[47]]);
        Path {
            destination: gid(8),
            source: gid(24),
            flow_label: word >> 8 & 0xf_ffff,
            hop_limit: word as u8,
            traffic_class: record[48],
            reversible: record[49] & 0x80 != 0,
            p_key: u16::from_be_bytes([record[50], record[51]]),
            service_level: record[53] & 0xf,
            mtu: record[54] & 0x3f,
            rate: record[55] & 0x3f,
            lifetime: record[56] & 0x3f,
        }
    }

    /// As `QUERY_ROUTE` tells it (kernel: `ib_copy_path_rec_to_user`).
    pub fn to_user(self) -> UserPath {
        UserPath {
            dgid: self.destination,
            sgid: self.source,
            flow_label: self.flow_label.to_be_bytes(),
            reversible: self.reversible.into(),
            mtu: self.mtu.into(),
            pkey: self.p_key.to_be_bytes(),
            hop_limit: self.hop_limit,
            traffic_class: self.traffic_class,
            sl: self.service_level,
            mtu_selector: EXACTLY,
            rate_selector: EXACTLY,
            rate: self.rate,
            packet_life_time_selector: EXACTLY,
            packet_life_time: self.lifetime,
            ..UserPath::new_zeroed()
        }
    }

    /// The address of the other end for queue pairs and address handles.
    pub fn address(&self, source_index: u8) -> AhAttr {
        AhAttr {
            dgid: self.destination,
            flow_label: self.flow_label,
            sgid_index: source_index,
            hop_limit: self.hop_limit,
            traffic_class: self.traffic_class,
            sl: self.service_level,
            static_rate: self.rate,
            is_global: 1,
            port_num: PORT,
            ..AhAttr::new_zeroed()
        }
    }

    /// What a queue pair waits for an acknowledgement (kernel: `cm_ack_timeout`, for a port without delay).
    pub fn ack_timeout(&self) -> u8 {
        (self.lifetime + 1).min(31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_being_packed() {
        let path = Path {
            flow_label: 0xabcde,
            service_level: 5,
            rate: 3,
            ..Path::of_ethernet([1; 16], [2; 16], 0x20, Some(14))
        };
        assert_eq!(Path::unpack(&path.pack()), path);
        assert_eq!(path.reversed().reversed(), path);
        assert_eq!(path.ack_timeout(), 14);
        assert_eq!(Path::of_ethernet([1; 16], [2; 16], 0, None).ack_timeout(), 17);
    }
}
