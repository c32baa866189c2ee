//! The device as its process drives it: open files, ioctls, doorbells, time.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

use irdma_engine::event::{AsyncEvent, Subject};
use irdma_engine::spec::CqId;

use crate::abi::number::event;
use crate::answer::Answer;
use crate::asynchronous;
use crate::call::{Call, Hardware};
use crate::commands::{ah, cq, mr, mw, pd, qp, srq};
use crate::errno::{EINVAL, EIO, ENODEV, ESTALE, Errno, Result};
use crate::events::ChannelId;
use crate::file::{OpenFile, Token};
use crate::object::{Cq, Kind, Object};
use crate::profile::Profile;
use crate::program::Program;
use crate::request::Request;

/// Offset of the send queues' doorbell in its page.
const SQ_DOORBELL: u64 = 0;
/// Offset of the CQs' doorbell in its page.
const CQ_DOORBELL: u64 = 64;

/// A descriptor that goes to a program with the answer to an ioctl.
#[derive(Debug)]
pub struct Granted {
    /// The descriptor.
    pub descriptor: OwnedFd,
    /// Where the program is to store its number.
    pub address: u64,
    /// Bytes of the number: 4 or 8.
    pub length: u32,
}

/// The software device: kernel and NIC of a fabric.
#[derive(Debug)]
pub struct Device {
    pub(crate) hardware: Hardware,
    pub(crate) files: BTreeMap<Token, OpenFile>,
    /// Watches the channels for programs that close theirs.
    channel_watch: OwnedFd,
    /// Which file a channel belongs to.
    channel_files: BTreeMap<ChannelId, Token>,
}

impl Device {
    /// A device of that profile; `doorbells_wait` if a program stands still while its doorbell is served.
    pub fn new(profile: Profile, doorbells_wait: bool) -> io::Result<Device> {
        // SAFETY: a system call without pointers.
        let descriptor = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and ours.
        let channel_watch = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let mut hardware = Hardware::new(profile);
        hardware.engine.platform().doorbells_wait = doorbells_wait;
        Ok(Device { hardware, files: BTreeMap::new(), channel_watch, channel_files: BTreeMap::new() })
    }

    /// What the device is.
    pub fn profile(&self) -> &Profile {
        &self.hardware.profile
    }

    /// A device node was opened; `ENODEV` if the card has been taken out.
    pub fn open(&mut self, token: Token) -> Result<()> {
        if self.hardware.removed {
            return Err(ENODEV);
        }
        self.files.insert(token, OpenFile::new(token));
        Ok(())
    }

    /// A device node was closed for the last time: everything made through it is freed.
    pub fn close(&mut self, token: Token) {
        let Some(mut file) = self.files.remove(&token) else { return };
        release(&mut file, &mut self.hardware);
        for channel in file.channels.keys() {
            self.channel_files.remove(channel);
        }
        // Other programs may owe their peers something now.
        self.settle();
    }

    /// Whether a token names an open node.
    pub fn is_open(&self, token: Token) -> bool {
        self.files.contains_key(&token)
    }

    /// Whether the card has been taken out.
    pub fn is_removed(&self) -> bool {
        self.hardware.removed
    }

    /// Whether no node is open.
    pub fn is_unused(&self) -> bool {
        self.files.is_empty()
    }

    /// Where the doorbell page of an open node is, once it has a context.
    pub fn doorbell_page(&self, token: Token) -> Option<u64> {
        Some(self.files.get(&token)?.context?.doorbell)
    }

    /// The ioctl whose argument is at `address` of `program`.
    pub fn ioctl(&mut self, token: Token, program: Rc<dyn Program>, address: u64) -> Result<Option<Granted>> {
        let result = self.serve(token, program, address);
        self.settle();
        result
    }

