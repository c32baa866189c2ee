//! Reliable connections over RoCE: the messages of InfiniBand's communication management
//! (kernel: drivers/infiniband/core/cm.c).
//!
//! Programs move their queue pairs themselves, when an event tells them to.

use std::time::Duration;

use irdma_uverbs::Errno;

use crate::call::{EINVAL, Result};
use crate::event::{Event, Kind};
use crate::id::{Due, Id, Link, Offer, Stage, State, queue_pair};
use crate::manager::Manager;

/// Bytes of private data that a message carries, all of which are shown.
mod room {
    /// A request, of which the kernel's own header takes a part.
    pub const REQUEST: usize = 92 - super::HEADER;
    pub const REPLY: usize = 196;
    pub const REJECT: usize = 148;
}

/// `struct cma_hdr`: both addresses, in front of the private data of requests.
pub(crate) const HEADER: usize = 36;

/// Why a request is turned down (kernel: `enum ib_cm_rej_reason`).
pub(crate) mod reason {
    /// The other end has given up.
    pub const TIMEOUT: u8 = 4;
    /// Nobody listens.
    pub const NO_SERVICE: u8 = 8;
    /// The program says so.
    pub const CONSUMER: u8 = 28;
    /// `IB_CM_REJ_VENDOR_OPTION_NOT_SUPPORTED`.
    pub const VENDOR_OPTION: u8 = 35;
}

/// After this a message is sent again: `CMA_CM_RESPONSE_TIMEOUT` and twice the lifetime of a packet.
pub(crate) const RESPONSE_TIME: Duration = Duration::from_millis(4608);
/// How often (`CMA_MAX_CM_RETRIES`).
pub(crate) const RETRIES: u8 = 15;

/// What became of a request.
pub(crate) enum Delivery {
    /// Nobody listens.
    Nobody,
    /// The listener has no place left.
    Full,
    /// Somebody listens, and this is the new identifier.
    Arrived,
}

impl Manager {
    /// Asks the other end for a connection.
    pub(crate) fn ask(&mut self, number: u32, offer: Offer) -> Result<()> {
        let id = self.ids.get_mut(number).ok_or(EINVAL)?;
        if id.kind != queue_pair::RC || offer.private_data.len() > room::REQUEST || id.path.is_none() {
            return Err(EINVAL);
        }
        id.link = Some(Link::asking(offer));
        self.send_request(number, 0);
        Ok(())
    }

    /// Sends a request that nobody took again.
    pub(crate) fn ask_again(&mut self, number: u32, times: u8) {
        let Some(id) = self.ids.get(number) else { return };
        if id.stage() != Some(Stage::RequestSent) {
            return;
        }
        if times > RETRIES {
            self.set_stage(number, Stage::Idle);
            self.emit(number, Kind::Unreachable, -libc::ETIMEDOUT, |event| event);
        } else if id.kind == queue_pair::UD {
            self.send_service_request(number, times);
        } else {
            self.send_request(number, times);
        }
    }

    fn send_request(&mut self, number: u32, times: u8) {
        let Some(offer) = self.ids.get(number).and_then(|id| id.link.as_ref()?.request.clone()) else {
            return;
        };
        let arrived = |event: Event| event.with_offer(&offer.crossed(), room::REQUEST);
        match self.deliver(number, &offer, arrived) {
            Delivery::Nobody => self.hear_reject(number, reason::NO_SERVICE, &[]),
            Delivery::Full => self.schedule(number, RESPONSE_TIME, Due::Request(times + 1)),
            // However long the other end thinks about it, the kernel there asks for patience.
            Delivery::Arrived => {}
        }
    }

