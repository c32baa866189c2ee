//! Reliable connections over RoCE.

use std::time::Duration;

use irdma_uverbs::Transport;

use super::bed::*;
use crate::abi::Notify;
use crate::event::Kind;
use crate::id::space;

const ADDRESS: &str = "192.0.2.1:7174";

/// `enum ib_qp_state`.
const INIT: u32 = 1;
const RTR: u32 = 2;
const RTS: u32 = 3;

fn listening() -> (Bed, u64, (u64, u64)) {
    let mut bed = Bed::new(Transport::Roce);
    let (server, client) = (bed.node(), bed.node());
    bed.listener(server, space::TCP, 10, "0.0.0.0:7174");
    (bed, client, (server, 10))
}

#[test]
fn both_ends_learn_what_the_other_says() {
    let (mut bed, client, listener) = listening();
    let server = listener.0;
    let caller = bed.caller(client, space::TCP, 20, ADDRESS);
    assert_eq!(bed.attributes(client, caller, INIT).unwrap().qp_attr_mask, 0x39);
    bed.connect(client, caller, parameters(1, b"hello")).unwrap();
    let request = bed.expect(server, Kind::ConnectRequest, 10, 0);
    let said = connection(&request);
    assert_eq!(said.private_data_len, 56);
    assert_eq!(&said.private_data[..6], b"hello\0");
    assert_eq!((said.responder_resources, said.initiator_depth), (5, 3));
    assert_eq!((said.qp_num, said.retry_count, said.rnr_retry_count, said.flow_control), (1, 6, 7, 1));
    assert_eq!((request.ece.vendor_id, request.ece.attr_mod), (7, 9));

    let called = request.id;
    let attributes = bed.attributes(server, called, RTR).unwrap();
    assert_eq!(attributes.dest_qp_num, 1);
    assert_eq!((attributes.ah_attr.dgid, attributes.ah_attr.sgid_index), (IPV4, 1));
    assert_eq!((attributes.ah_attr.is_global, attributes.ah_attr.port_num), (1, 1));
    assert_eq!((attributes.path_mtu, attributes.max_dest_rd_atomic), (3, 5));
    let called_expects = attributes.rq_psn;
    assert_eq!(bed.attributes(client, caller, RTR).unwrap_err(), libc::EINVAL);

    let reply =
        crate::abi::ConnParam { initiator_depth: 2, responder_resources: 4, ..parameters(2, b"welcome") };
    bed.accept(server, called, 30, reply).unwrap();
    let response = bed.expect(client, Kind::ConnectResponse, 20, 0);
    let said = connection(&response);
    assert_eq!(said.private_data_len, 196);
    assert_eq!(&said.private_data[..8], b"welcome\0");
    assert_eq!((said.qp_num, said.responder_resources, said.initiator_depth), (2, 2, 4));
    let attributes = bed.attributes(client, caller, RTS).unwrap();
    assert_eq!(attributes.sq_psn, called_expects);
    assert_eq!((attributes.max_rd_atomic, attributes.retry_cnt, attributes.timeout), (4, 6, 17));
    let caller_expects = bed.attributes(client, caller, RTR).unwrap();
    assert_eq!((caller_expects.dest_qp_num, caller_expects.max_dest_rd_atomic), (2, 2));
    assert_eq!(bed.attributes(server, called, RTS).unwrap().sq_psn, caller_expects.rq_psn);

    bed.confirm(client, caller).unwrap();
    bed.expect(server, Kind::Established, 30, 0);
    assert!(bed.event(client).is_none());
}

#[test]
fn a_connection_ends_when_both_agree() {
    let (mut bed, client, listener) = listening();
    let server = listener.0;
    let (caller, called) = bed.established(client, listener, ADDRESS);
    bed.disconnect(client, caller).unwrap();
    bed.expect(server, Kind::Disconnected, 60, 0);
    assert!(bed.event(client).is_none());
    bed.disconnect(server, called).unwrap();
    bed.expect(client, Kind::Disconnected, 50, 0);
    // Again is nothing.
    bed.disconnect(client, caller).unwrap();
    assert!(bed.event(client).is_none() && bed.event(server).is_none());
    assert_eq!(bed.attributes(client, caller, RTR).unwrap_err(), libc::EINVAL);
    assert!(bed.manager.next_due().is_some());
    bed.manager.skip(Duration::from_millis(512));
    bed.manager.advance();
    bed.expect(client, Kind::TimeWaitExit, 50, 0);
    bed.expect(server, Kind::TimeWaitExit, 60, 0);
    assert_eq!(bed.manager.next_due(), None);
    assert_eq!(bed.destroy(client, caller), Ok(5));
    assert_eq!(bed.destroy(client, caller), Err(libc::ENOENT));
}

