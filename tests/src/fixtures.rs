//! What most programs start with: connected queue pairs in one process.

use std::sync::Arc;

use crate::context::{Context, Pd};
use crate::memory::Mr;
use crate::qp::{Ah, Connection, Qp, QpOptions};
use crate::sys::*;
use crate::wc::{Wc, assert_completions};
use crate::work::{ReceiveWork, SendWork};

/// Bytes of each region of a fixture.
pub const REGION: usize = 64 * 1024;

/// Two connected RC queue pairs, each with its own context, domain, queues and memory.
pub struct Pair {
    /// The side that most programs send from.
    pub left: Side,
    /// The side that most programs receive on.
    pub right: Side,
}

/// One side of a [`Pair`].
pub struct Side {
    /// Its queue pair.
    pub qp: Qp,
    /// Its memory: left holds a pattern, right zeroes.
    pub mr: Mr,
}

impl Side {
    fn new(options: QpOptions, patterned: bool) -> Side {
        let context = Context::open();
        let pd = Pd::new(&context);
        let mr = if patterned { Mr::patterned(&pd, REGION, 1) } else { Mr::fresh(&pd, REGION) };
        Side { qp: Qp::with_own_cqs(&pd, options), mr }
    }

    /// Its protection domain.
    pub fn pd(&self) -> &Arc<Pd> {
        self.qp.pd()
    }

    /// Its device.
    pub fn context(&self) -> &Arc<Context> {
        self.qp.context()
    }

    /// The GID it sends from.
    pub fn gid(&self) -> ibv_gid {
        self.context().gid(i32::from(self.context().gid_index()))
    }

    /// Waits for completions of its sends and compares them.
    #[track_caller]
    pub fn expect_sent(&self, expected: &[Wc]) {
        assert_completions(&self.qp.send_cq().wait(expected.len()), expected);
    }

    /// Waits for completions of its receives and compares them.
    #[track_caller]
    pub fn expect_received(&self, expected: &[Wc]) {
        assert_completions(&self.qp.recv_cq().wait(expected.len()), expected);
    }

    /// A successful completion of its send queue.
    pub fn sent(&self, wr_id: u64, opcode: u32, byte_len: usize) -> Wc {
        Wc::sent(self.qp.number(), wr_id, opcode, byte_len as u32)
    }

    /// A successful completion of its receive queue.
    pub fn received(&self, wr_id: u64, byte_len: usize) -> Wc {
        Wc::received(self.qp.number(), wr_id, byte_len as u32)
    }

    /// A flushed receive.
    pub fn flushed_receive(&self, wr_id: u64) -> Wc {
        self.received(wr_id, 0).flushed()
    }

    /// Nothing may have completed.
    #[track_caller]
    pub fn expect_nothing(&self) {
        self.qp.send_cq().expect_empty();
        self.qp.recv_cq().expect_empty();
    }
}

impl Pair {
    /// With the default options.
    pub fn new() -> Pair {
        Pair::with(QpOptions::default(), Connection::default())
    }

    /// With those options on both sides.
    pub fn with(options: QpOptions, connection: Connection) -> Pair {
        let pair = Pair::unconnected(options);
        pair.left.qp.connect(connection, pair.right.qp.number(), pair.right.gid());
        pair.right.qp.connect(connection, pair.left.qp.number(), pair.left.gid());
        pair
    }

    /// Both still in RESET.
    pub fn unconnected(options: QpOptions) -> Pair {
        Pair { left: Side::new(options, true), right: Side::new(options, false) }
    }

    /// Sends a little from left to right and back: the connection works.
    #[track_caller]
    pub fn check_alive(&self) {
        for (from, to) in [(&self.left, &self.right), (&self.right, &self.left)] {
            to.qp.receive(ReceiveWork::new(900).sge(to.mr.sge(0, 64)));
            from.qp.post(SendWork::send(901).sge(from.mr.sge(0, 64)));
            from.expect_sent(&[from.sent(901, IBV_WC_SEND, 64)]);
            to.expect_received(&[to.received(900, 64)]);
        }
    }
}

impl Default for Pair {
    fn default() -> Pair {
        Pair::new()
    }
}

/// The Q_Key of a [`Datagrams`] side.
pub const Q_KEY: u32 = 0x1111_1111;

/// Two UD queue pairs with handles of each other.
pub struct Datagrams {
    /// The side that most programs send from.
    pub left: Side,
    /// The side that most programs receive on.
    pub right: Side,
    /// Left's handle of right.
    pub ah: Ah,
}

impl Datagrams {
    /// With the default options.
    pub fn new() -> Datagrams {
        Datagrams::with(QpOptions::datagram())
    }

    /// With those options on both sides.
    pub fn with(options: QpOptions) -> Datagrams {
        let (left, right) = (Side::new(options, true), Side::new(options, false));
        left.qp.start_datagrams(Q_KEY);
        right.qp.start_datagrams(Q_KEY);
        let ah = Ah::new(left.pd(), right.gid());
        Datagrams { left, right, ah }
    }

    /// A send from left to right.
    pub fn send(&self, wr_id: u64) -> SendWork {
        SendWork::send(wr_id).to(self.ah.raw(), self.right.qp.number(), Q_KEY)
    }

    /// A datagram from left received by right.
    pub fn received(&self, wr_id: u64, payload: usize) -> Wc {
        Wc::datagram(self.right.qp.number(), wr_id, payload as u32, self.left.qp.number())
    }
}

impl Default for Datagrams {
    fn default() -> Datagrams {
        Datagrams::new()
    }
}
