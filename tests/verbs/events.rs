//! Completion events: one for each request, none without, none lost; acknowledgements.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use irdma_tests::channel::{
    Channel, PATIENCE, async_event_within, expect_async_event, expect_no_async_event, readable,
};
use irdma_tests::context::{Context, PORT, Pd};
use irdma_tests::control::control;
use irdma_tests::cq::Cq;
use irdma_tests::memory::Mr;
use irdma_tests::qp::{Connection, Qp, QpOptions};
use irdma_tests::runner::Test;
use irdma_tests::sys::*;
use irdma_tests::test;
use irdma_tests::work::{ReceiveWork, SendWork};

/// A queue pair connected to itself, whose receives complete on a queue with a channel.
struct Bell {
    qp: Qp,
    cq: Arc<Cq>,
    channel: Arc<Channel>,
    mr: Mr,
}

impl Bell {
    fn new() -> Bell {
        let context = Context::open();
        let channel = Channel::new(&context);
        Bell::on(&context, &channel)
    }

    fn on(context: &Arc<Context>, channel: &Arc<Channel>) -> Bell {
        let pd = Pd::new(context);
        let cq = Cq::on_channel(channel, context, 64);
        let qp = Qp::new(&pd, &Cq::new(context, 64), &cq, QpOptions::default());
        let gid = context.gid(i32::from(context.gid_index()));
        qp.connect(Connection { rnr_retry: 0, ..Connection::default() }, qp.number(), gid);
        Bell { qp, cq, channel: Arc::clone(channel), mr: Mr::fresh(&pd, 4096) }
    }

    /// One message from the queue pair to itself; its receive completes on the queue with the channel.
    fn ring(&self, solicited: bool) {
        self.qp.receive(ReceiveWork::new(2).sge(self.mr.sge(0, 64)));
        let send = SendWork::send(1).sge(self.mr.sge(64, 8));
        self.qp.post(if solicited { send.flags(IBV_SEND_SOLICITED) } else { send });
        assert_eq!(self.qp.send_cq().wait_one().status, IBV_WC_SUCCESS);
    }

    fn expect_received(&self, count: usize) {
        self.cq.wait(count);
        self.cq.expect_empty();
    }
}

fn an_armed_queue_gives_one_event() {
    let bell = Bell::new();
    bell.cq.arm(false);
    bell.channel.expect_silence();
    bell.ring(false);
    bell.channel.expect_event();
    bell.ring(false);
    bell.ring(true);
    bell.channel.expect_silence();
    bell.expect_received(3);
}

fn a_queue_that_was_not_armed_is_silent() {
    let bell = Bell::new();
    bell.ring(false);
    bell.ring(true);
    bell.channel.expect_silence();
    bell.expect_received(2);
}

fn only_solicited_completions_ring_when_asked_so() {
    let bell = Bell::new();
    bell.cq.arm(true);
    bell.ring(false);
    bell.channel.expect_silence();
    bell.ring(true);
    bell.channel.expect_event();
    bell.ring(true);
    bell.channel.expect_silence();
    bell.expect_received(3);
}

fn a_failed_completion_counts_as_solicited() {
    let bell = Bell::new();
    bell.cq.arm(true);
    bell.qp.receive(ReceiveWork::new(1));
    bell.qp.fail();
    bell.channel.expect_event();
    assert_eq!(bell.cq.wait_one().status, IBV_WC_WR_FLUSH_ERR);
}

/// One step of a sequence.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Ask for the next completion.
    Any,
    /// Ask for the next solicited one.
    Solicited,
    /// A completion comes.
    Plain,
    /// A solicited completion comes.
    Marked,
}

/// Runs the steps on a fresh queue; after each, exactly the events that are due must have come. Completions are polled
/// before the next request: whether one that was there before answers it, devices may decide.
fn check_sequence(context: &Arc<Context>, steps: &[Step]) {
    let channel = Channel::new(context);
    let bell = Bell::on(context, &channel);
    let (mut any, mut solicited) = (false, false);
    for (index, step) in steps.iter().enumerate() {
        let due = match step {
            Step::Any => {
                bell.cq.arm(false);
                any = true;
                false
            }
            Step::Solicited => {
                bell.cq.arm(true);
                solicited = true;
                false
            }
            Step::Plain => {
                bell.ring(false);
                any
            }
            Step::Marked => {
                bell.ring(true);
                any || solicited
            }
        };
        // A completion is reported before the post returns, so what is due is there; what is not is looked
        // for a little longer at the end.
        let came = readable(channel.descriptor(), if due { PATIENCE } else { Duration::ZERO });
        assert_eq!(came, due, "after step {index} of {steps:?}");
        if due {
            channel.expect_event();
            (any, solicited) = (false, false);
        }
        bell.cq.poll(4);
    }
    let came = readable(channel.descriptor(), Duration::from_millis(2));
    assert!(!came, "an event that nobody asked for after {steps:?}");
}