    /// Brings a request to whoever listens.
    pub(crate) fn deliver(
        &mut self,
        number: u32,
        offer: &Offer,
        with: impl FnOnce(Event) -> Event,
    ) -> Delivery {
        let start = self.random() & 0xff_ffff;
        let Some(asking) = self.ids.get(number) else { return Delivery::Nobody };
        let listening = self.ids.iter().find(|(_, id)| id.accepts(asking));
        let Some((listener, listening)) = listening else { return Delivery::Nobody };
        if listening.backlog == 0 {
            return Delivery::Full;
        }
        let (node, user) = (listening.node, listening.user);
        let mut id = Id::new(node, 0, listening.space, listening.kind, 0);
        id.state = State::Connect;
        id.source = asking.destination;
        id.destination = asking.source;
        if id.source.is_any()
            && let Some(host) = asking.source.host()
        {
            id.source = id.source.with_host(host);
        }
        id.attached = true;
        id.path = asking.path.map(|path| path.reversed());
        (id.source_index, id.destination_index) = (asking.destination_index, asking.source_index);
        id.link = Some(Link::asked(offer, number, asking.start));
        id.start = start;
        let Some(new) = self.ids.insert(id) else { return Delivery::Full };
        if let Some(listening) = self.ids.get_mut(listener) {
            listening.backlog -= 1;
        }
        if let Some(link) = self.ids.get_mut(number).and_then(|id| id.link.as_mut()) {
            link.peer = Some(new);
            link.request = None;
        }
        let mut event = with(Event::plain(listener, user, Kind::ConnectRequest, 0));
        event.answer.id = new;
        event.request = Some(new);
        if let Some(node) = self.nodes.get_mut(&node) {
            node.push(event);
        }
        Delivery::Arrived
    }

    /// Accepts a request.
    pub(crate) fn reply(&mut self, number: u32, offer: Offer) -> Result<()> {
        if self.stage(number) != Some(Stage::RequestReceived) || offer.private_data.len() > room::REPLY {
            return Err(EINVAL);
        }
        let peer = self.peer(number);
        let id = self.ids.get_mut(number).ok_or(EINVAL)?;
        let start = id.start;
        if let Some(link) = &mut id.link {
            link.initiator_depth = offer.initiator_depth;
            link.responder_resources = offer.responder_resources;
        }
        self.set_stage(number, Stage::ReplySent);
        let Some(peer) = peer else { return Ok(()) };
        self.set_stage(peer, Stage::ReplyReceived);
        if let Some(link) = self.ids.get_mut(peer).and_then(|id| id.link.as_mut()) {
            link.initiator_depth = offer.responder_resources;
            link.responder_resources = offer.initiator_depth;
            link.receiver_retries = offer.receiver_retries;
            link.remote_queue_pair = offer.queue_pair;
            link.remote_start = start;
        }
        // A reply says nothing of retries.
        let told = Offer { retry_count: 0, ..offer.crossed() };
        self.emit(peer, Kind::ConnectResponse, 0, |event| event.with_offer(&told, room::REPLY));
        Ok(())
    }

    /// Confirms a reply: the queue pair is ready.
    pub(crate) fn confirm(&mut self, number: u32) -> Result<()> {
        if self.stage(number) != Some(Stage::ReplyReceived) {
            return Err(EINVAL);
        }
        self.set_stage(number, Stage::Established);
        let Some(peer) = self.peer(number) else { return Ok(()) };
        if self.stage(peer) == Some(Stage::ReplySent) {
            self.set_stage(peer, Stage::Established);
            self.emit(peer, Kind::Established, 0, |event| event);
        }
        Ok(())
    }

    /// A message has arrived on the queue pair, before the confirmation (kernel: `cm_establish`).
    pub(crate) fn notice(&mut self, number: u32, event: u32) -> Result<()> {
        /// `IB_EVENT_COMM_EST`.
        const ESTABLISHED: u32 = 4;
        match (event, self.stage(number)) {
            (ESTABLISHED, Some(Stage::ReplySent)) => {
                self.set_stage(number, Stage::Established);
                self.emit(number, Kind::Established, 0, |event| event);
                Ok(())
            }
            (ESTABLISHED, Some(Stage::Established)) => Err(Errno(libc::EISCONN)),
            _ => Err(EINVAL),
        }
    }

    /// Turns the other end down (kernel: `cm_send_rej_locked`).
    pub(crate) fn turn_down(&mut self, number: u32, reason: u8, private_data: &[u8]) -> Result<()> {
        if private_data.len() > room::REJECT {
            return Err(EINVAL);
        }
        match self.stage(number) {
            Some(Stage::RequestSent | Stage::RequestReceived | Stage::ReplyReceived) => {
                self.set_stage(number, Stage::Idle);
            }
            Some(Stage::ReplySent) => self.enter_time_wait(number),
            _ => return Err(EINVAL),
        }
        let peer = self.peer(number);
        self.part(number);
        if let Some(peer) = peer {
            self.hear_reject(peer, reason, private_data);
        }
        Ok(())
    }

