//! Registration of regions and rings.

use std::fs::File;
use std::os::fd::FromRawFd;

use super::fake::{Attribute, BASE, Fixture, RINGS, input, output};
use crate::abi::core::{AllocMw, AllocMwResp, RegMr, RegMrResp, ReregMr, ReregMrResp};
use crate::abi::number::{DRIVER_IN, command, object};
use crate::errno::{EBADF, EBUSY, EFAULT, EINVAL, ENOENT, EOPNOTSUPP, EPROTONOSUPPORT};
use crate::profile::{KernelVersion, Profile};

#[test]
fn a_region_keeps_its_domain_alive() {
    let mut fixture = Fixture::with_context(Profile::default());
    let pd = fixture.alloc_pd();
    // The three words behind the type are garbage, as old providers send them.
    let mr = fixture.reg_mr(pd, RINGS, 100, [0, 7, 8, 9]).unwrap();
    assert!(mr.lkey != 0 && mr.lkey == mr.rkey);
    let destroy = [Attribute::Handle(0, pd.into())];
    assert_eq!(fixture.call(object::PD, 0, &destroy).err(), Some(EBUSY));
    fixture.dereg_mr(mr.mr_handle).unwrap();
    fixture.call(object::PD, 0, &destroy).unwrap();
}

#[test]
fn memory_must_be_there_and_its_rights_make_sense() {
    let mut fixture = Fixture::with_context(Profile::default());
    let pd = fixture.alloc_pd();
    assert_eq!(fixture.reg_mr(pd, 4096, 100, [0; 4]).err(), Some(EFAULT));
    assert_eq!(fixture.reg_mr(pd, BASE, 1 << 21, [0; 4]).err(), Some(EFAULT));
    assert_eq!(fixture.reg_mr(pd, BASE, 0, [0; 4]).err(), Some(EINVAL));
    assert_eq!(fixture.reg_mr(pd, BASE, u64::MAX, [0; 4]).err(), Some(EINVAL));
    assert_eq!(fixture.reg_mr(pd, BASE, 100, [9, 0, 0, 0]).err(), Some(EINVAL), "no such type");
    let mut ask = |access_flags: u32, hca_va: u64| {
        let request =
            RegMr { start: RINGS, length: 8, hca_va, pd_handle: pd, access_flags, ..RegMr::default() };
        fixture.old::<RegMrResp>(command::REG_MR, &request, &[0; 8], 0).err()
    };
    assert_eq!(ask(2, RINGS), Some(EINVAL), "remote write without local write");
    assert_eq!(ask(1 << 11, RINGS), Some(EINVAL), "no such right");
    assert_eq!(ask(64, RINGS), Some(EOPNOTSUPP), "on demand");
    assert_eq!(ask(1 << 20, RINGS), None, "what may be ignored is ignored");
    assert_eq!(ask(1, RINGS + 1), Some(EINVAL), "offsets into the page differ");
    assert_eq!(ask(1, 0x7000_0000), None, "any address with the same offset will do");
}

#[test]
fn rings_must_fit_their_pages() {
    let mut fixture = Fixture::with_context(Profile::default());
    let pd = fixture.alloc_pd();
    assert_eq!(
        fixture.reg_mr(pd, RINGS, 3 * 4096, [1, 0, 1, 2]).err(),
        Some(EINVAL),
        "no page for the shadow"
    );
    assert!(fixture.reg_mr(pd, RINGS, 3 * 4096 + 64, [1, 0, 1, 2]).is_ok());
    assert_eq!(fixture.reg_mr(pd, RINGS, 4096, [2, 2, 0, 0]).err(), Some(EINVAL));
    assert!(fixture.reg_mr(pd, RINGS, 8192, [2, 2, 0, 0]).is_ok(), "the shadow of a CQ is elsewhere");
    assert_eq!(fixture.reg_mr(pd, RINGS, 8192, [1, 0, 0xffff, 0xffff]).err(), Some(EINVAL));
}

#[test]
fn rings_in_use_stay_from_the_newest_kernel_on() {
    for kernel in [KernelVersion::V6_12, KernelVersion::V7_2] {
        let mut fixture = Fixture::with_context(Profile { kernel, ..Profile::default() });
        let pd = fixture.alloc_pd();
        let (cq, _, registrations) = fixture.create_cq(pd, RINGS, None);
        let expected = (kernel == KernelVersion::V7_2).then_some(EBUSY);
        assert_eq!(fixture.dereg_mr(registrations[0]).err(), expected);
        assert_eq!(fixture.dereg_mr(registrations[1]).err(), expected);
        fixture.call(object::CQ, 1, &[Attribute::Handle(0, cq.into()), output(1, 8)]).unwrap();
        if expected.is_some() {
            fixture.dereg_mr(registrations[0]).unwrap();
            fixture.dereg_mr(registrations[1]).unwrap();
        }
        assert!(fixture.status().contains("pd 1 mr 0 ring 0 mw 0 cq 0"));
    }
}

