//! Alloc-context and what can be asked of the device.

use irdma_engine::spec::Generation;

use super::fake::{Fixture, input, output};
use crate::abi::core::{
    ExQueryDevice, ExQueryDeviceResp, GidEntry, QueryDevice, QueryDeviceResp, QueryPortRespEx,
};
use crate::abi::driver::AllocUcontextResp;
use crate::abi::number::{COMMAND_EXTENDED, DRIVER_IN, DRIVER_OUT, command, object};
use crate::errno::{EINVAL, ENODATA, EOPNOTSUPP};
use crate::identity;
use crate::profile::{KernelVersion, Profile, Transport};
use zerocopy::FromBytes;

fn on(kernel: KernelVersion) -> Fixture {
    Fixture::new(Profile { kernel, ..Profile::default() })
}

fn told(fixture: &mut Fixture, comp_mask: u64, room: usize) -> (AllocUcontextResp, Vec<u8>) {
    let bytes = fixture.get_context(comp_mask, room).unwrap().out(DRIVER_OUT).to_vec();
    let mut padded = bytes.clone();
    padded.resize(80, 0);
    (AllocUcontextResp::read_from_bytes(&padded).unwrap(), bytes)
}

#[test]
fn the_newest_kernel_tells_all_and_zeroes_the_rest() {
    let (told, bytes) = told(&mut on(KernelVersion::V7_2), 1 | 8, 96);
    assert_eq!((told.kernel_ver, told.hw_rev, told.feature_flags), (5, 2, 3));
    assert_eq!((told.max_hw_wq_frags, told.max_hw_inline, told.max_hw_sq_chunk), (13, 101, 8));
    assert_eq!((told.comp_mask, told.min_hw_wq_size), (7, 8));
    assert!(bytes[80..].iter().all(|byte| *byte == 0));
}

#[test]
fn older_kernels_stop_earlier() {
    let (told_6_12, _) = told(&mut on(KernelVersion::V6_12), 1, 80);
    assert_eq!((told_6_12.comp_mask, told_6_12.max_hw_srq_quanta), (3, 0));
    let (_, bytes) = told(&mut on(KernelVersion::V6_1), 1, 80);
    assert_eq!(bytes[62], 2);
    assert!(bytes[64..].iter().all(|byte| *byte == 0xee), "6.1 leaves the tail alone");
}

#[test]
fn an_old_provider_gets_what_it_has_room_for() {
    let (told, bytes) = told(&mut on(KernelVersion::V7_2), 0, 64);
    assert_eq!((bytes.len(), told.hw_rev), (64, 2));
}

#[test]
fn strange_introductions_are_refused() {
    let mut fixture = on(KernelVersion::V7_2);
    assert_eq!(fixture.get_context(1, 15).err(), Some(EINVAL));
    // The legacy form is for GEN1.
    assert_eq!(fixture.get_context(1, 16).err(), Some(EOPNOTSUPP));
    assert_eq!(fixture.get_context(1 | 16, 80).err(), Some(EOPNOTSUPP));
    for version in [3u8, 6] {
        let request = [0, 0, 0, 0, version, 0, 0, 0];
        let result = fixture.call(object::DEVICE, 3, &[input(DRIVER_IN, &request), output(DRIVER_OUT, 80)]);
        assert_eq!(result.err(), Some(EINVAL));
    }
    assert_eq!(fixture.call(object::DEVICE, 3, &[output(DRIVER_OUT, 80)]).err(), Some(EINVAL));
    fixture.get_context(1, 80).unwrap();
    assert_eq!(fixture.get_context(1, 80).err(), Some(EINVAL), "one context per open node");
    // 6.12 knows nothing of what it does not know.
    assert!(on(KernelVersion::V6_12).get_context(1 | 16, 80).is_ok());
}

#[test]
fn gen3_wants_the_new_wqe_format() {
    let profile = Profile { generation: Generation::Gen3, ..Profile::default() };
    assert_eq!(Fixture::new(profile.clone()).get_context(1, 80).err(), Some(EOPNOTSUPP));
    let (told, _) = told(&mut Fixture::new(profile), 1 | 8, 80);
    assert_eq!((told.hw_rev, told.max_hw_srq_quanta, told.min_hw_wq_size), (3, 262_144, 16));
}

