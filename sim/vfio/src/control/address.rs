//! Commands about where packets go: neighbours, address handles, multicast groups.

use irdma_engine::Engine;
use irdma_engine::spec::{AddressHandle, EngineError, Gid, Mac};

use super::{Command, Failure};
use crate::field::{Field, u64_at};
use crate::function::Function;
use crate::host::Host;

const ARP_INDEX: Field = Field::new(11, 0);
const ARP_VALID: Field = Field::bit(42);

const HANDLE: Field = Field::new(23, 0);
const IPV4: Field = Field::bit(59);
const DOMAIN_LOW: Field = Field::new(63, 48);
const DOMAIN_HIGH: Field = Field::new(27, 20);
const TRAFFIC_CLASS: Field = Field::new(39, 32);
const HOP_LIMIT: Field = Field::new(39, 32);
const FLOW_LABEL: Field = Field::new(19, 0);
const NEIGHBOUR: Field = Field::new(63, 48);

const GROUP: Field = Field::new(12, 0);
const GROUP_IPV4: Field = Field::bit(60);
const MEMBER_VALID: Field = Field::bit(31);
const MEMBER_QP: Field = Field::new(17, 0);
/// Members of a group (kernel: `IRDMA_MAX_MGS_PER_CTX`).
const MEMBERS: usize = 8;

/// An Ethernet address out of the low 48 bits of a word, first byte highest.
pub(super) fn mac_of(word: u64) -> Mac {
    let bytes = word.to_be_bytes();
    [bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]]
}

/// A GID out of two words of an IPv6 address, or the low half of the second for IPv4.
pub(super) fn gid_of(first: u64, second: u64, ipv4: bool) -> Gid {
    let mut gid = [0; 16];
    if ipv4 {
        gid[10..12].copy_from_slice(&[0xff, 0xff]);
        gid[12..].copy_from_slice(&(second as u32).to_be_bytes());
    } else {
        gid[..8].copy_from_slice(&first.to_be_bytes());
        gid[8..].copy_from_slice(&second.to_be_bytes());
    }
    gid
}

impl Function {
    /// `MANAGE_ARP`: a neighbour's Ethernet address under an index.
    pub(super) fn manage_arp(&mut self, command: &Command) -> Result<(), Failure> {
        let index = command.header_number(ARP_INDEX);
        if command.has(ARP_VALID) {
            self.neighbours.insert(index, mac_of(command.word(16)));
        } else {
            self.neighbours.remove(&index);
        }
        Ok(())
    }

    /// `ALLOCATE_LOC_MAC_TABLE_ENTRY`: there is one entry.
    pub(super) fn allocate_mac_entry(&self) -> Result<u32, Failure> {
        Ok(0)
    }

    /// `CREATE_ADDR_HANDLE` and `MODIFY_ADDR_HANDLE`.
    pub(super) fn create_address(
        &mut self,
        engine: &mut Engine<Host>,
        command: &Command,
    ) -> Result<(), Failure> {
        let number = command.header_number(HANDLE);
        let (second, third) = (command.word(8), command.word(16));
        let ipv4 = command.has(IPV4);
        let domain = DOMAIN_HIGH.number(third) << 16 | DOMAIN_LOW.number(second);
        let handle = AddressHandle {
            pd: self.domain(engine, domain),
            source_gid: gid_of(command.word(56), command.word(48), ipv4),
            destination_gid: gid_of(command.word(40), command.word(32), ipv4),
            destination_mac: Some(self.next_hop(NEIGHBOUR.number(third))),
            traffic_class: TRAFFIC_CLASS.get(second) as u8,
            hop_limit: HOP_LIMIT.get(third) as u8,
            flow_label: FLOW_LABEL.number(third),
        };
        self.take_address(engine, mac_of(command.word(0) >> 16));
        // A handle that is modified is made anew.
        let _ = engine.destroy_ah(self.object(number));
        engine.create_ah(handle, Some(number))?;
        Ok(())
    }

