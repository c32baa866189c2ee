//! What the device says of itself.

use std::collections::BTreeSet;
use std::ffi::CStr;

use irdma_tests::context::{Context, PORT, Pd};
use irdma_tests::device::{Device, feature};
use irdma_tests::runner::{Test, on_c_provider};
use irdma_tests::sys::*;
use irdma_tests::test;

fn the_announced_provider_is_loaded() {
    let _context = Context::open();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc is mounted");
    let loaded: BTreeSet<&str> = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .filter(|path| path.contains("irdma-rdmav"))
        .collect();
    let from_the_distribution = |path: &str| path.starts_with("/usr/lib");
    assert_eq!(loaded.len(), 1, "{loaded:?}");
    assert_eq!(loaded.iter().all(|path| from_the_distribution(path)), on_c_provider(), "{loaded:?}");
}

fn the_device_is_found_and_named() {
    let mut count = 0;
    // SAFETY: the list is valid until it is freed, its devices with it.
    unsafe {
        let list = ibv_get_device_list(&mut count);
        assert!(!list.is_null() && count >= 1);
        let device = *list;
        let name = CStr::from_ptr(ibv_get_device_name(device)).to_str().expect("a plain name");
        assert!(name.starts_with("irdma"), "{name}");
        let guid = u64::from_be(ibv_get_device_guid(device));
        assert_ne!(guid, 0);
        let context = ibv_open_device(device);
        assert!(!context.is_null());
        let mut attributes = ibv_device_attr::default();
        assert_eq!(ibv_query_device(context, &mut attributes), 0);
        assert_eq!(u64::from_be(attributes.node_guid), guid, "node_guid of the device and of the query");
        assert_eq!(ibv_close_device(context), 0);
        ibv_free_device_list(list);
    }
}

fn limits_are_those_of_the_hardware() {
    let context = Context::open();
    let attributes = context.query_device();
    assert_eq!(attributes.vendor_id, 0x8086);
    let device = Device::present();
    let most = |count: i32| count as u32;
    assert_eq!(
        (most(attributes.max_sge), most(attributes.max_sge_rd)),
        (device.fragments, device.read_fragments)
    );
    assert_eq!(attributes.max_srq > 0, device.has(feature::SRQ));
    let atomics = device.has(feature::ATOMIC_OPS);
    assert_eq!(attributes.atomic_cap, if atomics { IBV_ATOMIC_HCA } else { IBV_ATOMIC_NONE });
    assert_eq!(attributes.phys_port_cnt, 1);
    assert!(
        attributes.max_qp > 64 && attributes.max_cq > 64 && attributes.max_mr > 64 && attributes.max_pd > 64
    );
    // The longest queue of the widest requests: all quanta but 258 are for requests.
    let widest = device.shift(device.fragments + u32::from(device.generation > 1), 0);
    assert_eq!(most(attributes.max_qp_wr), (device.send_quanta - 258) >> widest);
    let version: Vec<u8> =
        attributes.fw_ver.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0).collect();
    let version = String::from_utf8(version).expect("a firmware version in ASCII");
    let (major, minor) = version.split_once('.').expect("major.minor");
    assert!(major.parse::<u16>().is_ok() && minor.parse::<u16>().is_ok(), "{version}");
}

fn a_protection_domain_takes_one_of_those_that_are_left() {
    let context = Context::open();
    let before = context.query_device().max_pd;
    let pd = Pd::new(&context);
    assert_eq!(context.query_device().max_pd, before - 1);
    drop(pd);
    assert_eq!(context.query_device().max_pd, before);
}

fn the_extended_query_says_the_same() {
    let context = Context::open();
    let plain = context.query_device();
    let mut extended = ibv_device_attr_ex::default();
    // SAFETY: the context is alive, the result valid for the call.
    assert_eq!(unsafe { ibv_query_device_ex(context.raw(), std::ptr::null(), &mut extended) }, 0);
    let original = &extended.orig_attr;
    assert_eq!(original.fw_ver, plain.fw_ver);
    assert_eq!(
        (original.max_qp_wr, original.max_cqe, original.max_mr_size, original.page_size_cap),
        (plain.max_qp_wr, plain.max_cqe, plain.max_mr_size, plain.page_size_cap)
    );
    assert_eq!(original.device_cap_flags, plain.device_cap_flags);
    // A query with an input it does not know must be refused, not answered.
    let input = ibv_query_device_ex_input { comp_mask: 1 };
    // SAFETY: as above.
    assert_ne!(unsafe { ibv_query_device_ex(context.raw(), &input, &mut extended) }, 0);
}

fn the_port_is_ethernet_and_up() {
    let context = Context::open();
    let mut port = ibv_port_attr::default();
    // SAFETY: the context is alive, the result valid for the call.
    assert_eq!(unsafe { ibv_query_port_attr(context.raw(), PORT, &mut port) }, 0);
    assert_eq!(port.state, IBV_PORT_ACTIVE);
    assert_eq!(u32::from(port.link_layer), IBV_LINK_LAYER_ETHERNET);
    assert!(port.active_mtu >= IBV_MTU_1024 && port.active_mtu <= port.max_mtu);
    assert!(port.gid_tbl_len >= 1 && (port.pkey_tbl_len >= 1 || !Device::present().roce));
    assert!(port.max_msg_sz >= 1 << 30);
    for absent in [0, 2, 255] {
        // SAFETY: as above.
        let errno = unsafe { ibv_query_port_attr(context.raw(), absent, &mut port) };
        assert_eq!(errno, libc::EINVAL, "port {absent}");
    }
}

fn the_partition_is_the_default_one() {
    Device::present().require_roce("partitions");
    let context = Context::open();
    let mut key = 0;
    // SAFETY: the context is alive, the result valid for the call.
    assert_eq!(unsafe { ibv_query_pkey(context.raw(), PORT, 0, &mut key) }, 0);
    assert_eq!(u16::from_be(key), 0xffff);
}

fn addresses_in_the_table_are_roce_v2() {
    Device::present().require_roce("such addresses");
    let context = Context::open();
    let mut entry = ibv_gid_entry::default();
    let index = u32::from(context.gid_index());
    // SAFETY: the context is alive, the result valid for the call.
    let result = unsafe {
        _ibv_query_gid_ex(context.raw(), u32::from(PORT), index, &mut entry, 0, size_of::<ibv_gid_entry>())
    };
    assert_eq!(result, 0);
    assert_eq!((entry.gid_index, entry.port_num), (index, u32::from(PORT)));
    assert_eq!(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
    // SAFETY: every byte pattern is a valid array.
    assert_eq!(unsafe { entry.gid.raw }, unsafe { context.gid(index as i32).raw });
}

fn many_contexts_live_side_by_side() {
    let contexts: Vec<_> = (0..20).map(|_| Context::open()).collect();
    let guids: Vec<_> = contexts.iter().map(|context| context.query_device().node_guid).collect();
    assert!(guids.iter().all(|guid| *guid == guids[0]));
}

/// The programs of this file.
pub const TESTS: &[Test] = &[
    test!(the_announced_provider_is_loaded),
    test!(the_device_is_found_and_named),
    test!(limits_are_those_of_the_hardware),
    test!(a_protection_domain_takes_one_of_those_that_are_left),
    test!(the_extended_query_says_the_same),
    test!(the_port_is_ethernet_and_up),
    test!(the_partition_is_the_default_one),
    test!(addresses_in_the_table_are_roce_v2),
    test!(many_contexts_live_side_by_side),
];
