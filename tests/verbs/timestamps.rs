//! When a completion was made, in the device's time.

use irdma_tests::cq_ex::{CqEx, READERS};
use irdma_tests::device::{Device, feature};
use irdma_tests::fixtures::Pair;
use irdma_tests::qp::{Connection, Qp, QpOptions};
use irdma_tests::runner::Test;
use irdma_tests::sys::*;
use irdma_tests::test;
use irdma_tests::work::SendWork;

fn later_completions_have_later_times() {
    Device::present().require(feature::CQE_TIMESTAMPING, "completion timestamps");
    let pair = Pair::unconnected(QpOptions::default());
    let readers = u64::from(READERS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
    let cq = CqEx::try_new(pair.left.context(), None, &mut CqEx::attributes(16, readers)).expect("a queue");
    let qp = Qp::new(pair.left.pd(), cq.plain(), cq.plain(), QpOptions::default());
    qp.connect(Connection::default(), qp.number(), pair.left.gid());
    let mut times = Vec::new();
    for wr_id in 0..5 {
        qp.post(SendWork::write(wr_id, pair.left.mr.address(), pair.left.mr.rkey()));
        std::thread::sleep(std::time::Duration::from_millis(2));
        let mut attributes = ibv_poll_cq_attr { comp_mask: 0 };
        // SAFETY: the queue is alive; the reader was asked for.
        unsafe {
            assert_eq!(ibv_start_poll(cq.raw_ex(), &mut attributes), 0);
            times.push(ibv_wc_read_completion_ts(cq.raw_ex()) as u32);
            ibv_end_poll(cq.raw_ex());
        }
    }
    // 32 bits, which wrap around.
    let steps: Vec<_> = times.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    assert!(steps.iter().all(|&step| step > 0 && step < 1 << 31), "{times:?}");
}

/// The programs of this file.
pub const TESTS: &[Test] = &[test!(later_completions_have_later_times)];
