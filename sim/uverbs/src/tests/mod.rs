//! The whole command surface, driven as a program drives it, over a made-up memory.

mod connection;
mod context;
mod events;
mod fake;
mod hostile;
mod memory;
mod push;
mod queue;

use fake::{Fixture, input, output};

use crate::abi::number::{CORE_IN, CORE_OUT, WRITE_COMMAND, object};
use crate::errno::{EFAULT, EINVAL, ENOENT, ENOSPC, EOPNOTSUPP, EPROTONOSUPPORT};
use crate::profile::Profile;
use fake::Attribute;

#[test]
fn bad_headers_are_refused_as_the_kernel_does() {
    let mut fixture = Fixture::new(Profile::default());
    assert_eq!(fixture.ioctl_at(8), Err(EFAULT));
    let header = |length: u16, object: u16, method: u16, count: u16, reserved: u64, driver: u32| {
        let mut bytes = Vec::new();
        for word in [length, object, method, count] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(reserved.to_le_bytes());
        bytes.extend(driver.to_le_bytes());
        bytes.extend([0; 4]);
        bytes
    };
    for (bytes, expected) in [
        (header(23, 0, 3, 0, 0, 9), EINVAL),
        (header(40, 0, 3, 0, 0, 9), EINVAL),
        (header(24, 0, 3, 0, 1, 9), EPROTONOSUPPORT),
        (header(24, 0, 3, 0, 0, 8), EINVAL),
        (header(24, 0, 99, 0, 0, 9), EPROTONOSUPPORT),
        (header(24, 0x1000, 0, 0, 0, 9), EPROTONOSUPPORT),
        // One attribute, behind the end of the memory.
        (header(40, 0, 3, 1, 0, 9), EFAULT),
    ] {
        let address = fixture.place_last(&bytes);
        assert_eq!(fixture.ioctl_at(address), Err(expected));
    }
}

#[test]
fn the_probe_finds_the_ioctl_interface() {
    let mut fixture = Fixture::new(Profile::default());
    // libibverbs asks with a command that cannot succeed, and takes ENOSPC for a yes.
    assert_eq!(
        fixture.call(object::DEVICE, 0, &[input(WRITE_COMMAND, &1u64.to_le_bytes())]).err(),
        Some(ENOSPC)
    );
    // A command there is not, and one with bits that mean nothing.
    for (number, expected) in
        [(21u64, EOPNOTSUPP), (0x8000_0020, EOPNOTSUPP), (0x100, EINVAL), (1 << 32, EINVAL)]
    {
        let result = fixture.call(object::DEVICE, 0, &[input(WRITE_COMMAND, &number.to_le_bytes())]);
        assert_eq!(result.err(), Some(expected), "{number:#x}");
    }
}

#[test]
fn attributes_are_checked_before_the_method_runs() {
    let mut fixture = Fixture::with_context(Profile::default());
    let port = input(0, &1u64.to_le_bytes());
    let room = output(1, 48);
    // Missing, twice, too short, unknown but mandatory, unknown and optional.
    let refused =
        |fixture: &mut Fixture, attributes: &[Attribute]| fixture.call(object::DEVICE, 2, attributes).err();
    assert_eq!(refused(&mut fixture, std::slice::from_ref(&port)), Some(EINVAL));
    assert_eq!(refused(&mut fixture, &[port.clone(), port.clone(), room.clone()]), Some(EINVAL));
    assert_eq!(refused(&mut fixture, &[port.clone(), output(1, 47)]), Some(EINVAL));
    assert_eq!(refused(&mut fixture, &[port.clone(), room.clone(), input(9, &[1])]), Some(EPROTONOSUPPORT));
    assert_eq!(refused(&mut fixture, &[port.clone(), room.clone(), input(9, &[1]).ignorable()]), None);
    // A longer answer is filled with zeros.
    let answer = fixture.call(object::DEVICE, 2, &[port, output(1, 64)]).unwrap();
    assert!(answer.out(1)[48..].iter().all(|byte| *byte == 0));
    assert!(answer.is_marked(1));
}

#[test]
fn handles_lead_to_objects_of_their_type_only() {
    let mut fixture = Fixture::with_context(Profile::default());
    let pd = fixture.alloc_pd();
    let destroy = |fixture: &mut Fixture, object, handle: u64| {
        fixture.call(object, 0, &[Attribute::Handle(0, handle)]).err()
    };
    assert_eq!(destroy(&mut fixture, object::AH, pd.into()), Some(EINVAL));
    assert_eq!(destroy(&mut fixture, object::PD, 77), Some(ENOENT));
    assert_eq!(destroy(&mut fixture, object::PD, u64::MAX), Some(EINVAL));
    assert_eq!(destroy(&mut fixture, object::PD, pd.into()), None);
    assert_eq!(destroy(&mut fixture, object::PD, pd.into()), Some(ENOENT));
}

#[test]
fn what_the_program_cannot_be_told_is_undone() {
    let mut fixture = Fixture::with_context(Profile::default());
    let request = [
        input(WRITE_COMMAND, &3u64.to_le_bytes()),
        input(CORE_IN, &[0; 8]),
        Attribute::OutAt(CORE_OUT, 4, 8),
        output(crate::abi::number::DRIVER_OUT, 8),
    ];
    assert_eq!(fixture.call(object::DEVICE, 0, &request).err(), Some(EFAULT));
    assert!(fixture.status().contains("total: files 1 pd 0 "));
}

#[test]
fn injected_faults_reach_the_program() {
    let mut fixture = Fixture::with_context(Profile::default());
    fixture.device.control("fail alloc_pd 2 ENOMEM 1").unwrap();
    fixture.alloc_pd();
    assert_eq!(fixture.try_alloc_pd().err(), Some(crate::errno::ENOMEM));
    fixture.alloc_pd();
    assert!(fixture.device.control("fail nothing ENOMEM").is_err());
    assert!(fixture.device.control("fail alloc_pd").is_err());
    assert!(fixture.device.control("rattle").is_err());
}

#[test]
fn injected_answers_reach_the_program() {
    let mut fixture = Fixture::with_context(Profile::default());
    fixture.device.control("answer alloc_pd 0 ffffffff 1").unwrap();
    for expected in [true, false] {
        let request = [
            input(WRITE_COMMAND, &3u64.to_le_bytes()),
            input(CORE_IN, &[0; 8]),
            output(CORE_OUT, 4),
            output(crate::abi::number::DRIVER_OUT, 8),
        ];
        let answer = fixture.call(object::DEVICE, 0, &request).unwrap();
        assert_eq!(answer.out(crate::abi::number::DRIVER_OUT)[..4] == [0xff; 4], expected);
    }
    for wrong in ["answer nothing 0 ff", "answer alloc_pd x ff", "answer alloc_pd 0 fff", "answer alloc_pd"] {
        assert!(fixture.device.control(wrong).is_err(), "{wrong}");
    }
}
