//! Thread domains and parent domains: what works in them, who needs whom, no locks, lent memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use irdma_tests::builder::{CONNECTED, Manner, QpEx};
use irdma_tests::context::{Context, Pd};
use irdma_tests::cq::Cq;
use irdma_tests::cq_ex::CqEx;
use irdma_tests::device::Device;
use irdma_tests::domain::{Answer, Lender, ThreadDomain, attributes, parent, try_parent};
use irdma_tests::memory::Mr;
use irdma_tests::qp::{Ah, Connection, Qp, QpOptions};
use irdma_tests::runner::Test;
use irdma_tests::sys::*;
use irdma_tests::test;
use irdma_tests::wc::{Wc, assert_completions};
use irdma_tests::work::{ReceiveWork, SendWork};

const NO_DOMAINS: &str = "has no thread domains and no parent domains";

/// A completion queue in a parent domain, on demand single-threaded.
fn queue_in(domain: &Arc<Pd>, flags: u32) -> Result<CqEx, i32> {
    let mut attributes = CqEx::attributes(64, IBV_WC_STANDARD_FLAGS.into());
    attributes.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD | IBV_CQ_INIT_ATTR_MASK_FLAGS;
    attributes.flags = flags;
    attributes.parent_domain = domain.raw();
    CqEx::try_new(domain.context(), None, &mut attributes)
}

/// A queue pair in a domain sends to itself.
#[track_caller]
fn check_traffic(domain: &Arc<Pd>, cq: &Arc<Cq>) {
    let mr = Mr::patterned(domain, 65536, 3);
    let gid = domain.context().gid(domain.context().gid_index().into());
    let qp = Qp::new(domain, cq, cq, QpOptions::default());
    qp.connect(Connection::default(), qp.number(), gid);
    for wr_id in 0..700 {
        qp.receive(ReceiveWork::new(wr_id).sge(mr.sge(4096, 256)));
        qp.post(SendWork::send(wr_id).sge(mr.sge(0, 256)));
        let mut both = cq.wait(2);
        both.sort_by_key(Wc::is_receive);
        let expected =
            [Wc::sent(qp.number(), wr_id, IBV_WC_SEND, 256), Wc::received(qp.number(), wr_id, 256)];
        assert_completions(&both, &expected);
    }
    assert_eq!(mr.buffer().read(0, 256), mr.buffer().read(4096, 256));
}

fn everything_works_in_a_parent_domain() {
    Device::present().require_roce("datagrams");
    let pd = Pd::new(&Context::open());
    let threads = ThreadDomain::new(pd.context());
    for threads in [None, Some(&threads)] {
        let domain = parent(&pd, threads);
        let cq = queue_in(&domain, 0).expect("a completion queue");
        check_traffic(&domain, cq.plain());
        // Interchangeable with the domain below.
        check_traffic(&pd, cq.plain());
        let gid = pd.context().gid(pd.context().gid_index().into());
        let _handle = Ah::new(&domain, gid);
        check_traffic(&parent(&domain, threads), cq.plain());
    }
}

/// One thread posts, another polls, and in between the queue pair fails: by a request that cannot
/// be done, or because the program wants it.
#[track_caller]
fn check_failures_while_posting(domain: &Arc<Pd>) {
    const WORKS: u64 = 60;
    let mr = Mr::patterned(domain, 4096, 3);
    let gid = domain.context().gid(domain.context().gid_index().into());
    for round in 0..60 {
        let cq = Cq::new(domain.context(), 128);
        let qp = Qp::new(domain, &cq, &cq, QpOptions::default());
        qp.connect(Connection::default(), qp.number(), gid);
        let failing = round % 50 + 5;
        let posted = AtomicU64::new(0);
        let completions = thread::scope(|scope| {
            scope.spawn(|| {
                let mut next = 0;
                while next < WORKS {
                    let mut element = mr.sge(2048, 8);
                    if round % 2 == 0 && next == failing {
                        element.lkey = !element.lkey;
                    }
                    let write = SendWork::write(next, mr.address(), mr.rkey()).sge(element);
                    match qp.try_post(&mut [write]) {
                        Ok(()) => next += 1,
                        Err(refused) => assert_eq!(refused.errno, libc::ENOMEM),
                    }
                    posted.store(next, Ordering::Relaxed);
                }
            });
            if round % 2 == 1 {
                while posted.load(Ordering::Relaxed) < failing {
                    thread::yield_now();
                }
                qp.fail();
            }
            cq.wait(WORKS as usize)
        });
        assert!(completions.iter().map(|completion| completion.wr_id).eq(0..WORKS), "round {round}");
        let flushed = completions.iter().skip_while(|completion| completion.status == IBV_WC_SUCCESS);
        let statuses: Vec<_> = flushed.map(|completion| completion.status).collect();
        let expected = if round % 2 == 0 { IBV_WC_LOC_PROT_ERR } else { IBV_WC_WR_FLUSH_ERR };
        assert!(statuses.first().is_none_or(|&first| first == expected), "round {round}: {statuses:?}");
        let mut rest = statuses.iter().skip(1);
        assert!(rest.all(|&status| status == IBV_WC_WR_FLUSH_ERR), "round {round}: {statuses:?}");
        cq.expect_empty();
    }
}

