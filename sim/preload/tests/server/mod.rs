//! A device process that writes down what it is asked, to test the library alone.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use irdma_sim_protocol::{MAGIC, MAX_PAYLOAD, Mode, Operation, Reply, Request};

/// What the server was asked and how it behaves.
#[derive(Default)]
pub struct State {
    /// All requests except greetings, in order.
    pub requests: Mutex<Vec<Request>>,
    /// Connections accepted.
    pub connections: AtomicUsize,
    /// Does not answer doorbells.
    pub silent: AtomicBool,
    /// Ends at the next doorbell.
    pub dies: AtomicBool,
    /// Somebody has waited for an event.
    pub waited: AtomicBool,
    /// Refuses greetings with EPERM.
    pub blind: AtomicBool,
    /// Files of opened nodes, which keep their inode numbers.
    bars: Mutex<Vec<File>>,
    /// Our ends of the connection manager's pipes.
    pipes: Mutex<Vec<File>>,
}

impl State {
    /// Doorbells so far, as offset, value, width.
    pub fn doorbells(&self) -> Vec<(u64, u64, u64)> {
        let requests = self.requests.lock().unwrap();
        requests
            .iter()
            .filter(|request| request.operation == Operation::Doorbell as u32)
            .map(|request| (request.a, request.b, request.c))
            .collect()
    }
}

/// A running server; its threads end with the process.
pub struct Server {
    /// Shared with its threads.
    pub state: Arc<State>,
    folder: PathBuf,
}

impl Server {
    /// Starts one with a folder of its own.
    pub fn start(name: &str) -> Server {
        let folder = std::env::temp_dir().join(format!("irdma-preload-{name}-{}", std::process::id()));
        let nodes = folder.join("dev/infiniband");
        std::fs::create_dir_all(&nodes).unwrap();
        for name in ["uverbs0", "rdma_cm"] {
            std::os::unix::fs::symlink("/dev/null", nodes.join(name)).unwrap();
        }
        let state = Arc::new(State::default());
        let listener = listen(&folder.join("socket"));
        let server = Server { state: state.clone(), folder };
        std::thread::spawn(move || {
            loop {
                // SAFETY: no pointers.
                let accepted =
                    unsafe { libc::accept(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut()) };
                assert!(accepted >= 0, "{}", io::Error::last_os_error());
                state.connections.fetch_add(1, Ordering::Relaxed);
                // SAFETY: just accepted, and nobody else's.
                let connection = unsafe { OwnedFd::from_raw_fd(accepted) };
                let state = state.clone();
                std::thread::spawn(move || serve(&connection, &state));
            }
        });
        server
    }

