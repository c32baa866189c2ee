//! Queue pairs: creation, the way to ready-to-send, posting.

use std::sync::Arc;

use crate::context::{Context, PORT, Pd, check_destroyed};
use crate::cq::Cq;
use crate::device::Device;
use crate::srq::Srq;
use crate::sys::*;
use crate::work::{self, ReceiveWork, Refused, SendWork};
use crate::{Errno, clear_errno, last_errno};

/// What a queue pair is created with.
#[derive(Clone, Copy, Debug)]
pub struct QpOptions {
    /// `IBV_QPT_*`.
    pub qp_type: u32,
    /// Send requests outstanding.
    pub max_send_wr: u32,
    /// Receive requests outstanding.
    pub max_recv_wr: u32,
    /// Elements of a send.
    pub max_send_sge: u32,
    /// Elements of a receive.
    pub max_recv_sge: u32,
    /// Bytes inline.
    pub max_inline_data: u32,
    /// Every send is signaled.
    pub all_signaled: bool,
}

impl Default for QpOptions {
    fn default() -> QpOptions {
        let device = Device::present();
        QpOptions {
            qp_type: IBV_QPT_RC,
            max_send_wr: 64,
            max_recv_wr: 64,
            max_send_sge: device.fragments.min(4),
            max_recv_sge: device.fragments.min(4),
            max_inline_data: device.inline.min(64),
            all_signaled: false,
        }
    }
}

impl QpOptions {
    /// As many elements as the device has, and as much inline data as leaves a request whole on each.
    pub fn widest() -> QpOptions {
        let device = Device::present();
        QpOptions {
            max_send_sge: device.fragments.min(13),
            max_recv_sge: device.fragments.min(13),
            max_inline_data: device.inline.min(101),
            ..QpOptions::default()
        }
    }

    /// The defaults of a UD queue pair.
    pub fn datagram() -> QpOptions {
        Device::present().require_roce("datagrams");
        QpOptions { qp_type: IBV_QPT_UD, ..QpOptions::default() }
    }

    /// As the library wants it.
    pub fn attributes(&self, send_cq: *mut ibv_cq, recv_cq: *mut ibv_cq) -> ibv_qp_init_attr {
        ibv_qp_init_attr {
            send_cq,
            recv_cq,
            cap: ibv_qp_cap {
                max_send_wr: self.max_send_wr,
                max_recv_wr: self.max_recv_wr,
                max_send_sge: self.max_send_sge,
                max_recv_sge: self.max_recv_sge,
                max_inline_data: self.max_inline_data,
            },
            qp_type: self.qp_type,
            sq_sig_all: i32::from(self.all_signaled),
            ..ibv_qp_init_attr::default()
        }
    }
}

/// How two RC queue pairs are connected.
#[derive(Clone, Copy, Debug)]
pub struct Connection {
    /// `IBV_ACCESS_*` the peer has.
    pub access: u32,
    /// `IBV_MTU_*`.
    pub path_mtu: u32,
    /// Local ACK timeout, as encoded: 4.096 us << timeout.
    pub timeout: u8,
    /// Tries after a time-out.
    pub retry_count: u8,
    /// Tries after receiver not ready; 7: for ever.
    pub rnr_retry: u8,
    /// RNR NAK timer, as encoded (1: 10 us, 12: 640 us, 14: 1 ms ...).
    pub min_rnr_timer: u8,
    /// Reads outstanding, as requester and as responder.
    pub reads: u8,
}

impl Default for Connection {
    fn default() -> Connection {
        Connection {
            access: IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
            path_mtu: IBV_MTU_1024,
            timeout: 10,
            retry_count: 3,
            rnr_retry: 7,
            min_rnr_timer: 12,
            reads: 8,
        }
    }
}

