//! Connections over iWARP.

use irdma_uverbs::Transport;

use super::bed::*;
use crate::event::Kind;
use crate::id::space;

const ADDRESS: &str = "127.0.0.1:7174";

fn listening() -> (Bed, u64, (u64, u64)) {
    let mut bed = Bed::new(Transport::Iwarp);
    let (server, client) = (bed.node(), bed.node());
    bed.listener(server, space::TCP, 10, "0.0.0.0:7174");
    (bed, client, (server, 10))
}

/// Both numbers of a connection of queue pairs 1 and 2.
fn connected(bed: &mut Bed, client: u64, listener: (u64, u64)) -> (u32, u32) {
    let caller = bed.caller(client, space::TCP, 20, ADDRESS);
    bed.connect(client, caller, parameters(1, b"hello")).unwrap();
    let request = bed.expect(listener.0, Kind::ConnectRequest, 10, 0);
    let said = connection(&request);
    assert_eq!((said.private_data_len, &said.private_data[..5]), (5, &b"hello"[..]));
    bed.accept(listener.0, request.id, 30, parameters(2, b"hi")).unwrap();
    let said = connection(&bed.expect(client, Kind::Established, 20, 0));
    assert_eq!((said.private_data_len, &said.private_data[..2]), (2, &b"hi"[..]));
    bed.expect(listener.0, Kind::Established, 30, 0);
    (caller, request.id)
}

#[test]
fn accepting_connects_the_queue_pairs_and_disconnecting_closes_both() {
    let (mut bed, client, listener) = listening();
    let (caller, called) = connected(&mut bed, client, listener);
    assert_eq!(bed.card.connected.get(&1), Some(&2));
    // Nothing is left for the program to do with its queue pair.
    assert_eq!(bed.attributes(client, caller, 3).unwrap().qp_attr_mask, 0x20);
    bed.disconnect(client, caller).unwrap();
    assert!(bed.card.connected.is_empty());
    bed.expect(client, Kind::Disconnected, 20, 0);
    bed.expect(listener.0, Kind::Disconnected, 30, 0);
    bed.disconnect(listener.0, called).unwrap();
    assert!(bed.event(client).is_none() && bed.event(listener.0).is_none());
}

#[test]
fn a_queue_pair_that_goes_takes_its_connection_along() {
    let (mut bed, client, listener) = listening();
    connected(&mut bed, client, listener);
    bed.manager.lost(&mut bed.card, 7);
    assert!(bed.event(client).is_none());
    bed.manager.lost(&mut bed.card, 2);
    bed.expect(client, Kind::Disconnected, 20, 0);
    bed.expect(listener.0, Kind::Disconnected, 30, 0);
    assert!(bed.card.connected.is_empty());
}

#[test]
fn a_program_that_goes_is_missed() {
    let (mut bed, client, listener) = listening();
    connected(&mut bed, client, listener);
    bed.close(client);
    bed.expect(listener.0, Kind::Disconnected, 30, 0);
    assert!(bed.card.connected.is_empty());
}

#[test]
fn refusals_are_those_of_a_socket() {
    let (mut bed, client, listener) = listening();
    let nobody = bed.caller(client, space::TCP, 20, "127.0.0.1:9");
    bed.connect(client, nobody, parameters(1, b"")).unwrap();
    bed.expect(client, Kind::Rejected, 20, -libc::ECONNREFUSED);

    let caller = bed.caller(client, space::TCP, 21, ADDRESS);
    assert_eq!(bed.connect(client, caller, parameters(77, b"")), Err(libc::EINVAL));
    let called = bed.request(client, caller, listener, b"");
    assert_eq!(bed.reject(client, caller, b""), Err(libc::EINVAL));
    bed.reject(listener.0, called, b"no").unwrap();
    let said = connection(&bed.expect(client, Kind::Rejected, 21, -libc::ECONNREFUSED));
    assert_eq!((said.private_data_len, &said.private_data[..2]), (2, &b"no"[..]));

    // A queue pair that cannot be connected.
    let caller = bed.caller(client, space::TCP, 22, ADDRESS);
    let called = bed.request(client, caller, listener, b"");
    bed.card.fails = true;
    assert_eq!(bed.accept(listener.0, called, 30, parameters(2, b"")), Err(libc::EINVAL));
    bed.expect(client, Kind::Rejected, 22, -libc::ECONNRESET);
    bed.card.fails = false;

    // Nobody is there any more.
    let caller = bed.caller(client, space::TCP, 23, ADDRESS);
    let called = bed.request(client, caller, listener, b"");
    bed.destroy(client, caller).unwrap();
    assert_eq!(bed.accept(listener.0, called, 30, parameters(2, b"")), Err(libc::ECONNRESET));
    assert!(bed.event(listener.0).is_none());
}