    /// Where programs find it.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    /// Where its node is.
    pub fn root(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn listen(path: &Path) -> OwnedFd {
    // SAFETY: plain system calls; the address is valid for its size.
    unsafe {
        let socket = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (to, from) in address.sun_path.iter_mut().zip(path.as_os_str().as_bytes()) {
            *to = *from as libc::c_char;
        }
        let size = size_of::<libc::sockaddr_un>() as libc::socklen_t;
        assert_eq!(libc::bind(socket, std::ptr::from_ref(&address).cast(), size), 0);
        assert_eq!(libc::listen(socket, 64), 0);
        OwnedFd::from_raw_fd(socket)
    }
}

/// Answers one connection until it closes.
fn serve(connection: &OwnedFd, state: &State) {
    let mut buffer = vec![0; size_of::<Request>() + MAX_PAYLOAD];
    loop {
        // SAFETY: the buffer is writable for its length.
        let length =
            unsafe { libc::recv(connection.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        if length <= 0 {
            return;
        }
        let message = &buffer[..length as usize];
        let request = Request::parse(message).expect("a whole request");
        let payload = &message[size_of::<Request>()..];
        let Some((reply, bytes, file)) = answer(connection, state, &request, payload) else { return };
        send(connection, &reply, &bytes, file.as_ref().map(AsRawFd::as_raw_fd));
    }
}

type Answer = (Reply, Vec<u8>, Option<File>);

fn answer(connection: &OwnedFd, state: &State, request: &Request, payload: &[u8]) -> Option<Answer> {
    let operation = Operation::from_number(request.operation).expect("a known operation");
    if operation == Operation::Hello {
        if state.blind.load(Ordering::Relaxed) {
            return Some((Reply::error(libc::EPERM), vec![], None));
        }
        assert_eq!(peek(peer(connection), request.a), MAGIC);
        let device = bar().metadata().unwrap().dev();
        let reply = Reply { value: Mode::Trap as u64, ..Reply::default() };
        return Some((reply, device.to_le_bytes().to_vec(), None));
    }
    state.requests.lock().unwrap().push(*request);
    let plain = |value| Some((Reply { value, ..Reply::default() }, vec![], None));
    match operation {
        Operation::Hello => unreachable!(),
        Operation::Open => {
            let file = bar();
            let token = file.metadata().unwrap().ino();
            state.bars.lock().unwrap().push(file.try_clone().unwrap());
            Some((Reply { value: token, ..Reply::default() }, vec![], Some(file)))
        }
        Operation::Ioctl => {
            // The first word of the argument says what is wanted.
            match peek(peer(connection), request.a) {
                // A descriptor, stored behind that word.
                1 => {
                    let reply = Reply { patch_address: request.a + 4, patch_length: 4, ..Reply::default() };
                    Some((reply, vec![], Some(File::open("/dev/zero").unwrap())))
                }
                // A descriptor at an address that is not there.
                2 => {
                    let reply = Reply { patch_address: 8, patch_length: 8, ..Reply::default() };
                    Some((reply, vec![], Some(File::open("/dev/zero").unwrap())))
                }
                errno => Some((Reply::error(errno as i32), vec![], None)),
            }
        }
        Operation::Doorbell if state.dies.load(Ordering::Relaxed) => None,
        Operation::Doorbell if state.silent.load(Ordering::Relaxed) => {
            std::thread::park();
            None
        }
        Operation::Doorbell => {
            let open =
                state.bars.lock().unwrap().iter().any(|bar| bar.metadata().unwrap().ino() == request.token);
            if open { plain(0) } else { Some((Reply::error(libc::ESTALE), vec![], None)) }
        }
        Operation::OpenManager => {
            let (reader, writer) = pipe();
            let token = reader.metadata().unwrap().ino();
            state.pipes.lock().unwrap().push(writer);
            Some((Reply { value: token, ..Reply::default() }, vec![], Some(reader)))
        }
        Operation::Manage => {
            let pipes = state.pipes.lock().unwrap();
            let known = pipes.iter().find(|pipe| pipe.metadata().unwrap().ino() == request.token);
            let Some(mut pipe) = known else { return Some((Reply::error(libc::EBADF), vec![], None)) };
            // The first word of the command says what is wanted.
            match peek(peer(connection), request.a) {
                // An event, which there never is.
                1 => Some((Reply::error(libc::EAGAIN), vec![], None)),
                // An event, which comes in a moment; the next time it is there.
                2 => {
                    let mut pipe = pipe.try_clone().unwrap();
                    std::thread::spawn(move || {
                        std::thread::sleep(Duration::from_millis(100));
                        pipe.write_all(&[0]).unwrap();
                    });
                    let seen = state.waited.swap(true, Ordering::Relaxed);
                    if seen { plain(request.b) } else { Some((Reply::error(libc::EAGAIN), vec![], None)) }
                }
                3 => {
                    pipe.write_all(&[0]).unwrap();
                    plain(request.b)
                }
                errno => Some((Reply::error(errno as i32), vec![], None)),
            }
        }
        Operation::Step => plain(42),
        Operation::Control if payload == b"bad" => {
            Some((Reply::error(libc::EINVAL), b"no such command".to_vec(), None))
        }
        Operation::Control => Some((Reply::default(), [b"did ", payload].concat(), None)),
    }
}

/// A file without a byte.
fn bar() -> File {
    // SAFETY: the name is terminated; the descriptor is new.
    unsafe { File::from_raw_fd(libc::memfd_create(c"bar".as_ptr(), libc::MFD_CLOEXEC)) }
}

/// A pipe that has no name any more.
fn pipe() -> (File, File) {
    let path = std::env::temp_dir().join(format!("irdma-preload-pipe-{}", std::process::id()));
    let name = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the path is terminated.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let reader = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
    let writer = File::options().write(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    (reader, writer)
}

fn peer(connection: &OwnedFd) -> libc::pid_t {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the option's buffer is as long as said.
    let result = unsafe {
        libc::getsockopt(
            connection.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            std::ptr::from_mut(&mut credentials).cast(),
            &mut length,
        )
    };
    assert_eq!(result, 0);
    credentials.pid
}

/// A word of another process.
fn peek(process: libc::pid_t, address: u64) -> u32 {
    let mut word = 0_u32;
    let to = libc::iovec { iov_base: std::ptr::from_mut(&mut word).cast(), iov_len: 4 };
    let from = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: 4 };
    // SAFETY: the target is ours, the kernel checks the source.
    assert_eq!(unsafe { libc::process_vm_readv(process, &to, 1, &from, 1, 0) }, 4);
    word
}

fn send(connection: &OwnedFd, reply: &Reply, payload: &[u8], descriptor: Option<i32>) {
    let bytes = [reply.as_bytes(), payload].concat();
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = [0_u64; 4];
    // SAFETY: the message describes memory that lives until the call returns, and the
    // control area has room for one descriptor.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        if let Some(descriptor) = descriptor {
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(4) as usize;
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(4) as usize;
            libc::CMSG_DATA(header).cast::<i32>().write_unaligned(descriptor);
        }
        libc::sendmsg(connection.as_raw_fd(), &message, libc::MSG_NOSIGNAL);
    }
}
