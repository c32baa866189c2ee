//! Fences: the device serves a queue in order, so what is looked at is the request in the ring.

use irdma_tests::builder::{Manner, QpEx, connected};
use irdma_tests::context::{Context, Pd};
use irdma_tests::device::{Device, feature};
use irdma_tests::domain::{Answer, Lender};
use irdma_tests::loopback::{connect_to_itself, roomy};
use irdma_tests::memory::{Mr, pattern};
use irdma_tests::runner::Test;
use irdma_tests::sys::*;
use irdma_tests::test;
use irdma_tests::work::{ReceiveWork, SendWork};

/// Quadwords of a quantum; the last of the first one is a request's header.
const QUANTUM: usize = 4;
/// READFENCE: wait for earlier reads and atomics.
const READ_FENCE: u64 = 1 << 60;
/// The header is that of a request.
const VALID: u64 = 1 << 63;

/// A queue pair connected to itself whose ring can be read.
struct Readable {
    qp: QpEx,
    mr: Mr,
    lender: &'static Lender,
}

impl Readable {
    fn new() -> Readable {
        let pd = Pd::new(&Context::open());
        let lender = Lender::new(Answer::Memory);
        let qp = QpEx::new(&lender.parent(&pd), roomy(), connected());
        connect_to_itself(&qp);
        Readable { qp, mr: Mr::patterned(&pd, 65536, 1), lender }
    }

    /// The header of the request that starts at a quantum of the first lap, counted from the program's first one.
    fn header(&self, quantum: usize) -> u64 {
        let first = Device::present().connection_requests as usize;
        let loan = self.lender.loans()[0];
        // SAFETY: lent memory of at least that many words; the device only reads it.
        let header = unsafe { *loan.base.cast::<u64>().add((first + quantum) * QUANTUM + QUANTUM - 1) };
        assert_ne!(header & VALID, 0, "no request at quantum {quantum}");
        header
    }
}

/// Every operation that can wait for earlier ones, of one quantum each.
fn works(mr: &Mr) -> Vec<(&'static str, SendWork)> {
    let device = Device::present();
    let (address, rkey) = (mr.address() + 8192, mr.rkey());
    let mut works = vec![
        ("send", SendWork::send(1).sge(mr.sge(0, 8))),
        ("inline send", SendWork::send(1).sge(mr.sge(0, 8)).inline()),
        ("write", SendWork::write(1, address, rkey).sge(mr.sge(0, 8))),
        ("read", SendWork::read(1, address, rkey).sge(mr.sge(0, 8))),
        ("invalidate", SendWork::invalidate(1, 0x5500)),
    ];
    if device.has(feature::ATOMIC_OPS) {
        works.push(("atomic", SendWork::fetch_add(1, address, rkey, 1).sge(mr.sge(0, 8))));
    }
    works
}

fn a_fence_is_asked_for_exactly_where_the_program_does() {
    let count = works(&Readable::new().mr).len();
    for index in 0..count {
        for built in [false, true] {
            for flags in [0, IBV_SEND_FENCE] {
                let queue = Readable::new();
                let (name, work) = works(&queue.mr).swap_remove(index);
                if built && name == "atomic" {
                    continue;
                }
                let work = work.flags(flags);
                queue.qp.receive(ReceiveWork::new(2).sge(queue.mr.sge(4096, 64)));
                if built {
                    assert_eq!(queue.qp.try_build(&[work], Manner::default()), 0);
                } else {
                    queue.qp.post(work);
                }
                let has_fence = queue.header(0) & READ_FENCE != 0;
                assert_eq!(has_fence, flags != 0, "{name}, built {built}, flags {flags:#x}");
                queue.qp.send_cq().wait(1);
            }
        }
    }
}

fn a_fenced_send_carries_what_the_read_before_it_brought() {
    let queue = Readable::new();
    queue.mr.buffer().fill(0);
    queue.mr.buffer().write(0, &pattern(4096, 9));
    queue.qp.receive(ReceiveWork::new(10).sge(queue.mr.sge(16384, 4096)));
    queue.qp.post_list(&mut [
        SendWork::read(1, queue.mr.address(), queue.mr.rkey()).sge(queue.mr.sge(8192, 4096)),
        SendWork::send(2).sge(queue.mr.sge(8192, 4096)).flags(IBV_SEND_FENCE),
    ]);
    assert!(queue.qp.send_cq().wait(2).iter().all(|wc| wc.status == IBV_WC_SUCCESS));
    assert_eq!(queue.qp.recv_cq().wait_one().byte_len, 4096);
    assert_eq!(queue.mr.buffer().read(16384, 4096), pattern(4096, 9));
    assert_eq!([0, 1].map(|quantum| queue.header(quantum) & READ_FENCE != 0), [false, true]);
}

const NO_RING: &str = "lends no memory for rings, so they cannot be read";

/// The programs of this file.
pub const TESTS: &[Test] = &[
    test!(a_fence_is_asked_for_exactly_where_the_program_does).fails_on_c(NO_RING),
    test!(a_fenced_send_carries_what_the_read_before_it_brought).fails_on_c(NO_RING),
];