fn work_posted_while_a_queue_pair_fails_is_flushed() {
    check_failures_while_posting(&Pd::new(&Context::open()));
}

fn work_posted_while_a_queue_pair_of_a_thread_domain_fails_is_flushed() {
    let pd = Pd::new(&Context::open());
    let threads = ThreadDomain::new(pd.context());
    check_failures_while_posting(&parent(&pd, Some(&threads)));
}

fn regions_are_those_of_the_domain_below() {
    let pd = Pd::new(&Context::open());
    let domain = parent(&pd, None);
    let cq = Cq::new(pd.context(), 64);
    let gid = pd.context().gid(pd.context().gid_index().into());
    let (inside, outside) = (Mr::patterned(&domain, 4096, 1), Mr::fresh(&pd, 4096));
    for place in [&pd, &domain] {
        let qp = Qp::new(place, &cq, &cq, QpOptions::default());
        qp.connect(Connection::default(), qp.number(), gid);
        for (from, to) in [(&inside, &outside), (&outside, &inside)] {
            qp.post(SendWork::write(1, to.address(), to.rkey()).sge(from.sge(0, 64)));
            assert_completions(&cq.wait(1), &[Wc::sent(qp.number(), 1, IBV_WC_RDMA_WRITE, 64)]);
        }
    }
}

fn domains_are_pure_software_and_unlimited() {
    let pd = Pd::new(&Context::open());
    let all: Vec<_> = (0..5000)
        .map(|_| {
            let threads = ThreadDomain::new(pd.context());
            (parent(&pd, Some(&threads)), threads)
        })
        .collect();
    check_traffic(&all[4999].0, &Cq::new(pd.context(), 64));
}

fn wrong_attributes_are_refused() {
    let (pd, other) = (Pd::new(&Context::open()), Pd::new(&Context::open()));
    assert_eq!(ThreadDomain::try_new(pd.context(), 1).err(), Some(libc::EINVAL));
    let foreign = ThreadDomain::new(other.context());
    let good = attributes(&pd, None);
    let bad = [
        ibv_parent_domain_init_attr { pd: std::ptr::null_mut(), ..good },
        ibv_parent_domain_init_attr { pd: other.raw(), ..good },
        ibv_parent_domain_init_attr { td: foreign.raw(), ..good },
        ibv_parent_domain_init_attr { comp_mask: IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS, ..good },
        ibv_parent_domain_init_attr { free: None, ..Lender::new(Answer::Memory).attributes(&pd) },
    ];
    for mut attributes in bad {
        assert_eq!(try_parent(&pd, None, &mut attributes).err(), Some(libc::EINVAL));
    }
    let mut unknown = ibv_parent_domain_init_attr { comp_mask: 1 << 2, ..good };
    assert_eq!(try_parent(&pd, None, &mut unknown).err(), Some(libc::EOPNOTSUPP));
    // A completion queue has nothing of a protection domain.
    assert_eq!(queue_in(&pd, 0).err(), Some(libc::EINVAL));
    assert_eq!(queue_in(&parent(&pd, None), 1 << 5).err(), Some(libc::EOPNOTSUPP));
}

fn nothing_goes_before_what_needs_it() {
    Device::present().require_roce("address handles");
    let pd = Pd::new(&Context::open());
    let threads = ThreadDomain::new(pd.context());
    let domain = parent(&pd, Some(&threads));
    assert_eq!(pd.refused_dealloc(), libc::EBUSY);
    assert_eq!(threads.refused_dealloc(), libc::EBUSY);
    let nested = parent(&domain, None);
    assert_eq!(domain.refused_dealloc(), libc::EBUSY);
    drop(nested);

    let mr = Mr::fresh(&domain, 4096);
    assert_eq!(domain.refused_dealloc(), libc::EBUSY);
    drop(mr);
    let handle = Ah::new(&domain, pd.context().gid(pd.context().gid_index().into()));
    assert_eq!(domain.refused_dealloc(), libc::EBUSY);
    drop(handle);
    let cq = queue_in(&domain, 0).expect("a completion queue");
    assert_eq!(domain.refused_dealloc(), libc::EBUSY);
    let qp = Qp::new(&domain, cq.plain(), cq.plain(), QpOptions::default());
    drop(qp);
    assert_eq!(domain.refused_dealloc(), libc::EBUSY);
    drop(cq);
    // A create that fails is no user.
    let cq = Cq::new(pd.context(), 64);
    let impossible = QpOptions { max_send_sge: 1000, ..QpOptions::default() };
    assert!(Qp::try_new(&domain, &cq, &cq, impossible).is_err());
    // Each of these is checked when it is freed.
    drop(domain);
    drop(threads);
}

