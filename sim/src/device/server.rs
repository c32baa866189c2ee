//! The loop of the device process: one thread, which owns everything.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

use irdma_sim_protocol::{MAGIC, Mode, Operation, Reply, Request};
use irdma_ucma::Manager;
use irdma_uverbs::program::Process;
use irdma_uverbs::push::BarLayout;
use irdma_uverbs::{Device, Errno};

use super::bar::Bars;
use super::control;
use super::message::{self, Buffer, Received};
use super::polling::Eagerness;
use super::sockets::{accept_from, peer, raise_descriptor_limit, set_nonblocking};
use super::waiting::{Source, Waiting, stop_signals};
use crate::options::DeviceEnds;

/// How much of the device's time a step takes.
const STEP_TIME: Duration = Duration::from_millis(10);

/// A program's connection.
#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    process: Rc<Process>,
    /// It has shown that its memory can be reached.
    greeted: bool,
}

/// The device process.
#[derive(Debug)]
pub struct Server {
    device: Device,
    manager: Manager,
    mode: Mode,
    bars: Bars,
    waiting: Waiting,
    ends: DeviceEnds,
    signals: OwnedFd,
    connections: HashMap<RawFd, Connection>,
    processes: HashMap<i32, Rc<Process>>,
    eagerness: Eagerness,
    /// Given up for a moment to refuse a connection when no descriptor is left.
    spare: Option<File>,
    /// Somebody still waits for the device.
    wanted: bool,
    stopped: bool,
}

/// What a request is answered with.
#[derive(Debug, Default)]
struct Response {
    reply: Reply,
    payload: Vec<u8>,
    descriptor: Option<OwnedFd>,
}

impl Response {
    fn error(errno: i32) -> Response {
        Response { reply: Reply::error(errno), ..Response::default() }
    }

    fn value(value: u64) -> Response {
        Response { reply: Reply { value, ..Reply::default() }, ..Response::default() }
    }
}

impl Server {
    /// A server of that device.
    pub fn new(device: Device, mode: Mode, ends: DeviceEnds) -> anyhow::Result<Server> {
        let bars = Bars::new(mode, BarLayout::of(device.profile()))?;
        let waiting = Waiting::new()?;
        let signals = stop_signals()?;
        waiting.add(ends.listener.as_raw_fd(), Source::Listener)?;
        waiting.add(signals.as_raw_fd(), Source::Signal)?;
        waiting.add(bars.watch(), Source::Closed)?;
        waiting.add(device.channel_watch(), Source::Channel)?;
        if let Some(lifeline) = &ends.lifeline {
            waiting.add(lifeline.as_raw_fd(), Source::Lifeline)?;
        }
        set_nonblocking(ends.listener.as_raw_fd())?;
        raise_descriptor_limit();
        // SAFETY: no preconditions.
        let privileged = unsafe { libc::geteuid() } == 0;
        let manager = Manager::new(device.profile().seed, privileged);
        Ok(Server {
            device,
            manager,
            mode,
            bars,
            waiting,
            ends,
            signals,
            connections: HashMap::new(),
            processes: HashMap::new(),
            eagerness: Eagerness::new(),
            spare: File::open("/dev/null").ok(),
            wanted: true,
            stopped: false,
        })
    }

    /// Serves until stopped or no longer wanted.
    pub fn run(mut self) -> anyhow::Result<()> {
        let mut buffer: Box<Buffer> = Box::new([0; size_of::<Buffer>()]);
        while !self.stopped && (self.wanted || self.is_used()) {
            let time = self.time_to_wait();
            let time =
                self.manager.next_due().map_or(time, |due| Some(time.map_or(due, |time| time.min(due))));
            for source in self.waiting.wait(time) {
                self.serve(source, &mut buffer);
            }
            self.manager.advance();
            self.tell_manager();
            if self.device.next_due() == Some(Duration::ZERO) && self.mode != Mode::Step {
                self.device.advance();
            }
        }
        Ok(())
    }

    /// Whether a program is left.
    fn is_used(&self) -> bool {
        !self.connections.is_empty() || !self.device.is_unused() || !self.manager.is_unused()
    }

    /// How long nothing can happen by itself.
    fn time_to_wait(&mut self) -> Option<Duration> {
        let due = if self.mode == Mode::Step { None } else { self.device.next_due() };
        if self.mode != Mode::Poll || self.device.is_unused() {
            return due;
        }
        let pause = if self.take_doorbells() > 0 {
            self.device.scan();
            self.eagerness.rung();
            Duration::ZERO
        } else {
            self.eagerness.quiet()
        };
        Some(due.map_or(pause, |due| due.min(pause)))
    }

