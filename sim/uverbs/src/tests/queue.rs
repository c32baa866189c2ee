//! Queue pairs: sizes, states, queries.

use zerocopy::IntoBytes;

use super::fake::{Attribute, Fixture, RINGS, input, output};
use crate::abi::core::{ModifyQp, QpCap, QueryQp, QueryQpResp};
use crate::abi::driver::{CreateQpReq, CreateQpResp};
use crate::abi::number::{CORE_IN, DRIVER_IN, DRIVER_OUT, WRITE_COMMAND, command, object};
use crate::errno::{EBUSY, EINVAL, ENODATA, ENOENT, EOPNOTSUPP, EPERM, Errno};
use crate::profile::Profile;
use crate::transition::mask;

/// Where the QPs' rings are, behind the CQ's.
const QP_RING: u64 = RINGS + 0x1_0000;
pub(super) const CAP: QpCap =
    QpCap { max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };

/// A program with a domain and a CQ.
pub(super) struct Setup {
    pub(super) fixture: Fixture,
    pd: u32,
    cq: u32,
}

fn set_up() -> Setup {
    set_up_on(Profile::default())
}

pub(super) fn set_up_on(profile: Profile) -> Setup {
    let mut fixture = Fixture::with_context(profile);
    let pd = fixture.alloc_pd();
    let (cq, _, _) = fixture.create_cq(pd, RINGS, None);
    Setup { fixture, pd, cq }
}

impl Setup {
    pub(super) fn register(&mut self) -> u32 {
        // 512 quanta for sends, 8 for receives.
        self.fixture.reg_mr(self.pd, QP_RING, 5 * 4096 + 64, [1, 0, 1, 4]).unwrap().mr_handle
    }

    pub(super) fn create(&mut self, kind: u64, cap: QpCap) -> Result<(u32, CreateQpResp), Errno> {
        let request = CreateQpReq { user_wqe_bufs: QP_RING, user_compl_ctx: 0x1234 };
        let attributes = [
            Attribute::NewHandle(0),
            Attribute::Handle(2, self.pd.into()),
            Attribute::Handle(4, self.cq.into()),
            Attribute::Handle(5, self.cq.into()),
            input(7, &0x99u64.to_le_bytes()),
            input(8, cap.as_bytes()),
            input(9, &kind.to_le_bytes()),
            output(13, 20),
            output(14, 4),
            input(DRIVER_IN, request.as_bytes()),
            output(DRIVER_OUT, 24),
        ];
        let outcome = self.fixture.call(object::QP, 0, &attributes)?;
        Ok((outcome.handle(0), outcome.read(DRIVER_OUT)))
    }

    pub(super) fn modify(&mut self, qp: u32, change: ModifyQp) -> Result<(), Errno> {
        let request = ModifyQp { qp_handle: qp, ..change };
        let attributes = [
            input(WRITE_COMMAND, &u64::from(command::MODIFY_QP).to_le_bytes()),
            input(CORE_IN, request.as_bytes()),
        ];
        self.fixture.call(object::DEVICE, 0, &attributes).map(drop)
    }

    pub(super) fn query(&mut self, qp: u32) -> QueryQpResp {
        let request = QueryQp { qp_handle: qp, ..QueryQp::default() };
        self.fixture.old(command::QUERY_QP, &request, &[], 0).unwrap().0
    }
}

/// The change to INIT that every RC program makes.
pub(super) fn to_init() -> ModifyQp {
    let bits = mask::STATE | mask::PKEY_INDEX | mask::PORT | mask::ACCESS_FLAGS;
    ModifyQp { attr_mask: bits, qp_state: 1, port_num: 1, ..ModifyQp::default() }
}

pub(super) fn to_rtr() -> ModifyQp {
    let mut change = ModifyQp {
        attr_mask: 0x129181,
        qp_state: 2,
        path_mtu: 3,
        dest_qp_num: 5,
        rq_psn: 0x100_0007,
        max_dest_rd_atomic: 1,
        min_rnr_timer: 12,
        ..ModifyQp::default()
    };
    change.dest.is_global = 1;
    change.dest.port_num = 1;
    change
}

