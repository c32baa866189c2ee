//! The connection manager as its process drives it: open nodes, commands, time.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::time::{Duration, Instant};

use irdma_uverbs::program::Program;
use irdma_uverbs::{Errno, Token, Transport};

use crate::call::{self, Call};
use crate::card::Card;
use crate::event::{Event, Kind};
use crate::id::{Due, Id, Stage, State, queue_pair};
use crate::node::Node;
use crate::table::Table;

/// More identifiers than this are refused, as when the kernel has no memory for them.
const MOST_IDS: usize = 1 << 16;
/// Multicast memberships.
const MOST_MEMBERSHIPS: usize = 1 << 16;

/// A multicast membership.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Membership {
    /// The identifier that joined.
    pub id: u32,
    /// Events that its program has fetched.
    pub reported: u32,
}

/// The connection manager of a fabric.
#[derive(Debug)]
pub struct Manager {
    pub(crate) nodes: BTreeMap<Token, Node>,
    pub(crate) ids: Table<Id>,
    pub(crate) memberships: Table<Membership>,
    /// Programs may bind ports below 1024.
    pub(crate) privileged: bool,
    /// Where the search for a free port starts.
    pub(crate) next_port: u16,
    random: u64,
    start: Instant,
}

impl Manager {
    /// A connection manager; `privileged` if programs may bind ports below 1024.
    pub fn new(seed: u64, privileged: bool) -> Manager {
        Manager {
            nodes: BTreeMap::new(),
            ids: Table::new(MOST_IDS),
            memberships: Table::new(MOST_MEMBERSHIPS),
            privileged,
            next_port: 0,
            random: seed,
            start: Instant::now(),
        }
    }

    /// Begins anew, with the numbers of one just made. For one that is unused.
    pub fn begin_anew(&mut self, seed: u64) {
        *self = Manager::new(seed, self.privileged);
    }

    /// Opens a node: its token and the program's descriptor.
    ///
    /// # Errors
    /// No pipe could be made.
    pub fn open(&mut self) -> io::Result<(Token, OwnedFd)> {
        let (token, node, end) = Node::new()?;
        self.nodes.insert(token, node);
        Ok((token, end))
    }

    /// A descriptor that reports an error condition when [`Manager::reap`] has to look at that node.
    pub fn close_watch(&self, token: Token) -> Option<RawFd> {
        Some(self.nodes.get(&token)?.close_watch())
    }

    /// Closes nodes that no program has open any more, with all that was made through them.
    pub fn reap(&mut self, card: &mut dyn Card) {
        let closed: Vec<Token> =
            self.nodes.iter().filter(|(_, node)| node.is_closed()).map(|(token, _)| *token).collect();
        for token in closed {
            for number in self.ids.numbers(|id| id.node == token) {
                self.destroy(card, number);
            }
            self.nodes.remove(&token);
        }
    }

    /// Whether no node is open.
    pub fn is_unused(&self) -> bool {
        self.nodes.is_empty()
    }

    /// What a program writes to a node: `length` bytes at `address`. The number of bytes taken.
    ///
    /// # Errors
    /// As the kernel's `ucma_write`; `EBADF` if there is no such node; `EAGAIN` if the program
    /// asks for an event and there is none yet.
    pub fn write(
        &mut self,
        card: &mut dyn Card,
        program: &dyn Program,
        token: Token,
        address: u64,
        length: u64,
    ) -> Result<u64, Errno> {
        if !self.nodes.contains_key(&token) {
            return Err(Errno(libc::EBADF));
        }
        let mut call = Call::decode(self, card, program, token, address, length)?;
        call::run(&mut call)?;
        Ok(length)
    }

    /// A queue pair has lost its connection (iWARP).
    pub fn lost(&mut self, card: &mut dyn Card, queue_pair: u32) {
        let connected = |id: &Id| id.queue_pair == queue_pair && id.stage() == Some(Stage::Established);
        for number in self.ids.numbers(connected) {
            self.close_stream(card, number);
        }
    }

    /// The card was taken out: its identifiers hear of it and are dead.
    pub fn remove_card(&mut self) {
        for number in self.ids.numbers(|id| id.attached && id.state != State::Removed) {
            self.emit(number, Kind::DeviceRemoval, 0, |event| event);
            if let Some(id) = self.ids.get_mut(number) {
                id.state = State::Removed;
                id.link = None;
                id.due = None;
            }
        }
    }

