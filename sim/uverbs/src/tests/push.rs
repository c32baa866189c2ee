//! Push pages: when they are given out, to whom pushes count, and what becomes of them.

use irdma_engine::push::WINDOW_BYTES;
use zerocopy::IntoBytes;

use super::fake::{TOKEN, input, output};
use super::queue::{CAP, Setup, set_up_on, to_init, to_rtr, to_rts, to_state};
use crate::abi::core::{ExModifyQp, ModifyQp};
use crate::abi::driver::{ModifyQpReq, ModifyQpResp};
use crate::abi::number::{
    COMMAND_EXTENDED, CORE_IN, CORE_OUT, DRIVER_IN, DRIVER_OUT, WRITE_COMMAND, command, object,
};
use crate::errno::{EINVAL, ESTALE};
use crate::profile::{Profile, Transport};

fn profile(push_pages: u32) -> Profile {
    Profile { push_pages, push_offset: 512, page_size: 4096, ..Profile::default() }
}

impl Setup {
    /// Modifies with room for the driver's answer.
    fn modify_extended(&mut self, qp: u32, change: ModifyQp) -> ModifyQpResp {
        let request = ExModifyQp { base: ModifyQp { qp_handle: qp, ..change }, ..ExModifyQp::default() };
        let attributes = [
            input(WRITE_COMMAND, &u64::from(COMMAND_EXTENDED | command::MODIFY_QP).to_le_bytes()),
            input(CORE_IN, request.as_bytes()),
            output(CORE_OUT, 8),
            input(DRIVER_IN, ModifyQpReq::default().as_bytes()),
            output(DRIVER_OUT, 24),
        ];
        self.fixture.call(object::DEVICE, 0, &attributes).unwrap().read(DRIVER_OUT)
    }

    fn queue_pair(&mut self) -> (u32, u32) {
        self.register();
        let (handle, told) = self.create(2, CAP).unwrap();
        (handle, told.qp_id)
    }

    /// A queue pair that is ready to send, and what it was told of push pages at the end.
    fn connected(&mut self) -> (u32, u32, ModifyQpResp) {
        let (handle, number) = self.queue_pair();
        self.modify(handle, to_init()).unwrap();
        assert_eq!(self.modify_extended(handle, to_rtr()).push_valid, 0, "not before RTS");
        let told = self.modify_extended(handle, to_rts());
        (handle, number, told)
    }

    fn destroy(&mut self, qp: u32) {
        let attributes = [super::fake::Attribute::Handle(0, qp.into()), output(1, 4)];
        self.fixture.call(object::QP, 1, &attributes).unwrap();
    }

    fn counts(&mut self) -> String {
        self.fixture.device.control("push").unwrap().replace('\n', ", ")
    }
}

#[test]
fn a_page_is_told_once_and_there_are_no_more_than_there_are() {
    let mut setup = set_up_on(profile(1));
    let (first, _, told) = setup.connected();
    assert_eq!((told.push_valid, told.push_offset), (1, 512));
    // One WQE page, two doorbell pages, then that of pushes.
    assert_eq!((told.push_wqe_mmap_key, told.push_db_mmap_key), (0, 3 * 4096));
    assert_eq!(setup.modify_extended(first, to_state(3)).push_valid, 0, "told before");
    assert!(setup.counts().contains("pages 1, free 0"));
    assert_eq!(setup.connected().2.push_valid, 0, "none left");
    setup.destroy(first);
    assert!(setup.counts().contains("free 1"));
    assert_eq!(setup.connected().2.push_valid, 1);
}

#[test]
fn without_room_for_the_answer_a_page_is_told_later() {
    let mut setup = set_up_on(profile(1));
    let (qp, _) = setup.queue_pair();
    for change in [to_init(), to_rtr(), to_rts()] {
        setup.modify(qp, change).unwrap();
    }
    assert!(setup.counts().contains("free 0"));
    assert_eq!(setup.modify_extended(qp, to_state(3)).push_valid, 1);
}

#[test]
fn iwarp_queue_pairs_are_told_before_the_kernel_connects_them() {
    let mut setup = set_up_on(Profile { transport: Transport::Iwarp, ..profile(1) });
    let (qp, _) = setup.queue_pair();
    assert_eq!(setup.modify_extended(qp, to_init()).push_valid, 1);
    assert_eq!(setup.modify_extended(qp, to_rtr()).push_valid, 0);
}

#[test]
fn kernels_of_today_give_out_none() {
    let mut setup = set_up_on(profile(0));
    assert_eq!(setup.connected().2.as_bytes(), [0; 24]);
}

#[test]
fn a_push_doorbell_is_its_owners_and_names_it() {
    let mut setup = set_up_on(profile(2));
    let (_, number, told) = setup.connected();
    let device = &mut setup.fixture.device;
    let doorbell = told.push_db_mmap_key + 512;
    let place = device.push_place(TOKEN, doorbell).unwrap().unwrap();
    assert_eq!(
        (place.qp.number, place.window, place.doorbell),
        (number, told.push_wqe_mmap_key + 512, doorbell)
    );
    assert_eq!(device.push_places(TOKEN), [place]);
    for stray in [doorbell + 4, doorbell - 512, doorbell + 4096] {
        assert_eq!(device.push_place(TOKEN, stray), Err(EINVAL), "{stray:#x}");
    }
    assert_eq!(device.push_place(TOKEN, 4096), Ok(None));
    assert_eq!(device.push_place(TOKEN + 1, doorbell), Err(EINVAL), "of another node");

    let window = [0; WINDOW_BYTES];
    assert_eq!(device.push(TOKEN, place, u64::from(number) + 1, &window), Err(EINVAL));
    assert_eq!(device.push(TOKEN, place, 1 << 32, &window), Err(EINVAL));
    assert_eq!(device.push(TOKEN + 1, place, number.into(), &window), Err(ESTALE));
    device.push(TOKEN, place, number.into(), &window).unwrap();
    assert!(setup.counts().contains("taken 0, quanta 0, differing 0, late 0, dropped 1"));
}

#[test]
fn losses_can_be_asked_for() {
    let mut setup = set_up_on(profile(1));
    let (_, number, told) = setup.connected();
    let device = &mut setup.fixture.device;
    let place = device.push_place(TOKEN, told.push_db_mmap_key + 512).unwrap().unwrap();
    device.control("push drop 1").unwrap();
    // Nothing was posted, so that this is a WQE that differs from the ring, and is taken.
    let mut window = [0; WINDOW_BYTES];
    window[24..32].copy_from_slice(&(0x0c << 32 | 1_u64 << 63).to_le_bytes());
    for _ in 0..2 {
        device.push(TOKEN, place, number.into(), &window).unwrap();
    }
    assert!(setup.counts().contains("taken 1, quanta 1, differing 1, late 0, dropped 1"));
    assert!(setup.fixture.device.control("push drop").is_err());
    assert!(setup.fixture.device.control("push drop -1").is_err());
    assert!(setup.fixture.device.control("push up").is_err());
}

#[test]
fn profiles_without_a_sense_are_refused() {
    use irdma_engine::spec::Generation;
    let refused = [
        Profile { generation: Generation::Gen1, transport: Transport::Iwarp, ..profile(1) },
        profile(1025),
        Profile { push_offset: 100, ..profile(1) },
        Profile { push_offset: 4096, ..profile(1) },
    ];
    for profile in refused {
        assert!(profile.check().is_err(), "{profile:?}");
    }
    assert!(Profile { push_offset: 4096 - 256, ..profile(1024) }.check().is_ok());
}
