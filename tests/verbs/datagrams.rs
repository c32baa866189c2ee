//! Unreliable datagrams: addressing, the GRH, what is dropped, multicast.

use std::net::Ipv6Addr;

use irdma_tests::channel::SILENCE;
use irdma_tests::context::{Context, PORT, Pd};
use irdma_tests::device::Device;
use irdma_tests::fixtures::{Datagrams, Q_KEY};
use irdma_tests::memory::{Mr, pattern};
use irdma_tests::qp::{Ah, Qp, QpOptions};
use irdma_tests::runner::Test;
use irdma_tests::sys::*;
use irdma_tests::test;
use irdma_tests::wc::{Wc, assert_completions};
use irdma_tests::work::{ReceiveWork, SendWork, ah_attributes};

/// Bytes of the global routing header before each received datagram.
const GRH: usize = 40;

fn a_datagram_arrives_behind_its_header() {
    let pair = Datagrams::new();
    for (wr_id, length) in [(1, 0), (2, 1), (3, 64), (4, 1000)] {
        pair.right.mr.buffer().fill(0xee);
        pair.right.qp.receive(ReceiveWork::new(wr_id + 10).sge(pair.right.mr.sge(0, GRH + 2000)));
        pair.left.qp.post(pair.send(wr_id).sge(pair.left.mr.sge(0, length)));
        pair.left.expect_sent(&[pair.left.sent(wr_id, IBV_WC_SEND, length)]);
        pair.right.expect_received(&[pair.received(wr_id + 10, length)]);
        assert_eq!(pair.right.mr.buffer().read(GRH, length), pattern(length, 1));
        assert_eq!(pair.right.mr.buffer().read(GRH + length, 100), vec![0xee; 100]);
    }
}

fn immediate_and_inline_datagrams_arrive() {
    let pair = Datagrams::new();
    pair.right.qp.receive_list(&mut [
        ReceiveWork::new(10).sge(pair.right.mr.sge(0, 200)),
        ReceiveWork::new(11).sge(pair.right.mr.sge(200, 200)),
        ReceiveWork::new(12).sge(pair.right.mr.sge(400, 200)),
    ]);
    pair.left.qp.post_list(&mut [
        pair.send(1).sge(pair.left.mr.sge(0, 100)).immediate(0xabcd_0123),
        pair.send(2).sge(pair.left.mr.sge(100, 60)).inline(),
        pair.send(3).sge(pair.left.mr.sge(200, 60)).inline().immediate(7),
    ]);
    pair.left.expect_sent(&[
        pair.left.sent(1, IBV_WC_SEND, 100),
        pair.left.sent(2, IBV_WC_SEND, 60),
        pair.left.sent(3, IBV_WC_SEND, 60),
    ]);
    pair.right.expect_received(&[
        pair.received(10, 100).with_immediate(0xabcd_0123),
        pair.received(11, 60),
        pair.received(12, 60).with_immediate(7),
    ]);
    let bytes = pair.left.mr.buffer().bytes();
    for (target, source, length) in [(0, 0, 100), (200, 100, 60), (400, 200, 60)] {
        assert_eq!(pair.right.mr.buffer().read(target + GRH, length), bytes[source..source + length]);
    }
}

fn many_datagrams_pass_the_end_of_the_completion_queue() {
    let pair = Datagrams::new();
    // Every receive takes two slots of the CQ, with and without immediate: several laps of it.
    for round in 0..400_u64 {
        pair.right.qp.receive(ReceiveWork::new(round).sge(pair.right.mr.sge(0, 200)));
        let send = pair.send(round).sge(pair.left.mr.sge(0, 8)).inline();
        let expected = pair.received(round, 8);
        let immediate = round % 3 == 0;
        pair.left.qp.post(if immediate { send.immediate(round as u32) } else { send });
        pair.left.expect_sent(&[pair.left.sent(round, IBV_WC_SEND, 8)]);
        pair.right.expect_received(&[if immediate {
            expected.with_immediate(round as u32)
        } else {
            expected
        }]);
    }
}