    /// Takes the doorbells of pages that were rung, and serves those of pushes; how many.
    fn take_doorbells(&mut self) -> u64 {
        let mut pushed = Vec::new();
        for (token, pages) in self.bars.doorbells() {
            for place in self.device.push_places(token) {
                pushed.extend(pages.take_value(place.doorbell).map(|value| (token, place, value)));
            }
        }
        for &(token, place, value) in &pushed {
            let window = self.bars.take_window(token, place.window);
            // Nonsense leads nowhere, as it does on a card.
            let _ = self.device.push(token, place, value.into(), &window);
        }
        let rung = self
            .bars
            .doorbells()
            .filter(|(token, pages)| self.device.doorbell_page(*token).is_some_and(|page| pages.take(page)));
        rung.count() as u64 + pushed.len() as u64
    }

    fn serve(&mut self, source: Source, buffer: &mut Buffer) {
        match source {
            Source::Listener => self.accept(),
            Source::Lifeline => self.read_lifeline(),
            Source::Signal => self.stopped = true,
            Source::Closed => self.close_nodes(),
            Source::Channel => self.device.reap_channels(),
            Source::Connection(descriptor) => self.converse(descriptor, buffer),
            Source::Process(pid) => self.forget_process(pid),
            Source::ManagerClosed => self.manager.reap(&mut self.device),
        }
    }

