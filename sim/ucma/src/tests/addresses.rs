//! Addresses, ports, options, queries.

use std::time::Duration;

use irdma_uverbs::Transport;
use zerocopy::IntoBytes;

use super::bed::*;
use crate::abi::{Bind, BindIp, PathData, Query, QueryAddrResp, QueryPathResp, QueryRouteResp, ResolveIp};
use crate::address::{Address, native};
use crate::event::Kind;
use crate::id::space;
use crate::path::Path;

fn addresses(bed: &mut Bed, node: u64, id: u32, option: u32) -> (Address, Address, u8) {
    let query = Query { response: ANSWER, id, option };
    bed.run(node, command::QUERY, &query, size_of::<QueryAddrResp>()).unwrap();
    let answer: QueryAddrResp = bed.answer();
    let parse = |bytes: &[u8]| Address::parse(bytes).unwrap_or_default();
    (parse(&answer.src_addr), parse(&answer.dst_addr), answer.port_num)
}

#[test]
fn addresses_of_the_machine_and_of_the_card_lead_to_the_card() {
    let mut bed = Bed::new(Transport::Roce);
    let node = bed.node();
    for (n, (destination, gid)) in
        [("127.0.0.1", IPV4), ("192.0.2.1", IPV4), ("[::1]", LINK_LOCAL), ("0.0.0.0", IPV4)]
            .iter()
            .enumerate()
    {
        let user = 20 + n as u64;
        let id = bed.caller(node, space::TCP, user, &format!("{destination}:80"));
        let (source, other, port) = addresses(&mut bed, node, id, 0);
        assert_eq!((port, other.port()), (1, 80));
        assert!(source.port() >= 32768 && !source.is_any());
        assert!(other.is_any() || other.host() == source.host());
        let (own, other, _) = addresses(&mut bed, node, id, 2);
        let service = 0x106_0000 + u64::from(source.port());
        assert_eq!(own, Address::Ib(native(gid, 0xffff, service)));
        assert_eq!(other, Address::Ib(native(gid, 0xffff, 0x106_0050)));
    }
}

#[test]
fn old_commands_do_the_same() {
    let mut bed = Bed::new(Transport::Roce);
    let node = bed.node();
    let inet = |text: &str| -> [u8; 28] { *socket_address(text).0.first_chunk().unwrap() };
    let id = bed.create(node, space::TCP, 20);
    let bind = |addr| BindIp { response: 0, addr, id };
    assert_eq!(bed.run(node, command::BIND_IP, &bind([0; 28]), 0), Err(libc::EINVAL));
    // A native address does not fit.
    let mut native = [0; 28];
    native[0] = 27;
    assert_eq!(bed.run(node, command::BIND_IP, &bind(native), 0), Err(libc::EINVAL));
    bed.run(node, command::BIND_IP, &bind(inet("127.0.0.1:8000")), 0).unwrap();
    let destination = inet("127.0.0.1:80");
    let resolve = ResolveIp { src_addr: [0; 28], dst_addr: destination, id, timeout_ms: 1 };
    bed.run(node, command::RESOLVE_IP, &resolve, 0).unwrap();
    bed.expect(node, Kind::AddressResolved, 20, 0);
    let query = Query { response: ANSWER, id, option: 0 };
    bed.run(node, command::QUERY_ROUTE, &query, size_of::<QueryRouteResp>()).unwrap();
    let route: QueryRouteResp = bed.answer();
    assert_eq!((route.src_addr, route.dst_addr), (inet("127.0.0.1:8000"), destination));
    assert_eq!((route.num_paths, route.ib_route[0].sgid), (0, IPV4));
}