/// A queue pair.
pub struct Qp {
    raw: *mut ibv_qp,
    pd: Arc<Pd>,
    send_cq: Arc<Cq>,
    recv_cq: Arc<Cq>,
    _srq: Option<Arc<Srq>>,
    /// Caps as create_qp returned them.
    pub caps: ibv_qp_cap,
}

// SAFETY: libibverbs objects may be used from any thread.
unsafe impl Send for Qp {}
// SAFETY: as above.
unsafe impl Sync for Qp {}

impl Qp {
    /// Creates one.
    pub fn try_new(
        pd: &Arc<Pd>,
        send_cq: &Arc<Cq>,
        recv_cq: &Arc<Cq>,
        options: QpOptions,
    ) -> Result<Qp, Errno> {
        Qp::create(pd, send_cq, recv_cq, None, options)
    }

    /// Creates one that takes its receives from `srq`.
    pub fn on_srq(
        pd: &Arc<Pd>,
        send_cq: &Arc<Cq>,
        recv_cq: &Arc<Cq>,
        srq: &Arc<Srq>,
        options: QpOptions,
    ) -> Qp {
        Qp::create(pd, send_cq, recv_cq, Some(srq), options)
            .unwrap_or_else(|errno| panic!("create_qp({options:?}) on an SRQ: {errno}"))
    }

    fn create(
        pd: &Arc<Pd>,
        send_cq: &Arc<Cq>,
        recv_cq: &Arc<Cq>,
        srq: Option<&Arc<Srq>>,
        options: QpOptions,
    ) -> Result<Qp, Errno> {
        let mut attributes = options.attributes(send_cq.raw(), recv_cq.raw());
        attributes.srq = srq.map_or(std::ptr::null_mut(), |srq| srq.raw());
        clear_errno();
        // SAFETY: PD and CQs are alive, `attributes` is valid for the call.
        let raw = unsafe { ibv_create_qp(pd.raw(), &mut attributes) };
        if raw.is_null() {
            return Err(last_errno());
        }
        Ok(Qp {
            raw,
            pd: Arc::clone(pd),
            send_cq: Arc::clone(send_cq),
            recv_cq: Arc::clone(recv_cq),
            _srq: srq.cloned(),
            caps: attributes.cap,
        })
    }

    /// Takes over a queue pair made by the library.
    pub fn own(raw: *mut ibv_qp, pd: &Arc<Pd>, [send_cq, recv_cq]: [&Arc<Cq>; 2], caps: ibv_qp_cap) -> Qp {
        let (send_cq, recv_cq) = (Arc::clone(send_cq), Arc::clone(recv_cq));
        Qp { raw, pd: Arc::clone(pd), send_cq, recv_cq, _srq: None, caps }
    }

    /// Creates one, which must succeed.
    pub fn new(pd: &Arc<Pd>, send_cq: &Arc<Cq>, recv_cq: &Arc<Cq>, options: QpOptions) -> Qp {
        Qp::try_new(pd, send_cq, recv_cq, options)
            .unwrap_or_else(|errno| panic!("create_qp({options:?}): {errno}"))
    }

    /// Creates one with a CQ for each queue.
    pub fn with_own_cqs(pd: &Arc<Pd>, options: QpOptions) -> Qp {
        // A queue takes more requests than asked for: its ring is rounded up, and small ones need little room.
        let entries = |requests: u32| i32::try_from(requests * 4 + 1024).expect("a sane queue size");
        let send_cq = Cq::new(pd.context(), entries(options.max_send_wr));
        let recv_cq = Cq::new(pd.context(), entries(options.max_recv_wr));
        Qp::new(pd, &send_cq, &recv_cq, options)
    }

    /// The library's object.
    pub fn raw(&self) -> *mut ibv_qp {
        self.raw
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        // SAFETY: the queue pair is alive.
        unsafe { (*self.raw).qp_num }
    }

    /// Its protection domain.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// The device it belongs to.
    pub fn context(&self) -> &Arc<Context> {
        self.pd.context()
    }

