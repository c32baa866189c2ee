//! Events and their count.

use super::fake::{Attribute, Fixture, RINGS, output, read_record};
use crate::abi::core::DestroyCqResp;
use crate::abi::number::{event, object};
use crate::profile::Profile;

#[test]
fn unread_events_do_not_count() {
    let mut fixture = Fixture::with_context(Profile::default());
    let (_, mut events) = fixture.create_channel(true);
    let pd = fixture.alloc_pd();
    let (cq, number, _) = fixture.create_cq(pd, RINGS, None);
    for _ in 0..3 {
        fixture.device.control(&format!("async cq {number} 0203")).unwrap();
    }
    let record: [u8; 16] = read_record(&mut events);
    assert_eq!(record[..8], 0x77u64.to_le_bytes());
    assert_eq!(record[8..12], event::CQ_ERR.to_le_bytes());
    fixture.device.control("port down").unwrap();
    let outcome = fixture.call(object::CQ, 1, &[Attribute::Handle(0, cq.into()), output(1, 8)]).unwrap();
    let told: DestroyCqResp = outcome.read(1);
    assert_eq!((told.comp_events_reported, told.async_events_reported), (0, 1));
    // The port's event is still there, and nothing else.
    let record: [u8; 16] = read_record(&mut events);
    assert_eq!(record[8..12], event::PORT_ERR.to_le_bytes());
}

#[test]
fn a_closed_channel_is_forgotten() {
    let mut fixture = Fixture::with_context(Profile::default());
    let (number, end) = fixture.create_channel(false);
    let pd = fixture.alloc_pd();
    fixture.create_cq(pd, RINGS, Some(number));
    assert!(fixture.status().contains("channel 1"));
    drop(end);
    fixture.device.reap_channels();
    assert!(fixture.status().contains("channel 0"));
}

#[test]
fn channels_of_the_wrong_kind_are_no_channels() {
    let mut fixture = Fixture::with_context(Profile::default());
    let (events, _end) = fixture.create_channel(true);
    let pd = fixture.alloc_pd();
    fixture.reg_mr(pd, RINGS, 4096, [2, 1, 0, 0]).unwrap();
    for descriptor in [events as u64, 3, u64::MAX, 1 << 40] {
        let attributes = [Attribute::NewHandle(0), Attribute::Handle(3, descriptor)];
        let expected = if descriptor == 1 << 40 { crate::errno::EINVAL } else { crate::errno::EBADF };
        assert_eq!(fixture.call(object::CQ, 0, &attributes).err(), Some(expected));
    }
}

#[test]
fn removal_is_told_and_ends_everything() {
    let mut fixture = Fixture::with_context(Profile::default());
    let (_, mut events) = fixture.create_channel(true);
    let pd = fixture.alloc_pd();
    fixture.device.control("remove").unwrap();
    let record: [u8; 16] = read_record(&mut events);
    assert_eq!(record[8..12], event::DEVICE_FATAL.to_le_bytes());
    assert_eq!(fixture.try_alloc_pd().err(), Some(crate::errno::EIO));
    let destroy = fixture.call(object::PD, 0, &[Attribute::Handle(0, pd.into())]);
    assert_eq!(destroy.err(), Some(crate::errno::EIO));
    assert_eq!(fixture.device.doorbell(super::fake::TOKEN, 4096, 2, 4), Ok(()));
    assert_eq!(fixture.device.open(7).err(), Some(crate::errno::ENODEV));
    assert!(fixture.status().contains("pd 0"));
}