fn the_header_names_both_ends() {
    let pair = Datagrams::new();
    pair.right.qp.receive(ReceiveWork::new(10).sge(pair.right.mr.sge(0, 200)));
    pair.left.qp.post(pair.send(1).sge(pair.left.mr.sge(0, 8)));
    pair.right.expect_received(&[pair.received(10, 8)]);
    let header = pair.right.mr.buffer().read(0, GRH);
    // SAFETY: every byte pattern is a valid array.
    let (source, destination) = unsafe { (pair.left.gid().raw, pair.right.gid().raw) };
    if Ipv6Addr::from(source).to_ipv4_mapped().is_some() {
        // RoCEv2 over IPv4: the IPv4 header is in the last 20 bytes.
        assert_eq!(header[20], 0x45, "version and length of an IPv4 header: {header:02x?}");
        assert_eq!(header[29], 17, "protocol UDP");
        assert_eq!(header[32..36], source[12..], "source address");
        assert_eq!(header[36..40], destination[12..], "destination address");
    } else {
        assert_eq!(header[0] >> 4, 6, "version of an IPv6 header: {header:02x?}");
        assert_eq!(header[8..24], source, "source address");
        assert_eq!(header[24..40], destination, "destination address");
    }
}

fn a_reply_finds_its_way_by_completion_and_header() {
    let pair = Datagrams::new();
    pair.right.qp.receive(ReceiveWork::new(10).sge(pair.right.mr.sge(0, 200)));
    pair.left.qp.post(pair.send(1).sge(pair.left.mr.sge(0, 8)));
    pair.right.expect_received(&[pair.received(10, 8)]);

    let mut completion = ibv_wc { wc_flags: IBV_WC_GRH, src_qp: pair.left.qp.number(), ..ibv_wc::default() };
    let grh = pair.right.mr.buffer().pointer().cast::<ibv_grh>();
    let mut attributes = ibv_ah_attr::default();
    // SAFETY: the context is alive, completion, header and result are valid for the call.
    let result = unsafe {
        ibv_init_ah_from_wc(pair.right.context().raw(), PORT, &mut completion, grh, &mut attributes)
    };
    assert_eq!(result, 0, "init_ah_from_wc");
    let back = Ah::try_new(pair.right.pd(), attributes).expect("an address handle of the sender");
    pair.left.qp.receive(ReceiveWork::new(20).sge(pair.left.mr.sge(1000, 200)));
    pair.right
        .qp
        .post(SendWork::send(2).to(back.raw(), completion.src_qp, Q_KEY).sge(pair.right.mr.sge(0, 12)));
    pair.right.expect_sent(&[pair.right.sent(2, IBV_WC_SEND, 12)]);
    let expected = Wc::datagram(pair.left.qp.number(), 20, 12, pair.right.qp.number());
    pair.left.expect_received(&[expected]);
}

/// What is sent must get lost without a trace at the receiver, and the next good datagram arrives.
fn check_dropped(pair: &Datagrams, send: SendWork, length: usize) {
    let wr_id = send.raw.wr_id;
    pair.left.qp.post(send);
    pair.left.expect_sent(&[pair.left.sent(wr_id, IBV_WC_SEND, length)]);
    std::thread::sleep(SILENCE);
    pair.right.qp.recv_cq().expect_empty();
}

fn a_wrong_q_key_is_dropped() {
    let pair = Datagrams::new();
    pair.right.qp.receive(ReceiveWork::new(10).sge(pair.right.mr.sge(0, 200)));
    let wrong = SendWork::send(1).to(pair.ah.raw(), pair.right.qp.number(), Q_KEY ^ 1);
    check_dropped(&pair, wrong.sge(pair.left.mr.sge(0, 8)), 8);
    pair.left.qp.post(pair.send(2).sge(pair.left.mr.sge(0, 9)));
    pair.left.expect_sent(&[pair.left.sent(2, IBV_WC_SEND, 9)]);
    pair.right.expect_received(&[pair.received(10, 9)]);
}

fn nobody_there_is_no_error() {
    let pair = Datagrams::new();
    pair.right.qp.receive(ReceiveWork::new(10).sge(pair.right.mr.sge(0, 200)));
    let nowhere = SendWork::send(1).to(pair.ah.raw(), 0xff_fff0, Q_KEY);
    check_dropped(&pair, nowhere.sge(pair.left.mr.sge(0, 8)), 8);
}

