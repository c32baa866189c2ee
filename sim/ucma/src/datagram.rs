//! Datagram services over RoCE: finding the queue pair and key behind a port (kernel: SIDR in cm.c).

use zerocopy::FromZeros;

use crate::abi::UdParam;
use crate::call::{EINVAL, Result};
use crate::commands::queries::DATAGRAM_KEY;
use crate::event::{Event, Kind};
use crate::id::{Due, Link, Offer, Stage};
use crate::manager::Manager;
use crate::reliable::{Delivery, HEADER, RESPONSE_TIME};

/// Bytes of private data that a message carries, all of which are shown.
mod room {
    /// A request, of which the kernel's own header takes a part.
    pub const REQUEST: usize = 216 - super::HEADER;
    pub const REPLY: usize = 136;
}

/// What a service says (kernel: `enum ib_cm_sidr_status`).
mod status {
    pub const UNSUPPORTED: i32 = 1;
    pub const REJECT: i32 = 2;
}

impl Manager {
    /// Asks for a service.
    pub(crate) fn ask_service(&mut self, number: u32, offer: Offer) -> Result<()> {
        let id = self.ids.get_mut(number).ok_or(EINVAL)?;
        if offer.private_data.len() > room::REQUEST || id.path.is_none() {
            return Err(EINVAL);
        }
        id.link = Some(Link::asking(offer));
        self.send_service_request(number, 0);
        Ok(())
    }

    /// Sends the request, for the first time or again.
    pub(crate) fn send_service_request(&mut self, number: u32, times: u8) {
        let Some(offer) = self.ids.get(number).and_then(|id| id.link.as_ref()?.request.clone()) else {
            return;
        };
        let arrived =
            |event: Event| event.with_service(UdParam::new_zeroed(), &offer.private_data, room::REQUEST);
        match self.deliver(number, &offer, arrived) {
            Delivery::Nobody => self.hear_refusal(number, status::UNSUPPORTED, &[]),
            Delivery::Full => self.schedule(number, RESPONSE_TIME, Due::Request(times + 1)),
            Delivery::Arrived => {}
        }
    }

    /// Tells the other end of the queue pair.
    pub(crate) fn reply_service(&mut self, number: u32, offer: Option<Offer>) -> Result<()> {
        let offer = offer.unwrap_or_else(Offer::empty);
        if self.stage(number) != Some(Stage::RequestReceived) || offer.private_data.len() > room::REPLY {
            return Err(EINVAL);
        }
        let id = self.ids.get_mut(number).ok_or(EINVAL)?;
        let key = if offer.key == 0 { DATAGRAM_KEY } else { offer.key };
        if id.key != 0 && id.key != key {
            return Err(EINVAL);
        }
        id.key = key;
        let queue_pair = id.queue_pair;
        let peer = self.peer(number);
        self.set_stage(number, Stage::Idle);
        self.part(number);
        if let Some(peer) = peer {
            self.hear_service(peer, queue_pair, key, &offer.private_data);
        }
        Ok(())
    }

    fn hear_service(&mut self, number: u32, queue_pair: u32, key: u32, private_data: &[u8]) {
        self.set_stage(number, Stage::Idle);
        let Some(id) = self.ids.get_mut(number) else { return };
        if id.key != 0 && id.key != key {
            self.emit(number, Kind::AddressError, -libc::EINVAL, |event| {
                event.with_service(UdParam::new_zeroed(), private_data, room::REPLY)
            });
            return;
        }
        id.key = key;
        let Some(path) = id.path else { return };
        let index = id.source_index;
        let parameters =
            UdParam { qp_num: queue_pair, qkey: key, ah_attr: path.address(index), ..UdParam::new_zeroed() };
        self.emit(number, Kind::Established, 0, |event| {
            event.with_service(parameters, private_data, room::REPLY)
        });
    }

    /// Says no.
    pub(crate) fn turn_down_service(&mut self, number: u32, private_data: &[u8]) -> Result<()> {
        if self.stage(number) != Some(Stage::RequestReceived) || private_data.len() > room::REPLY {
            return Err(EINVAL);
        }
        let peer = self.peer(number);
        self.set_stage(number, Stage::Idle);
        self.part(number);
        if let Some(peer) = peer {
            self.hear_refusal(peer, status::REJECT, private_data);
        }
        Ok(())
    }

    fn hear_refusal(&mut self, number: u32, status: i32, private_data: &[u8]) {
        self.set_stage(number, Stage::Idle);
        self.emit(number, Kind::Unreachable, status, |event| {
            event.with_service(UdParam::new_zeroed(), private_data, room::REPLY)
        });
    }

    /// The identifier goes: who has asked it hears no.
    pub(crate) fn abandon_service(&mut self, number: u32) {
        // Whoever has not been asked has nobody to tell.
        let _ = self.turn_down_service(number, &[]);
    }
}
