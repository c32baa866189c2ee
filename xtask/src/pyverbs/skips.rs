//! Why tests are skipped on this device.
//!
//! A test of ours that is skipped for a reason that is not here counts as failed, so that
//! nothing that the provider can do disappears from the runs unseen.

use super::Run;

/// Generations of the device.
type Generations = std::ops::RangeInclusive<u32>;

const ALL: Generations = 1..=3;
const BEFORE_GEN3: Generations = 1..=2;

/// A reason to skip.
pub struct Skip {
    /// How the tests' names start, behind `tests.`.
    tests: &'static str,
    /// What the suite's reason contains.
    reason: &'static str,
    generations: Generations,
    /// The kernel that the device shows; without one, the newest.
    kernels: &'static [Option<&'static str>],
    /// The cause.
    pub cause: &'static str,
}

const fn skip(tests: &'static str, reason: &'static str, cause: &'static str) -> Skip {
    Skip { tests, reason, generations: ALL, kernels: &[None, OLD], cause }
}

const fn before_gen3(tests: &'static str, reason: &'static str, cause: &'static str) -> Skip {
    Skip { generations: BEFORE_GEN3, ..skip(tests, reason, cause) }
}

/// That of Debian 12.
const OLD: Option<&str> = Some("6.1");

/// Of several that fit, the first counts.
pub const SKIPS: &[Skip] = &[
    skip("test_mlx5_", "", "test of the mlx5 provider"),
    skip("test_efa", "", "test of the efa provider"),
    skip("test_rdmacm.", "over irdma device", "kernel: no timeout in the answer to query_qp"),
    skip("", "ODP is not supported", "hardware: no on-demand paging"),
    skip("", "XRCD", "hardware: no XRC"),
    skip("", "Create UC QP", "hardware: no unreliable connections"),
    skip("", "Create Raw Packet QP", "hardware: no raw packets for programs"),
    skip("", "Create QP type 8", "hardware: no raw packets for programs"),
    skip("test_tag_matching.", "Extended CQ", "hardware: no tag matching"),
    skip("", "Device memory", "hardware: no memory of the card for programs"),
    skip("test_qpex.QpExTestCase.test_qp_ex_rc_atomic_write", "", "hardware: no atomic write"),
    skip("test_qpex.QpExTestCase.test_qp_ex_rc_flush", "flags 258", "hardware: no flush operation"),
    skip("test_phc_timestamp.", "PHC", "hardware: no clock for programs to read"),
    skip("test_srq.", "SRQ resize", "kernel: no resize of shared receive queues"),
    skip("", "DMA Handle", "kernel: no DMA handles"),
    skip("", "Importing", "kernel: no use of another context's objects"),
    skip("", "port_speed", "kernel: a port's speed is told by query_port only"),
    skip("", "Failed to modify QP", "kernel: a used queue pair has no second life"),
    skip("", "CC PD", "machine: no confidential guest"),
    skip("", "CC_DMA_BOUNCE", "machine: no confidential guest"),
    skip("", "renderD128", "machine: no graphics card"),
    skip("", "cuda-python", "machine: no graphics card"),
    skip("", "huge pages", "machine: no huge pages set aside (sysctl vm.nr_hugepages)"),
    before_gen3("", "Create SRQ", "hardware: no shared receive queues before GEN3"),
    before_gen3("", "Atomic operations", "hardware: no atomic operations before GEN3"),
    before_gen3(
        "test_qpex.QpExTestCase.test_qp_ex_rc_atomic_",
        "Extended QP",
        "hardware: no atomic operations before GEN3",
    ),
    before_gen3(
        "test_qpex.QpExTestCase.test_qp_ex_rc_bind_mw",
        "Extended QP",
        "hardware: no windows of type 2 before GEN3",
    ),
    before_gen3("test_mr.MWTest.test_mw_type2", "Create MW", "hardware: no windows of type 2 before GEN3"),
    Skip {
        kernels: &[None],
        ..before_gen3("test_mr.MWTest.", "Create MW", "kernel: no windows before GEN3, from 7.2 on")
    },
    Skip {
        kernels: &[OLD],
        ..skip("test_mr.", "Rereg MR", "kernel: no change of registered regions before 6.7")
    },
];

/// Why a test that was skipped was skipped, if that is known.
pub fn skip_of(run: &Run, test: &str, reason: &str) -> Option<&'static Skip> {
    let name = test.strip_prefix("tests.").unwrap_or(test);
    SKIPS.iter().find(|row| {
        row.generations.contains(&run.generation)
            && row.kernels.contains(&run.kernel)
            && name.starts_with(row.tests)
            && reason.contains(row.reason)
    })
}