#[test]
fn other_addresses_do_not_answer() {
    let mut bed = Bed::new(Transport::Roce);
    let node = bed.node();
    let id = bed.create(node, space::TCP, 20);
    assert_eq!(bed.bind(node, id, "203.0.113.9:80"), Err(libc::EADDRNOTAVAIL));
    bed.resolve(node, id, "203.0.113.9:80").unwrap();
    assert!(bed.event(node).is_none());
    assert!(bed.manager.next_due().is_some_and(|due| due > Duration::from_secs(1)));
    bed.manager.skip(Duration::from_secs(2));
    bed.manager.advance();
    bed.expect(node, Kind::AddressError, 20, -libc::ETIMEDOUT);
    // It may try another one.
    bed.resolve(node, id, "127.0.0.1:80").unwrap();
    bed.expect(node, Kind::AddressResolved, 20, 0);
}

#[test]
fn a_card_that_was_taken_out_is_no_card() {
    let mut bed = Bed::new(Transport::Roce);
    let node = bed.node();
    let bound = bed.create(node, space::TCP, 20);
    bed.bind(node, bound, "127.0.0.1:8000").unwrap();
    let unbound = bed.create(node, space::TCP, 21);
    bed.card.removed = true;
    bed.manager.remove_card();
    bed.manager.remove_card();
    bed.expect(node, Kind::DeviceRemoval, 20, 0);
    assert!(bed.event(node).is_none());
    assert_eq!(bed.listen(node, bound, 1), Err(libc::ENXIO));
    assert_eq!(bed.destroy(node, bound), Ok(1));
    assert_eq!(bed.bind(node, unbound, "127.0.0.1:8000"), Err(libc::ENODEV));
    bed.resolve(node, unbound, "127.0.0.1:80").unwrap();
    bed.expect(node, Kind::AddressError, 21, -libc::ENODEV);
}

#[test]
fn a_port_belongs_to_one_unless_all_share() {
    let mut bed = Bed::new(Transport::Roce);
    let node = bed.node();
    let ids: Vec<u32> = (0..8).map(|n| bed.create(node, space::TCP, 20 + n)).collect();
    assert_eq!(bed.bind(node, ids[0], "0.0.0.0:80"), Err(libc::EACCES));
    bed.bind(node, ids[0], "127.0.0.1:8000").unwrap();
    assert_eq!(bed.bind(node, ids[0], "127.0.0.1:8001"), Err(libc::EINVAL));
    assert_eq!(bed.bind(node, ids[1], "127.0.0.1:8000"), Err(libc::EADDRINUSE));
    assert_eq!(bed.bind(node, ids[1], "0.0.0.0:8000"), Err(libc::EADDRNOTAVAIL));
    bed.bind(node, ids[1], "192.0.2.1:8000").unwrap();
    let other = bed.create(node, space::UDP, 40);
    bed.bind(node, other, "127.0.0.1:8000").unwrap();
    // Sharing, until one of them listens.
    for id in &ids[2..4] {
        bed.option(node, *id, (0, 1), &1_u32.to_ne_bytes()).unwrap();
        bed.bind(node, *id, "0.0.0.0:9000").unwrap();
    }
    assert_eq!(bed.listen(node, ids[2], 1), Err(libc::EADDRNOTAVAIL));
    bed.destroy(node, ids[3]).unwrap();
    bed.listen(node, ids[2], 1).unwrap();
    assert_eq!(bed.listen(node, ids[2], 1), Err(libc::EINVAL));
    // Of another family.
    bed.option(node, ids[4], (0, 2), &1_u32.to_ne_bytes()).unwrap();
    bed.bind(node, ids[4], "[::]:9000").unwrap();
    assert_eq!(bed.bind(node, ids[5], "[::]:9000"), Err(libc::EADDRNOTAVAIL));
    // None in particular is never the same.
    bed.listen(node, ids[5], 1).unwrap();
    bed.bind(node, ids[6], "0.0.0.0:0").unwrap();
    let port = |bed: &mut Bed, id| addresses(bed, node, id, 0).0.port();
    assert_ne!(port(&mut bed, ids[5]), port(&mut bed, ids[6]));
}

