//! Queue pairs as the connection manager moves them.

use super::fake::Attribute;
use super::queue::{CAP, Setup, set_up_on, to_state};
use crate::ConnectionEnd;
use crate::abi::number::object;
use crate::errno::EINVAL;
use crate::profile::{Profile, Transport};

const fn end(qp: u32) -> ConnectionEnd {
    ConnectionEnd { qp, reads_out: 1, reads_in: 1 }
}

/// Two queue pairs: handle and number of each.
fn pair(transport: Transport) -> (Setup, [(u32, u32); 2]) {
    let gids = match transport {
        Transport::Iwarp => vec![crate::identity::IWARP],
        Transport::Roce => Profile::default().gids,
    };
    let mut setup = set_up_on(Profile { transport, gids, ..Profile::default() });
    let pair = [(); 2].map(|()| {
        setup.register();
        let (handle, told) = setup.create(2, CAP).unwrap();
        (handle, told.qp_id)
    });
    (setup, pair)
}

fn connected(setup: &mut Setup, pair: [(u32, u32); 2]) {
    setup.fixture.device.connect_qps(end(pair[0].1), end(pair[1].1)).unwrap();
    for (handle, _) in pair {
        assert_eq!(setup.query(handle).qp_state, 3);
    }
}

#[test]
fn connecting_makes_ready_and_disconnecting_flushes() {
    let (mut setup, pair) = pair(Transport::Iwarp);
    connected(&mut setup, pair);
    let numbers = pair.map(|(_, number)| end(number));
    assert_eq!(setup.fixture.device.connect_qps(numbers[0], numbers[1]), Err(EINVAL), "only once");
    setup.fixture.device.disconnect_qp(pair[0].1);
    assert_eq!([setup.query(pair[0].0).qp_state, setup.query(pair[1].0).qp_state], [6, 3]);
    // Whoever disconnects knows it already.
    assert_eq!(setup.fixture.device.take_lost_connections(), []);
    setup.fixture.device.disconnect_qp(pair[0].1);
    setup.fixture.device.disconnect_qp(9999);
}

#[test]
fn whatever_else_ends_a_connection_is_reported_once() {
    let (mut setup, pair) = pair(Transport::Iwarp);
    connected(&mut setup, pair);
    setup.modify(pair[0].0, to_state(6)).unwrap();
    assert_eq!(setup.fixture.device.take_lost_connections(), [pair[0].1]);
    let destroyed = setup.fixture.call(
        object::QP,
        1,
        &[Attribute::Handle(0, pair[1].0.into()), super::fake::output(1, 4)],
    );
    assert!(destroyed.is_ok());
    assert_eq!(setup.fixture.device.take_lost_connections(), [pair[1].1]);
    assert!(!setup.fixture.device.has_qp(pair[1].1) && setup.fixture.device.has_qp(pair[0].1));
    assert_eq!(setup.fixture.device.take_lost_connections(), []);
}

#[test]
fn what_cannot_be_connected_is_left_alone() {
    let (mut setup, pair) = pair(Transport::Iwarp);
    let [first, second] = pair.map(|(_, number)| end(number));
    assert_eq!(setup.fixture.device.connect_qps(first, first), Err(EINVAL));
    assert_eq!(setup.fixture.device.connect_qps(first, end(9999)), Err(EINVAL));
    setup.modify(pair[1].0, to_state(6)).unwrap();
    assert_eq!(setup.fixture.device.connect_qps(first, second), Err(EINVAL));
    assert_eq!(setup.query(pair[0].0).qp_state, 0);
    let (mut setup, pair) = self::pair(Transport::Roce);
    let [first, second] = pair.map(|(_, number)| end(number));
    assert_eq!(setup.fixture.device.connect_qps(first, second), Err(EINVAL));
}
