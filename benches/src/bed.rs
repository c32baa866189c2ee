//! The objects that rows are measured on: queue pairs that talk to themselves.

use std::ffi::c_long;
use std::ptr::null_mut;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use irdma_tests::context::{Context, Pd};
use irdma_tests::cq::Cq;
use irdma_tests::cq_ex::CqEx;
use irdma_tests::device::{Device, feature};
use irdma_tests::domain::{ThreadDomain, attributes, try_parent};
use irdma_tests::fixtures::Q_KEY;
use irdma_tests::memory::{ALL_ACCESS, Buffer, Mr};
use irdma_tests::qp::{Ah, Connection, Qp, QpOptions};
use irdma_tests::srq::Srq;
use irdma_tests::sys::*;

use crate::requests::Requests;
use crate::row::Handles;
use crate::rows::post_send::{addressed, send};

/// Work requests of a round.
pub const ROUND: usize = 64;

/// Bytes of every message that is not about its length.
pub const MESSAGE: usize = 64;

/// Bytes inline that every generation has.
const FIRST_GENERATION_INLINE: u32 = 48;

/// Entries of each completion queue: several rounds.
pub const ENTRIES: u32 = 1024;

/// Every kind of bed, those that the provider offers.
pub struct Beds {
    /// RC, locked.
    pub connected: Rc<Bed>,
    /// UD, locked.
    pub datagram: Option<Rc<Bed>>,
    /// RC, on completion queues with the extended interface.
    pub extended: Option<Rc<Bed>>,
    /// RC, with a shared receive queue.
    pub shared: Option<Rc<Bed>>,
    /// RC, in a thread domain, on completion queues of a single thread.
    pub single: Option<Rc<Bed>>,
    /// RC, with the `ibv_wr_*` interface.
    pub building: Option<Rc<Bed>>,
    /// Both of the last two.
    pub single_building: Option<Rc<Bed>>,
}

impl Beds {
    /// On the first device.
    pub fn new() -> Beds {
        let pd = Pd::new(&Context::open());
        let context = pd.context();
        let plain = || [(); 2].map(|()| queue(context));
        let extended = || Some([extended_queue(context, 0)?, extended_queue(context, 0)?]);
        Beds {
            connected: Rc::new(Bed::connected(create(&pd, &plain(), IBV_QPT_RC))),
            datagram: Bed::datagram(&pd, &plain()).map(Rc::new),
            extended: extended().map(|queues| Rc::new(Bed::connected(create(&pd, &queues, IBV_QPT_RC)))),
            shared: Bed::shared(&pd, plain()).map(Rc::new),
            single: Bed::single_threaded(&pd, |pd, queues| Some(create(pd, queues, IBV_QPT_RC))),
            building: try_create_building(&pd, &plain()).map(Bed::connected).map(Rc::new),
            single_building: Bed::single_threaded(&pd, try_create_building),
        }
    }
}

/// A queue pair that talks to itself.
pub struct Bed {
    /// It.
    pub qp: Qp,
    /// Memory that every message comes from and goes to.
    pub mr: Mr,
    /// The way to itself, of a UD queue pair.
    pub ah: Option<Ah>,
    srq: Option<Arc<Srq>>,
    receives: Requests<ibv_recv_wr>,
    reclaim: Requests<ibv_send_wr>,
}

impl Bed {
    /// Connects an RC queue pair to itself.
    fn connected(qp: Qp) -> Bed {
        connect(&qp);
        // What sets up an iWARP connection completes: the C provider shows it.
        step();
        qp.send_cq().poll(16);
        Bed::started(qp, None)
    }

    /// Starts a UD queue pair, if the device has them and the provider can address it: that of rdma-core 65
    /// cuts the numbers of the address handles of GEN3.
    fn datagram(pd: &Arc<Pd>, queues: &[Arc<Cq>; 2]) -> Option<Bed> {
        let qp = try_create(pd, queues, IBV_QPT_UD)?;
        qp.start_datagrams(Q_KEY);
        let context = pd.context();
        let ah = Ah::new(pd, context.gid(i32::from(context.gid_index())));
        let bed = Bed::started(qp, Some(ah));
        bed.reaches_itself().then_some(bed)
    }