pub(super) fn to_rts() -> ModifyQp {
    ModifyQp {
        attr_mask: 0x12e01,
        qp_state: 3,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        sq_psn: 9,
        max_rd_atomic: 1,
        ..ModifyQp::default()
    }
}

pub(super) fn to_state(state: u8) -> ModifyQp {
    ModifyQp { attr_mask: mask::STATE, qp_state: state, ..ModifyQp::default() }
}

#[test]
fn sizes_are_the_kernels() {
    let mut setup = set_up();
    setup.register();
    let (qp, told) = setup.create(2, CAP).unwrap();
    // One fragment and an immediate take two quanta: 2 + 258 rounded up, by two.
    assert_eq!((told.actual_sq_size, told.actual_rq_size), (256, 8));
    assert_eq!(told.qp_caps, 0xf);
    let known = setup.query(qp);
    assert_eq!((known.cap.max_send_wr, known.cap.max_recv_wr, known.qp_state), (127, 7, 0));
}

#[test]
fn rings_are_found_by_address_and_used_up() {
    let mut setup = set_up();
    assert_eq!(setup.create(2, CAP).err(), Some(ENODATA));
    setup.register();
    // A create that fails behind the look-up has used the registration up all the same.
    assert_eq!(setup.create(2, QpCap { max_send_wr: 32768, ..CAP }).err(), Some(EINVAL));
    assert_eq!(setup.create(2, CAP).err(), Some(ENODATA));
    setup.register();
    setup.create(2, CAP).unwrap();
}

#[test]
fn kinds_and_limits() {
    let mut setup = set_up();
    setup.register();
    for (kind, expected) in [(3, EOPNOTSUPP), (8, EPERM), (10, ENOENT), (7, EINVAL), (0xff, EOPNOTSUPP)] {
        assert_eq!(setup.create(kind, CAP).err(), Some(expected), "kind {kind}");
    }
    assert_eq!(setup.create(2, QpCap { max_inline_data: 102, ..CAP }).err(), Some(EINVAL));
    assert_eq!(setup.create(2, QpCap { max_send_sge: 14, ..CAP }).err(), Some(EINVAL));
    assert_eq!(setup.create(2, QpCap { max_recv_wr: u32::MAX, ..CAP }).err(), Some(EINVAL));
    assert!(setup.create(4, CAP).is_ok(), "none of these had got as far as the registration");
}

#[test]
fn the_way_to_rts_and_back() {
    let mut setup = set_up();
    setup.register();
    let (qp, _) = setup.create(2, CAP).unwrap();
    assert_eq!(setup.modify(qp, to_rtr()).err(), Some(EINVAL), "not from RESET");
    setup.modify(qp, to_init()).unwrap();
    setup.modify(qp, to_rtr()).unwrap();
    let known = setup.query(qp);
    assert_eq!((known.qp_state, known.dest_qp_num, known.rq_psn, known.path_mtu), (2, 5, 7, 3));
    setup.modify(qp, to_rts()).unwrap();
    assert_eq!(setup.query(qp).retry_cnt, 7);
    setup.modify(qp, to_state(4)).unwrap();
    setup.modify(qp, to_state(4)).unwrap();
    setup.modify(qp, to_state(3)).unwrap();
    setup.modify(qp, to_state(6)).unwrap();
    assert_eq!(setup.query(qp).qp_state, 6);
    assert_eq!(setup.modify(qp, to_init()).err(), Some(EINVAL));
    setup.modify(qp, to_state(0)).unwrap();
    assert_eq!(setup.modify(qp, to_init()).err(), Some(EINVAL), "a used QP is not recycled");
}

#[test]
fn reset_spoils_a_fresh_queue_pair() {
    let mut setup = set_up();
    setup.register();
    let (qp, _) = setup.create(2, CAP).unwrap();
    setup.modify(qp, to_state(0)).unwrap();
    assert_eq!(setup.modify(qp, to_init()).err(), Some(EINVAL));
}

