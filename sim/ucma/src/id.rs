//! Identifiers (`rdma_cm_id`) and their connections.

use std::time::Duration;

use irdma_engine::spec::Gid;
use irdma_uverbs::Token;

use crate::abi::{ConnParam, Ece};
use crate::address::Address;
use crate::path::Path;

/// `enum rdma_ucm_port_space`.
pub mod space {
    /// IP over InfiniBand: datagrams.
    pub const IPOIB: u16 = 0x0002;
    /// Connections.
    pub const TCP: u16 = 0x0106;
    /// Datagrams.
    pub const UDP: u16 = 0x0111;
    /// Native addresses.
    pub const IB: u16 = 0x013f;
}

/// `enum ib_qp_type`, of which two connect here.
pub mod queue_pair {
    /// Reliable connection.
    pub const RC: u8 = 2;
    /// Unreliable datagram.
    pub const UD: u8 = 4;
}

/// How far an identifier is (kernel: `enum rdma_cm_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// New.
    Idle,
    /// Has an address of its own.
    Bound,
    /// Looks for the other end, which does not answer.
    AddressQuery,
    /// Knows where the other end is.
    AddressResolved,
    /// Knows how to get there.
    RouteResolved,
    /// Connects, is connected, or has been refused.
    Connect,
    /// Was connected.
    Disconnect,
    /// Waits for others.
    Listen,
    /// Its card was taken out: nothing works any more but to destroy it.
    Removed,
}

/// How far the protocol of a connection is (kernel: `enum ib_cm_state`, `enum iw_cm_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nothing outstanding, or over.
    Idle,
    /// The request is on its way.
    RequestSent,
    /// A request came in.
    RequestReceived,
    /// It was accepted.
    ReplySent,
    /// Ours was accepted.
    ReplyReceived,
    /// Connected.
    Established,
    /// We want no more.
    DisconnectSent,
    /// The other end wants no more.
    DisconnectReceived,
    /// Over, but its numbers must not be used yet.
    TimeWait,
}

/// What waits for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// The address does not answer.
    AddressFailure,
    /// The request is sent again, after so many times.
    Request(u8),
    /// Nobody acknowledges that we disconnect.
    DisconnectFailure,
    /// Numbers may be used again.
    TimeWaitExit,
}

/// What one end tells the other to connect.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Its queue pair.
    pub queue_pair: u32,
    /// Whether that has a shared receive queue.
    pub shared_receive: u8,
    /// Reads it can answer at a time.
    pub responder_resources: u8,
    /// Reads it wants to have outstanding.
    pub initiator_depth: u8,
    /// End-to-end flow control.
    pub flow_control: u8,
    /// Retries, at most 7.
    pub retry_count: u8,
    /// Retries while the receiver is not ready, at most 7.
    pub receiver_retries: u8,
    /// Key for its datagrams, 0 for the usual one.
    pub key: u32,
    /// What the program says.
    pub private_data: Vec<u8>,
    /// Enhanced connection establishment.
    pub extension: Ece,
}

impl Offer {
    /// What a command says. A key is only taken with native addresses.
    pub fn new(parameters: &ConnParam, extension: Ece, id: &Id) -> Offer {
        let length = usize::from(parameters.private_data_len);
        Offer {
            queue_pair: parameters.qp_num & 0xff_ffff,
            shared_receive: parameters.srq,
            responder_resources: parameters.responder_resources,
            initiator_depth: parameters.initiator_depth,
            flow_control: parameters.flow_control,
            retry_count: parameters.retry_count.min(7),
            receiver_retries: parameters.rnr_retry_count.min(7),
            key: if matches!(id.source, Address::Ib(_)) { parameters.qkey } else { 0 },
            private_data: parameters.private_data[..length].to_vec(),
            extension,
        }
    }

    /// What the other end hears: the reads that one asks for are those that the other answers.
    pub fn crossed(&self) -> Offer {
        Offer {
            responder_resources: self.initiator_depth,
            initiator_depth: self.responder_resources,
            ..self.clone()
        }
    }
}

/// A connection, or the attempt.
#[derive(Clone, Debug)]
pub struct Link {
    /// How far it is.
    pub stage: Stage,
    /// The identifier at the other end, while it listens to us.
    pub peer: Option<u32>,
    /// Queue pair at the other end.
    pub remote_queue_pair: u32,
    /// First sequence number that the other end expects.
    pub remote_start: u32,
    /// Reads answered at a time.
    pub responder_resources: u8,
    /// Reads outstanding at a time.
    pub initiator_depth: u8,
    /// Retries.
    pub retry_count: u8,
    /// Retries while the receiver is not ready.
    pub receiver_retries: u8,
    /// The request, while it may have to be sent again.
    pub request: Option<Offer>,
}