    /// Where its sends complete.
    pub fn send_cq(&self) -> &Arc<Cq> {
        &self.send_cq
    }

    /// Where its receives complete.
    pub fn recv_cq(&self) -> &Arc<Cq> {
        &self.recv_cq
    }

    /// Changes attributes; 0 or an error number.
    pub fn modify(&self, attributes: &mut ibv_qp_attr, mask: u32) -> Errno {
        // SAFETY: the queue pair is alive, `attributes` valid for the call.
        unsafe { ibv_modify_qp(self.raw, attributes, mask as i32) }
    }

    /// Changes the state alone; 0 or an error number.
    pub fn move_to(&self, state: u32) -> Errno {
        let mut attributes = ibv_qp_attr { qp_state: state, ..ibv_qp_attr::default() };
        self.modify(&mut attributes, IBV_QP_STATE)
    }

    /// Moves it to the error state.
    pub fn fail(&self) {
        assert_eq!(self.move_to(IBV_QPS_ERR), 0, "modify to ERR");
    }

    /// RESET to INIT of an RC queue pair.
    pub fn initialize(&self, connection: Connection) {
        let mut attributes = ibv_qp_attr {
            qp_state: IBV_QPS_INIT,
            pkey_index: 0,
            port_num: PORT,
            qp_access_flags: connection.access,
            ..ibv_qp_attr::default()
        };
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        assert_eq!(self.modify(&mut attributes, mask), 0, "modify to INIT");
    }

    /// INIT to RTR: receives from queue pair `peer` at `gid`.
    pub fn ready_to_receive(&self, connection: Connection, peer: u32, gid: ibv_gid) {
        let mut attributes = ibv_qp_attr {
            qp_state: IBV_QPS_RTR,
            path_mtu: connection.path_mtu,
            dest_qp_num: peer,
            rq_psn: 0x1234,
            max_dest_rd_atomic: connection.reads,
            min_rnr_timer: connection.min_rnr_timer,
            ah_attr: work::ah_attributes(self.context(), gid),
            ..ibv_qp_attr::default()
        };
        let mask = IBV_QP_STATE
            | IBV_QP_AV
            | IBV_QP_PATH_MTU
            | IBV_QP_DEST_QPN
            | IBV_QP_RQ_PSN
            | IBV_QP_MAX_DEST_RD_ATOMIC
            | IBV_QP_MIN_RNR_TIMER;
        assert_eq!(self.modify(&mut attributes, mask), 0, "modify to RTR");
    }

    /// RTR to RTS.
    pub fn ready_to_send(&self, connection: Connection) {
        let mut attributes = ibv_qp_attr {
            qp_state: IBV_QPS_RTS,
            sq_psn: 0x1234,
            timeout: connection.timeout,
            retry_cnt: connection.retry_count,
            rnr_retry: connection.rnr_retry,
            max_rd_atomic: connection.reads,
            ..ibv_qp_attr::default()
        };
        let mask = IBV_QP_STATE
            | IBV_QP_SQ_PSN
            | IBV_QP_TIMEOUT
            | IBV_QP_RETRY_CNT
            | IBV_QP_RNR_RETRY
            | IBV_QP_MAX_QP_RD_ATOMIC;
        assert_eq!(self.modify(&mut attributes, mask), 0, "modify to RTS");
    }

    /// All the way, connected to queue pair `peer` at `gid`.
    pub fn connect(&self, connection: Connection, peer: u32, gid: ibv_gid) {
        self.initialize(connection);
        self.ready_to_receive(connection, peer, gid);
        self.ready_to_send(connection);
    }