    fn hear_reject(&mut self, number: u32, reason: u8, private_data: &[u8]) {
        match self.stage(number) {
            Some(Stage::RequestSent | Stage::ReplySent | Stage::RequestReceived) => {
                self.set_stage(number, Stage::Idle);
            }
            Some(Stage::DisconnectSent | Stage::ReplyReceived | Stage::Established) => {
                self.enter_time_wait(number);
            }
            _ => return,
        }
        if self.ids.get(number).is_none_or(|id| id.state != State::Connect) {
            return;
        }
        let said = Offer { private_data: private_data.to_vec(), ..Offer::empty() };
        self.emit(number, Kind::Rejected, reason.into(), |event| event.with_offer(&said, room::REJECT));
    }

    /// Ends a connection, or agrees to its end.
    pub(crate) fn disconnect(&mut self, number: u32) {
        match self.stage(number) {
            Some(Stage::Established) => {
                self.set_stage(number, Stage::DisconnectSent);
                self.schedule(number, RESPONSE_TIME * (u32::from(RETRIES) + 1), Due::DisconnectFailure);
                match self.peer(number) {
                    Some(peer) => self.hear_disconnect(peer),
                    // Nobody knows of the connection any more.
                    None => self.hear_agreement(number),
                }
            }
            Some(Stage::DisconnectReceived) => {
                let peer = self.peer(number);
                self.enter_time_wait(number);
                if let Some(peer) = peer {
                    self.hear_agreement(peer);
                }
            }
            _ => {}
        }
    }

    fn hear_disconnect(&mut self, number: u32) {
        match self.stage(number) {
            Some(Stage::ReplySent | Stage::DisconnectSent | Stage::Established) => {
                self.set_stage(number, Stage::DisconnectReceived);
                self.end_connection(number, 0);
            }
            Some(Stage::TimeWait) => {
                if let Some(peer) = self.peer(number) {
                    self.hear_agreement(peer);
                }
            }
            _ => {}
        }
    }

    fn hear_agreement(&mut self, number: u32) {
        if matches!(self.stage(number), Some(Stage::DisconnectSent | Stage::DisconnectReceived)) {
            self.enter_time_wait(number);
            self.end_connection(number, 0);
        }
    }

    /// Nobody has agreed to the end.
    pub(crate) fn give_up_disconnect(&mut self, number: u32) {
        if self.stage(number) == Some(Stage::DisconnectSent) {
            self.enter_time_wait(number);
            self.end_connection(number, -libc::ETIMEDOUT);
        }
    }

    fn end_connection(&mut self, number: u32, status: i32) {
        let Some(id) = self.ids.get_mut(number).filter(|id| id.state == State::Connect) else { return };
        id.state = State::Disconnect;
        self.emit(number, Kind::Disconnected, status, |event| event);
    }

    /// For a while packets of the old connection may still be on their way.
    fn enter_time_wait(&mut self, number: u32) {
        self.set_stage(number, Stage::TimeWait);
        let path = self.ids.get(number).and_then(|id| id.path);
        // In steps of about 4 ms (kernel: `cm_convert_to_ms`).
        let exponent = path.map_or(0, |path| path.ack_timeout()).saturating_sub(8);
        self.schedule(number, Duration::from_millis(1 << exponent), Due::TimeWaitExit);
    }

    /// The last packets have arrived or never will.
    pub(crate) fn leave_time_wait(&mut self, number: u32) {
        if self.stage(number) != Some(Stage::TimeWait) {
            return;
        }
        self.part(number);
        self.set_stage(number, Stage::Idle);
        if self.ids.get(number).is_some_and(|id| id.state == State::Disconnect) {
            self.emit(number, Kind::TimeWaitExit, 0, |event| event);
        }
    }

    /// The identifier goes: what the other end hears depends on how far they were (kernel: `cm_destroy_id`).
    pub(crate) fn abandon(&mut self, number: u32) {
        match self.stage(number) {
            // At these stages it cannot be refused.
            Some(Stage::RequestSent) => {
                let _ = self.turn_down(number, reason::TIMEOUT, &[]);
            }
            Some(Stage::RequestReceived | Stage::ReplySent | Stage::ReplyReceived) => {
                let _ = self.turn_down(number, reason::CONSUMER, &[]);
            }
            Some(Stage::Established | Stage::DisconnectReceived) => self.disconnect(number),
            _ => {}
        }
    }
}
