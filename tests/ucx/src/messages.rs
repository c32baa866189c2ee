//! Messages with tags, and active messages.

use std::ffi::c_void;
use std::ptr;

use anyhow::{Result, ensure};

use crate::pair::Pair;
use crate::pattern;
use crate::side::{Request, Side, check};
use crate::ucp;

/// Of the active messages.
const NUMBER: u32 = 7;

/// `count` messages of `length` bytes to the far side and as many back, all under way at once, each
/// received by its tag in an order of its own.
pub fn tagged(pair: &Pair, length: usize, count: u64) -> Result<()> {
    let parameters = ucp::ucp_request_param_t::default();
    for (endpoint, receiver, way) in [(pair.out, &pair.far, 0), (pair.back, &pair.near, 1 << 32)] {
        let seed = |index: u64| way | length as u64 | index << 40;
        let sent: Vec<Vec<u8>> = (0..count).map(|index| pattern::bytes(seed(index), length)).collect();
        let mut received = vec![vec![0; length]; sent.len()];
        let mut requests = Vec::new();
        for (index, buffer) in received.iter_mut().enumerate().rev() {
            // SAFETY: the buffer stays where it is until its request has ended.
            let pointer = unsafe {
                let (to, tag) = (buffer.as_mut_ptr().cast(), index as u64);
                ucp::ucp_tag_recv_nbx(receiver.worker(), to, length, tag, u64::MAX, &raw const parameters)
            };
            requests.push(Request::of(pointer, "ucp_tag_recv_nbx"));
        }
        for (index, buffer) in sent.iter().enumerate() {
            // SAFETY: as above.
            let pointer = unsafe {
                let (from, tag) = (buffer.as_ptr().cast(), index as u64);
                ucp::ucp_tag_send_nbx(endpoint, from, length, tag, &raw const parameters)
            };
            requests.push(Request::of(pointer, "ucp_tag_send_nbx"));
        }
        for request in requests {
            pair.wait("a tagged message", request)?;
        }
        for (found, expected) in received.iter().zip(&sent) {
            pattern::compare("a tagged message", found, expected)?;
        }
    }
    Ok(())
}

/// What the handler of active messages saw.
struct Inbox {
    worker: ucp::ucp_worker_h,
    expected: Vec<u8>,
    /// Where a message is fetched to whose data is still with the sender.
    fetched: Vec<u8>,
    fetching: Option<Request>,
    result: Option<Result<()>>,
}

/// One active message with a header of `header` bytes and `length` bytes of data.
pub fn active(pair: &Pair, header: usize, length: usize) -> Result<()> {
    let head = pattern::bytes(3, header);
    let data = pattern::bytes(length as u64, length);
    let expected = [head.clone(), data.clone()].concat();
    let mut inbox =
        Inbox { worker: pair.far.worker(), expected, fetched: vec![0; length], fetching: None, result: None };
    let inbox_pointer = &raw mut inbox;
    listen(&pair.far, Some(receive), inbox_pointer.cast())?;
    let parameters = ucp::ucp_request_param_t::default();
    // SAFETY: header and data stay until the request has ended; the handler knows the inbox, which
    // stays until the handler is taken away.
    let pointer = unsafe {
        let (from, to) = (data.as_ptr().cast(), head.as_ptr().cast());
        ucp::ucp_am_send_nbx(pair.out, NUMBER, to, header, from, length, &raw const parameters)
    };
    let sent = pair.wait("an active message", Request::of(pointer, "ucp_am_send_nbx"));
    let arrived = pair.wait_until("an active message", || {
        // SAFETY: the handler runs in progress only, which is not now.
        let inbox = unsafe { &mut *inbox_pointer };
        if let Some(fetching) = &mut inbox.fetching
            && fetching.is_done()?
        {
            inbox.fetching = None;
            let expected = &inbox.expected[header..];
            inbox.result = Some(pattern::compare("fetched active data", &inbox.fetched, expected));
        }
        Ok(inbox.result.is_some())
    });
    listen(&pair.far, None, ptr::null_mut())?;
    sent.and(arrived)?;
    inbox.result.unwrap_or_else(|| unreachable!("waited for"))
}

/// Has `handler` called with `argument` for each message to `side`.
fn listen(side: &Side, handler: ucp::ucp_am_recv_callback_t, argument: *mut c_void) -> Result<()> {
    let fields = ucp::UCP_AM_HANDLER_PARAM_FIELD_ID
        | ucp::UCP_AM_HANDLER_PARAM_FIELD_CB
        | ucp::UCP_AM_HANDLER_PARAM_FIELD_ARG;
    let parameters = ucp::ucp_am_handler_param_t {
        field_mask: u64::from(fields),
        id: NUMBER,
        cb: handler,
        arg: argument,
        ..Default::default()
    };
    // SAFETY: the parameters say which fields are valid; the handler fits its argument.
    check(
        unsafe { ucp::ucp_worker_set_am_recv_handler(side.worker(), &raw const parameters) },
        "ucp_worker_set_am_recv_handler",
    )
}

/// Handles a message: looks at it, or begins to fetch it.
///
/// # Safety
/// As UCX calls it, with an [`Inbox`] that nobody else looks at now.
unsafe extern "C" fn receive(
    argument: *mut c_void,
    header: *const c_void,
    header_length: usize,
    data: *mut c_void,
    length: usize,
    parameters: *const ucp::ucp_am_recv_param_t,
) -> ucp::ucs_status_t {
    // SAFETY: what `listen` was given.
    let inbox = unsafe { &mut *argument.cast::<Inbox>() };
    let bytes = |start: *const c_void, length: usize| match length {
        0 => &[][..],
        // SAFETY: UCX gives as many bytes there.
        _ => unsafe { std::slice::from_raw_parts(start.cast::<u8>(), length) },
    };
    let expected = inbox.expected.get(..header_length).unwrap_or_default();
    if let Err(error) = pattern::compare("an active header", bytes(header, header_length), expected) {
        inbox.result = Some(Err(error));
        return ucp::UCS_OK;
    }
    // SAFETY: UCX gives them.
    let attributes = unsafe { (*parameters).recv_attr };
    if attributes & u64::from(ucp::UCP_AM_RECV_ATTR_FLAG_RNDV) == 0 {
        let expected = &inbox.expected[header_length..];
        inbox.result = Some(pattern::compare("active data", bytes(data, length), expected));
        return ucp::UCS_OK;
    }
    let request = ucp::ucp_request_param_t::default();
    if length != inbox.fetched.len() {
        inbox.result = Some((|| {
            ensure!(false, "{length} bytes are offered");
            Ok(())
        })());
        return ucp::UCS_OK;
    }
    // SAFETY: the buffer has the length and stays until the request has ended.
    let pointer = unsafe {
        let to = inbox.fetched.as_mut_ptr().cast();
        ucp::ucp_am_recv_data_nbx(inbox.worker, data, to, length, &raw const request)
    };
    inbox.fetching = Some(Request::of(pointer, "ucp_am_recv_data_nbx"));
    ucp::UCS_INPROGRESS
}