    /// All the way for a UD queue pair with that Q_Key.
    pub fn start_datagrams(&self, q_key: u32) {
        let mut attributes = ibv_qp_attr {
            qp_state: IBV_QPS_INIT,
            pkey_index: 0,
            port_num: PORT,
            qkey: q_key,
            ..ibv_qp_attr::default()
        };
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
        assert_eq!(self.modify(&mut attributes, mask), 0, "modify to INIT");
        assert_eq!(self.move_to(IBV_QPS_RTR), 0, "modify to RTR");
        attributes.qp_state = IBV_QPS_RTS;
        attributes.sq_psn = 0;
        assert_eq!(self.modify(&mut attributes, IBV_QP_STATE | IBV_QP_SQ_PSN), 0, "modify to RTS");
    }

    /// Attributes as the device has them.
    pub fn query(&self) -> (ibv_qp_attr, ibv_qp_init_attr) {
        let mut attributes = ibv_qp_attr::default();
        let mut initial = ibv_qp_init_attr::default();
        let mask = IBV_QP_STATE | IBV_QP_CAP | IBV_QP_DEST_QPN | IBV_QP_PATH_MTU | IBV_QP_ACCESS_FLAGS;
        // SAFETY: the queue pair is alive, the results valid for the call.
        let result = unsafe { ibv_query_qp(self.raw, &mut attributes, mask as i32, &mut initial) };
        assert_eq!(result, 0, "query_qp");
        (attributes, initial)
    }

    /// State as the device has it.
    pub fn state(&self) -> u32 {
        self.query().0.qp_state
    }

    /// Posts a list of sends.
    pub fn try_post(&self, sends: &mut [SendWork]) -> Result<(), Refused> {
        work::post_sends(self.raw, sends)
    }

    /// Posts a list of sends, all of which must be accepted.
    #[track_caller]
    pub fn post_list(&self, sends: &mut [SendWork]) {
        assert_eq!(self.try_post(sends), Ok(()), "post_send");
    }

    /// Posts one send, which must be accepted.
    #[track_caller]
    pub fn post(&self, send: SendWork) {
        self.post_list(&mut [send]);
    }

    /// Posts a list of receives.
    pub fn try_receive(&self, receives: &mut [ReceiveWork]) -> Result<(), Refused> {
        work::post_receives(self.raw, receives)
    }

    /// Posts a list of receives, all of which must be accepted.
    #[track_caller]
    pub fn receive_list(&self, receives: &mut [ReceiveWork]) {
        assert_eq!(self.try_receive(receives), Ok(()), "post_recv");
    }

    /// Posts one receive, which must be accepted.
    #[track_caller]
    pub fn receive(&self, receive: ReceiveWork) {
        self.receive_list(&mut [receive]);
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        // SAFETY: this owner is the only one.
        let result = unsafe { ibv_destroy_qp(self.raw) };
        check_destroyed("destroy_qp", result);
    }
}

/// An address handle.
pub struct Ah {
    raw: *mut ibv_ah,
    _pd: Arc<Pd>,
}

impl Ah {
    /// Creates one.
    pub fn try_new(pd: &Arc<Pd>, mut attributes: ibv_ah_attr) -> Result<Ah, Errno> {
        clear_errno();
        // SAFETY: the PD is alive, `attributes` valid for the call.
        let raw = unsafe { ibv_create_ah(pd.raw(), &mut attributes) };
        if raw.is_null() { Err(last_errno()) } else { Ok(Ah { raw, _pd: Arc::clone(pd) }) }
    }

    /// Creates one to `gid`, which must succeed.
    pub fn new(pd: &Arc<Pd>, gid: ibv_gid) -> Ah {
        Ah::try_new(pd, work::ah_attributes(pd.context(), gid))
            .unwrap_or_else(|errno| panic!("create_ah: {errno}"))
    }

    /// The library's object.
    pub fn raw(&self) -> *mut ibv_ah {
        self.raw
    }
}

impl Drop for Ah {
    fn drop(&mut self) {
        // SAFETY: this owner is the only one.
        let result = unsafe { ibv_destroy_ah(self.raw) };
        check_destroyed("destroy_ah", result);
    }
}
