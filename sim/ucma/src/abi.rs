//! Commands and answers of the connection manager (rdma_user_cm.h), field by field as the kernel names them.
#![allow(missing_docs, reason = "the kernel's names; their meaning is where they are filled and read")]

pub use irdma_uverbs::{AhAttr, EventsReported};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// `RDMA_USER_CM_ABI_VERSION`.
pub const VERSION: u32 = 4;
/// `RDMA_MAX_PRIVATE_DATA`.
pub const MAX_PRIVATE_DATA: usize = 256;
/// `struct sockaddr_in6`.
pub type InetAddress = [u8; 28];
/// `struct __kernel_sockaddr_storage`.
pub type AnyAddress = [u8; 128];

macro_rules! layouts {
    ($($(#[$attribute:meta])* struct $name:ident($size:literal) { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$attribute])*
            #[repr(C)]
            #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
            pub struct $name { $(pub $field: $type,)* }

            const _: () = assert!(size_of::<$name>() == $size);
        )*
    };
}

layouts! {
    struct Header(8) { cmd: u32, input: u16, out: u16, }
    struct CreateId(24) { uid: u64, response: u64, ps: u16, qp_type: u8, reserved: [u8; 5], }
    struct NewId(4) { id: u32, }
    struct DestroyId(16) { response: u64, id: u32, reserved: u32, }
    struct BindIp(40) { response: u64, addr: InetAddress, id: u32, }
    struct Bind(136) { id: u32, addr_size: u16, reserved: u16, addr: AnyAddress, }
    struct ResolveIp(64) { src_addr: InetAddress, dst_addr: InetAddress, id: u32, timeout_ms: u32, }
    struct ResolveAddr(272) {
        id: u32,
        timeout_ms: u32,
        src_size: u16,
        dst_size: u16,
        reserved: u32,
        src_addr: AnyAddress,
        dst_addr: AnyAddress,
    }
    struct ResolveRoute(8) { id: u32, timeout_ms: u32, }
    struct Query(16) { response: u64, id: u32, option: u32, }
    /// `struct ib_user_path_rec`.
    struct UserPath(64) {
        dgid: [u8; 16],
        sgid: [u8; 16],
        dlid: [u8; 2],
        slid: [u8; 2],
        raw_traffic: u32,
        flow_label: [u8; 4],
        reversible: u32,
        mtu: u32,
        pkey: [u8; 2],
        hop_limit: u8,
        traffic_class: u8,
        numb_path: u8,
        sl: u8,
        mtu_selector: u8,
        rate_selector: u8,
        rate: u8,
        packet_life_time_selector: u8,
        packet_life_time: u8,
        preference: u8,
    }
    struct QueryRouteResp(208) {
        node_guid: [u8; 8],
        ib_route: [UserPath; 2],
        src_addr: InetAddress,
        dst_addr: InetAddress,
        num_paths: u32,
        port_num: u8,
        reserved: [u8; 3],
        ibdev_index: u32,
        reserved1: u32,
    }
    struct QueryAddrResp(280) {
        node_guid: [u8; 8],
        port_num: u8,
        reserved: u8,
        pkey: [u8; 2],
        src_size: u16,
        dst_size: u16,
        src_addr: AnyAddress,
        dst_addr: AnyAddress,
        ibdev_index: u32,
        reserved1: u32,
    }
    struct QueryPathResp(8) { num_paths: u32, reserved: u32, }
    /// `struct ib_path_rec_data`.
    struct PathData(72) { flags: u32, reserved: u32, path_rec: [u8; 64], }
    struct ConnParam(272) {
        qp_num: u32,
        qkey: u32,
        private_data: [u8; MAX_PRIVATE_DATA],
        private_data_len: u8,
        srq: u8,
        responder_resources: u8,
        initiator_depth: u8,
        flow_control: u8,
        retry_count: u8,
        rnr_retry_count: u8,
        valid: u8,
    }
    struct UdParam(304) {
        qp_num: u32,
        qkey: u32,
        ah_attr: AhAttr,
        private_data: [u8; MAX_PRIVATE_DATA],
        private_data_len: u8,
        reserved: [u8; 7],
    }
    struct Ece(8) { vendor_id: u32, attr_mod: u32, }
    struct Connect(288) { conn_param: ConnParam, id: u32, reserved: u32, ece: Ece, }
    struct Listen(8) { id: u32, backlog: u32, }
    struct Accept(296) { uid: u64, conn_param: ConnParam, id: u32, reserved: u32, ece: Ece, }
    struct Reject(264) {
        id: u32,
        private_data_len: u8,
        reason: u8,
        reserved: [u8; 2],
        private_data: [u8; MAX_PRIVATE_DATA],
    }
    struct Disconnect(4) { id: u32, }
    struct InitQpAttr(16) { response: u64, id: u32, qp_state: u32, }
    struct Notify(8) { id: u32, event: u32, }
    struct JoinIpMcast(48) { response: u64, uid: u64, addr: InetAddress, id: u32, }
    struct JoinMcast(152) {
        response: u64,
        uid: u64,
        id: u32,
        addr_size: u16,
        join_flags: u16,
        addr: AnyAddress,
    }
    struct GetEvent(8) { response: u64, }
    struct EventResp(336) {
        uid: u64,
        id: u32,
        event: u32,
        status: i32,
        param: UdParam,
        reserved: u32,
        ece: Ece,
    }
    struct SetOption(24) { optval: u64, id: u32, level: u32, optname: u32, optlen: u32, }
    struct MigrateId(16) { response: u64, id: u32, fd: u32, }
    /// `struct ib_uverbs_qp_attr`.
    struct QpAttr(144) {
        qp_attr_mask: u32,
        qp_state: u32,
        cur_qp_state: u32,
        path_mtu: u32,
        path_mig_state: u32,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: u32,
        ah_attr: AhAttr,
        alt_ah_attr: AhAttr,
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
        pkey_index: u16,
        alt_pkey_index: u16,
        en_sqd_async_notify: u8,
        sq_draining: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port_num: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        alt_port_num: u8,
        alt_timeout: u8,
        reserved: [u8; 5],
    }
}
