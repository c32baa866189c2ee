//! Tests that fail though the device does as it should, and must: one that passes is an outdated row.

use super::Run;
use crate::sim::Provider;

/// Tests that fail, all for one reason.
pub struct Failure {
    /// Whose provider; without one, both.
    provider: Option<Provider>,
    /// Releases of the suite.
    suites: &'static [u32],
    /// Generations of the device.
    generations: std::ops::RangeInclusive<u32>,
    /// The tests' names, behind `tests.`.
    tests: &'static [&'static str],
    /// Whether the kernel is a real one; without, either.
    real_kernel: Option<bool>,
    /// What the failure contains.
    failure: &'static str,
    /// Whether they fail each time.
    always: bool,
    /// Whose fault it is.
    pub cause: &'static str,
}

const ANY: Failure = Failure {
    provider: None,
    suites: &[44, 65],
    generations: 1..=3,
    tests: &[],
    real_kernel: None,
    failure: "",
    always: true,
    cause: "",
};
const CUT_HANDLE: &str = "C provider: has 17 bits for the number of an address handle, which has 25";
const OF_C: Failure = Failure { provider: Some(Provider::C), ..ANY };

/// Every one.
const FAILURES: &[Failure] = &[
    Failure {
        suites: &[44],
        tests: &["test_cq.CQTest.test_resize_cq"],
        failure: "PyverbsRDMAError not raised",
        cause: "suite: wants a resize refused by which nothing is lost; that of 65 does not",
        ..ANY
    },
    Failure {
        generations: 1..=2,
        tests: &["test_mr.MRTest.test_mr_rereg_atomic"],
        failure: "Failed to post send",
        cause: "suite: does not ask whether the device has atomic operations",
        ..ANY
    },
    Failure {
        provider: Some(Provider::Ours),
        generations: 1..=2,
        tests: &["test_parent_domain.ParentDomainTrafficTest.test_mem_align_srq_excq_rc_traffic"],
        failure: "signal: 11",
        // What was freed may still be as it was.
        always: false,
        cause: "pyverbs: frees an allocator that the provider still calls, when a test is skipped half-way",
        ..ANY
    },
    Failure {
        suites: &[44],
        tests: &["test_rdmacm.CMTestCase.test_rdmacm_async_traffic"],
        failure: "Exception in",
        cause: "suite: looks for a timeout in query_qp; that of 65 leaves the test out on these cards",
        ..ANY
    },
    Failure {
        generations: 3..=3,
        suites: &[65],
        tests: &["test_rdmacm.CMTestCase.test_rdmacm_async_traffic"],
        real_kernel: Some(true),
        failure: "Exception in",
        cause: "suite: looks for a timeout in query_qp; it leaves the test out on the cards whose numbers it has",
        ..ANY
    },
    Failure {
        suites: &[65],
        tests: &["test_rdmacm.CMTestCase.test_rdmacm_async_resolve_addrinfo"],
        real_kernel: Some(false),
        failure: "Exception in",
        cause: "software device: has no command by which a program writes an event to itself",
        ..ANY
    },
    Failure {
        suites: &[44],
        tests: &[
            "test_cq.CQAPITest.test_create_cq_bad_flow",
            "test_cqex.CQEXAPITest.test_create_cq_ex_bad_flow",
        ],
        failure: "PyverbsRDMAError not raised",
        cause: "C provider: creates a queue for more completions than it says there can be",
        ..OF_C
    },
    Failure {
        suites: &[44],
        tests: &[
            "test_qp.QPTest.test_create_raw_qp_ex_with_illegal_caps_max_recv_wr",
            "test_qp.QPTest.test_create_raw_qp_ex_with_illegal_caps_max_send_wr",
        ],
        failure: "PyverbsRDMAError not raised",
        cause: "C provider: sizes queues in 32 bits, which a large count overflows",
        ..OF_C
    },
    Failure {
        suites: &[65],
        tests: &[
            "test_mr.MRTest.test_mr_rereg_addr",
            "test_mr.MRTest.test_mr_rereg_pd",
            "test_mr.MRTest.test_mrex_rereg_addr",
        ],
        failure: "Failed to modify QP state to init",
        cause: "kernel: a used queue pair has no second life",
        ..OF_C
    },
    Failure {
        generations: 3..=3,
        suites: &[65],
        tests: &["test_mr.MRTest.test_mr_rereg_atomic"],
        failure: "Failed to modify QP state to init",
        cause: "kernel: a used queue pair has no second life",
        ..OF_C
    },
    Failure {
        generations: 3..=3,
        suites: &[65],
        tests: &[
            "test_cq.CQTest.test_resize_cq",
            "test_cq_events.CqEventsTestCase.test_cq_events_ud",
            "test_relaxed_ordering.RoTestCase.test_ro_ud_traffic",
        ],
        // A real kernel gives out small numbers first.
        real_kernel: Some(false),
        failure: "WR flush error",
        cause: CUT_HANDLE,
        ..OF_C
    },
    Failure {
        generations: 3..=3,
        suites: &[65],
        tests: &[
            "test_rdmacm.CMTestCase.test_rdmacm_async_ex_multicast_traffic",
            "test_rdmacm.CMTestCase.test_rdmacm_async_multicast_traffic",
            "test_rdmacm.CMTestCase.test_rdmacm_async_udp_traffic",
        ],
        failure: "Exception",
        // Its time-outs decide.
        always: false,
        cause: CUT_HANDLE,
        ..OF_C
    },
];

impl Failure {
    fn is_of(&self, run: &Run, test: &str) -> bool {
        let name = test.strip_prefix("tests.").unwrap_or(test);
        self.provider.is_none_or(|one| one == run.provider)
            && self.suites.contains(&run.suite)
            && self.generations.contains(&run.generation)
            && self.real_kernel.is_none_or(|real| real == run.real_kernel)
            && self.tests.contains(&name)
    }
}

/// Why a test that failed had to, if that is known.
pub fn failure_of(run: &Run, test: &str, failure: &str) -> Option<&'static Failure> {
    FAILURES.iter().find(|row| row.is_of(run, test) && failure.contains(row.failure))
}

/// Why a test that passed should have failed, if it should.
pub fn missed_failure_of(run: &Run, test: &str) -> Option<&'static Failure> {
    FAILURES.iter().find(|row| row.always && row.is_of(run, test))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_expected_where_its_row_says_so() {
        let run = |suite, provider, generation| Run {
            suite,
            provider,
            generation,
            kernel: None,
            real_kernel: false,
        };
        let (test, failure) =
            ("tests.test_cq.CQTest.test_resize_cq", "AssertionError: PyverbsRDMAError not raised");
        for provider in [Provider::Ours, Provider::C] {
            assert!(failure_of(&run(44, provider, 2), test, failure).is_some());
            assert!(failure_of(&run(44, provider, 2), test, "TimeoutError").is_none());
            assert!(failure_of(&run(65, provider, 2), test, failure).is_none());
            assert!(missed_failure_of(&run(44, provider, 2), test).is_some());
        }
        assert!(failure_of(&run(65, Provider::C, 3), test, "Completion status is WR flush error").is_some());
        assert!(
            failure_of(&run(65, Provider::Ours, 3), test, "Completion status is WR flush error").is_none()
        );
        let crash = "tests.test_parent_domain.ParentDomainTrafficTest.test_mem_align_srq_excq_rc_traffic";
        assert!(missed_failure_of(&run(44, Provider::Ours, 2), crash).is_none());
    }
}