#[test]
fn a_region_can_change_its_place_and_domain() {
    let mut fixture = Fixture::with_context(Profile::default());
    let (pd, other) = (fixture.alloc_pd(), fixture.alloc_pd());
    let mr = fixture.reg_mr(pd, RINGS, 100, [0; 4]).unwrap();
    let mut change = ReregMr {
        mr_handle: mr.mr_handle,
        flags: 1 | 2,
        start: RINGS + 4096,
        length: 50,
        hca_va: RINGS + 4096,
        pd_handle: other,
        ..ReregMr::default()
    };
    let (told, _) = fixture.old::<ReregMrResp>(command::REREG_MR, &change, &[0; 8], 0).unwrap();
    assert_eq!(told.lkey, mr.lkey, "the key stays");
    fixture.call(object::PD, 0, &[Attribute::Handle(0, pd.into())]).unwrap();
    for (flags, expected) in [(0, EINVAL), (8, EOPNOTSUPP)] {
        change.flags = flags;
        let result = fixture.old::<ReregMrResp>(command::REREG_MR, &change, &[0; 8], 0);
        assert_eq!(result.err(), Some(expected));
    }
    let ring = fixture.reg_mr(other, RINGS, 4096, [2, 1, 0, 0]).unwrap();
    change = ReregMr { flags: 4, mr_handle: ring.mr_handle, ..change };
    let result = fixture.old::<ReregMrResp>(command::REREG_MR, &change, &[0; 8], 0);
    assert_eq!(result.err(), Some(EINVAL), "a ring is no region");
}

#[test]
fn windows_depend_on_the_kernel() {
    for (kernel, expected) in [(KernelVersion::V6_12, None), (KernelVersion::V7_2, Some(EOPNOTSUPP))] {
        let mut fixture = Fixture::with_context(Profile { kernel, ..Profile::default() });
        let pd = fixture.alloc_pd();
        let mut request = AllocMw { pd_handle: pd, mw_type: 1, ..AllocMw::default() };
        let result = fixture.old::<AllocMwResp>(command::ALLOC_MW, &request, &[], 0);
        assert_eq!(result.err(), expected);
        if expected.is_none() {
            request.mw_type = 3;
            let result = fixture.old::<AllocMwResp>(command::ALLOC_MW, &request, &[], 0);
            assert_eq!(result.err(), Some(EINVAL));
        }
    }
}

#[test]
fn the_newest_kernel_registers_by_a_method_too() {
    for (kernel, supported) in [(KernelVersion::V6_12, false), (KernelVersion::V7_2, true)] {
        let mut fixture = Fixture::with_context(Profile { kernel, ..Profile::default() });
        let pd = fixture.alloc_pd();
        let mut ask = |extra: &[Attribute]| {
            let mut attributes = vec![
                Attribute::NewHandle(0),
                Attribute::Handle(1, pd.into()),
                input(3, &RINGS.to_le_bytes()),
                input(5, &64u64.to_le_bytes()),
                input(6, &7u32.to_le_bytes()),
                output(9, 4),
                output(10, 4),
                input(DRIVER_IN, &[0; 8]),
            ];
            attributes.extend_from_slice(extra);
            fixture.call(object::MR, 5, &attributes).err()
        };
        let address = input(4, &RINGS.to_le_bytes());
        if !supported {
            assert_eq!(ask(&[address]), Some(EPROTONOSUPPORT));
            continue;
        }
        assert_eq!(ask(std::slice::from_ref(&address)), None);
        assert_eq!(ask(&[]), Some(EINVAL), "neither address nor buffer");
        assert_eq!(ask(&[address.clone(), Attribute::Handle(7, 3)]), Some(EINVAL), "both");
        assert_eq!(ask(&[address, Attribute::Handle(2, 9)]), Some(ENOENT), "there are no DMA handles");
        let offset = input(8, &RINGS.to_le_bytes());
        assert_eq!(ask(&[offset, Attribute::Handle(7, 3)]), Some(EBADF));
    }
}

#[test]
fn memory_files_stand_in_for_dma_bufs() {
    // SAFETY: a system call with a constant string.
    let descriptor = unsafe { libc::memfd_create(c"buffer".as_ptr(), libc::MFD_CLOEXEC) };
    // SAFETY: the descriptor is new and ours.
    let file = unsafe { File::from_raw_fd(descriptor) };
    file.set_len(8192).unwrap();
    for (kernel, supported) in [(KernelVersion::V6_1, false), (KernelVersion::V7_2, true)] {
        let mut fixture = Fixture::with_context(Profile { kernel, ..Profile::default() });
        fixture.add_descriptor(50, "/memfd:buffer (deleted)", file.try_clone().unwrap());
        fixture.add_descriptor(51, "/dev/null", file.try_clone().unwrap());
        let pd = fixture.alloc_pd();
        let mut ask = |offset: u64, length: u64, iova: u64, descriptor: u32| {
            let attributes = [
                Attribute::NewHandle(0),
                Attribute::Handle(1, pd.into()),
                input(2, &offset.to_le_bytes()),
                input(3, &length.to_le_bytes()),
                input(4, &iova.to_le_bytes()),
                input(5, &descriptor.to_le_bytes()),
                input(6, &7u32.to_le_bytes()),
                output(7, 4),
                output(8, 4),
            ];
            fixture.call(object::MR, 4, &attributes).err()
        };
        if !supported {
            assert_eq!(ask(0, 8192, 0, 50), Some(EOPNOTSUPP));
            continue;
        }
        assert_eq!(ask(0, 8192, 0, 50), None);
        assert_eq!(ask(100, 200, 0x7000_0064, 50), None);
        assert_eq!(ask(0, 8193, 0, 50), Some(EINVAL), "longer than the buffer");
        assert_eq!(ask(u64::MAX, 1, u64::MAX, 50), Some(EINVAL));
        assert_eq!(ask(1, 10, 0, 50), Some(EINVAL), "offsets into the page differ");
        assert_eq!(ask(0, 10, 0, 51), Some(EINVAL), "no dma-buf");
        assert_eq!(ask(0, 10, 0, 52), Some(EBADF));
    }
}