#[test]
fn a_listener_for_all_families_takes_all() {
    let mut bed = Bed::new(Transport::Roce);
    let node = bed.node();
    bed.listener(node, space::TCP, 10, "[::]:8000");
    let caller = bed.caller(node, space::TCP, 20, "127.0.0.1:8000");
    bed.request(node, caller, (node, 10), b"");
    bed.listener(node, space::TCP, 11, "192.0.2.1:9000");
    let caller = bed.caller(node, space::TCP, 21, "127.0.0.1:9000");
    bed.connect(node, caller, parameters(1, b"")).unwrap();
    bed.expect(node, Kind::Rejected, 21, 8);
}

#[test]
fn native_addresses_are_taken_as_wildcards_only() {
    let mut bed = Bed::new(Transport::Roce);
    let node = bed.node();
    let id = bed.create(node, space::IB, 20);
    let bind = |bed: &mut Bed, id, gid: [u8; 16]| {
        let mut addr = [0; 128];
        addr[..48].copy_from_slice(&native(&gid, 0, 0x106_0000));
        bed.run(node, command::BIND, &Bind { id, addr_size: 48, reserved: 0, addr }, 0)
    };
    assert_eq!(bind(&mut bed, id, IPV4), Err(libc::ENODEV));
    bind(&mut bed, id, [0; 16]).unwrap();
    bed.listen(node, id, 1).unwrap();
}

#[test]
fn a_path_is_told_in_all_forms_and_can_be_given() {
    let mut bed = Bed::new(Transport::Roce);
    let node = bed.node();
    let id = bed.create(node, space::TCP, 20);
    bed.option(node, id, (0, 0), &[0x28]).unwrap();
    bed.option(node, id, (0, 3), &[14]).unwrap();
    for (place, value) in [((0, 0), &[0, 0][..]), ((0, 1), &[1]), ((1, 1), &[0; 71]), ((1, 1), &[0; 72])] {
        assert_eq!(bed.option(node, id, place, value), Err(libc::EINVAL), "{place:?}");
    }
    for place in [(0, 4), (1, 0), (2, 0)] {
        assert_eq!(bed.option(node, id, place, &[0]), Err(libc::ENOSYS), "{place:?}");
    }
    bed.resolve(node, id, "192.0.2.1:80").unwrap();
    let query = Query { response: ANSWER, id, option: 1 };
    bed.run(node, command::QUERY, &query, 8 + 72 * 6).unwrap();
    assert_eq!(bed.answer::<QueryPathResp>().num_paths, 0);
    bed.route(node, id).unwrap();
    bed.run(node, command::QUERY, &query, 8 + 72 * 6).unwrap();
    assert_eq!(bed.answer::<QueryPathResp>().num_paths, 1);
    let told: [[u8; 72]; 2] = bed.answer();
    let record: [u8; 64] = std::array::from_fn(|byte| told.as_flattened()[16 + byte]);
    assert_eq!(Path::unpack(&record), Path::of_ethernet(IPV4, IPV4, 0x28, Some(14)));
    bed.run(node, command::QUERY_ROUTE, &query, size_of::<QueryRouteResp>()).unwrap();
    let route: QueryRouteResp = bed.answer();
    assert_eq!((route.num_paths, route.port_num, route.ib_route[0].dgid), (1, 1, IPV4));
    assert_eq!(route.ib_route[0].traffic_class, 0x28);

    let other = bed.create(node, space::TCP, 21);
    bed.resolve(node, other, "192.0.2.1:80").unwrap();
    let given = PathData { flags: 43, reserved: 0, path_rec: record };
    bed.option(node, other, (1, 1), given.as_bytes()).unwrap();
    assert_eq!(bed.option(node, other, (1, 1), given.as_bytes()), Err(libc::EINVAL));
    assert_eq!(bed.attributes(node, other, 1).unwrap().port_num, 1);
}
