//! An open device node: its context, objects, channels and ring registrations.

use std::collections::{BTreeMap, BTreeSet};

use crate::errno::{EINVAL, ENOENT, Result};
use crate::events::{Channel, ChannelId, Serial};
use crate::handles::Handles;
use crate::object::{EventSource, Kind, Object, RingKind};
use crate::platform::Memory;
use crate::program::Program;

/// Names an open device node.
pub type Token = u64;

/// What alloc-context settled.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// ABI version of the program's provider.
    pub abi: u8,
    /// Queue sizes come as the application asked, not as depths.
    pub raw_attributes: bool,
    /// Where in the BAR the doorbell page is.
    pub doorbell: u64,
}

/// Memory registered for a ring and not yet taken by a create.
#[derive(Debug)]
pub struct Ring {
    /// The registration.
    pub serial: Serial,
    /// What it is for.
    pub kind: RingKind,
    /// The address it was registered under.
    pub address: u64,
    /// From the start of its first page to the end of its last.
    pub memory: Memory,
    /// Pages of a CQ ring.
    pub cq_pages: u16,
    /// Pages of a receive ring.
    pub rq_pages: u16,
    /// Pages of a send ring.
    pub sq_pages: u16,
}

/// An open device node.
#[derive(Debug)]
pub struct OpenFile {
    /// Its name.
    pub token: Token,
    /// Present once alloc-context succeeded.
    pub context: Option<Context>,
    /// Objects by handle.
    pub objects: Handles<Object>,
    /// Event channels, open ones only.
    pub channels: BTreeMap<ChannelId, Channel>,
    /// Channel of asynchronous events of objects that name none: the first there was.
    pub default_events: Option<ChannelId>,
    /// Ring registrations waiting for their create.
    pub rings: Vec<Ring>,
    /// Ring registrations that a queue uses.
    pub rings_in_use: BTreeSet<Serial>,
}

impl OpenFile {
    /// A node that has just been opened.
    pub fn new(token: Token) -> OpenFile {
        OpenFile {
            token,
            context: None,
            objects: Handles::new(),
            channels: BTreeMap::new(),
            default_events: None,
            rings: Vec::new(),
            rings_in_use: BTreeSet::new(),
        }
    }

    /// The context; `EINVAL` before alloc-context.
    pub fn context(&self) -> Result<Context> {
        self.context.ok_or(EINVAL)
    }

    /// The object with that handle: `ENOENT` if there is none, `EINVAL` if it is of another type.
    pub fn get<T: Kind>(&self, handle: u32) -> Result<&T> {
        T::of(self.objects.get(handle).ok_or(ENOENT)?).ok_or(EINVAL)
    }

    /// As [`OpenFile::get`], to change it.
    pub fn get_mut<T: Kind>(&mut self, handle: u32) -> Result<&mut T> {
        T::of_mut(self.objects.get_mut(handle).ok_or(ENOENT)?).ok_or(EINVAL)
    }

    /// Takes a ring registration off the list, whatever becomes of the create that asked for it.
    pub fn take_ring(&mut self, kind: RingKind, address: u64) -> Option<Ring> {
        let place = self.rings.iter().position(|ring| ring.kind == kind && ring.address == address)?;
        Some(self.rings.remove(place))
    }

    /// The channel behind a descriptor of the program.
    pub fn channel_of(&self, program: &dyn Program, descriptor: i32) -> Option<ChannelId> {
        let name = program.descriptor_name(descriptor)?;
        let inode = name.strip_prefix("pipe:[")?.strip_suffix(']')?.parse().ok()?;
        self.channels.contains_key(&inode).then_some(inode)
    }

    /// Sends an asynchronous event of an object, if it has a channel that is still open.
    pub fn send_event(channels: &mut BTreeMap<ChannelId, Channel>, source: &mut EventSource, event: u32) {
        let Some(channel) = source.channel.and_then(|id| channels.get_mut(&id)) else { return };
        if channel.send_event(source.serial, source.user_handle, event) {
            source.sent += 1;
        }
    }

    /// How many of an object's asynchronous events the program has read; the others are dropped.
    pub fn settle_events(channels: &mut BTreeMap<ChannelId, Channel>, source: &EventSource) -> u32 {
        let withdrawn = source
            .channel
            .and_then(|id| channels.get_mut(&id))
            .map_or(0, |channel| channel.withdraw(source.serial));
        source.sent - withdrawn
    }
}