/// All sequences of `length` of those steps.
fn sequences(steps: &[Step], length: usize) -> Vec<Vec<Step>> {
    (0..length).fold(vec![Vec::new()], |shorter, _| {
        let longer = |sequence: &Vec<Step>| {
            let sequence = sequence.clone();
            steps.iter().map(move |&step| sequence.iter().copied().chain([step]).collect())
        };
        shorter.iter().flat_map(longer).collect()
    })
}

fn the_strongest_request_since_the_last_event_counts() {
    use Step::{Any, Marked, Plain, Solicited};
    let context = Context::open();
    for sequence in sequences(&[Any, Solicited, Plain, Marked], 3) {
        check_sequence(&context, &sequence);
    }
    let longer: [&[Step]; 10] = [
        &[Any, Any, Plain, Plain],
        &[Solicited, Any, Solicited, Plain],
        &[Any, Solicited, Plain, Marked],
        &[Solicited, Solicited, Marked, Plain],
        &[Any, Any, Plain, Plain, Plain, Any, Plain],
        &[Solicited, Solicited, Plain, Marked, Plain, Marked],
        &[Solicited, Any, Solicited, Plain, Marked, Plain],
        &[Any, Plain, Solicited, Plain, Marked, Marked],
        &[Any, Solicited, Plain, Any, Marked, Any, Any, Plain, Plain],
        &[Solicited, Plain, Any, Plain, Solicited, Plain, Marked],
    ];
    for sequence in longer {
        check_sequence(&context, sequence);
    }
}

fn requests_beyond_the_sequence_number_keep_working() {
    let bell = Bell::new();
    for round in 0..40 {
        bell.cq.arm(round % 3 == 0);
        bell.ring(true);
        bell.channel.expect_event();
        bell.expect_received(1);
    }
    bell.channel.expect_silence();
}

fn arm_poll_sleep_loses_nothing() {
    let bell = Bell::new();
    let messages = 300;
    // As many as the queue has room for, however seldom this thread runs.
    let ahead = bell.cq.entries() as usize;
    let seen = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for sent in 0..messages {
                while sent - seen.load(Ordering::Relaxed) >= ahead {
                    std::thread::yield_now();
                }
                bell.ring(false);
            }
        });
        while seen.load(Ordering::Relaxed) < messages {
            bell.cq.arm(false);
            loop {
                let some = bell.cq.poll(4).len();
                if some == 0 {
                    break;
                }
                seen.fetch_add(some, Ordering::Relaxed);
            }
            if seen.load(Ordering::Relaxed) < messages {
                bell.channel.expect_event();
            }
        }
        assert_eq!(seen.load(Ordering::Relaxed), messages);
    });
}

fn queues_on_one_channel_are_told_apart() {
    let context = Context::open();
    let channel = Channel::new(&context);
    let bells: Vec<_> = (0..3).map(|_| Bell::on(&context, &channel)).collect();
    bells.iter().for_each(|bell| bell.cq.arm(false));
    for index in [2, 0, 1] {
        bells[index].ring(false);
        let cq = channel.next_within(PATIENCE).expect("an event is due");
        assert_eq!(cq, bells[index].cq.raw());
        // SAFETY: the queue is alive.
        unsafe { ibv_ack_cq_events(cq, 1) };
    }
    channel.expect_silence();
}

fn the_user_pointer_comes_back() {
    let context = Context::open();
    let channel = Channel::new(&context);
    let mut marker = 5_u32;
    // SAFETY: context and channel are alive; the user pointer is only handed back.
    let cq = unsafe { ibv_create_cq(context.raw(), 16, (&raw mut marker).cast(), channel.raw(), 0) };
    assert!(!cq.is_null());
    // SAFETY: the queue is alive.
    assert_eq!(unsafe { (*cq).cq_context }, (&raw mut marker).cast());
    // SAFETY: destroyed once.
    assert_eq!(unsafe { ibv_destroy_cq(cq) }, 0);
}

fn destroying_a_queue_waits_for_acknowledgements() {
    let bell = Bell::new();
    let cq = Arc::clone(&bell.cq);
    bell.cq.arm(false);
    bell.ring(false);
    let event = bell.channel.next_within(PATIENCE).expect("an event is due");
    assert_eq!(event, cq.raw());
    let Bell { qp, cq: own, channel, .. } = bell;
    drop((qp, own));
    let destroyer = std::thread::spawn(move || drop(cq));
    std::thread::sleep(Duration::from_millis(100));
    assert!(!destroyer.is_finished(), "destroyed although an event is not acknowledged");
    // SAFETY: the destroy waits, so the queue is alive.
    unsafe { ibv_ack_cq_events(event, 1) };
    destroyer.join().expect("destroy_cq");
    channel.expect_silence();
}

