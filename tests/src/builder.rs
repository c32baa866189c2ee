//! Queue pairs with work request builders (`ibv_wr_*`).

use std::ops::Deref;
use std::sync::Arc;

use crate::context::Pd;
use crate::cq::Cq;
use crate::device::Device;
use crate::qp::{Qp, QpOptions};
use crate::sys::*;
use crate::work::SendWork;
use crate::{Errno, clear_errno, last_errno};

/// Every operation that a connected queue pair has on RoCE, of any generation.
pub const CONNECTED: u32 = IBV_QP_EX_WITH_RDMA_WRITE
    | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | IBV_QP_EX_WITH_SEND
    | IBV_QP_EX_WITH_SEND_WITH_IMM
    | IBV_QP_EX_WITH_SEND_WITH_INV
    | IBV_QP_EX_WITH_RDMA_READ
    | IBV_QP_EX_WITH_LOCAL_INV;

/// Those of [`CONNECTED`] that it has on this device: iWARP sends no immediates, and the legacy kernel does not
/// say that writes may carry them.
pub fn connected() -> u32 {
    let device = Device::present();
    let sends = if device.roce { CONNECTED } else { CONNECTED & !IBV_QP_EX_WITH_SEND_WITH_IMM };
    if device.legacy == 0 { sends } else { sends & !IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM }
}

/// Every operation of a datagram queue pair.
pub const DATAGRAMS: u32 = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;

/// A queue pair with builders.
pub struct QpEx {
    qp: Qp,
    raw: *mut ibv_qp_ex,
}

// SAFETY: libibverbs objects may be used from any thread.
unsafe impl Send for QpEx {}
// SAFETY: as above.
unsafe impl Sync for QpEx {}

impl Deref for QpEx {
    type Target = Qp;

    fn deref(&self) -> &Qp {
        &self.qp
    }
}

/// In which way a work request is built.
#[derive(Clone, Copy, Default)]
pub struct Manner {
    /// By the setters that take lists, also for one piece.
    pub lists: bool,
    /// The destination before the data.
    pub destination_first: bool,
}

/// Creation attributes with those operations.
pub fn attributes(
    pd: &Arc<Pd>,
    send_cq: &Arc<Cq>,
    recv_cq: &Arc<Cq>,
    options: QpOptions,
    operations: u64,
) -> ibv_qp_init_attr_ex {
    let plain = options.attributes(send_cq.raw(), recv_cq.raw());
    ibv_qp_init_attr_ex {
        send_cq: plain.send_cq,
        recv_cq: plain.recv_cq,
        cap: plain.cap,
        qp_type: plain.qp_type,
        sq_sig_all: plain.sq_sig_all,
        comp_mask: IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        pd: pd.raw(),
        send_ops_flags: operations,
        ..ibv_qp_init_attr_ex::default()
    }
}

impl QpEx {
    /// Creates one.
    pub fn try_new(
        pd: &Arc<Pd>,
        send_cq: &Arc<Cq>,
        recv_cq: &Arc<Cq>,
        options: QpOptions,
        operations: u64,
    ) -> Result<QpEx, Errno> {
        let mut attributes = attributes(pd, send_cq, recv_cq, options, operations);
        clear_errno();
        // SAFETY: the context is alive, the attributes valid for the call.
        let raw = unsafe { ibv_create_qp_ex(pd.context().raw(), &mut attributes) };
        if raw.is_null() {
            return Err(last_errno());
        }
        let qp = Qp::own(raw, pd, [send_cq, recv_cq], attributes.cap);
        // SAFETY: the queue pair is alive.
        let raw = unsafe { ibv_qp_to_qp_ex(raw) };
        assert!(!raw.is_null(), "a queue pair created with send_ops_flags has builders");
        Ok(QpEx { qp, raw })
    }

    /// Creates one with its own queues, which must succeed.
    pub fn new(pd: &Arc<Pd>, options: QpOptions, operations: u32) -> QpEx {
        let cq = || Cq::new(pd.context(), 2048);
        QpEx::try_new(pd, &cq(), &cq(), options, operations.into())
            .unwrap_or_else(|errno| panic!("create_qp_ex: errno {errno}"))
    }

    /// The library's object.
    pub fn raw_ex(&self) -> *mut ibv_qp_ex {
        self.raw
    }

    /// Begins a batch.
    pub fn start(&self) {
        // SAFETY: the queue pair is alive.
        unsafe { ibv_wr_start(self.raw) }
    }

