//! Nodes, identifiers and events: whose they are, how they are counted and where they go.

use std::os::fd::AsRawFd;

use irdma_uverbs::Transport;

use super::bed::*;
use crate::abi::{EventsReported, MigrateId};
use crate::event::Kind;
use crate::id::space;

/// Calls descriptor 3 of the program what that of the node is called.
fn name_descriptor(bed: &mut Bed, node: u64) {
    let link = format!("/proc/self/fd/{}", bed.ends[&node].as_raw_fd());
    let name = std::fs::read_link(link).unwrap().into_os_string().into_string().unwrap();
    bed.program.names.borrow_mut().insert(3, name);
}

#[test]
fn an_identifier_moves_with_its_events() {
    let mut bed = Bed::new(Transport::Roce);
    let (old, new) = (bed.node(), bed.node());
    let id = bed.create(old, space::TCP, 20);
    bed.resolve(old, id, "127.0.0.1:80").unwrap();
    bed.expect(old, Kind::AddressResolved, 20, 0);
    bed.route(old, id).unwrap();
    let body = MigrateId { response: ANSWER, id, fd: 3 };
    assert_eq!(bed.run(new, command::MIGRATE, &body, 4), Err(libc::ENOENT));
    bed.program.names.borrow_mut().insert(3, "pipe:[77]".into());
    assert_eq!(bed.run(new, command::MIGRATE, &body, 4), Err(libc::EINVAL));
    name_descriptor(&mut bed, new);
    assert_eq!(bed.run(new, command::MIGRATE, &body, 4), Err(libc::EINVAL));
    name_descriptor(&mut bed, old);
    bed.run(new, command::MIGRATE, &body, 4).unwrap();
    assert_eq!(bed.answer::<EventsReported>().events_reported, 1);
    assert!(bed.event(old).is_none());
    bed.expect(new, Kind::RouteResolved, 20, 0);
    assert_eq!(bed.destroy(old, id), Err(libc::EINVAL));
    assert_eq!(bed.destroy(new, id), Ok(2));
}

#[test]
fn a_listener_takes_requests_that_nobody_fetched_along() {
    let mut bed = Bed::new(Transport::Roce);
    let (server, client) = (bed.node(), bed.node());
    let listener = bed.listener(server, space::TCP, 10, "127.0.0.1:8000");
    let caller = bed.caller(client, space::TCP, 20, "127.0.0.1:8000");
    bed.connect(client, caller, parameters(1, b"")).unwrap();
    assert_eq!(bed.manager.ids.iter().count(), 3);
    assert_eq!(bed.destroy(server, listener), Ok(0));
    bed.expect(client, Kind::Rejected, 20, 28);
    assert_eq!(bed.manager.ids.iter().count(), 1);
    assert!(bed.event(server).is_none());
}

#[test]
fn a_node_takes_everything_along() {
    let mut bed = Bed::new(Transport::Roce);
    let (server, client) = (bed.node(), bed.node());
    bed.listener(server, space::TCP, 10, "127.0.0.1:8000");
    let (caller, _) = bed.established(client, (server, 10), "127.0.0.1:8000");
    bed.close(server);
    bed.expect(client, Kind::Disconnected, 50, 0);
    assert_eq!(bed.manager.ids.iter().map(|(number, _)| number).collect::<Vec<_>>(), [caller]);
    bed.close(client);
    assert!(bed.manager.is_unused());
    assert_eq!(bed.manager.ids.iter().count(), 0);
}

#[test]
fn what_a_program_cannot_be_told_has_not_happened() {
    let mut bed = Bed::new(Transport::Roce);
    let node = bed.node();
    let body = crate::abi::CreateId { uid: 1, response: 1, ps: space::TCP, qp_type: 0, reserved: [0; 5] };
    assert_eq!(bed.run(node, command::CREATE, &body, 4), Err(libc::EFAULT));
    assert_eq!(bed.run(node, command::CREATE, &body, 3), Err(libc::ENOSPC));
    assert_eq!(bed.manager.ids.iter().count(), 0);
    let id = bed.create(node, space::TCP, 20);
    bed.resolve(node, id, "127.0.0.1:80").unwrap();
    let nowhere = crate::abi::GetEvent { response: 1 };
    assert_eq!(bed.run(node, command::GET_EVENT, &nowhere, 336), Err(libc::EFAULT));
    assert_eq!(bed.run(node, command::GET_EVENT, &nowhere, 323), Err(libc::ENOSPC));
    bed.expect(node, Kind::AddressResolved, 20, 0);
}