#[test]
fn who_does_not_agree_is_left_behind() {
    let (mut bed, client, listener) = listening();
    let (caller, _) = bed.established(client, listener, ADDRESS);
    bed.disconnect(client, caller).unwrap();
    bed.expect(listener.0, Kind::Disconnected, 60, 0);
    bed.manager.skip(Duration::from_secs(80));
    bed.manager.advance();
    bed.expect(client, Kind::Disconnected, 50, -libc::ETIMEDOUT);
}

#[test]
fn who_goes_at_any_stage_is_missed() {
    let (mut bed, client, listener) = listening();
    let server = listener.0;

    // Before the request was fetched.
    let caller = bed.caller(client, space::TCP, 20, ADDRESS);
    bed.connect(client, caller, parameters(1, b"")).unwrap();
    bed.destroy(client, caller).unwrap();
    let request = bed.expect(server, Kind::ConnectRequest, 10, 0);
    assert_eq!(bed.accept(server, request.id, 30, parameters(2, b"")), Err(libc::EINVAL));
    bed.destroy(server, request.id).unwrap();

    // The asked one, before it says anything.
    let caller = bed.caller(client, space::TCP, 20, ADDRESS);
    let called = bed.request(client, caller, listener, b"");
    bed.destroy(server, called).unwrap();
    let refusal = bed.expect(client, Kind::Rejected, 20, 28);
    assert_eq!(connection(&refusal).private_data_len, 148);
    bed.destroy(client, caller).unwrap();

    // The asking one, after it was accepted.
    let caller = bed.caller(client, space::TCP, 20, ADDRESS);
    let called = bed.request(client, caller, listener, b"");
    bed.accept(server, called, 30, parameters(2, b"")).unwrap();
    bed.destroy(client, caller).unwrap();
    bed.expect(server, Kind::Rejected, 30, 28);
    bed.destroy(server, called).unwrap();

    // Either, while connected.
    let (caller, called) = bed.established(client, listener, ADDRESS);
    bed.destroy(server, called).unwrap();
    bed.expect(client, Kind::Disconnected, 50, 0);
    bed.disconnect(client, caller).unwrap();
    bed.destroy(client, caller).unwrap();
    let (_, called) = bed.established(client, listener, ADDRESS);
    bed.close(client);
    bed.expect(server, Kind::Disconnected, 60, 0);
    bed.destroy(server, called).unwrap();
    assert_eq!(bed.manager.ids.iter().count(), 1);
}

#[test]
fn a_refusal_says_why() {
    let (mut bed, client, listener) = listening();
    let caller = bed.caller(client, space::TCP, 20, ADDRESS);
    let called = bed.request(client, caller, listener, b"");
    bed.reject(listener.0, called, b"no").unwrap();
    assert_eq!(bed.reject(listener.0, called, b"no"), Err(libc::EINVAL));
    let refusal = bed.expect(client, Kind::Rejected, 20, 28);
    assert_eq!(&connection(&refusal).private_data[..3], b"no\0");
    assert_eq!(bed.reject(client, caller, &[0; 149]), Err(libc::EINVAL));

    let nobody = bed.caller(client, space::TCP, 21, "192.0.2.1:9");
    bed.connect(client, nobody, parameters(1, b"")).unwrap();
    bed.expect(client, Kind::Rejected, 21, 8);
    assert_eq!(bed.connect(client, nobody, parameters(1, b"")), Err(libc::EINVAL));
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let (mut bed, client, listener) = listening();
    let caller = bed.caller(client, space::TCP, 20, ADDRESS);
    assert_eq!(bed.connect(client, caller, parameters(1, &[1; 57])), Err(libc::EINVAL));
    let called = bed.request(client, caller, listener, &[1; 56]);
    // As in the kernel, an acceptance that fails turns the other end down.
    assert_eq!(bed.accept(listener.0, called, 30, parameters(2, &[1; 197])), Err(libc::EINVAL));
    bed.expect(client, Kind::Rejected, 20, 28);
}