    /// Whether a datagram arrives.
    fn reaches_itself(&self) -> bool {
        let element = [self.mr.sge(0, 2 * MESSAGE)];
        let receive = Requests::new(1, 1, &ibv_recv_wr::default(), &element);
        let send = Requests::new(1, 1, &addressed(self, send()), &[self.mr.sge(0, MESSAGE)]);
        assert_eq!(receive.post(self.qp.raw()) | send.post(self.qp.raw()), 0, "post");
        step();
        let sent = self.qp.send_cq().poll(1);
        let received = self.qp.recv_cq().poll(1);
        [sent, received].iter().flatten().filter(|completion| completion.status == IBV_WC_SUCCESS).count()
            == 2
    }

    /// With a shared receive queue, if the provider has them.
    fn shared(pd: &Arc<Pd>, [send, receive]: [Arc<Cq>; 2]) -> Option<Bed> {
        let options = options(IBV_QPT_RC);
        let srq = Srq::try_new(pd, options.max_recv_wr, options.max_recv_sge).ok()?;
        let bed = Bed::connected(Qp::on_srq(pd, &send, &receive, &srq, options));
        Some(Bed { srq: Some(srq), ..bed })
    }

    /// In a thread domain, if the provider has them, on queues of a single thread.
    fn single_threaded(
        pd: &Arc<Pd>,
        create: impl FnOnce(&Arc<Pd>, &[Arc<Cq>; 2]) -> Option<Qp>,
    ) -> Option<Rc<Bed>> {
        let domain = ThreadDomain::try_new(pd.context(), 0).ok()?;
        let parent = try_parent(pd, Some(&domain), &mut attributes(pd, Some(&domain))).ok()?;
        let queue = || extended_queue(pd.context(), IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
        let queues = [queue()?, queue()?];
        Some(Rc::new(Bed::connected(create(&parent, &queues)?)))
    }

    fn started(qp: Qp, ah: Option<Ah>) -> Bed {
        let mr = memory(qp.pd());
        // Room for a datagram's header too.
        let element = mr.sge(0, 2 * MESSAGE);
        let receives = Requests::new(ROUND, 16, &ibv_recv_wr::default(), &[element]);
        let mut write = ibv_send_wr { opcode: IBV_WR_RDMA_WRITE, ..ibv_send_wr::default() };
        write.send_flags = IBV_SEND_SIGNALED;
        write.wr.rdma.remote_addr = mr.address();
        write.wr.rdma.rkey = mr.rkey();
        let reclaim = Requests::new(1, 1, &write, &[element]);
        Bed { qp, mr, ah, srq: None, receives, reclaim }
    }

    /// What the verbs are called on.
    pub fn handles(&self) -> Handles {
        let qp = self.qp.raw();
        Handles {
            qp,
            // SAFETY: the queue pair is alive.
            qp_ex: unsafe { ibv_qp_to_qp_ex(qp) },
            srq: self.srq.as_ref().map_or(null_mut(), |srq| srq.raw()),
            send_cq: self.qp.send_cq().raw(),
            recv_cq: self.qp.recv_cq().raw(),
            are_hollow: false,
        }
    }

    /// Posts the receives of a round.
    pub fn replenish(&self) {
        let outcome = match &self.srq {
            Some(srq) => self.receives.post_shared(srq.raw()),
            None => self.receives.post(self.qp.raw()),
        };
        assert_eq!(outcome, 0, "post_recv");
    }

    /// Lets the device work, and takes that many completions of each queue.
    pub fn drain(&self, sent: usize, received: usize) {
        step();
        for (queue, count) in [(self.qp.send_cq(), sent), (self.qp.recv_cq(), received)] {
            let completions = queue.poll(count + 1);
            let failed = completions.iter().find(|completion| completion.status != IBV_WC_SUCCESS);
            assert!(failed.is_none(), "{failed:#?}");
            assert_eq!(completions.len(), count, "completions");
        }
    }

    /// Frees the send queue of an RC queue pair from unsignaled requests that are done.
    pub fn reclaim(&self) {
        assert_eq!(self.reclaim.post(self.qp.raw()), 0, "post_send");
        self.drain(1, 0);
    }
}

/// A plain completion queue.
pub fn queue(context: &Arc<Context>) -> Arc<Cq> {
    Cq::new(context, ENTRIES as i32)
}

/// Memory that everything may be done with.
pub fn memory(pd: &Arc<Pd>) -> Mr {
    Mr::new(pd, &Arc::new(Buffer::new(4096)), access() as i32)
}

/// Connects an RC queue pair to itself.
pub fn connect(qp: &Qp) {
    let context = qp.context();
    let gid = context.gid(i32::from(context.gid_index()));
    qp.connect(Connection { access: access(), ..Connection::default() }, qp.number(), gid);
}

/// An RC queue pair for so many requests of one element in each queue, all of which complete in `cq`.
pub fn small(pd: &Arc<Pd>, cq: &Arc<Cq>, depth: u32) -> Qp {
    Qp::new(pd, cq, cq, small_options(depth))
}

/// The shape of such queue pairs.
pub fn small_options(depth: u32) -> QpOptions {
    QpOptions {
        max_send_wr: depth,
        max_recv_wr: depth,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 0,
        ..QpOptions::default()
    }
}

/// What everybody may do with the memory.
fn access() -> u32 {
    let atomics = if Device::present().has(feature::ATOMIC_OPS) { IBV_ACCESS_REMOTE_ATOMIC } else { 0 };
    ALL_ACCESS as u32 | atomics
}

/// The shape of every queue pair.
fn options(qp_type: u32) -> QpOptions {
    QpOptions {
        qp_type,
        max_send_wr: 2 * ROUND as u32,
        max_recv_wr: 2 * ROUND as u32,
        max_send_sge: 13,
        max_recv_sge: 1,
        max_inline_data: 101,
        all_signaled: false,
    }
}

/// With as much inline data and as many elements as the rows want, or as the device has.
fn try_create(pd: &Arc<Pd>, [send, receive]: &[Arc<Cq>; 2], qp_type: u32) -> Option<Qp> {
    let most = options(qp_type);
    let max_send_sge = pd.context().query_device().max_sge as u32;
    let less = QpOptions { max_send_sge, max_inline_data: FIRST_GENERATION_INLINE, ..most };
    [most, less].into_iter().find_map(|options| Qp::try_new(pd, send, receive, options).ok())
}

fn create(pd: &Arc<Pd>, queues: &[Arc<Cq>; 2], qp_type: u32) -> Qp {
    try_create(pd, queues, qp_type).expect("the device has such queue pairs")
}

/// An RC queue pair with the `ibv_wr_*` interface.
fn try_create_building(pd: &Arc<Pd>, [send, receive]: &[Arc<Cq>; 2]) -> Option<Qp> {
    let plain = options(IBV_QPT_RC).attributes(send.raw(), receive.raw());
    let mut attributes = ibv_qp_init_attr_ex {
        send_cq: plain.send_cq,
        recv_cq: plain.recv_cq,
        cap: plain.cap,
        qp_type: plain.qp_type,
        pd: pd.raw(),
        comp_mask: IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        send_ops_flags: u64::from(IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE),
        ..ibv_qp_init_attr_ex::default()
    };
    // SAFETY: domain, queues and attributes are alive for the call.
    let raw = unsafe { ibv_create_qp_ex(pd.context().raw(), &mut attributes) };
    (!raw.is_null()).then(|| Qp::own(raw, pd, [send, receive], attributes.cap))
}

/// A completion queue with the extended interface and those `IBV_CREATE_CQ_ATTR_*` flags.
fn extended_queue(context: &Arc<Context>, flags: u32) -> Option<Arc<Cq>> {
    if Device::present().generation == 1 {
        return None;
    }
    let mut attributes = CqEx::attributes(ENTRIES, u64::from(IBV_WC_EX_WITH_BYTE_LEN));
    if flags != 0 {
        attributes.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
        attributes.flags = flags;
    }
    CqEx::try_new(context, None, &mut attributes).ok().map(|queue| Arc::clone(queue.plain()))
}

/// Lets the device work until there is nothing left to do.
pub fn step() {
    static STEP: OnceLock<Option<unsafe extern "C" fn() -> c_long>> = OnceLock::new();
    let step = STEP.get_or_init(|| {
        // SAFETY: a plain look-up by name; the preloaded library declares the symbol so.
        unsafe {
            let symbol = libc::dlsym(libc::RTLD_DEFAULT, c"irdma_sim_step".as_ptr());
            std::mem::transmute::<*mut libc::c_void, Option<unsafe extern "C" fn() -> c_long>>(symbol)
        }
    });
    let step = step.expect("the program runs on the software device, in step mode");
    // SAFETY: has no preconditions.
    let served = unsafe { step() };
    assert!(served >= 0, "irdma_sim_step: errno {}", -served);
}
