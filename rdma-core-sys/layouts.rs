// The layouts of the private provider ABI, one row each; shared by build.rs, the
// library and its test. A further layout is a row here and the lines that changed
// in include/provider.h.

/// A family of rdma-core releases with the same private provider ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Its number: that of the first release with it, or of its `PABI` where that is larger.
    pub number: u32,
    /// The number in `IBVERBS_PRIVATE_*` and `libirdma-rdmav*.so`.
    pub pabi: u32,
    /// First rdma-core release with it.
    pub first: u32,
    /// Last rdma-core release with it.
    pub last: u32,
    /// A private function that libibverbs has in this layout ...
    pub has: &'static str,
    /// ... and one that it does not have, if other layouts share the `PABI`.
    pub lacks: Option<&'static str>,
}

/// Every layout that can be built, in order of release.
pub const LAYOUTS: &[Layout] = &[
    Layout { number: 34, pabi: 34, first: 37, last: 56, has: "__verbs_log", lacks: None },
    Layout { number: 65, pabi: 65, first: 65, last: 65, has: "ibv_cmd_create_comp_cntr", lacks: None },
];