fn no_receive_is_no_error() {
    let pair = Datagrams::new();
    check_dropped(&pair, pair.send(1).sge(pair.left.mr.sge(0, 8)), 8);
    pair.right.qp.receive(ReceiveWork::new(10).sge(pair.right.mr.sge(0, 200)));
    std::thread::sleep(SILENCE);
    pair.right.qp.recv_cq().expect_empty();
    pair.left.qp.post(pair.send(2).sge(pair.left.mr.sge(0, 9)));
    pair.right.expect_received(&[pair.received(10, 9)]);
}

fn send_completions_claim_no_header() {
    let pair = Datagrams::new();
    pair.left.qp.post(pair.send(1).sge(pair.left.mr.sge(0, 8)));
    assert_eq!(pair.left.qp.send_cq().wait_one().flags, 0);
}

fn a_datagram_longer_than_the_mtu_is_a_local_length_error() {
    let pair = Datagrams::new();
    let mut port = ibv_port_attr::default();
    // SAFETY: the context is alive, the result valid for the call.
    assert_eq!(unsafe { ibv_query_port_attr(pair.left.context().raw(), PORT, &mut port) }, 0);
    let mtu = 128_usize << port.active_mtu;
    pair.right.qp.receive_list(&mut [
        ReceiveWork::new(10).sge(pair.right.mr.sge(0, GRH + mtu)),
        ReceiveWork::new(11).sge(pair.right.mr.sge(0, GRH + mtu)),
    ]);
    pair.left.qp.post(pair.send(1).sge(pair.left.mr.sge(0, mtu)));
    pair.left.expect_sent(&[pair.left.sent(1, IBV_WC_SEND, mtu)]);
    pair.right.expect_received(&[pair.received(10, mtu)]);
    pair.left.qp.post(pair.send(2).sge(pair.left.mr.sge(0, mtu + 1)));
    pair.left.expect_sent(&[pair.left.sent(2, IBV_WC_SEND, mtu + 1).failed(IBV_WC_LOC_LEN_ERR, 6)]);
    pair.right.qp.recv_cq().expect_silence();
}

/// A UD queue pair with a receive posted, member of a group.
struct Member {
    qp: Qp,
    mr: Mr,
}

impl Member {
    fn new() -> Member {
        let context = Context::open();
        let pd = Pd::new(&context);
        let qp = Qp::with_own_cqs(&pd, QpOptions::datagram());
        qp.start_datagrams(Q_KEY);
        let mr = Mr::fresh(&pd, 4096);
        qp.receive(ReceiveWork::new(10).sge(mr.sge(0, 4096)));
        Member { qp, mr }
    }

    fn attach(&self, group: &ibv_gid) {
        // SAFETY: the queue pair is alive, the GID valid for the call.
        assert_eq!(unsafe { ibv_attach_mcast(self.qp.raw(), group, 0) }, 0, "attach_mcast");
    }

    fn detach(&self, group: &ibv_gid) {
        // SAFETY: the queue pair is alive, the GID valid for the call.
        assert_eq!(unsafe { ibv_detach_mcast(self.qp.raw(), group, 0) }, 0, "detach_mcast");
    }

    fn expect(&self, payload: usize, sender: u32) {
        let expected = Wc::datagram(self.qp.number(), 10, payload as u32, sender);
        assert_completions(&self.qp.recv_cq().wait(1), &[expected]);
    }
}

fn multicast_reaches_every_member_and_nobody_else() {
    let groups = ["ff0e::1:2:3", "::ffff:239.1.2.3"];
    for address in groups {
        let group = ibv_gid { raw: address.parse::<Ipv6Addr>().expect("a valid address").octets() };
        let sender = Member::new();
        let members = [Member::new(), Member::new(), Member::new()];
        let stranger = Member::new();
        members.iter().for_each(|member| member.attach(&group));
        let ah = Ah::new(sender.qp.pd(), group);
        sender.mr.buffer().write(100, &pattern(77, 5));
        let send = || SendWork::send(1).to(ah.raw(), 0xff_ffff, Q_KEY).sge(sender.mr.sge(100, 77));
        sender.qp.post(send());
        let sent = Wc::sent(sender.qp.number(), 1, IBV_WC_SEND, 77);
        assert_completions(&sender.qp.send_cq().wait(1), &[sent]);
        for member in &members {
            member.expect(77, sender.qp.number());
            assert_eq!(member.mr.buffer().read(GRH, 77), pattern(77, 5));
        }
        stranger.qp.recv_cq().expect_silence();

        members[0].detach(&group);
        members.iter().for_each(|member| member.qp.receive(ReceiveWork::new(10).sge(member.mr.sge(0, 4096))));
        sender.qp.post(send());
        members[1..].iter().for_each(|member| member.expect(77, sender.qp.number()));
        members[0].qp.recv_cq().expect_silence();
        members[1..].iter().for_each(|member| member.detach(&group));
    }
}

