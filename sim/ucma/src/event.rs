//! Events that wait to be fetched.

use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::abi::{ConnParam, Ece, EventResp, MAX_PRIVATE_DATA, UdParam};
use crate::id::Offer;

/// `enum rdma_cm_event_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// The address is known, the card chosen.
    AddressResolved = 0,
    /// It could not be found.
    AddressError = 1,
    /// The path is known.
    RouteResolved = 2,
    /// Somebody wants to connect.
    ConnectRequest = 4,
    /// The other end has accepted.
    ConnectResponse = 5,
    /// The other end does not answer.
    Unreachable = 7,
    /// The other end does not want to.
    Rejected = 8,
    /// Connected.
    Established = 9,
    /// Not any more.
    Disconnected = 10,
    /// The card was taken out.
    DeviceRemoval = 11,
    /// Joined a multicast group.
    MulticastJoin = 12,
    /// The numbers of the connection may be used again.
    TimeWaitExit = 15,
}

/// An event.
#[derive(Clone, Debug)]
pub struct Event {
    /// The identifier that it is counted for.
    pub owner: u32,
    /// The group that it is counted for as well.
    pub group: Option<u32>,
    /// The new identifier of a connection request.
    pub request: Option<u32>,
    /// As the program gets it.
    pub answer: EventResp,
}

impl Event {
    /// An event without particulars of the identifier that its program calls `user`.
    pub fn plain(owner: u32, user: u64, kind: Kind, status: i32) -> Event {
        let answer =
            EventResp { uid: user, id: owner, event: kind as u32, status, ..EventResp::new_zeroed() };
        Event { owner, group: None, request: None, answer }
    }

    /// With what the other end of a connection says. Of its private data the first
    /// `length` bytes arrive, zeros where it has sent fewer.
    pub fn with_offer(mut self, offer: &Offer, length: usize) -> Event {
        let mut parameters = ConnParam {
            qp_num: offer.queue_pair,
            private_data_len: length as u8,
            srq: offer.shared_receive,
            responder_resources: offer.responder_resources,
            initiator_depth: offer.initiator_depth,
            flow_control: offer.flow_control,
            retry_count: offer.retry_count,
            rnr_retry_count: offer.receiver_retries,
            ..ConnParam::new_zeroed()
        };
        fill(&mut parameters.private_data, &offer.private_data, length);
        let mut whole = [0; size_of::<UdParam>()];
        whole[..size_of::<ConnParam>()].copy_from_slice(parameters.as_bytes());
        // Of the same size, and every pattern is valid.
        if let Ok(parameters) = UdParam::read_from_bytes(&whole) {
            self.answer.param = parameters;
        }
        self.with_extension(offer.extension)
    }

    /// With the particulars of a datagram service.
    pub fn with_service(mut self, parameters: UdParam, private_data: &[u8], length: usize) -> Event {
        self.answer.param = parameters;
        self.answer.param.private_data_len = length as u8;
        fill(&mut self.answer.param.private_data, private_data, length);
        self
    }

    /// With the enhanced connection establishment data of the other end.
    pub fn with_extension(mut self, extension: Ece) -> Event {
        self.answer.ece = extension;
        self
    }
}

fn fill(field: &mut [u8; MAX_PRIVATE_DATA], bytes: &[u8], length: usize) {
    let length = bytes.len().min(length).min(field.len());
    field[..length].copy_from_slice(&bytes[..length]);
}
