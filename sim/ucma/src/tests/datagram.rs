//! Datagram services and multicast groups.

use irdma_uverbs::Transport;
use zerocopy::FromZeros;

use super::bed::*;
use crate::abi::{ConnParam, DestroyId, EventsReported, JoinMcast, NewId};
use crate::commands::queries::DATAGRAM_KEY;
use crate::event::Kind;
use crate::id::space;

const ADDRESS: &str = "192.0.2.1:7174";

#[test]
fn a_service_tells_its_queue_pair_and_key() {
    let mut bed = Bed::new(Transport::Roce);
    let (server, client) = (bed.node(), bed.node());
    bed.listener(server, space::UDP, 10, "0.0.0.0:7174");
    let caller = bed.caller(client, space::UDP, 20, ADDRESS);
    assert_eq!(bed.attributes(client, caller, 1).unwrap().qkey, DATAGRAM_KEY);
    bed.connect(client, caller, parameters(1, b"hello")).unwrap();
    let request = bed.expect(server, Kind::ConnectRequest, 10, 0);
    assert_eq!(request.param.private_data_len, 180);
    assert_eq!(&request.param.private_data[..6], b"hello\0");
    bed.accept(server, request.id, 30, parameters(2, b"hi")).unwrap();
    assert_eq!(bed.accept(server, request.id, 30, parameters(2, b"hi")), Err(libc::EINVAL));
    let told = bed.expect(client, Kind::Established, 20, 0).param;
    assert_eq!((told.qp_num, told.qkey, told.private_data_len), (2, DATAGRAM_KEY, 136));
    assert_eq!((told.ah_attr.dgid, told.ah_attr.sgid_index, told.ah_attr.is_global), (IPV4, 1, 1));
    assert!(bed.event(server).is_none() && bed.event(client).is_none());
}

#[test]
fn a_service_that_is_not_there_or_does_not_want_is_unreachable() {
    let mut bed = Bed::new(Transport::Roce);
    let (server, client) = (bed.node(), bed.node());
    // Another port space is another world.
    bed.listener(server, space::TCP, 10, "0.0.0.0:7174");
    let caller = bed.caller(client, space::UDP, 20, ADDRESS);
    bed.connect(client, caller, parameters(1, b"")).unwrap();
    bed.expect(client, Kind::Unreachable, 20, 1);

    bed.listener(server, space::UDP, 11, "0.0.0.0:7174");
    for (n, destroyed) in [(21, false), (22, true)] {
        let caller = bed.caller(client, space::UDP, n, ADDRESS);
        bed.connect(client, caller, parameters(1, b"")).unwrap();
        let called = bed.expect(server, Kind::ConnectRequest, 11, 0).id;
        if destroyed {
            bed.destroy(server, called).unwrap();
        } else {
            bed.reject(server, called, b"no").unwrap();
        }
        bed.expect(client, Kind::Unreachable, n, 2);
    }
    let caller = bed.caller(client, space::UDP, 23, ADDRESS);
    assert_eq!(bed.connect(client, caller, parameters(1, &[0; 181])), Err(libc::EINVAL));
    let nothing = ConnParam { valid: 0, ..ConnParam::new_zeroed() };
    assert_eq!(bed.connect(client, caller, nothing), Err(libc::EINVAL));
}

fn join(bed: &mut Bed, node: u64, id: u32, group: &str) -> Result<u32, i32> {
    let (addr, addr_size) = socket_address(group);
    let body = JoinMcast { response: ANSWER, uid: 99, id, addr_size, join_flags: 0, addr };
    bed.run(node, command::JOIN, &body, 4)?;
    Ok(bed.answer::<NewId>().id)
}

#[test]
fn a_group_is_joined_and_left() {
    let mut bed = Bed::new(Transport::Roce);
    let node = bed.node();
    let id = bed.create(node, space::UDP, 20);
    assert_eq!(join(&mut bed, node, id, "239.1.2.3:0"), Err(libc::EINVAL));
    bed.resolve(node, id, "239.1.2.3:7174").unwrap();
    bed.expect(node, Kind::AddressResolved, 20, 0);
    let first = join(&mut bed, node, id, "239.1.2.3:0").unwrap();
    let second = join(&mut bed, node, id, "239.1.2.4:0").unwrap();
    let event = bed.expect(node, Kind::MulticastJoin, 99, 0);
    assert_eq!((event.id, event.param.qp_num, event.param.qkey), (first, 0xff_ffff, DATAGRAM_KEY));
    assert_eq!(event.param.ah_attr.dgid[10..], [0xff, 0xff, 239, 1, 2, 3]);
    assert_eq!(event.param.ah_attr.sgid_index, 1);
    for (membership, fetched) in [(first, 1), (second, 0)] {
        let body = DestroyId { response: ANSWER, id: membership, reserved: 0 };
        bed.run(node, command::LEAVE, &body, 4).unwrap();
        assert_eq!(bed.answer::<EventsReported>().events_reported, fetched);
        assert_eq!(bed.run(node, command::LEAVE, &body, 4), Err(libc::ENOENT));
    }
    assert!(bed.event(node).is_none());
    assert_eq!(join(&mut bed, node, id, "[ff02::1]:0"), Err(524));
    join(&mut bed, node, id, "239.1.2.5:0").unwrap();
    bed.destroy(node, id).unwrap();
    assert_eq!(bed.manager.memberships.iter().count(), 0);
    assert!(bed.event(node).is_none());
}