    /// Posts the batch; 0 or an error number.
    pub fn complete(&self) -> Errno {
        // SAFETY: the queue pair is alive.
        unsafe { ibv_wr_complete(self.raw) }
    }

    /// Drops the batch.
    pub fn abort(&self) {
        // SAFETY: the queue pair is alive.
        unsafe { ibv_wr_abort(self.raw) }
    }

    /// Calls the builder of a work request alone.
    pub fn begin(&self, work: &SendWork) {
        let raw = &work.raw;
        // SAFETY: the queue pair is alive; the members of the unions are those of the opcode.
        unsafe {
            (*self.raw).wr_id = raw.wr_id;
            (*self.raw).wr_flags = raw.send_flags;
            let (key, address) = (raw.wr.rdma.rkey, raw.wr.rdma.remote_addr);
            let word = raw.__bindgen_anon_1.imm_data;
            match raw.opcode {
                IBV_WR_SEND => ibv_wr_send(self.raw),
                IBV_WR_SEND_WITH_IMM => ibv_wr_send_imm(self.raw, word),
                IBV_WR_SEND_WITH_INV => ibv_wr_send_inv(self.raw, word),
                IBV_WR_RDMA_WRITE => ibv_wr_rdma_write(self.raw, key, address),
                IBV_WR_RDMA_WRITE_WITH_IMM => ibv_wr_rdma_write_imm(self.raw, key, address, word),
                IBV_WR_RDMA_READ => ibv_wr_rdma_read(self.raw, key, address),
                IBV_WR_LOCAL_INV => ibv_wr_local_inv(self.raw, word),
                IBV_WR_ATOMIC_FETCH_AND_ADD => {
                    let atomic = raw.wr.atomic;
                    ibv_wr_atomic_fetch_add(self.raw, atomic.rkey, atomic.remote_addr, atomic.compare_add);
                }
                IBV_WR_ATOMIC_CMP_AND_SWP => {
                    let atomic = raw.wr.atomic;
                    let (compare, swap) = (atomic.compare_add, atomic.swap);
                    ibv_wr_atomic_cmp_swp(self.raw, atomic.rkey, atomic.remote_addr, compare, swap);
                }
                other => panic!("opcode {other} has no builder here"),
            }
        }
    }

    /// Calls the setter of the data.
    pub fn set_data(&self, work: &SendWork, lists: bool) {
        let elements = work.elements();
        // SAFETY: the queue pair is alive, the lists are valid for the call.
        unsafe {
            match (work.raw.send_flags & IBV_SEND_INLINE != 0, elements) {
                (false, [element]) if !lists => {
                    ibv_wr_set_sge(self.raw, element.lkey, element.addr, element.length);
                }
                (false, _) => ibv_wr_set_sge_list(self.raw, elements.len(), elements.as_ptr()),
                (true, [element]) if !lists => {
                    ibv_wr_set_inline_data(self.raw, element.addr as *mut _, element.length as usize);
                }
                (true, _) => {
                    let pieces: Vec<_> = elements
                        .iter()
                        .map(|element| ibv_data_buf {
                            addr: element.addr as *mut _,
                            length: element.length as usize,
                        })
                        .collect();
                    ibv_wr_set_inline_data_list(self.raw, pieces.len(), pieces.as_ptr());
                }
            }
        }
    }

    /// Calls the setter of a datagram's destination.
    pub fn set_destination(&self, work: &SendWork) {
        // SAFETY: the queue pair is alive, the handle too, or NULL.
        unsafe {
            let to = work.raw.wr.ud;
            ibv_wr_set_ud_addr(self.raw, to.ah, to.remote_qpn, to.remote_qkey);
        }
    }

    /// Adds a work request to the batch.
    pub fn add(&self, work: &SendWork, manner: Manner) {
        // SAFETY: the queue pair is alive.
        let is_datagram = unsafe { (*self.qp.raw()).qp_type } == IBV_QPT_UD;
        self.begin(work);
        if is_datagram && manner.destination_first {
            self.set_destination(work);
        }
        if work.raw.opcode != IBV_WR_LOCAL_INV {
            self.set_data(work, manner.lists);
        }
        if is_datagram && !manner.destination_first {
            self.set_destination(work);
        }
    }

    /// Posts a batch; 0 or an error number.
    pub fn try_build(&self, works: &[SendWork], manner: Manner) -> Errno {
        self.start();
        for work in works {
            self.add(work, manner);
        }
        self.complete()
    }
}