fn only_datagram_queue_pairs_join_groups() {
    let context = Context::open();
    let pd = Pd::new(&context);
    let connected = Qp::with_own_cqs(&pd, QpOptions::default());
    let datagram = Qp::with_own_cqs(&pd, QpOptions::datagram());
    let group = ibv_gid { raw: Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 9).octets() };
    let unicast = context.gid(i32::from(context.gid_index()));
    // SAFETY: the queue pairs are alive, the GIDs valid for the calls.
    unsafe {
        assert_eq!(ibv_attach_mcast(connected.raw(), &group, 0), libc::EINVAL, "an RC queue pair");
        assert_eq!(ibv_attach_mcast(datagram.raw(), &unicast, 0), libc::EINVAL, "a unicast address");
        assert_ne!(ibv_detach_mcast(datagram.raw(), &group, 0), 0, "not a member");
    }
}

fn address_handles_refuse_what_no_packet_can_have() {
    Device::present().require_roce("address handles");
    let context = Context::open();
    let pd = Pd::new(&context);
    let good = ah_attributes(&context, context.gid(i32::from(context.gid_index())));
    assert!(Ah::try_new(&pd, good).is_ok());
    let no_header = ibv_ah_attr { is_global: 0, ..good };
    assert_eq!(Ah::try_new(&pd, no_header).err(), Some(libc::EINVAL), "RoCE needs a GRH");
}

fn a_missing_port_or_gid_is_a_real_error_number() {
    Device::present().require_roce("address handles");
    let context = Context::open();
    let pd = Pd::new(&context);
    let mut attributes = ah_attributes(&context, context.gid(i32::from(context.gid_index())));
    attributes.grh.sgid_index = 255;
    let errno = Ah::try_new(&pd, attributes).err().expect("no GID has index 255");
    assert!((1..4096).contains(&errno), "errno {errno}");
    let good = ah_attributes(&context, context.gid(i32::from(context.gid_index())));
    let bad_port = ibv_ah_attr { port_num: 7, ..good };
    assert_eq!(Ah::try_new(&pd, bad_port).err(), Some(libc::EINVAL), "port 7");
}

fn handles_work_from_any_queue_pair_of_their_domain() {
    let pair = Datagrams::new();
    let other = Qp::with_own_cqs(pair.left.pd(), QpOptions::datagram());
    other.start_datagrams(Q_KEY);
    pair.right.qp.receive_list(&mut [
        ReceiveWork::new(10).sge(pair.right.mr.sge(0, 200)),
        ReceiveWork::new(11).sge(pair.right.mr.sge(0, 200)),
    ]);
    pair.left.qp.post(pair.send(1).sge(pair.left.mr.sge(0, 8)));
    other.post(pair.send(2).sge(pair.left.mr.sge(0, 8)));
    let second = Wc::datagram(pair.right.qp.number(), 11, 8, other.number());
    pair.right.expect_received(&[pair.received(10, 8), second]);
}

/// The programs of this file.
pub const TESTS: &[Test] = &[
    test!(a_datagram_arrives_behind_its_header),
    test!(immediate_and_inline_datagrams_arrive),
    test!(many_datagrams_pass_the_end_of_the_completion_queue),
    test!(the_header_names_both_ends),
    test!(a_reply_finds_its_way_by_completion_and_header),
    test!(a_wrong_q_key_is_dropped),
    test!(nobody_there_is_no_error),
    test!(no_receive_is_no_error),
    test!(send_completions_claim_no_header).fails_on_c("completions of UD sends have the GRH flag"),
    test!(a_datagram_longer_than_the_mtu_is_a_local_length_error),
    test!(multicast_reaches_every_member_and_nobody_else),
    test!(only_datagram_queue_pairs_join_groups),
    test!(address_handles_refuse_what_no_packet_can_have),
    test!(a_missing_port_or_gid_is_a_real_error_number).fails_on_c("errno becomes -1"),
    test!(handles_work_from_any_queue_pair_of_their_domain),
];