    fn serve(&mut self, token: Token, program: Rc<dyn Program>, address: u64) -> Result<Option<Granted>> {
        let file = self.files.get_mut(&token).ok_or(ESTALE)?;
        if self.hardware.removed {
            // Before any attribute is looked at: what handles meant is forgotten.
            return Err(EIO);
        }
        let request = Request::decode(file, program, address)?;
        let mut call = Call { request: &request, file, hardware: &mut self.hardware };
        let answer = call.run()?;
        let channel = answer.descriptor.as_ref().map(|descriptor| descriptor.channel);
        let watched = channel.map_or(Ok(()), |id| self.watch(token, id));
        let delivered = watched.and_then(|()| answer.deliver(&**request.program()));
        if let Err(errno) = delivered {
            self.take_back(token, &answer);
            return Err(errno);
        }
        Ok(answer.descriptor.map(|descriptor| Granted {
            descriptor: descriptor.end,
            address: descriptor.address,
            length: descriptor.length,
        }))
    }

    /// Undoes what a request made, because its program cannot be told of it.
    fn take_back(&mut self, token: Token, answer: &Answer) {
        let Some(file) = self.files.get_mut(&token) else { return };
        if let Some(handle) = answer.created {
            // Nobody can have begun to use it.
            let _ = destroy(file, &mut self.hardware, handle);
        }
        if let Some(descriptor) = &answer.descriptor {
            self.channel_files.remove(&descriptor.channel);
            file.channels.remove(&descriptor.channel);
            if file.default_events == Some(descriptor.channel) {
                file.default_events = None;
            }
        }
    }

    /// Watches a new channel for its program closing it.
    fn watch(&mut self, token: Token, id: ChannelId) -> Result<()> {
        let Some(channel) = self.files.get(&token).and_then(|file| file.channels.get(&id)) else {
            return Ok(());
        };
        // No event asked for: error conditions are reported without.
        let mut interest = libc::epoll_event { events: 0, u64: id };
        let (watch, descriptor) = (self.channel_watch.as_raw_fd(), channel.close_watch());
        // SAFETY: `interest` is a valid event for the length of the call.
        if unsafe { libc::epoll_ctl(watch, libc::EPOLL_CTL_ADD, descriptor, &mut interest) } < 0 {
            return Err(Errno::from(io::Error::last_os_error()));
        }
        self.channel_files.insert(id, token);
        Ok(())
    }

    /// Readable when [`Device::reap_channels`] has something to do.
    pub fn channel_watch(&self) -> RawFd {
        self.channel_watch.as_raw_fd()
    }

