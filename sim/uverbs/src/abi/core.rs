//! Requests and answers of the verbs core (ib_user_verbs.h, ib_user_ioctl_verbs.h), field by field as the kernel names them.
//! Requests of the old command form begin with the address of the answer, which the ioctl form does not use.
#![allow(missing_docs, reason = "the kernel's names; their meaning is where they are filled and read")]

use zerocopy::{FromBytes, Immutable, IntoBytes};

macro_rules! layouts {
    ($($(#[$attribute:meta])* struct $name:ident($size:literal) { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$attribute])*
            #[repr(C)]
            #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
            pub struct $name { $(pub $field: $type,)* }

            const _: () = assert!(size_of::<$name>() == $size);
        )*
    };
}

layouts! {
    struct QueryDevice(8) { response: u64, }
    struct QueryDeviceResp(176) {
        fw_ver: u64,
        node_guid: [u8; 8],
        sys_image_guid: [u8; 8],
        max_mr_size: u64,
        page_size_cap: u64,
        vendor_id: u32,
        vendor_part_id: u32,
        hw_ver: u32,
        max_qp: u32,
        max_qp_wr: u32,
        device_cap_flags: u32,
        max_sge: u32,
        max_sge_rd: u32,
        max_cq: u32,
        max_cqe: u32,
        max_mr: u32,
        max_pd: u32,
        max_qp_rd_atom: u32,
        max_ee_rd_atom: u32,
        max_res_rd_atom: u32,
        max_qp_init_rd_atom: u32,
        max_ee_init_rd_atom: u32,
        atomic_cap: u32,
        max_ee: u32,
        max_rdd: u32,
        max_mw: u32,
        max_raw_ipv6_qp: u32,
        max_raw_ethy_qp: u32,
        max_mcast_grp: u32,
        max_mcast_qp_attach: u32,
        max_total_mcast_qp_attach: u32,
        max_ah: u32,
        max_fmr: u32,
        max_map_per_fmr: u32,
        max_srq: u32,
        max_srq_wr: u32,
        max_srq_sge: u32,
        max_pkeys: u16,
        local_ca_ack_delay: u8,
        phys_port_cnt: u8,
        reserved: [u8; 4],
    }
    struct ExQueryDevice(8) { comp_mask: u32, reserved: u32, }
    struct ExQueryDeviceResp(304) {
        base: QueryDeviceResp,
        comp_mask: u32,
        response_length: u32,
        odp_caps: [u8; 24],
        timestamp_mask: u64,
        hca_core_clock: u64,
        device_cap_flags_ex: u64,
        rss_caps: [u8; 16],
        max_wq_type_rq: u32,
        raw_packet_caps: u32,
        tm_caps: [u8; 24],
        cq_moderation_caps: [u8; 8],
        max_dm_size: u64,
        xrc_odp_caps: u32,
        reserved: u32,
    }
    struct QueryPort(16) { response: u64, port_num: u8, reserved: [u8; 7], }
    struct QueryPortResp(40) {
        port_cap_flags: u32,
        max_msg_sz: u32,
        bad_pkey_cntr: u32,
        qkey_viol_cntr: u32,
        gid_tbl_len: u32,
        pkey_tbl_len: u16,
        lid: u16,
        sm_lid: u16,
        state: u8,
        max_mtu: u8,
        active_mtu: u8,
        lmc: u8,
        max_vl_num: u8,
        sm_sl: u8,
        subnet_timeout: u8,
        init_type_reply: u8,
        active_width: u8,
        active_speed: u8,
        phys_state: u8,
        link_layer: u8,
        flags: u8,
        reserved: u8,
    }
    struct QueryPortRespEx(48) {
        legacy_resp: QueryPortResp,
        port_cap_flags2: u16,
        reserved: [u8; 2],
        active_speed_ex: u32,
    }
    struct GidEntry(32) {
        gid: [u8; 16],
        gid_index: u32,
        port_num: u32,
        gid_type: u32,
        netdev_ifindex: u32,
    }
    struct AllocPd(8) { response: u64, }
    struct AllocPdResp(4) { pd_handle: u32, }
    /// Any of the old destroy commands that names just a handle.
    struct Handle(4) { handle: u32, }
    struct RegMr(40) {
        response: u64,
        start: u64,
        length: u64,
        hca_va: u64,
        pd_handle: u32,
        access_flags: u32,
    }
    struct RegMrResp(12) { mr_handle: u32, lkey: u32, rkey: u32, }
    struct ReregMr(48) {
        response: u64,
        mr_handle: u32,
        flags: u32,
        start: u64,
        length: u64,
        hca_va: u64,
        pd_handle: u32,
        access_flags: u32,
    }
    struct ReregMrResp(8) { lkey: u32, rkey: u32, }
    struct AllocMw(16) { response: u64, pd_handle: u32, mw_type: u8, reserved: [u8; 3], }
    struct AllocMwResp(8) { mw_handle: u32, rkey: u32, }
    struct CreateCompChannel(8) { response: u64, }
    struct CreateCompChannelResp(4) { fd: u32, }
    struct CreateCq(32) {
        response: u64,
        user_handle: u64,
        cqe: u32,
        comp_vector: u32,
        comp_channel: i32,
        reserved: u32,
    }
    struct CreateCqResp(8) { cq_handle: u32, cqe: u32, }
    struct ResizeCq(16) { response: u64, cq_handle: u32, cqe: u32, }
    struct ResizeCqResp(8) { cqe: u32, reserved: u32, }
    /// The old destroy commands with an answer: CQ, QP, SRQ.
    struct DestroyWithAnswer(16) { response: u64, handle: u32, reserved: u32, }
    struct DestroyCqResp(8) { comp_events_reported: u32, async_events_reported: u32, }
    struct QpCap(20) {
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
    }
    struct CreateQp(56) {
        response: u64,
        user_handle: u64,
        pd_handle: u32,
        send_cq_handle: u32,
        recv_cq_handle: u32,
        srq_handle: u32,
        cap: QpCap,
        sq_sig_all: u8,
        qp_type: u8,
        is_srq: u8,
        reserved: u8,
    }
    struct CreateQpResp(32) { qp_handle: u32, qpn: u32, cap: QpCap, reserved: u32, }
    struct QpDest(32) {
        dgid: [u8; 16],
        flow_label: u32,
        dlid: u16,
        reserved: u16,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
    }
    struct QueryQp(16) { response: u64, qp_handle: u32, attr_mask: u32, }
    struct QueryQpResp(128) {
        dest: QpDest,
        alt_dest: QpDest,
        cap: QpCap,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: u32,
        pkey_index: u16,
        alt_pkey_index: u16,
        qp_state: u8,
        cur_qp_state: u8,
        path_mtu: u8,
        path_mig_state: u8,
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
        sq_sig_all: u8,
        reserved: [u8; 5],
    }
    struct ModifyQp(112) {
        dest: QpDest,
        alt_dest: QpDest,
        qp_handle: u32,
        attr_mask: u32,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: u32,
        pkey_index: u16,
        alt_pkey_index: u16,
        qp_state: u8,
        cur_qp_state: u8,
        path_mtu: u8,
        path_mig_state: u8,
        en_sqd_async_notify: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port_num: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        alt_port_num: u8,
        alt_timeout: u8,
        reserved: [u8; 2],
    }
    struct ExModifyQp(120) { base: ModifyQp, rate_limit: u32, reserved: u32, }
    struct ExModifyQpResp(8) { comp_mask: u32, response_length: u32, }
    struct EventsReported(4) { events_reported: u32, }
    struct AhAttr(32) {
        dgid: [u8; 16],
        flow_label: u32,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
        grh_reserved: u8,
        dlid: u16,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
        reserved: u8,
    }
    struct CreateAh(56) { response: u64, user_handle: u64, pd_handle: u32, reserved: u32, attr: AhAttr, }
    struct CreateAhResp(4) { ah_handle: u32, }
    struct AttachMcast(24) { gid: [u8; 16], qp_handle: u32, mlid: u16, reserved: u16, }
    struct CreateSrq(32) {
        response: u64,
        user_handle: u64,
        pd_handle: u32,
        max_wr: u32,
        max_sge: u32,
        srq_limit: u32,
    }
    struct CreateSrqResp(16) { srq_handle: u32, max_wr: u32, max_sge: u32, srqn: u32, }
    struct ModifySrq(16) { srq_handle: u32, attr_mask: u32, max_wr: u32, srq_limit: u32, }
    struct QuerySrq(16) { response: u64, srq_handle: u32, reserved: u32, }
    struct QuerySrqResp(16) { max_wr: u32, max_sge: u32, srq_limit: u32, reserved: u32, }
}