    /// Takes in a program.
    fn accept(&mut self) {
        match accept_from(self.ends.listener.as_raw_fd()) {
            Ok(socket) => {
                // A program that has ended meanwhile, or whom we cannot see, is let go.
                let _ = self.admit(socket);
            }
            Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
                // Refused by closing, or it would be reported again and again.
                self.spare = None;
                drop(accept_from(self.ends.listener.as_raw_fd()));
                self.spare = File::open("/dev/null").ok();
            }
            Err(_) => {}
        }
    }

    fn admit(&mut self, socket: OwnedFd) -> io::Result<()> {
        let pid = peer(socket.as_raw_fd())?;
        let process = match self.processes.get(&pid) {
            Some(process) => process.clone(),
            None => {
                let process = Rc::new(Process::new(pid)?);
                self.waiting.add(process.end_watch(), Source::Process(pid))?;
                self.processes.insert(pid, process.clone());
                process
            }
        };
        let descriptor = socket.as_raw_fd();
        self.waiting.add(descriptor, Source::Connection(descriptor))?;
        self.connections.insert(descriptor, Connection { socket, process, greeted: false });
        Ok(())
    }

    /// A process has ended; its number may soon be another's.
    fn forget_process(&mut self, pid: i32) {
        if let Some(process) = self.processes.remove(&pid) {
            process.set_ended();
            self.waiting.remove(process.end_watch());
        }
    }

    fn read_lifeline(&mut self) {
        let Some(lifeline) = &self.ends.lifeline else { return };
        let mut byte = 0u8;
        // SAFETY: room for one byte.
        let length = unsafe { libc::read(lifeline.as_raw_fd(), (&raw mut byte).cast(), 1) };
        if length == 0 {
            self.wanted = false;
            self.ends.lifeline = None;
        }
    }

    fn close_nodes(&mut self) {
        for token in self.bars.closed() {
            self.device.close(token);
        }
        self.tell_manager();
    }

    /// Connections of queue pairs (iWARP) end with them.
    fn tell_manager(&mut self) {
        for queue_pair in self.device.take_lost_connections() {
            self.manager.lost(&mut self.device, queue_pair);
        }
    }

    /// Serves one request of a connection.
    fn converse(&mut self, descriptor: RawFd, buffer: &mut Buffer) {
        let Some(connection) = self.connections.get(&descriptor) else { return };
        let (request, payload) = match message::receive(connection.socket.as_fd(), buffer) {
            Received::Nothing => return,
            Received::End => {
                self.connections.remove(&descriptor);
                return;
            }
            Received::Request(request, payload) => (request, payload),
        };
        // What was closed before this request was sent is closed before it is served.
        self.close_nodes();
        let response = self.respond(descriptor, &request, payload);
        self.tell_manager();
        let Some(connection) = self.connections.get(&descriptor) else { return };
        let sent = message::send(
            connection.socket.as_fd(),
            &response.reply,
            &response.payload,
            response.descriptor.as_ref(),
        );
        if sent.is_err() {
            // It does not read its answers, or has gone.
            self.connections.remove(&descriptor);
        }
    }

    fn respond(&mut self, descriptor: RawFd, request: &Request, payload: &[u8]) -> Response {
        let Some(connection) = self.connections.get_mut(&descriptor) else {
            return Response::error(libc::ENOTCONN);
        };
        let process = connection.process.clone();
        let operation = Operation::from_number(request.operation);
        if operation == Some(Operation::Hello) {
            let mut word = [0; size_of::<u32>()];
            let reached = process.try_read(request.a, &mut word);
            if reached.is_err() || u32::from_ne_bytes(word) != MAGIC {
                return Response::error(libc::EPERM);
            }
            connection.greeted = true;
            let payload = self.bars.device().to_le_bytes().to_vec();
            return Response { payload, ..Response::value(self.mode as u64) };
        }
        if operation == Some(Operation::Control) {
            return self.control(payload);
        }
        if !connection.greeted {
            return Response::error(libc::EPROTO);
        }
        match operation {
            Some(Operation::Open) => self.open(request.a),
            Some(Operation::Ioctl) => self.ioctl(request, process),
            Some(Operation::Doorbell) => match self.doorbell(request) {
                Ok(()) => Response::default(),
                Err(errno) => Response::error(errno.0),
            },
            Some(Operation::Step) => Response::value(self.step()),
            Some(Operation::OpenManager) => self.open_manager(),
            Some(Operation::Manage) => {
                // What was closed before is closed before it is served.
                self.manager.reap(&mut self.device);
                let (place, length) = (request.a, request.b);
                match self.manager.write(&mut self.device, &*process, request.token, place, length) {
                    Ok(taken) => Response::value(taken),
                    Err(errno) => Response::error(errno.0),
                }
            }
            _ => Response::error(libc::EPROTO),
        }
    }

    fn open(&mut self, node: u64) -> Response {
        if node != 0 {
            return Response::error(libc::ENXIO);
        }
        let Ok((token, descriptor)) = self.bars.create() else { return Response::error(libc::ENFILE) };
        // If it is refused, or the program does not take it, the file is closed and with it the node.
        match self.device.open(token) {
            Ok(()) => Response { descriptor: Some(descriptor), ..Response::value(token) },
            Err(errno) => Response::error(errno.0),
        }
    }

    fn open_manager(&mut self) -> Response {
        let Ok((token, end)) = self.manager.open() else { return Response::error(libc::ENFILE) };
        let watched = match self.manager.close_watch(token) {
            Some(descriptor) => self.waiting.add(descriptor, Source::ManagerClosed),
            None => Ok(()),
        };
        match watched {
            Ok(()) => Response { descriptor: Some(end), ..Response::value(token) },
            // Its only end is dropped here, and so it is closed at the next look.
            Err(_) => Response::error(libc::ENOMEM),
        }
    }

    fn ioctl(&mut self, request: &Request, process: Rc<Process>) -> Response {
        match self.device.ioctl(request.token, process, request.a) {
            Ok(None) => Response::default(),
            Ok(Some(granted)) => Response {
                reply: Reply {
                    patch_length: granted.length,
                    patch_address: granted.address,
                    ..Reply::default()
                },
                descriptor: Some(granted.descriptor),
                ..Response::default()
            },
            Err(errno) => Response::error(errno.0),
        }
    }

    /// Serves a doorbell that was trapped.
    fn doorbell(&mut self, request: &Request) -> Result<(), Errno> {
        let &Request { token, a: offset, b: value, c: width, .. } = request;
        match self.device.push_place(token, offset)? {
            Some(place) if width == 4 => {
                let window = self.bars.take_window(token, place.window);
                self.device.push(token, place, value, &window)
            }
            _ => self.device.doorbell(token, offset, value, width),
        }
    }

    /// Works until nothing moves any more; doorbells served. In step mode this is all that makes time
    /// pass, so that the same steps have the same outcome on any machine.
    fn step(&mut self) -> u64 {
        let mut served = 0;
        if self.mode == Mode::Step {
            self.device.pass(STEP_TIME);
        }
        loop {
            let rung = self.take_doorbells();
            served += rung;
            let moved = self.device.scan();
            if self.device.next_due() == Some(Duration::ZERO) {
                self.device.advance();
            } else if rung == 0 && !moved {
                return served;
            }
        }
    }

    fn control(&mut self, payload: &[u8]) -> Response {
        let Ok(line) = std::str::from_utf8(payload) else { return Response::error(libc::EINVAL) };
        if line.trim() == "stop" {
            self.stopped = true;
            return Response::default();
        }
        match control::answer(&mut self.device, &mut self.manager, line.trim()) {
            Ok(answer) => Response { payload: answer.into_bytes(), ..Response::default() },
            Err(message) => Response { payload: message.into_bytes(), ..Response::error(libc::EINVAL) },
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.waiting.remove(self.signals.as_raw_fd());
    }
}