    /// Drops channels that their programs have closed.
    pub fn reap_channels(&mut self) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 32];
        let room = events.len() as libc::c_int;
        // SAFETY: the array has room for that many events.
        let count = unsafe { libc::epoll_wait(self.channel_watch.as_raw_fd(), events.as_mut_ptr(), room, 0) };
        for event in events.iter().take(usize::try_from(count).unwrap_or(0)) {
            let id = event.u64;
            let Some(token) = self.channel_files.remove(&id) else { continue };
            if let Some(file) = self.files.get_mut(&token) {
                file.channels.remove(&id);
            }
        }
    }

    /// A store of `value` at byte `offset` of a node's BAR.
    pub fn doorbell(&mut self, token: Token, offset: u64, value: u64, width: u64) -> Result<()> {
        let file = self.files.get(&token).ok_or(ESTALE)?;
        if self.hardware.removed {
            // Stores to a card that is gone lead nowhere.
            return Ok(());
        }
        let page = file.context.ok_or(EINVAL)?.doorbell;
        let object = self.hardware.id(u32::try_from(value).map_err(|_| EINVAL)?);
        match (offset.wrapping_sub(page), width) {
            (SQ_DOORBELL, 4) => self.hardware.engine.ring_sq(object),
            (CQ_DOORBELL, 4) => self.hardware.engine.arm_cq(object),
            _ => return Err(EINVAL),
        }
        self.settle();
        Ok(())
    }

    /// Looks at every queue for work and for arming; whether there was any.
    pub fn scan(&mut self) -> bool {
        if self.hardware.removed {
            return false;
        }
        let moved = self.hardware.engine.scan();
        self.settle();
        moved
    }

    /// Lets time pass; from the first call on it passes no more by itself.
    pub fn pass(&mut self, time: Duration) {
        self.hardware.engine.platform().pass(time);
    }

    /// Begins anew, with the numbers, keys and time of a device just made.
    ///
    /// # Errors
    /// A node is open.
    pub(crate) fn restart(&mut self) -> std::result::Result<(), String> {
        if !self.is_unused() {
            return Err("a program has the device open".into());
        }
        let doorbells_wait = self.hardware.engine.platform().doorbells_wait;
        self.hardware = Hardware::new(self.hardware.profile.clone());
        self.hardware.engine.platform().doorbells_wait = doorbells_wait;
        Ok(())
    }

    /// Time until something is due; `None` if nothing is.
    pub fn next_due(&mut self) -> Option<Duration> {
        let deadline = self.hardware.engine.next_deadline()?;
        Some(deadline.saturating_sub(irdma_engine::Platform::now(self.hardware.engine.platform())))
    }

    /// Does what is due.
    pub fn advance(&mut self) {
        self.hardware.engine.advance();
        self.settle();
    }

    /// Acts on everything the engine has reported.
    pub(crate) fn settle(&mut self) {
        loop {
            let reports = self.hardware.engine.platform();
            let completions = std::mem::take(&mut reports.completions);
            let events = std::mem::take(&mut reports.events);
            if completions.is_empty() && events.is_empty() {
                return;
            }
            for cq in completions {
                self.complete(cq);
            }
            for report in events {
                self.react(report);
            }
        }
    }

    /// Sends the event of an armed CQ to its program.
    fn complete(&mut self, cq: CqId) {
        let Some(&(token, handle)) = self.hardware.cqs.get(&cq) else { return };
        let Some(file) = self.files.get_mut(&token) else { return };
        let Some(cq) = file.objects.get_mut(handle).and_then(Cq::of_mut) else { return };
        let Some(channel) = cq.completion_channel.and_then(|id| file.channels.get_mut(&id)) else { return };
        if channel.send_completion(cq.source.serial, cq.source.user_handle) {
            cq.completions_sent += 1;
        }
    }

    fn react(&mut self, report: AsyncEvent) {
        let owner = match report.subject {
            Subject::Qp(qp) => self.hardware.qps.get(&qp),
            Subject::Cq(cq) => self.hardware.cqs.get(&cq),
            Subject::Srq(srq) => self.hardware.srqs.get(&srq),
        };
        let Some(&(token, handle)) = owner else { return };
        let Some(file) = self.files.get_mut(&token) else { return };
        asynchronous::react(&mut self.hardware, file, handle, report);
    }

    /// Takes the card out: objects are gone, commands fail with `EIO`, programs hear of it.
    pub(crate) fn remove(&mut self) {
        self.hardware.removed = true;
        for file in self.files.values_mut() {
            release(file, &mut self.hardware);
            for channel in file.channels.values_mut() {
                // Completion channels do not take it; and one that is full loses it.
                channel.send_event(0, 0, event::DEVICE_FATAL);
            }
        }
    }

    /// Sends an event of the port to every program.
    pub(crate) fn port_event(&mut self, number: u32) {
        for channel in self.files.values_mut().flat_map(|file| file.channels.values_mut()) {
            channel.send_event(0, u64::from(crate::call::PORT), number);
        }
    }
}

/// Destroys the object with that handle, whatever it is.
fn destroy(file: &mut OpenFile, hardware: &mut Hardware, handle: u32) -> Result<()> {
    match file.objects.get(handle).ok_or(EIO)? {
        Object::Pd(_) => pd::free(file, hardware, handle),
        Object::Mr(_) => mr::free(file, hardware, handle),
        Object::Mw(_) => mw::free(file, hardware, handle),
        Object::Cq(_) => cq::free(file, hardware, handle).map(drop),
        Object::Qp(_) => qp::free(file, hardware, handle).map(drop),
        Object::Srq(_) => srq::free(file, hardware, handle).map(drop),
        Object::Ah(_) => ah::free(file, hardware, handle),
    }
}

/// Destroys all objects of a file, youngest first, again and again while that gets anywhere.
fn release(file: &mut OpenFile, hardware: &mut Hardware) {
    loop {
        let handles = file.objects.youngest_first();
        let before: HashSet<u32> = handles.iter().copied().collect();
        for handle in handles {
            // What is still in use is tried again in the next round.
            let _ = destroy(file, hardware, handle);
        }
        let after = file.objects.youngest_first().len();
        if after == 0 || after == before.len() {
            break;
        }
    }
    file.context = None;
}
