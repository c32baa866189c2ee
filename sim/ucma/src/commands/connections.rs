//! Connecting and its end: to the protocol that the port speaks.

use irdma_uverbs::Transport;

use crate::abi::{Accept, Connect, Disconnect, Ece, Notify, Reject};
use crate::call::{Call, EINVAL, Result};
use crate::id::{Offer, State, queue_pair};
use crate::reliable::reason;

/// `enum rdma_cm` protocols of the port and kind of an identifier.
enum Protocol {
    /// InfiniBand's connection management, for reliable connections.
    Reliable,
    /// Its service resolution, for datagrams.
    Datagram,
    /// TCP and MPA.
    Stream,
}

fn protocol(call: &mut Call, number: u32) -> Result<Protocol> {
    let transport = call.card.transport();
    let kind = call.attached_id(number)?.kind;
    Ok(match (transport, kind) {
        (Transport::Iwarp, _) => Protocol::Stream,
        (Transport::Roce, queue_pair::UD) => Protocol::Datagram,
        (Transport::Roce, _) => Protocol::Reliable,
    })
}

/// `RDMA_USER_CM_CMD_CONNECT`.
pub fn connect(call: &mut Call) -> Result<()> {
    if call.input_length < size_of::<Connect>() - size_of::<Ece>() {
        return Err(EINVAL);
    }
    let wanted: Connect = call.short_request()?;
    if wanted.conn_param.valid == 0 {
        return Err(EINVAL);
    }
    let protocol = protocol(call, wanted.id)?;
    let id = call.attached_id(wanted.id)?;
    if id.state != State::RouteResolved {
        return Err(EINVAL);
    }
    let offer = Offer::new(&wanted.conn_param, wanted.ece, id);
    id.queue_pair = offer.queue_pair;
    id.state = State::Connect;
    let manager = &mut *call.manager;
    let begun = match protocol {
        Protocol::Reliable => manager.ask(wanted.id, offer),
        Protocol::Datagram => manager.ask_service(wanted.id, offer),
        Protocol::Stream => manager.ask_stream(call.card, wanted.id, offer),
    };
    if begun.is_err()
        && let Some(id) = manager.ids.get_mut(wanted.id)
    {
        id.state = State::RouteResolved;
        id.link = None;
    }
    begun
}

/// `RDMA_USER_CM_CMD_ACCEPT`: a request, or with nothing in it a reply.
pub fn accept(call: &mut Call) -> Result<()> {
    if call.input_length < size_of::<Accept>() - size_of::<Ece>() {
        return Err(EINVAL);
    }
    let wanted: Accept = call.short_request()?;
    let protocol = protocol(call, wanted.id)?;
    let id = call.attached_id(wanted.id)?;
    if id.state != State::Connect {
        return Err(EINVAL);
    }
    let offer = (wanted.conn_param.valid != 0).then(|| Offer::new(&wanted.conn_param, wanted.ece, id));
    if let Some(offer) = &offer {
        id.queue_pair = offer.queue_pair;
    }
    // The program's name for it is known before the first event.
    let before = id.user;
    if offer.is_some() {
        id.user = wanted.uid;
    }
    let manager = &mut *call.manager;
    let accepted = match (&protocol, offer) {
        (Protocol::Reliable, Some(offer)) => manager.reply(wanted.id, offer),
        (Protocol::Reliable, None) => manager.confirm(wanted.id),
        (Protocol::Datagram, offer) => manager.reply_service(wanted.id, offer),
        (Protocol::Stream, Some(offer)) => manager.reply_stream(call.card, wanted.id, offer),
        (Protocol::Stream, None) => Err(EINVAL),
    };
    if accepted.is_err() {
        if let Some(id) = manager.ids.get_mut(wanted.id) {
            id.user = before;
        }
        // Whether there is still somebody to tell does not matter.
        let _ = turn_down(call, wanted.id, &protocol, reason::CONSUMER, &[]);
    }
    accepted
}

/// `RDMA_USER_CM_CMD_REJECT`.
pub fn reject(call: &mut Call) -> Result<()> {
    let wanted: Reject = call.request()?;
    let reason = match wanted.reason {
        0 => reason::CONSUMER,
        reason::CONSUMER | reason::VENDOR_OPTION => wanted.reason,
        _ => return Err(EINVAL),
    };
    let protocol = protocol(call, wanted.id)?;
    if call.attached_id(wanted.id)?.link.is_none() {
        return Err(EINVAL);
    }
    let private_data = &wanted.private_data[..wanted.private_data_len.into()];
    turn_down(call, wanted.id, &protocol, reason, private_data)
}

fn turn_down(
    call: &mut Call,
    number: u32,
    protocol: &Protocol,
    reason: u8,
    private_data: &[u8],
) -> Result<()> {
    match protocol {
        Protocol::Reliable => call.manager.turn_down(number, reason, private_data),
        Protocol::Datagram => call.manager.turn_down_service(number, private_data),
        Protocol::Stream => call.manager.turn_down_stream(number, private_data),
    }
}

/// `RDMA_USER_CM_CMD_DISCONNECT`.
pub fn disconnect(call: &mut Call) -> Result<()> {
    let wanted: Disconnect = call.request()?;
    let protocol = protocol(call, wanted.id)?;
    if call.attached_id(wanted.id)?.link.is_none() {
        return Err(EINVAL);
    }
    match protocol {
        Protocol::Reliable => call.manager.disconnect(wanted.id),
        // A service has no connection to end.
        Protocol::Datagram => {}
        Protocol::Stream => call.manager.close_stream(call.card, wanted.id),
    }
    Ok(())
}

/// `RDMA_USER_CM_CMD_NOTIFY`: the program has seen a message arrive.
pub fn notify(call: &mut Call) -> Result<()> {
    let wanted: Notify = call.request()?;
    let transport = call.card.transport();
    let id = call.id(wanted.id)?;
    if !id.attached || id.link.is_none() {
        return Err(EINVAL);
    }
    match transport {
        Transport::Iwarp => Ok(()),
        Transport::Roce => call.manager.notice(wanted.id, wanted.event),
    }
}
