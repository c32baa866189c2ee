//! The context of a queue pair: all that the device knows of it, as the driver wrote it.
//!
//! Format: kernel, drivers/infiniband/hw/irdma/defs.h (`IRDMAQPC_*`), ctrl.c
//! (`irdma_sc_qp_setctx_roce`).

use std::time::Duration;

use irdma_engine::spec::{Access, Gid, Mac, QpChange};

use super::address::{gid_of, mac_of};
use crate::field::{Field, u64_at};

/// Bytes of it that mean something.
pub const CONTEXT_BYTES: usize = 256;

const IPV4: Field = Field::bit(3);
const RECEIVE_SIZE: Field = Field::new(9, 8);
const SHARED: Field = Field::bit(10);
const DOMAIN_HIGH_GEN2: Field = Field::new(21, 20);
const RQ_SIZE: Field = Field::new(11, 8);
const SQ_SIZE: Field = Field::new(15, 12);
const TRAFFIC_CLASS: Field = Field::new(31, 24);
const PACKET: Field = Field::new(29, 16);
const NEIGHBOUR: Field = Field::new(63, 48);
const P_KEY: Field = Field::new(47, 32);
const DOMAIN_GEN2: Field = Field::new(63, 48);
const PEER: Field = Field::new(23, 0);
const Q_KEY: Field = Field::new(63, 32);
const PSN: Field = Field::new(23, 0);
const RNR_TIMER: Field = Field::new(4, 0);
const RETRIES: Field = Field::new(53, 48);
const RNR_RETRIES: Field = Field::new(56, 54);
const SEND_CQ: Field = Field::new(24, 0);
const RECEIVE_CQ: Field = Field::new(56, 32);
const TIMEOUT: Field = Field::new(12, 8);
const READS_OUT_GEN2: Field = Field::new(7, 0);
const READS_OUT: Field = Field::new(10, 0);
const REMOTE_ATOMIC: Field = Field::bit(18);
const REMOTE_WRITE: Field = Field::bit(20);
const REMOTE_READ: Field = Field::bit(21);
const PRIVILEGED: Field = Field::bit(25);
const SHARED_QUEUE: Field = Field::new(15, 0);
const DOMAIN: Field = Field::new(23, 0);

/// Time without an answer where the context does not tell one; the kernel's driver never does.
const DEFAULT_TIMEOUT: Duration = Duration::from_millis(100);
/// How long a peer is told to wait where the context has no field for it (GEN2).
const DEFAULT_RNR_TIMER: Duration = Duration::from_micros(20_480);
/// A read is always accepted: the smallest size of the queue of inbound reads is 4.
const READS_IN: u32 = 4;

/// A queue pair's context.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    words: [u64; CONTEXT_BYTES / 8],
    gen3: bool,
}

impl Context {
    /// From its bytes; `gen3` tells which of two layouts.
    pub fn new(bytes: &[u8; CONTEXT_BYTES], gen3: bool) -> Self {
        Self { words: std::array::from_fn(|index| u64_at(bytes, index * 8)), gen3 }
    }

    fn word(&self, offset: usize) -> u64 {
        self.words[offset / 8]
    }

    /// Number of its protection domain.
    pub fn domain(&self) -> u32 {
        if self.gen3 {
            DOMAIN.number(self.word(208))
        } else {
            DOMAIN_HIGH_GEN2.number(self.word(0)) << 16 | DOMAIN_GEN2.number(self.word(56))
        }
    }

    /// Address or first page list entry of the send ring, and its quanta.
    pub fn send_ring(&self) -> (u64, u32) {
        (self.word(8), 4 << SQ_SIZE.number(self.word(24)))
    }

    /// Address or first page list entry of the receive ring, and its quanta.
    pub fn receive_ring(&self) -> (u64, u32) {
        (self.word(16), 4 << RQ_SIZE.number(self.word(24)))
    }

    /// Quanta of a receive.
    pub fn receive_quanta(&self) -> u32 {
        1 << RECEIVE_SIZE.number(self.word(0))
    }

    /// Numbers of the completion queues of sends and of receives.
    pub fn completion_queues(&self) -> (u32, u32) {
        (SEND_CQ.number(self.word(136)), RECEIVE_CQ.number(self.word(136)))
    }

    /// Number of the shared receive queue.
    pub fn shared_queue(&self) -> Option<u32> {
        let shared = self.gen3 && SHARED.is_set(self.word(0));
        shared.then(|| SHARED_QUEUE.number(self.word(200)))
    }

    /// What comes back in its completions.
    pub fn completion_context(&self) -> u64 {
        self.word(168)
    }

    /// Whether it is one of the kernel's own.
    pub fn is_privileged(&self) -> bool {
        PRIVILEGED.is_set(self.word(160))
    }

    /// The Ethernet address that it sends from; all zero if the driver has not told it yet.
    pub fn mac(&self) -> Mac {
        mac_of(self.word(152) >> 16)
    }

    /// Index of the next hop among the neighbours.
    pub fn neighbour(&self) -> u32 {
        NEIGHBOUR.number(self.word(48))
    }

    fn gid(&self, low: usize, high: usize) -> Gid {
        gid_of(self.word(high), self.word(low), IPV4.is_set(self.word(0)))
    }

    fn access(&self) -> Access {
        let flags = self.word(160);
        Access {
            remote_write: REMOTE_WRITE.is_set(flags),
            remote_read: REMOTE_READ.is_set(flags),
            remote_atomic: self.gen3 && REMOTE_ATOMIC.is_set(flags),
            ..Access::default()
        }
    }