    /// `DESTROY_ADDR_HANDLE`.
    pub(super) fn destroy_address(
        &mut self,
        engine: &mut Engine<Host>,
        command: &Command,
    ) -> Result<(), Failure> {
        Ok(engine.destroy_ah(self.object(command.header_number(HANDLE)))?)
    }

    /// The Ethernet address of a neighbour; one that nobody has if it is not known.
    pub(super) fn next_hop(&self, index: u32) -> Mac {
        self.neighbours.get(&index).copied().unwrap_or_default()
    }

    /// `CREATE_MCAST_GRP`, `MODIFY_MCAST_GRP` and, with `destroy`, `DESTROY_MCAST_GRP`: the
    /// members of a group are those of the command's buffer.
    pub(super) fn change_group(
        &mut self,
        engine: &mut Engine<Host>,
        command: &Command,
        destroy: bool,
    ) -> Result<(), Failure> {
        let number = command.header_number(GROUP);
        let gid = gid_of(command.word(56), command.word(48), command.has(GROUP_IPV4));
        let mut members = Vec::new();
        if !destroy {
            let mut buffer = [0; MEMBERS * 8];
            engine.platform().read_at(self.id, command.word(32), &mut buffer)?;
            let words = (0..MEMBERS).map(|index| u64_at(&buffer, index * 8));
            members
                .extend(words.filter(|&word| MEMBER_VALID.is_set(word)).map(|word| MEMBER_QP.number(word)));
        }
        if let Some((old_gid, old)) = self.groups.remove(&number) {
            for qp in old {
                // A member whose queue pair is gone has left by itself.
                let _ = engine.detach_multicast(self.object(qp), old_gid);
            }
        }
        for &qp in &members {
            match engine.attach_multicast(self.object(qp), gid) {
                // The driver names the members of a moment ago; one that has gone since is nobody.
                Ok(()) | Err(EngineError::NotFound) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if !members.is_empty() {
            self.groups.insert(number, (gid, members));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use irdma_engine::spec::{DeviceConfig, Generation};

    use super::*;
    use crate::field::put_at;

    #[test]
    fn addresses_are_in_network_order() {
        assert_eq!(mac_of(0x0211_2233_4455), [2, 0x11, 0x22, 0x33, 0x44, 0x55]);
        let gid = gid_of(0, 0xc000_0201, true);
        assert_eq!(gid[10..], [0xff, 0xff, 192, 0, 2, 1]);
        let gid = gid_of(0xfe80_0000_0000_0000, 0x0011_22ff_fe33_4455, false);
        assert_eq!((gid[0], gid[1], gid[8], gid[15]), (0xfe, 0x80, 0, 0x55));
    }

    #[test]
    fn member_that_is_gone_does_not_keep_a_group_from_changing() {
        let config = DeviceConfig { generation: Generation::Gen3, port_mtu: 1024, seed: 1 };
        let mut engine = Engine::new(config, crate::host::tests::host(0x2000));
        let id = engine.add_function(Vec::new());
        let mut function = Function::new(id, Generation::Gen3, [2; 6]);
        let member = MEMBER_VALID.put(1) | MEMBER_QP.put(77);
        engine.platform().write_at(id, 0x1000, &member.to_le_bytes()).expect("memory");
        let command = |group: u64| {
            let mut bytes = [0; 64];
            put_at(&mut bytes, 32, 0x1000_u64.to_le_bytes());
            put_at(&mut bytes, 48, group.to_le_bytes());
            put_at(&mut bytes, 24, GROUP_IPV4.put(1).to_le_bytes());
            Command::new(&bytes)
        };
        assert!(function.change_group(&mut engine, &command(0xe600_0201), false).is_ok());
        assert!(function.change_group(&mut engine, &command(0xe600_0201), true).is_ok());
        assert!(function.groups.is_empty());
    }
}
