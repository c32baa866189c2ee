//! Object, method, attribute and command numbers (ib_user_ioctl_cmds.h, ib_user_verbs.h).

/// `RDMA_DRIVER_IRDMA`.
pub const DRIVER: u32 = 9;

/// `UVERBS_ATTR_F_MANDATORY`: refuse if the attribute is not known.
pub const FLAG_MANDATORY: u16 = 1;
/// `UVERBS_ATTR_F_VALID_OUTPUT`: set by the kernel in attributes that it filled.
pub const FLAG_VALID_OUTPUT: u16 = 2;

/// `UVERBS_ATTR_UHW_IN`: the driver's request.
pub const DRIVER_IN: u16 = 0x1000;
/// `UVERBS_ATTR_UHW_OUT`: the driver's answer.
pub const DRIVER_OUT: u16 = 0x1001;

/// `enum uverbs_default_objects`.
pub mod object {
    #![allow(missing_docs, reason = "the kernel's names")]
    pub const DEVICE: u16 = 0;
    pub const PD: u16 = 1;
    pub const CQ: u16 = 3;
    pub const QP: u16 = 4;
    pub const SRQ: u16 = 5;
    pub const AH: u16 = 6;
    pub const MR: u16 = 7;
    pub const MW: u16 = 8;
    pub const ASYNC_EVENT: u16 = 16;
    pub const DMAH: u16 = 17;
}

/// `UVERBS_METHOD_INVOKE_WRITE` of the device: a command in its old form.
pub const INVOKE_WRITE: u16 = 0;
/// `UVERBS_ATTR_CORE_IN`.
pub const CORE_IN: u16 = 0;
/// `UVERBS_ATTR_CORE_OUT`.
pub const CORE_OUT: u16 = 1;
/// `UVERBS_ATTR_WRITE_CMD`.
pub const WRITE_COMMAND: u16 = 2;

/// `IB_USER_VERBS_CMD_COMMAND_MASK`.
pub const COMMAND_MASK: u32 = 0xff;
/// `IB_USER_VERBS_CMD_FLAG_EXTENDED`.
pub const COMMAND_EXTENDED: u32 = 0x8000_0000;

/// `enum ib_uverbs_write_cmds`.
pub mod command {
    #![allow(missing_docs, reason = "the kernel's names")]
    pub const QUERY_DEVICE: u32 = 1;
    pub const QUERY_PORT: u32 = 2;
    pub const ALLOC_PD: u32 = 3;
    pub const DEALLOC_PD: u32 = 4;
    pub const CREATE_AH: u32 = 5;
    pub const DESTROY_AH: u32 = 8;
    pub const REG_MR: u32 = 9;
    pub const REREG_MR: u32 = 11;
    pub const DEREG_MR: u32 = 13;
    pub const ALLOC_MW: u32 = 14;
    pub const DEALLOC_MW: u32 = 16;
    pub const CREATE_COMP_CHANNEL: u32 = 17;
    pub const CREATE_CQ: u32 = 18;
    pub const RESIZE_CQ: u32 = 19;
    pub const DESTROY_CQ: u32 = 20;
    pub const CREATE_QP: u32 = 24;
    pub const QUERY_QP: u32 = 25;
    pub const MODIFY_QP: u32 = 26;
    pub const DESTROY_QP: u32 = 27;
    pub const ATTACH_MCAST: u32 = 30;
    pub const DETACH_MCAST: u32 = 31;
    pub const CREATE_SRQ: u32 = 32;
    pub const MODIFY_SRQ: u32 = 33;
    pub const QUERY_SRQ: u32 = 34;
    pub const DESTROY_SRQ: u32 = 35;
}

/// `enum ib_access_flags`.
pub mod access {
    #![allow(missing_docs, reason = "the kernel's names")]
    pub const LOCAL_WRITE: u32 = 1;
    pub const REMOTE_WRITE: u32 = 2;
    pub const REMOTE_READ: u32 = 4;
    pub const REMOTE_ATOMIC: u32 = 8;
    pub const MW_BIND: u32 = 16;
    pub const ZERO_BASED: u32 = 32;
    pub const ON_DEMAND: u32 = 64;
    pub const FLUSH_GLOBAL: u32 = 256;
    pub const FLUSH_PERSISTENT: u32 = 512;
    pub const RELAXED_ORDERING: u32 = 1 << 20;
    /// `IB_ACCESS_SUPPORTED`: known flags, and the range of those that may be ignored.
    pub const SUPPORTED: u32 = 0x3ff | OPTIONAL;
    /// `IB_ACCESS_OPTIONAL`.
    pub const OPTIONAL: u32 = 0x3ff0_0000;
}

/// `enum ib_event_type`.
pub mod event {
    #![allow(missing_docs, reason = "the kernel's names")]
    pub const CQ_ERR: u32 = 0;
    pub const QP_FATAL: u32 = 1;
    pub const QP_REQ_ERR: u32 = 2;
    pub const QP_ACCESS_ERR: u32 = 3;
    pub const COMM_EST: u32 = 4;
    pub const SQ_DRAINED: u32 = 5;
    pub const DEVICE_FATAL: u32 = 8;
    pub const PORT_ACTIVE: u32 = 9;
    pub const PORT_ERR: u32 = 10;
    pub const SRQ_ERR: u32 = 14;
    pub const SRQ_LIMIT_REACHED: u32 = 15;
}
