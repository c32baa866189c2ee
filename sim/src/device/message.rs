//! Requests in, replies out, with at most one descriptor; never waits.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use irdma_sim_protocol::{MAX_PAYLOAD, Reply, Request};

/// Room for a request with its payload.
pub type Buffer = [u8; size_of::<Request>() + MAX_PAYLOAD];

/// What came in.
#[derive(Debug)]
pub enum Received<'a> {
    /// A request and its payload.
    Request(Request, &'a [u8]),
    /// Nothing there yet.
    Nothing,
    /// The other side has closed, or does not speak the protocol.
    End,
}

/// Takes a request off a connection.
pub fn receive<'a>(connection: BorrowedFd, buffer: &'a mut Buffer) -> Received<'a> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    let length = buffer.len();
    // SAFETY: `buffer` has room for that many bytes.
    let received = unsafe { libc::recv(connection.as_raw_fd(), buffer.as_mut_ptr().cast(), length, flags) };
    let Ok(received) = usize::try_from(received) else {
        let error = io::Error::last_os_error();
        let nothing = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
        return if nothing { Received::Nothing } else { Received::End };
    };
    let Some(bytes) = buffer.get(..received) else { return Received::End };
    match Request::parse(bytes) {
        Some(request) => Received::Request(request, &bytes[size_of::<Request>()..]),
        None => Received::End,
    }
}

/// Sends a reply; an error if the other side has gone or does not read.
pub fn send(
    connection: BorrowedFd,
    reply: &Reply,
    payload: &[u8],
    descriptor: Option<&OwnedFd>,
) -> io::Result<()> {
    let payload = &payload[..payload.len().min(MAX_PAYLOAD)];
    let head = reply.as_bytes();
    let mut parts = [
        libc::iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: head.len() },
        libc::iovec { iov_base: payload.as_ptr().cast_mut().cast(), iov_len: payload.len() },
    ];
    // Words, so that the header in it is aligned.
    let mut control = [0u64; 4];
    // SAFETY: all-zero is a valid value of this plain struct.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = parts.len();
    if let Some(descriptor) = descriptor {
        let number: RawFd = descriptor.as_raw_fd();
        message.msg_control = control.as_mut_ptr().cast();
        // SAFETY: plain arithmetic on sizes; the result is at most the 32 bytes of `control`.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<RawFd>() as u32) } as usize;
        // SAFETY: the control buffer is large enough for one header with one descriptor, and aligned.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize;
            libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(number);
        }
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the message describes memory that lives until the call returns.
    if unsafe { libc::sendmsg(connection.as_raw_fd(), &message, flags) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
