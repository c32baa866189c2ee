//! Addresses of identifiers: IPv4, IPv6 and InfiniBand socket addresses, as programs pass them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use irdma_engine::spec::Gid;

/// Address families (kernel: include/linux/socket.h).
mod family {
    pub const INET: u16 = 2;
    pub const INET6: u16 = 10;
    pub const IB: u16 = 27;
}

/// Bytes of a `struct sockaddr_ib`.
const IB_SIZE: usize = 48;

/// A socket address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Address {
    /// None yet.
    #[default]
    None,
    /// IPv4.
    V4 {
        /// Host.
        host: Ipv4Addr,
        /// Port.
        port: u16,
    },
    /// IPv6.
    V6 {
        /// Host.
        host: Ipv6Addr,
        /// Port.
        port: u16,
        /// `sin6_flowinfo`, as it came.
        flow: [u8; 4],
        /// Interface of a link-local host.
        scope: u32,
    },
    /// `struct sockaddr_ib`. Native InfiniBand addressing, which Ethernet ports only take as a wildcard.
    Ib([u8; IB_SIZE]),
}

impl Address {
    /// The address at the start of `bytes`; `None` for a family there is not, or too few bytes.
    pub fn parse(bytes: &[u8]) -> Option<Address> {
        let family = u16::from_ne_bytes([*bytes.first()?, *bytes.get(1)?]);
        match family {
            family::INET => {
                let bytes: &[u8; 16] = bytes.first_chunk()?;
                let host = Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]);
                Some(Address::V4 { host, port: u16::from_be_bytes([bytes[2], bytes[3]]) })
            }
            family::INET6 => {
                let bytes: &[u8; 28] = bytes.first_chunk()?;
                let host: [u8; 16] = *bytes[8..].first_chunk()?;
                Some(Address::V6 {
                    host: host.into(),
                    port: u16::from_be_bytes([bytes[2], bytes[3]]),
                    flow: *bytes[4..].first_chunk()?,
                    scope: u32::from_ne_bytes(*bytes[24..].first_chunk()?),
                })
            }
            family::IB => Some(Address::Ib(*bytes.first_chunk()?)),
            _ => None,
        }
    }

    /// An IP address with its port.
    pub fn from_ip(host: IpAddr, port: u16) -> Address {
        match host {
            IpAddr::V4(host) => Address::V4 { host, port },
            IpAddr::V6(host) => Address::V6 { host, port, flow: [0; 4], scope: 0 },
        }
    }

    /// Its bytes as a socket address (kernel: `rdma_addr_size`).
    pub fn size(&self) -> usize {
        match self {
            Address::None => 0,
            Address::V4 { .. } => 16,
            Address::V6 { .. } => 28,
            Address::Ib(_) => IB_SIZE,
        }
    }

    /// Writes it to the start of a zeroed buffer, as far as it fits.
    pub fn store(&self, buffer: &mut [u8]) {
        let mut bytes = [0; IB_SIZE];
        match self {
            Address::None => {}
            Address::V4 { host, port } => {
                bytes[..2].copy_from_slice(&family::INET.to_ne_bytes());
                bytes[2..4].copy_from_slice(&port.to_be_bytes());
                bytes[4..8].copy_from_slice(&host.octets());
            }
            Address::V6 { host, port, flow, scope } => {
                bytes[..2].copy_from_slice(&family::INET6.to_ne_bytes());
                bytes[2..4].copy_from_slice(&port.to_be_bytes());
                bytes[4..8].copy_from_slice(flow);
                bytes[8..24].copy_from_slice(&host.octets());
                bytes[24..28].copy_from_slice(&scope.to_ne_bytes());
            }
            Address::Ib(raw) => bytes = *raw,
        }
        let length = self.size().min(buffer.len());
        buffer[..length].copy_from_slice(&bytes[..length]);
    }

    /// Whether both are of the same family.
    pub fn is_of_family(&self, other: &Address) -> bool {
        core::mem::discriminant(self) == core::mem::discriminant(other)
    }

    /// The host, if it is an IP address.
    pub fn host(&self) -> Option<IpAddr> {
        match self {
            Address::V4 { host, .. } => Some((*host).into()),
            Address::V6 { host, .. } => Some((*host).into()),
            Address::None | Address::Ib(_) => None,
        }
    }

    /// Whether it names no host in particular.
    pub fn is_any(&self) -> bool {
        match self {
            Address::None => true,
            Address::Ib(raw) => raw[8..24] == [0; 16],
            other => other.host().is_some_and(|host| host.is_unspecified()),
        }
    }

    /// The port; of a native address, what its service number leaves open.
    pub fn port(&self) -> u16 {
        match self {
            Address::None => 0,
            Address::V4 { port, .. } | Address::V6 { port, .. } => *port,
            // Service number and mask are big-endian words; the port is the last two bytes.
            Address::Ib(raw) => u16::from_be_bytes([raw[30] & raw[38], raw[31] & raw[39]]),
        }
    }

    /// The same address with another port.
    pub fn with_port(mut self, number: u16) -> Address {
        match &mut self {
            Address::None => {}
            Address::V4 { port, .. } | Address::V6 { port, .. } => *port = number,
            Address::Ib(raw) => {
                raw[30..32].copy_from_slice(&number.to_be_bytes());
                // Nothing is left open.
                raw[32..40].fill(0xff);
            }
        }
        self
    }

    /// The same address with another host.
    pub fn with_host(self, host: IpAddr) -> Address {
        match (self, host) {
            (Address::V6 { port, flow, scope, .. }, IpAddr::V6(host)) => {
                Address::V6 { host, port, flow, scope }
            }
            (other, host) => Address::from_ip(host, other.port()),
        }
    }

    /// The wildcard of the same family.
    pub fn wildcard(&self) -> Address {
        match self {
            Address::None => Address::None,
            Address::V4 { .. } => Address::from_ip(Ipv4Addr::UNSPECIFIED.into(), 0),
            Address::V6 { scope, .. } => {
                Address::V6 { host: Ipv6Addr::UNSPECIFIED, port: 0, flow: [0; 4], scope: *scope }
            }
            Address::Ib(raw) => {
                let mut any = [0; IB_SIZE];
                // Family and partition stay.
                any[..4].copy_from_slice(&raw[..4]);
                Address::Ib(any)
            }
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::None => formatter.write_str("-"),
            Address::V4 { host, port } => write!(formatter, "{host}:{port}"),
            Address::V6 { host, port, .. } => write!(formatter, "[{host}]:{port}"),
            Address::Ib(_) => write!(formatter, "ib:{}", self.port()),
        }
    }
}