fn a_region_can_move_between_domains() {
    let pd = Pd::new(&Context::open());
    let (one, other) = (parent(&pd, None), parent(&pd, None));
    let mr = Mr::fresh(&one, 4096);
    // SAFETY: region and domain are alive.
    let result = unsafe {
        ibv_rereg_mr(mr.raw(), IBV_REREG_MR_CHANGE_PD as i32, other.raw(), std::ptr::null_mut(), 0, 0)
    };
    assert_eq!(result, 0);
    assert_eq!(other.refused_dealloc(), libc::EBUSY);
    drop(mr);
}

/// Ends the program if it waits for itself.
fn limit_time() {
    // SAFETY: has no preconditions.
    unsafe { libc::alarm(10) };
}

/// A thread that starts a batch twice is told so without a lock as well.
#[track_caller]
fn check_no_lock(domain: &Arc<Pd>, cq: &Arc<Cq>) {
    limit_time();
    let qp = QpEx::try_new(domain, cq, cq, QpOptions::default(), CONNECTED.into()).expect("a queue pair");
    qp.start();
    // Another thread is not held up; that it must not be there is the program's promise.
    let refusal = std::thread::scope(|scope| scope.spawn(|| post_invalid(&qp)).join());
    assert_eq!(refusal.ok(), Some(libc::EINVAL));
    qp.start();
    assert_eq!(qp.complete(), libc::EINVAL);
    let gid = domain.context().gid(domain.context().gid_index().into());
    let mr = Mr::fresh(domain, 4096);
    qp.connect(Connection::default(), qp.number(), gid);
    let write = SendWork::write(1, mr.address(), mr.rkey()).sge(mr.sge(0, 8));
    assert_eq!(qp.try_build(&[write], Manner::default()), 0);
    assert_completions(&cq.wait(1), &[Wc::sent(qp.number(), 1, IBV_WC_RDMA_WRITE, 8)]);
}

/// Posts what is refused, so changes nothing.
fn post_invalid(qp: &Qp) -> i32 {
    qp.try_post(&mut [SendWork::new(1, IBV_WR_TSO)]).expect_err("posted").errno
}

/// Polling within a batch of the extended interface does not wait for itself.
#[track_caller]
fn check_no_poll_lock(domain: &Arc<Pd>, cq: &CqEx) {
    limit_time();
    let mr = Mr::fresh(domain, 4096);
    let gid = domain.context().gid(domain.context().gid_index().into());
    let qp = Qp::new(domain, cq.plain(), cq.plain(), QpOptions::default());
    qp.connect(Connection::default(), qp.number(), gid);
    let write = |wr_id| SendWork::write(wr_id, mr.address(), mr.rkey()).sge(mr.sge(0, 8));
    qp.post_list(&mut [write(1), write(2)]);
    let sent = |wr_id| Wc::sent(qp.number(), wr_id, IBV_WC_RDMA_WRITE, 8);
    let mut attributes = ibv_poll_cq_attr { comp_mask: 0 };
    // SAFETY: the queue is alive; the batch is ended below.
    while unsafe { ibv_start_poll(cq.raw_ex(), &mut attributes) } == libc::ENOENT {
        std::thread::yield_now();
    }
    assert_completions(&cq.plain().wait(1), &[sent(2)]);
    // SAFETY: within a batch.
    unsafe { ibv_end_poll(cq.raw_ex()) };
}

fn queues_in_a_thread_domain_take_no_lock() {
    Device::present().require_roce("datagrams");
    let pd = Pd::new(&Context::open());
    let threads = ThreadDomain::new(pd.context());
    let domain = parent(&pd, Some(&threads));
    let cq = queue_in(&domain, 0).expect("a completion queue");
    check_no_lock(&domain, cq.plain());
    check_no_poll_lock(&domain, &cq);
}

fn a_single_threaded_completion_queue_takes_no_lock() {
    let pd = Pd::new(&Context::open());
    let mut attributes = CqEx::attributes(64, IBV_WC_STANDARD_FLAGS.into());
    attributes.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    attributes.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
    let cq = CqEx::try_new(pd.context(), None, &mut attributes).expect("a completion queue");
    check_no_poll_lock(&pd, &cq);
}