#[test]
fn a_privileged_program_chooses_any_q_key() {
    let mut setup = set_up();
    setup.register();
    let (qp, _) = setup.create(4, CAP).unwrap();
    let init = ModifyQp {
        attr_mask: mask::STATE | mask::PKEY_INDEX | mask::PORT | mask::QKEY,
        qkey: 0x8000_0001,
        ..to_init()
    };
    assert_eq!(setup.modify(qp, init).err(), Some(EPERM));
    setup.fixture.program.privileged.set(true);
    setup.modify(qp, init).unwrap();
    assert_eq!(setup.query(qp).qkey, 0x8000_0001);
}

#[test]
fn nonsense_changes_nothing() {
    let mut setup = set_up();
    setup.register();
    let (qp, _) = setup.create(2, CAP).unwrap();
    let refused = [
        (ModifyQp { attr_mask: 1 << 25, ..to_init() }, EOPNOTSUPP),
        (ModifyQp { port_num: 2, ..to_init() }, EINVAL),
        (ModifyQp { qp_state: 7, ..to_init() }, EINVAL),
        (ModifyQp { pkey_index: 1, ..to_init() }, EINVAL),
        (ModifyQp { attr_mask: mask::QKEY, qkey: 0x8000_0000, ..ModifyQp::default() }, EPERM),
        (ModifyQp { attr_mask: mask::ALT_PATH, ..ModifyQp::default() }, EINVAL),
    ];
    for (change, expected) in refused {
        assert_eq!(setup.modify(qp, change).err(), Some(expected));
        assert_eq!(setup.query(qp).qp_state, 0);
    }
    setup.modify(qp, to_init()).unwrap();
    let mut no_grh = to_rtr();
    no_grh.dest.is_global = 0;
    let mut no_gid = to_rtr();
    no_gid.dest.sgid_index = 9;
    let cases = [
        (no_grh, EINVAL),
        (no_gid, ENODATA),
        (ModifyQp { path_mtu: 0, ..to_rtr() }, EINVAL),
        (ModifyQp { path_mtu: 6, ..to_rtr() }, EINVAL),
        (ModifyQp { max_dest_rd_atomic: 128, ..to_rtr() }, EINVAL),
    ];
    for (change, expected) in cases {
        assert_eq!(setup.modify(qp, change).err(), Some(expected));
        assert_eq!((setup.query(qp).qp_state, setup.query(qp).dest_qp_num), (1, 0));
    }
}

#[test]
fn a_queue_pair_holds_on_to_what_it_uses() {
    let mut setup = set_up();
    let ring = setup.register();
    let (qp, _) = setup.create(2, CAP).unwrap();
    let destroy_cq = [Attribute::Handle(0, setup.cq.into()), output(1, 8)];
    assert_eq!(setup.fixture.call(object::CQ, 1, &destroy_cq).err(), Some(EBUSY));
    assert_eq!(setup.fixture.dereg_mr(ring).err(), Some(EBUSY));
    setup.fixture.call(object::QP, 1, &[Attribute::Handle(0, qp.into()), output(1, 4)]).unwrap();
    setup.fixture.call(object::CQ, 1, &destroy_cq).unwrap();
    setup.fixture.dereg_mr(ring).unwrap();
}

#[test]
fn closing_frees_everything() {
    let mut setup = set_up();
    setup.register();
    setup.create(2, CAP).unwrap();
    setup.fixture.device.close(super::fake::TOKEN);
    assert!(setup.fixture.device.is_unused());
    setup.fixture.device.open(super::fake::TOKEN).unwrap();
    let mut fixture = setup.fixture;
    fixture.get_context(1, 80).unwrap();
    assert!(fixture.status().contains("total: files 1 pd 0 mr 0 ring 0 mw 0 cq 0 qp 0 srq 0 ah 0 channel 0"));
    let (told, _) = fixture
        .old::<crate::abi::core::QueryDeviceResp>(
            command::QUERY_DEVICE,
            &crate::abi::core::QueryDevice::default(),
            &[],
            0,
        )
        .unwrap();
    let most = (
        crate::profile::QP_COUNT,
        crate::profile::CQ_COUNT,
        crate::profile::PD_COUNT,
        crate::profile::MR_COUNT,
    );
    assert_eq!((told.max_qp, told.max_cq, told.max_pd, told.max_mr), most);
}