#[test]
fn commands_at_the_wrong_time_are_refused() {
    let (mut bed, client, listener) = listening();
    let server = listener.0;
    let id = bed.create(client, space::TCP, 20);
    for result in [
        bed.route(client, id),
        bed.connect(client, id, parameters(1, b"")),
        bed.accept(client, id, 1, parameters(1, b"")),
        bed.reject(client, id, b""),
        bed.disconnect(client, id),
        bed.attributes(client, id, INIT).map(drop),
    ] {
        assert_eq!(result, Err(libc::EINVAL));
    }
    let caller = bed.caller(client, space::TCP, 20, ADDRESS);
    assert_eq!(bed.disconnect(client, caller), Err(libc::EINVAL));
    assert_eq!(bed.reject(client, caller, b""), Err(libc::EINVAL));
    assert_eq!(bed.confirm(client, caller), Err(libc::EINVAL));
    assert_eq!(bed.resolve(client, caller, ADDRESS), Err(libc::EINVAL));
    let called = bed.request(client, caller, listener, b"");
    bed.accept(server, called, 30, parameters(2, b"")).unwrap();
    bed.expect(client, Kind::ConnectResponse, 20, 0);
    // Twice is once too often, and ends it.
    assert_eq!(bed.accept(server, called, 31, parameters(2, b"")), Err(libc::EINVAL));
    bed.expect(client, Kind::Rejected, 20, 28);
    assert_eq!(bed.confirm(client, caller), Err(libc::EINVAL));
}

#[test]
fn a_full_listener_is_asked_again() {
    let (mut bed, client, listener) = listening();
    let callers: Vec<u32> = (0..3).map(|n| bed.caller(client, space::TCP, 20 + n, ADDRESS)).collect();
    for caller in &callers {
        bed.connect(client, *caller, parameters(1, b"")).unwrap();
    }
    let first = bed.expect(listener.0, Kind::ConnectRequest, 10, 0);
    bed.expect(listener.0, Kind::ConnectRequest, 10, 0);
    assert!(bed.event(listener.0).is_none());
    bed.manager.skip(Duration::from_secs(5));
    bed.manager.advance();
    let third = bed.expect(listener.0, Kind::ConnectRequest, 10, 0);
    assert_ne!(first.id, third.id);
    assert_eq!(bed.manager.next_due(), None);
}

#[test]
fn a_listener_that_stays_full_is_unreachable() {
    let (mut bed, client, _listener) = listening();
    for n in 0..3 {
        let caller = bed.caller(client, space::TCP, 20 + n, ADDRESS);
        bed.connect(client, caller, parameters(1, b"")).unwrap();
    }
    for _ in 0..16 {
        assert!(bed.event(client).is_none());
        bed.manager.skip(Duration::from_secs(5));
        bed.manager.advance();
    }
    bed.expect(client, Kind::Unreachable, 22, -libc::ETIMEDOUT);
}

#[test]
fn a_message_before_the_confirmation_counts_as_one() {
    let (mut bed, client, listener) = listening();
    let caller = bed.caller(client, space::TCP, 20, ADDRESS);
    let called = bed.request(client, caller, listener, b"");
    let arrived = Notify { id: called, event: 4 };
    assert_eq!(bed.run(listener.0, command::NOTIFY, &arrived, 0), Err(libc::EINVAL));
    bed.accept(listener.0, called, 30, parameters(2, b"")).unwrap();
    bed.run(listener.0, command::NOTIFY, &arrived, 0).unwrap();
    bed.expect(listener.0, Kind::Established, 30, 0);
    assert_eq!(bed.run(listener.0, command::NOTIFY, &arrived, 0), Err(libc::EISCONN));
    bed.confirm(client, caller).unwrap();
    assert!(bed.event(listener.0).is_none());
}