impl Link {
    /// The asking end.
    pub fn asking(offer: Offer) -> Link {
        Link {
            stage: Stage::RequestSent,
            peer: None,
            remote_queue_pair: 0,
            remote_start: 0,
            responder_resources: offer.responder_resources,
            initiator_depth: offer.initiator_depth,
            retry_count: offer.retry_count,
            receiver_retries: offer.receiver_retries,
            request: Some(offer),
        }
    }

    /// The end that is asked, by `peer`, whose sequence numbers start at `start`.
    pub fn asked(offer: &Offer, peer: u32, start: u32) -> Link {
        Link {
            stage: Stage::RequestReceived,
            peer: Some(peer),
            remote_queue_pair: offer.queue_pair,
            remote_start: start,
            responder_resources: offer.initiator_depth,
            initiator_depth: offer.responder_resources,
            retry_count: offer.retry_count,
            receiver_retries: offer.receiver_retries,
            request: None,
        }
    }
}

/// An identifier.
#[derive(Debug)]
pub struct Id {
    /// The node that it belongs to.
    pub node: Token,
    /// What its program calls it; 0 for a connection that is not accepted yet, which has no events.
    pub user: u64,
    /// Events that the program has fetched.
    pub reported: u32,
    /// Connection requests that may still come before one is fetched.
    pub backlog: u32,
    /// Port space.
    pub space: u16,
    /// Kind of its queue pair.
    pub kind: u8,
    /// How far it is.
    pub state: State,
    /// Its own address.
    pub source: Address,
    /// The other end's.
    pub destination: Address,
    /// A card has been chosen for it.
    pub attached: bool,
    /// It holds its port against others.
    pub holds_port: bool,
    /// It shares its port with others that share.
    pub reuses_address: bool,
    /// It takes no connections of another address family; `None` until it is said or bound.
    pub only_family: Option<bool>,
    /// Type of service.
    pub service_type: Option<u8>,
    /// Acknowledge timeout that the program wants.
    pub ack_timeout: Option<u8>,
    /// Its queue pair.
    pub queue_pair: u32,
    /// Key of its datagrams, 0 until it is known.
    pub key: u32,
    /// First sequence number that it expects.
    pub start: u32,
    /// The way to the other end.
    pub path: Option<Path>,
    /// Index of its GID, and of the other end's if that is the card's.
    pub source_index: u8,
    /// See there.
    pub destination_index: u8,
    /// The connection.
    pub link: Option<Link>,
    /// What is to happen when.
    pub due: Option<(Duration, Due)>,
}

impl Id {
    /// A new one.
    pub fn new(node: Token, user: u64, space: u16, kind: u8, start: u32) -> Id {
        Id {
            node,
            user,
            reported: 0,
            backlog: 0,
            space,
            kind,
            state: State::Idle,
            source: Address::None,
            destination: Address::None,
            attached: false,
            holds_port: false,
            reuses_address: false,
            only_family: None,
            service_type: None,
            ack_timeout: None,
            queue_pair: 0,
            key: 0,
            start,
            path: None,
            source_index: 0,
            destination_index: 0,
            link: None,
            due: None,
        }
    }

    /// Takes the way to the other end from a port with these GIDs.
    pub fn take_path(&mut self, path: Path, gids: &[Gid]) {
        // The kernel knows the interface; a GID that is not in the table is taken for the first.
        let index = |gid| gids.iter().position(|other| *other == gid).unwrap_or(0) as u8;
        self.source_index = index(path.source);
        self.destination_index = index(path.destination);
        self.path = Some(path);
    }

    /// Where its connection is.
    pub fn stage(&self) -> Option<Stage> {
        self.link.as_ref().map(|link| link.stage)
    }

    /// Whether it takes a request that was sent to `destination` (kernel: `cma_match_private_data`).
    pub fn accepts(&self, asking: &Id) -> bool {
        let destination = &asking.destination;
        if self.state != State::Listen
            || (self.space, self.kind) != (asking.space, asking.kind)
            || self.source.port() != destination.port()
            || matches!(self.source, Address::Ib(_))
        {
            return false;
        }
        if self.source.is_any() && self.only_family != Some(true) {
            return true;
        }
        self.source.is_of_family(destination)
            && (self.source.is_any() || self.source.host() == destination.host())
    }
}

impl Offer {
    /// Nothing at all.
    pub fn empty() -> Offer {
        Offer {
            queue_pair: 0,
            shared_receive: 0,
            responder_resources: 0,
            initiator_depth: 0,
            flow_control: 0,
            retry_count: 0,
            receiver_retries: 0,
            key: 0,
            private_data: Vec::new(),
            extension: Ece { vendor_id: 0, attr_mod: 0 },
        }
    }
}
