//! A queue pair with work request builders that is connected to itself, and what to give it to do.

use crate::builder::{Manner, QpEx, connected};
use crate::context::{Context, Pd};
use crate::device::Device;
use crate::fixtures::Q_KEY;
use crate::memory::Mr;
use crate::qp::{Connection, Qp, QpOptions};
use crate::sys::*;
use crate::wc::{Wc, assert_completions};
use crate::work::SendWork;

/// A queue pair connected to itself.
pub struct Loop {
    /// The queue pair.
    pub qp: QpEx,
    /// Memory, with a pattern.
    pub mr: Mr,
}

/// As wide as the device has it, with few requests.
pub fn roomy() -> QpOptions {
    QpOptions { max_send_wr: 40, ..QpOptions::widest() }
}

/// Makes a queue pair its own peer.
pub fn connect_to_itself(qp: &Qp) {
    let gid = qp.context().gid(qp.context().gid_index().into());
    if qp.query().1.qp_type == IBV_QPT_UD {
        qp.start_datagrams(Q_KEY);
    } else {
        qp.connect(Connection::default(), qp.number(), gid);
    }
}

impl Loop {
    /// With those options and operations.
    pub fn new(options: QpOptions, operations: u32) -> Loop {
        let pd = Pd::new(&Context::open());
        let qp = QpEx::new(&pd, options, operations);
        connect_to_itself(&qp);
        Loop { qp, mr: Mr::patterned(&pd, 65536, 1) }
    }

    /// With everything that connected ones have on every device of this kind.
    pub fn connected() -> Loop {
        Loop::new(roomy(), connected())
    }

    /// A write of eight bytes.
    pub fn write(&self, wr_id: u64) -> SendWork {
        SendWork::write(wr_id, self.mr.address() + 4096, self.mr.rkey()).sge(self.mr.sge(0, 8))
    }

    /// Its completion.
    pub fn written(&self, wr_id: u64) -> Wc {
        Wc::sent(self.qp.number(), wr_id, IBV_WC_RDMA_WRITE, 8)
    }

    /// The queue pair works, and nothing was left by what came before.
    #[track_caller]
    pub fn check_alive(&self) {
        self.qp.send_cq().expect_empty();
        self.qp.post(self.write(900));
        assert_eq!(self.qp.try_build(&[self.write(901)], Manner::default()), 0);
        assert_completions(&self.qp.send_cq().wait(2), &[self.written(900), self.written(901)]);
        self.qp.send_cq().expect_empty();
    }
}

/// Every operation in many shapes, as far as the device has them.
pub fn works(mr: &Mr, round: usize) -> Vec<SendWork> {
    let device = Device::present();
    let (most, most_read) = (device.fragments as usize, device.read_fragments as usize);
    let (address, rkey) = (mr.address() + 8192, mr.rkey());
    let pieces = |count: usize| (0..count).map(move |index| (index * 64 + round, 8 + index));
    let elements = |count| pieces(count).map(|(offset, length)| mr.sge(offset, length)).collect::<Vec<_>>();
    let mut works = Vec::new();
    for count in [0, 1, 2, 3, 6, 13].into_iter().filter(|&count| count <= most) {
        works.push(SendWork::send(1).sges(elements(count)));
        works.push(SendWork::write(2, address, rkey).sges(elements(count)).flags(IBV_SEND_FENCE));
        if count <= most_read {
            works.push(SendWork::read(3, address, rkey).sges(elements(count)));
        }
    }
    let has = |operation: u32| connected() & operation != 0;
    for count in [0, 1, 2, 12].into_iter().filter(|&count| count < most) {
        if has(IBV_QP_EX_WITH_SEND_WITH_IMM) {
            works.push(SendWork::send(4).sges(elements(count)).immediate(0x0102_0304));
        }
        if has(IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM) {
            works.push(SendWork::write(5, address, rkey).sges(elements(count)).immediate(5));
        }
    }
    for length in [0, 1, 8, 9, 39, 40, 70, 101].into_iter().filter(|&length| length <= device.inline as usize)
    {
        works.push(SendWork::send(6).sge(mr.sge(round, length)).inline());
        works.push(SendWork::write(7, address, rkey).sge(mr.sge(round, length)).inline());
    }
    if has(IBV_QP_EX_WITH_SEND_WITH_IMM) {
        works.push(SendWork::send(8).sges([mr.sge(1, 30), mr.sge(100, 30)]).inline().immediate(9));
    }
    works.push(SendWork::send(9).sge(mr.sge(0, 16)).flags(IBV_SEND_SOLICITED));
    works.push(SendWork::write(10, address, rkey).sge(mr.sge(0, 16)).flags(IBV_SEND_SOLICITED).unsignaled());
    works
}
