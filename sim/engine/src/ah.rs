//! Address handles and multicast membership.

use crate::engine::Engine;
use crate::platform::Platform;
use crate::spec::{AddressHandle, AhId, EngineError, Gid, QpId, Service};

/// First byte of an IPv6 multicast address, and so of a native multicast GID.
const MULTICAST_PREFIX: u8 = 0xff;
/// What IPv4 addresses are mapped behind.
const IPV4_PREFIX: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// The IPv4 address inside a GID, if it is one.
pub(crate) fn ipv4(gid: &Gid) -> Option<[u8; 4]> {
    let rest = gid.strip_prefix(&IPV4_PREFIX)?;
    rest.try_into().ok()
}

/// Whether a GID names a group: ff00::/8, or 224.0.0.0/4 mapped.
pub(crate) fn is_multicast(gid: &Gid) -> bool {
    gid[0] == MULTICAST_PREFIX || ipv4(gid).is_some_and(|address| address[0] & 0xf0 == 0xe0)
}

impl<P: Platform> Engine<P> {
    /// Creates an address handle.
    ///
    /// # Errors
    /// Unknown protection domain; the number is taken, or none is left.
    pub fn create_ah(&mut self, handle: AddressHandle, number: Option<u32>) -> Result<AhId, EngineError> {
        if !self.pds.contains(handle.pd) {
            return Err(EngineError::NotFound);
        }
        self.address_handles.insert(handle.pd.function, number, handle)
    }

    /// Takes an address handle away.
    ///
    /// # Errors
    /// Unknown handle.
    pub fn destroy_ah(&mut self, handle: AhId) -> Result<(), EngineError> {
        self.address_handles.remove(handle).map(drop).ok_or(EngineError::NotFound)
    }

    /// Makes a datagram queue pair a member of a group; again is as once.
    ///
    /// # Errors
    /// Unknown queue pair; not a datagram queue pair, not a multicast GID.
    pub fn attach_multicast(&mut self, qp: QpId, group: Gid) -> Result<(), EngineError> {
        let member = self.qps.get(qp).ok_or(EngineError::NotFound)?;
        if member.service != Service::UnreliableDatagram || !is_multicast(&group) {
            return Err(EngineError::Invalid);
        }
        self.multicast.entry(group).or_default().insert(qp);
        Ok(())
    }

    /// Ends a membership.
    ///
    /// # Errors
    /// No such membership.
    pub fn detach_multicast(&mut self, qp: QpId, group: Gid) -> Result<(), EngineError> {
        let members = self.multicast.get_mut(&group).ok_or(EngineError::NotFound)?;
        if !members.remove(&qp) {
            return Err(EngineError::NotFound);
        }
        if members.is_empty() {
            self.multicast.remove(&group);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_told_from_hosts() {
        let mapped = |last: [u8; 4]| -> Gid {
            let mut gid = [0; 16];
            gid[..12].copy_from_slice(&IPV4_PREFIX);
            gid[12..].copy_from_slice(&last);
            gid
        };
        assert!(is_multicast(&mapped([224, 0, 0, 1])));
        assert!(!is_multicast(&mapped([10, 0, 0, 1])));
        assert_eq!(ipv4(&mapped([10, 0, 0, 1])), Some([10, 0, 0, 1]));
        let mut group = [0; 16];
        assert!(!is_multicast(&group));
        group[0] = 0xff;
        assert!(is_multicast(&group));
        assert_eq!(ipv4(&group), None);
    }
}