/// The GID of an IP address (kernel: `rdma_ip2gid`).
pub fn gid_of(host: IpAddr) -> Gid {
    match host {
        IpAddr::V4(host) => host.to_ipv6_mapped().octets(),
        IpAddr::V6(host) => host.octets(),
    }
}

/// A native socket address with that GID and service number.
pub fn native(gid: &Gid, p_key: u16, service: u64) -> [u8; IB_SIZE] {
    let mut raw = [0; IB_SIZE];
    raw[..2].copy_from_slice(&family::IB.to_ne_bytes());
    raw[2..4].copy_from_slice(&p_key.to_be_bytes());
    raw[8..24].copy_from_slice(gid);
    raw[24..32].copy_from_slice(&service.to_be_bytes());
    raw
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_being_stored() {
        let ib = native(&[7; 16], 0xffff, 0x106_1234);
        for address in [
            Address::from_ip("10.1.2.3".parse().unwrap(), 7174),
            Address::V6 { host: "fe80::1".parse().unwrap(), port: 9, flow: [1, 2, 3, 4], scope: 3 },
            Address::Ib(ib),
        ] {
            let mut buffer = [0; 128];
            address.store(&mut buffer);
            assert_eq!(Address::parse(&buffer), Some(address));
            assert_eq!(Address::parse(&buffer[..address.size() - 1]), None);
            assert_eq!(address.with_port(80).port(), 80);
            assert!(address.wildcard().is_any() && address.wildcard().is_of_family(&address));
        }
        assert_eq!(Address::parse(&[0; 128]), None);
        assert_eq!(Address::parse(&[1, 0, 0, 0]), None);
        assert_eq!(Address::parse(&[]), None);
    }

    #[test]
    fn a_native_address_leaves_its_port_to_the_mask() {
        let mut raw = native(&[0; 16], 0, 0x106_1234);
        assert_eq!(Address::Ib(raw).port(), 0);
        raw[38..40].fill(0xff);
        assert_eq!(Address::Ib(raw).port(), 0x1234);
    }
}
