// The layouts of the private provider ABI, one row each; shared by the build scripts,
// the library, its test and the commands. A further layout is a row here and the lines
// that changed in include/provider.h.

/// A family of rdma-core releases with the same private provider ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Its number: that of the first release with it, or of its `PABI` where that is older.
    pub number: u32,
    /// The number in `IBVERBS_PRIVATE_*` and `libirdma-rdmav*.so`.
    pub pabi: u32,
    /// First rdma-core release with it.
    pub first: u32,
    /// Last rdma-core release with it.
    pub last: u32,
    /// Bytes of `verbs_context_ops`.
    pub operations: usize,
    /// Where in `verbs_context` that lies which programs see, `context`.
    pub context: usize,
    /// A private function that libibverbs has in this layout ...
    pub has: &'static core::ffi::CStr,
    /// ... and one that it does not have, if other layouts share the `PABI`.
    pub lacks: Option<&'static core::ffi::CStr>,
}

/// Every layout that can be built, in order of release.
#[rustfmt::skip] // one row each
pub const LAYOUTS: &[Layout] = &[
    Layout { number: 34, pabi: 34, first: 37, last: 56, operations: 608, context: 320, has: c"__verbs_log", lacks: None },
    Layout { number: 57, pabi: 57, first: 57, last: 58, operations: 608, context: 320, has: c"__verbs_log", lacks: None },
    Layout { number: 59, pabi: 59, first: 59, last: 61, operations: 632, context: 344, has: c"ibv_cmd_reg_mr_ex", lacks: Some(SPEED) },
    Layout { number: 62, pabi: 59, first: 62, last: 63, operations: 648, context: 352, has: SPEED, lacks: None },
    Layout { number: 64, pabi: 64, first: 64, last: 64, operations: 664, context: 368, has: c"ibv_dmabuf_heap_alloc", lacks: None },
    Layout { number: 65, pabi: 65, first: 65, last: 65, operations: 744, context: 368, has: c"ibv_cmd_create_comp_cntr", lacks: None },
];

/// What tells layout 62 from 59.
const SPEED: &core::ffi::CStr = c"ibv_cmd_query_port_speed";
