//! Connections over iWARP: the kernel itself connects queue pairs and closes them
//! (kernel: drivers/infiniband/core/iwcm.c, hw/irdma/cm.c).

use irdma_uverbs::Errno;

use crate::call::{EINVAL, Result};
use crate::card::{Card, End};
use crate::event::{Event, Kind};
use crate::id::{Link, Offer, Stage, State};
use crate::manager::Manager;
use crate::reliable::Delivery;

impl Offer {
    fn end(&self) -> End {
        End {
            queue_pair: self.queue_pair,
            reads_out: self.initiator_depth,
            reads_in: self.responder_resources,
        }
    }

    /// As the other end hears it: of a stream's parameters only the reads are told.
    fn streamed(&self) -> Offer {
        Offer {
            responder_resources: self.initiator_depth,
            initiator_depth: self.responder_resources,
            private_data: self.private_data.clone(),
            ..Offer::empty()
        }
    }
}

impl Manager {
    /// Asks the other end for a connection of a queue pair.
    pub(crate) fn ask_stream(&mut self, card: &mut dyn Card, number: u32, offer: Offer) -> Result<()> {
        let id = self.ids.get_mut(number).ok_or(EINVAL)?;
        if !card.has_queue_pair(offer.queue_pair) || id.source.port() == 0 || id.destination.port() == 0 {
            return Err(EINVAL);
        }
        id.link = Some(Link::asking(offer.clone()));
        let length = offer.private_data.len();
        match self.deliver(number, &offer, |event: Event| event.with_offer(&offer.streamed(), length)) {
            Delivery::Arrived => {}
            Delivery::Nobody | Delivery::Full => self.hear_refused_stream(number, libc::ECONNREFUSED, &[]),
        }
        Ok(())
    }

    /// Accepts: both queue pairs are connected and ready.
    pub(crate) fn reply_stream(&mut self, card: &mut dyn Card, number: u32, offer: Offer) -> Result<()> {
        if self.stage(number) != Some(Stage::RequestReceived) || !card.has_queue_pair(offer.queue_pair) {
            return Err(EINVAL);
        }
        let Some(peer) = self.peer(number) else {
            // The other end has hung up meanwhile.
            self.set_stage(number, Stage::Idle);
            return Err(Errno(libc::ECONNRESET));
        };
        let asking = self.ids.get(peer).and_then(|id| {
            let link = id.link.as_ref()?;
            Some(End {
                queue_pair: id.queue_pair,
                reads_out: link.initiator_depth,
                reads_in: link.responder_resources,
            })
        });
        if let Err(errno) = card.connect(asking.ok_or(EINVAL)?, offer.end()) {
            self.set_stage(number, Stage::Idle);
            self.part(number);
            self.hear_refused_stream(peer, libc::ECONNRESET, &[]);
            return Err(errno);
        }
        self.set_stage(number, Stage::Established);
        self.set_stage(peer, Stage::Established);
        let length = offer.private_data.len();
        self.emit(peer, Kind::Established, 0, |event| event.with_offer(&offer.streamed(), length));
        let reads = Offer { private_data: Vec::new(), ..offer.streamed() };
        self.emit(number, Kind::Established, 0, |event| event.with_offer(&reads, 0));
        Ok(())
    }

    /// Says no.
    pub(crate) fn turn_down_stream(&mut self, number: u32, private_data: &[u8]) -> Result<()> {
        if self.stage(number) != Some(Stage::RequestReceived) {
            return Err(EINVAL);
        }
        let peer = self.peer(number);
        self.set_stage(number, Stage::Idle);
        self.part(number);
        if let Some(peer) = peer {
            self.hear_refused_stream(peer, libc::ECONNREFUSED, private_data);
        }
        Ok(())
    }

    fn hear_refused_stream(&mut self, number: u32, errno: i32, private_data: &[u8]) {
        self.set_stage(number, Stage::Idle);
        let said = Offer { private_data: private_data.to_vec(), ..Offer::empty() };
        self.emit(number, Kind::Rejected, -errno, |event| event.with_offer(&said, private_data.len()));
    }

    /// Ends a connection: both queue pairs are closed and both programs hear of it.
    pub(crate) fn close_stream(&mut self, card: &mut dyn Card, number: u32) {
        if self.stage(number) != Some(Stage::Established) {
            return;
        }
        let peer = self.peer(number);
        self.part(number);
        for end in [Some(number), peer].into_iter().flatten() {
            self.set_stage(end, Stage::Idle);
            let Some(id) = self.ids.get(end) else { continue };
            card.disconnect(id.queue_pair);
            if id.state == State::Connect {
                self.emit(end, Kind::Disconnected, 0, |event| event);
            }
        }
    }

    /// The identifier goes.
    pub(crate) fn abandon_stream(&mut self, card: &mut dyn Card, number: u32) {
        match self.stage(number) {
            Some(Stage::Established) => self.close_stream(card, number),
            // At this stage it cannot be refused.
            Some(Stage::RequestReceived) => {
                let _ = self.turn_down_stream(number, &[]);
            }
            _ => {}
        }
    }
}
