//! What the connection manager asks of the card; the seam where tests put a made-up one.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use irdma_engine::spec::Gid;
use irdma_uverbs::{Device, Errno, Transport, identity};

use crate::address::gid_of;

/// One end of an iWARP connection in the making.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Its queue pair.
    pub queue_pair: u32,
    /// Reads that it may have outstanding.
    pub reads_out: u8,
    /// Reads that it answers at a time.
    pub reads_in: u8,
}

/// The card, as the connection manager sees it.
pub trait Card {
    /// Wire protocol of the port.
    fn transport(&self) -> Transport;

    /// Whether it has not been taken out.
    fn is_present(&self) -> bool;

    /// GIDs of the port, by index.
    fn gids(&self) -> &[Gid];

    /// Whether an address is one of this machine's, which all lead to the card.
    fn is_local(&self, host: IpAddr) -> bool;

    /// Whether there is a queue pair of that number (kernel: `irdma_get_qp`).
    fn has_queue_pair(&self, number: u32) -> bool;

    /// Connects two queue pairs and puts both into READY TO SEND, as the kernel does for iWARP.
    ///
    /// # Errors
    /// `EINVAL` for a queue pair that cannot be connected any more.
    fn connect(&mut self, active: End, passive: End) -> Result<(), Errno>;

    /// Ends the connection of a queue pair, if there is one: what is outstanding is flushed.
    fn disconnect(&mut self, queue_pair: u32);
}

impl Card for Device {
    fn transport(&self) -> Transport {
        self.profile().transport
    }

    fn is_present(&self) -> bool {
        !self.is_removed()
    }

    fn gids(&self) -> &[Gid] {
        &self.profile().gids
    }

    fn is_local(&self, host: IpAddr) -> bool {
        // The kernel lets nobody have a socket on an address that is not the machine's.
        host == identity::ADDRESS
            || self.gids().contains(&gid_of(host))
            || UdpSocket::bind(SocketAddr::new(host, 0)).is_ok()
    }

    fn has_queue_pair(&self, number: u32) -> bool {
        self.has_qp(number)
    }

    fn connect(&mut self, active: End, passive: End) -> Result<(), Errno> {
        let end = |end: End| irdma_uverbs::ConnectionEnd {
            qp: end.queue_pair,
            reads_out: end.reads_out.into(),
            reads_in: end.reads_in.into(),
        };
        self.connect_qps(end(active), end(passive))
    }

    fn disconnect(&mut self, queue_pair: u32) {
        self.disconnect_qp(queue_pair);
    }
}