    fn timeout(&self) -> Duration {
        match TIMEOUT.number(self.word(152)) {
            code if self.gen3 && code > 0 => Duration::from_nanos(4096 << code),
            _ => DEFAULT_TIMEOUT,
        }
    }

    fn rnr_timer(&self) -> Duration {
        if self.gen3 { rnr_timer(RNR_TIMER.number(self.word(128))) } else { DEFAULT_RNR_TIMER }
    }

    /// Everything a change of the queue pair sets, but its state and next hop.
    pub fn change(&self) -> QpChange {
        let reads_out = if self.gen3 { READS_OUT } else { READS_OUT_GEN2 };
        QpChange {
            access: Some(self.access()),
            destination_gid: Some(self.gid(32, 40)),
            source_gid: Some(self.gid(184, 192)),
            destination_qp: Some(PEER.number(self.word(64))),
            q_key: Some(Q_KEY.number(self.word(64))),
            p_key: Some(P_KEY.number(self.word(56)) as u16),
            path_mtu: Some(PACKET.number(self.word(48))),
            timeout: Some(self.timeout()),
            retry_count: Some(RETRIES.number(self.word(128)) as u8),
            rnr_retry: Some(RNR_RETRIES.number(self.word(128)) as u8),
            min_rnr_timer: Some(self.rnr_timer()),
            max_rd_atomic: Some(reads_out.number(self.word(160))),
            max_dest_rd_atomic: Some(READS_IN),
            sq_psn: Some(PSN.number(self.word(80))),
            rq_psn: Some(PSN.number(self.word(88))),
            traffic_class: Some(TRAFFIC_CLASS.number(self.word(24)) as u8),
            ..QpChange::default()
        }
    }
}

/// The time behind a code of the wire (InfiniBand Architecture Specification, volume 1, table 45).
fn rnr_timer(code: u32) -> Duration {
    const HUNDREDTHS_OF_MILLISECONDS: [u64; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
        3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    let index = code as usize % HUNDREDTHS_OF_MILLISECONDS.len();
    Duration::from_micros(HUNDREDTHS_OF_MILLISECONDS[index] * 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::put_at;

    #[test]
    fn a_gen3_context_is_read_field_by_field() {
        let mut bytes = [0; CONTEXT_BYTES];
        let mut put = |offset: usize, word: u64| put_at(&mut bytes, offset, word.to_le_bytes());
        put(0, 1 << 3 | 2 << 8 | 1 << 10);
        put(8, 0x77);
        put(24, 7 << 8 | 9 << 12 | 0x20 << 24);
        put(32, 0xc000_0202);
        put(48, 1024 << 16 | 5 << 48);
        put(64, 0x12_3456 | 0x1111_1111 << 32);
        put(128, 7 << 54 | 6 << 48 | 12);
        put(136, 4 | 5 << 32);
        put(152, 14 << 8 | 0x0211_2233_4455 << 16);
        put(160, 3 | 1 << 18 | 1 << 20 | 1 << 25);
        put(168, 0xfeed);
        put(184, 0xc000_0201);
        put(200, 9);
        put(208, 0x4_0001);
        let context = Context::new(&bytes, true);
        assert_eq!(context.domain(), 0x4_0001);
        assert_eq!(context.mac(), [2, 0x11, 0x22, 0x33, 0x44, 0x55]);
        assert_eq!(context.send_ring(), (0x77, 2048));
        assert_eq!(context.receive_ring(), (0, 512));
        assert_eq!((context.receive_quanta(), context.shared_queue()), (4, Some(9)));
        assert_eq!(context.completion_queues(), (4, 5));
        assert_eq!((context.neighbour(), context.is_privileged()), (5, true));
        let change = context.change();
        assert_eq!(change.destination_gid.map(|gid| gid[15]), Some(2));
        assert_eq!(change.source_gid.map(|gid| gid[15]), Some(1));
        assert_eq!((change.destination_qp, change.q_key), (Some(0x12_3456), Some(0x1111_1111)));
        assert_eq!((change.retry_count, change.rnr_retry), (Some(6), Some(7)));
        assert_eq!(change.min_rnr_timer, Some(Duration::from_micros(640)));
        assert_eq!(change.timeout, Some(Duration::from_nanos(4096 << 14)));
        assert_eq!(change.max_rd_atomic, Some(3));
        let access = change.access.expect("rights");
        assert!(access.remote_write && access.remote_atomic && !access.remote_read);
    }

    #[test]
    fn gen2_has_its_own_fields() {
        let mut bytes = [0; CONTEXT_BYTES];
        put_at(&mut bytes, 0, (1_u64 << 20 | 1 << 10).to_le_bytes());
        put_at(&mut bytes, 56, (2_u64 << 48).to_le_bytes());
        put_at(&mut bytes, 160, (0x1ff_u64 | 1 << 18 | 1 << 21).to_le_bytes());
        let context = Context::new(&bytes, false);
        assert_eq!((context.domain(), context.shared_queue()), (0x1_0002, None));
        let change = context.change();
        assert_eq!((change.max_rd_atomic, change.timeout), (Some(0xff), Some(DEFAULT_TIMEOUT)));
        let access = change.access.expect("rights");
        assert!(access.remote_read && !access.remote_atomic);
    }
}
