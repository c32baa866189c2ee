//! Two sides in one process, connected both ways, and the waiting that lets both go on.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::side::{Request, Side};
use crate::ucp;

/// Longest time one operation may take.
const LIMIT: Duration = Duration::from_secs(30);

/// Both sides. What `near` starts ends in the memory of `far`, or begins there.
pub struct Pair {
    pub near: Side,
    pub far: Side,
    /// From near to far.
    pub out: ucp::ucp_ep_h,
    /// From far to near.
    pub back: ucp::ucp_ep_h,
}

impl Pair {
    /// Opens and connects both.
    pub fn open() -> Result<Pair> {
        let (near, far) = (Side::open()?, Side::open()?);
        let (out, back) = (near.connect(&far)?, far.connect(&near)?);
        Ok(Pair { near, far, out, back })
    }

    /// Lets both sides go on until `is_done`.
    pub fn wait_until(&self, what: &str, mut is_done: impl FnMut() -> Result<bool>) -> Result<()> {
        let start = Instant::now();
        while !is_done()? {
            self.near.progress();
            self.far.progress();
            ensure!(start.elapsed() < LIMIT, "{what} does not end");
        }
        Ok(())
    }

    /// Waits for `request`.
    pub fn wait(&self, what: &str, mut request: Request) -> Result<()> {
        self.wait_until(what, || request.is_done())
    }

    /// Waits until what `near` wrote is in the memory of `far`.
    pub fn flush(&self) -> Result<()> {
        let parameters = ucp::ucp_request_param_t::default();
        // SAFETY: the endpoint is open; no field of the parameters is said to be valid.
        let pointer = unsafe { ucp::ucp_ep_flush_nbx(self.out, &raw const parameters) };
        self.wait("flush", Request::of(pointer, "ucp_ep_flush_nbx"))
    }
}