    /// Time until something is due; `None` if nothing is.
    pub fn next_due(&self) -> Option<Duration> {
        let due = self.ids.iter().filter_map(|(_, id)| Some(id.due?.0)).min()?;
        Some(due.saturating_sub(self.now()))
    }

    /// Does what is due.
    pub fn advance(&mut self) {
        let now = self.now();
        for number in self.ids.numbers(|id| id.due.is_some_and(|(time, _)| time <= now)) {
            let Some((_, due)) = self.ids.get_mut(number).and_then(|id| id.due.take()) else { continue };
            match due {
                Due::AddressFailure => self.fail_address(number),
                Due::Request(times) => self.ask_again(number, times),
                Due::DisconnectFailure => self.give_up_disconnect(number),
                Due::TimeWaitExit => self.leave_time_wait(number),
            }
        }
    }

    /// All identifiers, in words.
    pub fn describe(&self) -> String {
        let mut text =
            format!("nodes {} memberships {}\n", self.nodes.len(), self.memberships.iter().count());
        for (number, id) in self.ids.iter() {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "id {number} {:?} {} {}{}",
                id.state,
                id.source,
                id.destination,
                id.stage().map(|stage| format!(" {stage:?}")).unwrap_or_default()
            );
        }
        text
    }

    /// Time since the start.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Lets the next `time` pass at once.
    #[cfg(test)]
    pub(crate) fn skip(&mut self, time: Duration) {
        self.start = self.start.checked_sub(time).expect("a machine that has run that long");
    }

    /// A number that is hard to guess from the one before (SplitMix64).
    pub(crate) fn random(&mut self) -> u32 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.random;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ word >> 31) as u32
    }

    /// Sets an identifier's time.
    pub(crate) fn schedule(&mut self, number: u32, delay: Duration, due: Due) {
        let time = self.now() + delay;
        if let Some(id) = self.ids.get_mut(number) {
            id.due = Some((time, due));
        }
    }

    /// Adds an event of an identifier, unless its program has not accepted it yet.
    pub(crate) fn emit(&mut self, number: u32, kind: Kind, status: i32, with: impl FnOnce(Event) -> Event) {
        let Some(id) = self.ids.get(number).filter(|id| id.user != 0) else { return };
        let event = with(Event::plain(number, id.user, kind, status));
        if let Some(node) = self.nodes.get_mut(&id.node) {
            node.push(event);
        }
    }

    /// Takes an identifier away; the other end of its connection hears of it. How many events
    /// its program has fetched.
    pub(crate) fn destroy(&mut self, card: &mut dyn Card, number: u32) -> Option<u32> {
        let id = self.ids.get(number)?;
        if id.link.is_some() {
            match (card.transport(), id.kind) {
                (Transport::Iwarp, _) => self.abandon_stream(card, number),
                (Transport::Roce, queue_pair::UD) => self.abandon_service(number),
                (Transport::Roce, _) => self.abandon(number),
            }
        }
        self.part(number);
        let id = self.ids.remove(number)?;
        if let Some(node) = self.nodes.get_mut(&id.node) {
            let events = node.take(|event| event.owner == number);
            // Connections that wait to be fetched go too.
            for request in events.iter().filter_map(|event| event.request) {
                self.destroy(card, request);
            }
        }
        for membership in self.memberships.numbers(|membership| membership.id == number) {
            self.memberships.remove(membership);
        }
        Some(id.reported)
    }

    /// The ends of a connection no longer hear each other.
    pub(crate) fn part(&mut self, number: u32) {
        let link = self.ids.get_mut(number).and_then(|id| id.link.as_mut());
        let Some(peer) = link.and_then(|link| link.peer.take()) else { return };
        if let Some(link) = self.ids.get_mut(peer).and_then(|id| id.link.as_mut()) {
            link.peer = None;
        }
    }

    /// The identifier at the other end.
    pub(crate) fn peer(&self, number: u32) -> Option<u32> {
        self.ids.get(number)?.link.as_ref()?.peer
    }

    /// Moves a connection on.
    pub(crate) fn set_stage(&mut self, number: u32, stage: Stage) {
        let Some(id) = self.ids.get_mut(number) else { return };
        if let Some(link) = &mut id.link {
            link.stage = stage;
            // What the old stage waited for is over.
            id.due = None;
        }
    }

    /// Where a connection is.
    pub(crate) fn stage(&self, number: u32) -> Option<Stage> {
        self.ids.get(number)?.stage()
    }
}