fn unread_events_die_with_their_queue() {
    let context = Context::open();
    let channel = Channel::new(&context);
    let (doomed, other) = (Bell::on(&context, &channel), Bell::on(&context, &channel));
    for bell in [&doomed, &other] {
        bell.cq.arm(false);
        bell.ring(false);
    }
    drop(doomed);
    let cq = channel.next_within(PATIENCE).expect("the other queue's event");
    assert_eq!(cq, other.cq.raw());
    // SAFETY: the queue is alive.
    unsafe { ibv_ack_cq_events(cq, 1) };
    channel.expect_silence();
}

fn an_asynchronous_event_is_acknowledged_before_its_queue_pair_goes() {
    let bell = Bell::new();
    // No receive and no retry: fatal.
    bell.qp.post(SendWork::send(1));
    assert_ne!(bell.qp.send_cq().wait_one().status, IBV_WC_SUCCESS);
    expect_async_event(bell.cq.context(), IBV_EVENT_QP_FATAL, bell.qp.raw());
    // Dropped here: would hang if the counts disagreed.
}

fn an_unread_asynchronous_event_dies_with_its_queue_pair() {
    let bell = Bell::new();
    bell.qp.post(SendWork::send(1));
    assert_ne!(bell.qp.send_cq().wait_one().status, IBV_WC_SUCCESS);
    let context = Arc::clone(bell.cq.context());
    assert!(readable(context.async_fd(), PATIENCE));
    drop(bell);
    assert!(!readable(context.async_fd(), Duration::ZERO), "the event of a destroyed queue pair");
}

fn a_completion_queue_that_overflows_is_reported() {
    let context = Context::open();
    let pd = Pd::new(&context);
    let cq = Cq::new(&context, 4);
    let qp = Qp::new(&pd, &cq, &cq, QpOptions { max_send_wr: 100, ..QpOptions::default() });
    let gid = context.gid(i32::from(context.gid_index()));
    qp.connect(Connection::default(), qp.number(), gid);
    let mr = Mr::fresh(&pd, 64);
    let mut writes: Vec<_> = (0..40).map(|wr_id| SendWork::write(wr_id, mr.address(), mr.rkey())).collect();
    qp.post_list(&mut writes);
    expect_async_event(&context, IBV_EVENT_CQ_ERR, cq.raw());
    // What is in the queue is still right; nothing is invented.
    let completions = cq.poll(40);
    assert!((4..40).contains(&completions.len()), "{} completions", completions.len());
    for (index, completion) in completions.iter().enumerate() {
        assert_eq!((completion.wr_id, completion.status), (index as u64, IBV_WC_SUCCESS));
    }
}

fn every_context_hears_of_the_port() {
    let contexts = [Context::open(), Context::open()];
    for (order, event) in [("port down", IBV_EVENT_PORT_ERR), ("port up", IBV_EVENT_PORT_ACTIVE)] {
        control(order);
        for context in &contexts {
            let seen = async_event_within(context, PATIENCE).expect("an event of the port");
            // The element is a port number, the lower half of the union.
            assert_eq!((seen.kind, seen.element as u32), (event, u32::from(PORT)));
        }
    }
    contexts.iter().for_each(|context| expect_no_async_event(context));
}

/// The programs of this file.
pub const TESTS: &[Test] = &[
    test!(an_armed_queue_gives_one_event),
    test!(a_queue_that_was_not_armed_is_silent),
    test!(only_solicited_completions_ring_when_asked_so),
    test!(a_failed_completion_counts_as_solicited),
    test!(the_strongest_request_since_the_last_event_counts)
        .fails_on_c("a request made while armed is issued after the event, as one for any completion"),
    test!(requests_beyond_the_sequence_number_keep_working),
    test!(arm_poll_sleep_loses_nothing),
    test!(queues_on_one_channel_are_told_apart),
    test!(the_user_pointer_comes_back),
    test!(destroying_a_queue_waits_for_acknowledgements),
    test!(unread_events_die_with_their_queue),
    test!(an_asynchronous_event_is_acknowledged_before_its_queue_pair_goes),
    test!(an_unread_asynchronous_event_dies_with_its_queue_pair),
    test!(a_completion_queue_that_overflows_is_reported),
    test!(every_context_hears_of_the_port).alone(),
];
