//! The device process in a thread, and programs that behave well or badly towards it.

use std::fs::File;
use std::io::{self, PipeWriter};
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use irdma_engine::spec::Generation;
use irdma_sim_protocol::{MAGIC, Mode, Operation, Reply, Request};

use crate::options::{DeviceEnds, DeviceOptions, Kernel, Transport};

/// What a greeting shows.
static PROOF: u32 = MAGIC;

struct Running {
    path: PathBuf,
    lifeline: Option<PipeWriter>,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
}

fn seqpacket() -> OwnedFd {
    // SAFETY: no pointers.
    let descriptor = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0) };
    assert!(descriptor >= 0);
    // SAFETY: the descriptor is new and ours.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

fn address(path: &std::path::Path) -> libc::sockaddr_un {
    // SAFETY: all-zero is a valid value of this plain struct.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path.iter_mut().zip(path.to_str().unwrap().bytes()) {
        *to = from as libc::c_char;
    }
    address
}

fn start(name: &str, mode: Mode) -> Running {
    let path = std::env::temp_dir().join(format!("irdma-sim-test-{}-{name}", std::process::id()));
    let listener = seqpacket();
    let address = address(&path);
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: the address is valid for its length.
    assert_eq!(unsafe { libc::bind(listener.as_raw_fd(), (&raw const address).cast(), length) }, 0);
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 64) }, 0);
    let (hangup, lifeline) = io::pipe().unwrap();
    let options = DeviceOptions {
        generation: Generation::Gen2,
        transport: Transport::Roce,
        mode,
        kernel: Kernel::V7_2,
        withheld: 0,
        legacy: None,
        push_pages: 0,
        push_offset: 0,
        seed: 1,
    };
    let ends = DeviceEnds { listener, lifeline: Some(hangup.into()) };
    let thread = std::thread::spawn(move || super::run_device(options, ends));
    Running { path, lifeline: Some(lifeline), thread: Some(thread) }
}

impl Running {
    fn connect(&self) -> Client {
        let socket = seqpacket();
        let address = address(&self.path);
        let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
        // SAFETY: the address is valid for its length.
        let result = unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) };
        assert_eq!(result, 0);
        let time = libc::timeval { tv_sec: 20, tv_usec: 0 };
        // SAFETY: the time is valid for its length.
        unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVTIMEO,
                (&raw const time).cast(),
                size_of::<libc::timeval>() as libc::socklen_t,
            )
        };
        Client { socket }
    }

    /// A connection that has been greeted.
    fn program(&self) -> Client {
        let client = self.connect();
        assert_eq!(
            client.call(Operation::Hello, 0, [&raw const PROOF as u64, 0, 0]).unwrap().reply.result,
            0
        );
        client
    }

    fn stop(mut self) {
        self.lifeline = None;
        self.thread.take().unwrap().join().unwrap().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

struct Client {
    socket: OwnedFd,
}

struct Answer {
    reply: Reply,
    payload: Vec<u8>,
    descriptor: Option<OwnedFd>,
}

impl Client {
    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: the bytes are readable for their length.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The next answer; `None` if the other side has closed.
    fn receive(&self) -> Option<Answer> {
        let mut bytes = [0u8; 40_000];
        let mut control = [0u64; 4];
        let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        // SAFETY: all-zero is a valid value of this plain struct.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        // SAFETY: the message describes memory that lives until the call returns.
        let length = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC) };
        let length = usize::try_from(length).ok().filter(|length| *length > 0)?;
        // SAFETY: the kernel has filled in the control data.
        let descriptor = unsafe {
            let header = libc::CMSG_FIRSTHDR(&message);
            (!header.is_null())
                .then(|| OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<i32>().read_unaligned()))
        };
        let reply = Reply::parse(&bytes[..length])?;
        Some(Answer { reply, payload: bytes[size_of::<Reply>()..length].to_vec(), descriptor })
    }

    fn call(&self, operation: Operation, token: u64, [a, b, c]: [u64; 3]) -> Option<Answer> {
        let request = Request { a, b, c, ..Request::new(operation, token) };
        self.send(request.as_bytes()).ok()?;
        self.receive()
    }

    fn control(&self, line: &str) -> String {
        let request = Request::new(Operation::Control, 0);
        self.send(&[request.as_bytes(), line.as_bytes()].concat()).unwrap();
        String::from_utf8(self.receive().unwrap().payload).unwrap()
    }
}

