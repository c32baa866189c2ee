//! The launcher as a client of a device process: greeting and control commands.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use irdma_sim_protocol::{MAGIC, MAX_PAYLOAD, Operation, Reply, Request};

use crate::runtime::{Folder, Name};

/// How long the device process may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where the device process checks that it may read this process.
static PROOF: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(MAGIC);

/// A connection.
pub struct Client {
    socket: OwnedFd,
}

impl Client {
    /// Connects to the device of that name, which must answer.
    pub fn connect(name: &Name) -> Result<Client> {
        let client = Client::reach(name)?;
        client.greet(name)?;
        Ok(client)
    }

    /// Connects to the device process of that name, be it well or not.
    pub fn reach(name: &Name) -> Result<Client> {
        let folder = Folder::of(name)?;
        let socket = seqpacket_socket()?;
        limit_waits(&socket)?;
        let address = socket_address(&folder)?;
        // SAFETY: the address is valid for its size.
        let connected = unsafe {
            libc::connect(
                socket.as_raw_fd(),
                std::ptr::from_ref(&address).cast(),
                size_of::<libc::sockaddr_un>() as libc::socklen_t,
            )
        };
        if connected != 0 {
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::ENOENT | libc::ECONNREFUSED) => {
                    bail!("no device is called '{name}': start it with `irdma-sim start {name}`")
                }
                _ => return Err(error).with_context(|| format!("cannot reach device '{name}'")),
            }
        }
        Ok(Client { socket })
    }

    fn greet(&self, name: &Name) -> Result<()> {
        // Yama asks a process for permission before another one may read it.
        // SAFETY: no pointers; where there is no Yama it fails and is not needed.
        unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY) };
        match self.call(&greeting(), &[]).with_context(|| format!("device '{name}' does not answer"))? {
            (Reply { result: 0, .. }, _) => Ok(()),
            (Reply { result, .. }, _) if -result == libc::EPERM => Err(anyhow!(
                "the device process may not read other processes (process_vm_readv is refused): \
                 needs kernel.yama.ptrace_scope 0 or 1, and in a container the system call itself"
            )),
            (reply, _) => {
                bail!("device '{name}' refuses us: {}", io::Error::from_raw_os_error(-reply.result))
            }
        }
    }

    /// Runs a control command; its answer.
    pub fn control(&self, command: &str) -> Result<String> {
        if command.len() > MAX_PAYLOAD {
            bail!("a control command has at most {MAX_PAYLOAD} bytes");
        }
        let (reply, text) = self.call(&Request::new(Operation::Control, 0), command.as_bytes())?;
        let mut text = String::from_utf8_lossy(&text).into_owned();
        if reply.result < 0 {
            if text.is_empty() {
                text = io::Error::from_raw_os_error(-reply.result).to_string();
            }
            bail!("'{command}' is refused: {}", text.trim_end());
        }
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        Ok(text)
    }

    /// Process number of the device process.
    pub fn process(&self) -> Result<libc::pid_t> {
        let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: the option's buffer is as long as said.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                std::ptr::from_mut(&mut credentials).cast(),
                &mut length,
            )
        };
        if result != 0 || credentials.pid <= 0 {
            bail!("cannot find the device process: {}", io::Error::last_os_error());
        }
        Ok(credentials.pid)
    }

    /// The connection, to be waited for.
    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Asks for a sign of life, without waiting.
    pub fn ask(&self) -> io::Result<()> {
        let request = greeting();
        let bytes = request.as_bytes();
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: the request is readable for its length.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Takes the answer, once the socket is readable.
    pub fn take_answer(&self) -> io::Result<()> {
        let mut answer = [0_u8; size_of::<Reply>()];
        // SAFETY: the buffer is writable for its length.
        let length = unsafe {
            libc::recv(self.socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), libc::MSG_DONTWAIT)
        };
        if length == answer.len() as isize { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn call(&self, request: &Request, payload: &[u8]) -> Result<(Reply, Vec<u8>)> {
        let message = [request.as_bytes(), payload].concat();
        // SAFETY: the message is readable for its length.
        let sent = unsafe {
            libc::send(self.socket.as_raw_fd(), message.as_ptr().cast(), message.len(), libc::MSG_NOSIGNAL)
        };
        if sent < 0 {
            return Err(io::Error::last_os_error().into());
        }
        let mut answer = vec![0; size_of::<Reply>() + MAX_PAYLOAD];
        // SAFETY: the buffer is writable for its length.
        let length =
            unsafe { libc::recv(self.socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) };
        if length < 0 {
            return Err(io::Error::last_os_error().into());
        }
        answer.truncate(length as usize);
        let reply = Reply::parse(&answer).context("the device process has closed the connection")?;
        Ok((reply, answer.split_off(size_of::<Reply>())))
    }
}

/// The first request, which may be repeated.
fn greeting() -> Request {
    Request { a: PROOF.as_ptr() as u64, ..Request::new(Operation::Hello, 0) }
}

/// A new socket of the kind that device processes listen on.
pub fn seqpacket_socket() -> Result<OwnedFd> {
    // SAFETY: no pointers.
    let descriptor = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error()).context("cannot make a socket");
    }
    // SAFETY: just made, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Address of a device's socket.
pub fn socket_address(folder: &Folder) -> Result<libc::sockaddr_un> {
    use std::os::unix::ffi::OsStrExt;
    let path = folder.socket();
    let bytes = path.as_os_str().as_bytes();
    // SAFETY: all-zero is a valid value of this plain struct.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    if bytes.len() >= address.sun_path.len() {
        bail!("the path of the device's socket is too long: {}", path.display());
    }
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    Ok(address)
}

fn limit_waits(socket: &OwnedFd) -> Result<()> {
    let time = libc::timeval { tv_sec: PATIENCE.as_secs() as libc::time_t, tv_usec: 0 };
    for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        // SAFETY: the option's value is as long as said.
        let result = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                std::ptr::from_ref(&time).cast(),
                size_of::<libc::timeval>() as libc::socklen_t,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error()).context("cannot limit the wait for the device process");
        }
    }
    Ok(())
}