fn the_switch_elides_every_lock() {
    Device::present().require_roce("datagrams");
    // SAFETY: this program has one thread.
    unsafe { std::env::set_var("IRDMA_SINGLE_THREADED", "1") };
    let pd = Pd::new(&Context::open());
    let cq = CqEx::new(pd.context(), 64);
    check_no_lock(&pd, cq.plain());
    check_no_poll_lock(&pd, &cq);
}

fn rings_lie_in_memory_that_the_program_lends() {
    let pd = Pd::new(&Context::open());
    let lender = Lender::new(Answer::Memory);
    let domain = lender.parent(&pd);
    let cq = queue_in(&domain, 0).expect("a completion queue");
    assert_eq!(lender.loans().len(), 1);
    check_traffic(&domain, cq.plain());
    assert_eq!((lender.loans().len(), lender.calls()), (1, 2));
    let qp = Qp::new(&domain, cq.plain(), cq.plain(), QpOptions::default());
    let mut resources = Vec::new();
    for loan in lender.loans() {
        assert!(loan.alignment >= 4096 && loan.length.is_multiple_of(4096));
        // Intel's RDMA driver, as the kernel counts.
        assert_eq!(loan.resource >> 32, 9);
        resources.push(loan.resource as u32);
    }
    resources.dedup();
    assert_eq!(resources.len(), 2, "one kind of resource for each kind of queue");
    // A ring that takes the place of another is lent too.
    if cq.resize(500).is_ok() {
        assert_eq!(lender.calls(), 4);
    }
    drop(qp);
    drop(cq);
    assert!(lender.loans().is_empty(), "lent memory that was not given back");
}

fn a_lender_may_refuse() {
    let pd = Pd::new(&Context::open());
    let cq = Cq::new(pd.context(), 64);
    for (answer, errno) in [(Answer::Nothing, libc::ENOMEM), (Answer::Misaligned, libc::EINVAL)] {
        let lender = Lender::new(answer);
        let domain = lender.parent(&pd);
        assert_eq!(Qp::try_new(&domain, &cq, &cq, QpOptions::default()).err(), Some(errno));
        assert_eq!(queue_in(&domain, 0).err(), Some(errno));
        assert_eq!((lender.calls(), lender.loans().len()), (2, 0));
    }
    let lender = Lender::new(Answer::Default);
    let domain = lender.parent(&pd);
    check_traffic(&domain, queue_in(&domain, 0).expect("a completion queue").plain());
    assert_eq!((lender.calls(), lender.loans().len()), (2, 0));
}

fn a_context_closes_over_what_is_left_in_domains() {
    let context = Context::open();
    let raw = context.raw();
    let pd = Pd::new(&context);
    let lender = Lender::new(Answer::Memory);
    let domain = lender.parent(&pd);
    let threads = ThreadDomain::new(&context);
    let both = parent(&domain, Some(&threads));
    let cq = queue_in(&domain, 0).expect("a completion queue");
    let qp = Qp::new(&domain, cq.plain(), cq.plain(), QpOptions::default());
    let region = Mr::fresh(&both, 4096);
    // Nothing of it is destroyed.
    std::mem::forget((context, pd, domain, threads, both, cq, qp, region));
    // SAFETY: nothing of the context is used any more.
    assert_eq!(unsafe { ibv_close_device(raw) }, 0);
    let pd = Pd::new(&Context::open());
    check_traffic(&pd, &Cq::new(pd.context(), 64));
}

/// The programs of this file.
pub const TESTS: &[Test] = &[
    test!(everything_works_in_a_parent_domain).fails_on_c(NO_DOMAINS),
    test!(work_posted_while_a_queue_pair_fails_is_flushed)
        .fails_on_c("loses what is posted to a queue pair that has failed, unless the program failed it"),
    test!(work_posted_while_a_queue_pair_of_a_thread_domain_fails_is_flushed).fails_on_c(NO_DOMAINS),
    test!(regions_are_those_of_the_domain_below).fails_on_c(NO_DOMAINS),
    test!(domains_are_pure_software_and_unlimited).fails_on_c(NO_DOMAINS),
    test!(wrong_attributes_are_refused).fails_on_c(NO_DOMAINS),
    test!(nothing_goes_before_what_needs_it).fails_on_c(NO_DOMAINS),
    test!(a_region_can_move_between_domains).fails_on_c(NO_DOMAINS),
    test!(queues_in_a_thread_domain_take_no_lock).fails_on_c(NO_DOMAINS),
    test!(a_single_threaded_completion_queue_takes_no_lock).fails_on_c("always takes its lock"),
    test!(the_switch_elides_every_lock).fails_on_c("always takes its locks"),
    test!(rings_lie_in_memory_that_the_program_lends).fails_on_c(NO_DOMAINS),
    test!(a_lender_may_refuse).fails_on_c(NO_DOMAINS),
    test!(a_context_closes_over_what_is_left_in_domains).fails_on_c(NO_DOMAINS),
];