#[test]
fn a_program_opens_asks_and_closes() {
    let device = start("life", Mode::Trap);
    let program = device.program();
    let opened = program.call(Operation::Open, 0, [0; 3]).unwrap();
    let (token, bar) = (opened.reply.value, File::from(opened.descriptor.unwrap()));
    assert_eq!((bar.metadata().unwrap().ino(), bar.metadata().unwrap().len()), (token, 0));
    // The probe: the query-device command without room for an answer.
    let mut ioctl = [0u64; 5];
    ioctl[0] = 40 | 1 << 48;
    ioctl[2] = 9;
    ioctl[3] = 2 | 8 << 16 | 1 << 32;
    ioctl[4] = 1;
    let place = ioctl.as_ptr() as u64;
    let ask = |token, place| program.call(Operation::Ioctl, token, [place, 0, 0]).unwrap().reply.result;
    assert_eq!(ask(token, place), -libc::ENOSPC);
    assert_eq!(ask(token, 8), -libc::EFAULT);
    assert_eq!(ask(token + 1, place), -libc::ESTALE);
    assert!(program.control("status").contains(&format!("file {token}:")));
    drop(bar);
    assert_eq!(ask(token, place), -libc::ESTALE);
    let ring = program.call(Operation::Doorbell, token, [4096, 2, 4]).unwrap();
    assert_eq!(ring.reply.result, -libc::ESTALE);
    assert!(program.control("status").starts_with("total: files 0 "));
    assert_eq!(program.call(Operation::Open, 0, [1, 0, 0]).unwrap().reply.result, -libc::ENXIO);
    drop(program);
    device.stop();
}

#[test]
fn bars_of_polled_devices_have_bytes() {
    for mode in [Mode::Poll, Mode::Step] {
        let device = start(if mode == Mode::Poll { "poll" } else { "step" }, mode);
        let program = device.program();
        let opened = program.call(Operation::Open, 0, [0; 3]).unwrap();
        let bar = File::from(opened.descriptor.unwrap());
        assert!(bar.metadata().unwrap().len() >= 8192);
        assert_eq!(program.call(Operation::Step, 0, [0; 3]).unwrap().reply.result, 0);
        drop((bar, program));
        device.stop();
    }
}

#[test]
fn strangers_get_nothing() {
    let device = start("strangers", Mode::Trap);
    let stranger = device.connect();
    let open = stranger.call(Operation::Open, 0, [0; 3]).unwrap();
    assert_eq!((open.reply.result, open.descriptor.is_none()), (-libc::EPROTO, true));
    let wrong = 7u32;
    for place in [8, &raw const wrong as u64] {
        let hello = stranger.call(Operation::Hello, 0, [place, 0, 0]).unwrap();
        assert_eq!(hello.reply.result, -libc::EPERM);
    }
    assert_eq!(stranger.call(Operation::Open, 0, [0; 3]).unwrap().reply.result, -libc::EPROTO);
    for garbage in [&b"x"[..], &[0xff; 40], &[0; 32_900]] {
        let babbler = device.connect();
        babbler.send(garbage).unwrap();
        assert!(babbler.receive().is_none(), "let go");
    }
    let unknown = Request { operation: 77, ..Request::new(Operation::Step, 0) };
    let program = device.program();
    program.send(unknown.as_bytes()).unwrap();
    assert_eq!(program.receive().unwrap().reply.result, -libc::EPROTO);
    drop((stranger, program));
    device.stop();
}

#[test]
fn who_does_not_read_is_let_go_and_the_others_are_served() {
    let device = start("deaf", Mode::Trap);
    let deaf = device.program();
    let request = Request { a: &raw const PROOF as u64, ..Request::new(Operation::Hello, 0) };
    let began = Instant::now();
    loop {
        match deaf.send(request.as_bytes()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(_) => break,
        }
        assert!(began.elapsed() < Duration::from_secs(20), "still listened to");
    }
    let program = device.program();
    assert!(program.control("status").starts_with("total: files 0 "));
    drop((deaf, program));
    device.stop();
}

#[test]
fn it_ends_on_request_and_only_then_while_a_program_is_there() {
    let mut device = start("end", Mode::Trap);
    let program = device.program();
    device.lifeline = None;
    std::thread::sleep(Duration::from_millis(50));
    assert!(program.control("status").starts_with("total"), "a program keeps it going");
    program.control("stop");
    device.thread.take().unwrap().join().unwrap().unwrap();
}