#[test]
fn the_legacy_gen1_provider_is_served() {
    let profile = Profile {
        generation: Generation::Gen1,
        transport: Transport::Iwarp,
        gids: vec![identity::IWARP],
        ..Profile::default()
    };
    let mut fixture = Fixture::new(profile);
    let (told, _) = told(&mut fixture, 0, 16);
    assert_eq!((told.kernel_ver, told.db_mmap_key), (5, 0));
    assert_eq!(fixture.device.doorbell_page(super::fake::TOKEN), Some(0));
}

#[test]
fn nothing_goes_before_the_context() {
    let mut fixture = on(KernelVersion::V7_2);
    assert_eq!(fixture.try_alloc_pd().err(), Some(EINVAL));
    let port = [input(0, &1u64.to_le_bytes()), output(1, 48)];
    assert_eq!(fixture.call(object::DEVICE, 2, &port).err(), Some(EINVAL));
    assert_eq!(fixture.device.doorbell(super::fake::TOKEN, 4096, 1, 4).err(), Some(EINVAL));
}

#[test]
fn device_and_port_describe_themselves() {
    let mut fixture = Fixture::with_context(Profile::default());
    let (told, _) =
        fixture.old::<QueryDeviceResp>(command::QUERY_DEVICE, &QueryDevice::default(), &[], 0).unwrap();
    assert_eq!(told.node_guid, identity::NODE_GUID.to_be_bytes());
    assert_eq!((told.fw_ver, told.max_sge, told.phys_port_cnt), (0x1_0000_003c, 13, 1));
    let number = COMMAND_EXTENDED | command::QUERY_DEVICE;
    let (extended, _) = fixture.old::<ExQueryDeviceResp>(number, &ExQueryDevice::default(), &[], 0).unwrap();
    assert_eq!(extended.response_length, 304);
    assert_eq!(extended.base.max_qp, told.max_qp);
    let refused =
        fixture.old::<ExQueryDeviceResp>(number, &ExQueryDevice { comp_mask: 1, reserved: 0 }, &[], 0);
    assert_eq!(refused.err(), Some(EINVAL));
    let ask = |fixture: &mut Fixture, port: u64| {
        fixture.call(object::DEVICE, 2, &[input(0, &port.to_le_bytes()), output(1, 48)])
    };
    let port: QueryPortRespEx = ask(&mut fixture, 1).unwrap().read(1);
    assert_eq!(
        (port.legacy_resp.state, port.legacy_resp.gid_tbl_len, port.legacy_resp.link_layer),
        (4, 32, 2)
    );
    assert_eq!(ask(&mut fixture, 2).err(), Some(EINVAL));
    assert_eq!(ask(&mut fixture, 256).err(), Some(EINVAL));
}

#[test]
fn gids_by_index_and_as_a_table() {
    let mut fixture = Fixture::with_context(Profile::default());
    let entry = |fixture: &mut Fixture, index: u64| {
        let attributes = [
            input(0, &1u64.to_le_bytes()),
            input(1, &index.to_le_bytes()),
            input(2, &0u32.to_le_bytes()),
            output(3, 32),
        ];
        fixture.call(object::DEVICE, 6, &attributes).map(|outcome| outcome.read::<GidEntry>(3))
    };
    let first = entry(&mut fixture, 0).unwrap();
    assert_eq!((first.gid, first.gid_type), (identity::gids(Generation::Gen2)[0], 2));
    assert_eq!(entry(&mut fixture, 2).err(), Some(ENODATA));
    assert_eq!(entry(&mut fixture, 32).err(), Some(EINVAL));
    let table = |fixture: &mut Fixture, size: u64, room: usize| {
        fixture.call(object::DEVICE, 5, &[input(0, &size.to_le_bytes()), output(2, room), output(3, 8)])
    };
    let outcome = table(&mut fixture, 40, 120).unwrap();
    assert_eq!(outcome.out(3), 2u64.to_le_bytes());
    assert_eq!(outcome.out(2)[40..56], identity::gids(Generation::Gen2)[1]);
    assert_eq!(outcome.out(2)[32..40], [0; 8]);
    assert_eq!(table(&mut fixture, 32, 32).err(), Some(EINVAL), "no room for both");
    assert_eq!(table(&mut fixture, 0, 32).err(), Some(EINVAL));
    assert_eq!(table(&mut fixture, 33, 64).err(), Some(EINVAL));
}
