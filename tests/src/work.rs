//! Work requests that own their scatter lists.

use crate::context::Context;
use crate::device::Device;
use crate::runner::skip;
use crate::sys::*;

/// A send work request.
pub struct SendWork {
    /// The library's struct; `next` and `sg_list` are set when it is posted.
    pub raw: ibv_send_wr,
    list: List,
}

/// A scatter list: elements, nothing but a pointer that must not be followed, or none though some are counted.
enum List {
    /// The last one is zero and not counted: a provider that looks at the first of none finds nothing.
    Elements(Vec<ibv_sge>),
    Stale(*mut ibv_sge),
    Missing(i32),
}

impl List {
    fn fill(&mut self, pointer: &mut *mut ibv_sge, count: &mut i32) {
        match self {
            List::Elements(elements) => {
                *count = elements.len() as i32;
                elements.push(ibv_sge::default());
                *pointer = elements.as_mut_ptr();
            }
            List::Stale(stale) => {
                *pointer = *stale;
                *count = 0;
            }
            List::Missing(counted) => {
                *pointer = std::ptr::null_mut();
                *count = *counted;
            }
        }
    }
}

impl SendWork {
    /// A signaled request.
    pub fn new(wr_id: u64, opcode: u32) -> SendWork {
        let raw = ibv_send_wr { wr_id, opcode, send_flags: IBV_SEND_SIGNALED, ..ibv_send_wr::default() };
        SendWork { raw, list: List::Elements(Vec::new()) }
    }

    /// A send.
    pub fn send(wr_id: u64) -> SendWork {
        SendWork::new(wr_id, IBV_WR_SEND)
    }

    /// An RDMA write.
    pub fn write(wr_id: u64, address: u64, rkey: u32) -> SendWork {
        SendWork::new(wr_id, IBV_WR_RDMA_WRITE).remote(address, rkey)
    }

    /// An RDMA read.
    pub fn read(wr_id: u64, address: u64, rkey: u32) -> SendWork {
        SendWork::new(wr_id, IBV_WR_RDMA_READ).remote(address, rkey)
    }

    /// A fetch-and-add of `add` to the remote word.
    pub fn fetch_add(wr_id: u64, address: u64, rkey: u32, add: u64) -> SendWork {
        SendWork::atomic(wr_id, IBV_WR_ATOMIC_FETCH_AND_ADD, address, rkey, add, 0)
    }

    /// A compare-and-swap of the remote word.
    pub fn compare_swap(wr_id: u64, address: u64, rkey: u32, compare: u64, swap: u64) -> SendWork {
        SendWork::atomic(wr_id, IBV_WR_ATOMIC_CMP_AND_SWP, address, rkey, compare, swap)
    }

    fn atomic(wr_id: u64, opcode: u32, address: u64, rkey: u32, compare_add: u64, swap: u64) -> SendWork {
        let mut send = SendWork::new(wr_id, opcode);
        send.raw.wr.atomic.remote_addr = address;
        send.raw.wr.atomic.rkey = rkey;
        send.raw.wr.atomic.compare_add = compare_add;
        send.raw.wr.atomic.swap = swap;
        send
    }

    /// A bind of `window`, which is to have `rkey` then, to a range of `region`.
    pub fn bind(wr_id: u64, window: *mut ibv_mw, rkey: u32, bind: ibv_mw_bind_info) -> SendWork {
        let mut send = SendWork::new(wr_id, IBV_WR_BIND_MW);
        send.raw.__bindgen_anon_2.bind_mw.mw = window;
        send.raw.__bindgen_anon_2.bind_mw.rkey = rkey;
        send.raw.__bindgen_anon_2.bind_mw.bind_info = bind;
        send
    }

    /// A local invalidate.
    pub fn invalidate(wr_id: u64, rkey: u32) -> SendWork {
        let mut send = SendWork::new(wr_id, IBV_WR_LOCAL_INV);
        send.raw.__bindgen_anon_1.invalidate_rkey = rkey;
        send
    }

    /// Remote memory of a write, read or atomic.
    pub fn remote(mut self, address: u64, rkey: u32) -> SendWork {
        self.raw.wr.rdma.remote_addr = address;
        self.raw.wr.rdma.rkey = rkey;
        self
    }

    /// Makes it the form with immediate data.
    pub fn immediate(mut self, immediate: u32) -> SendWork {
        self.raw.opcode = match self.raw.opcode {
            IBV_WR_RDMA_WRITE => {
                if Device::present().legacy != 0 {
                    skip("the old kernel does not say that a write may have an immediate");
                }
                IBV_WR_RDMA_WRITE_WITH_IMM
            }
            _ => {
                Device::present().require_roce("send with immediate");
                IBV_WR_SEND_WITH_IMM
            }
        };
        self.raw.__bindgen_anon_1.imm_data = immediate.to_be();
        self
    }

    /// Makes it the form that invalidates an rkey of the receiver's.
    pub fn invalidating(mut self, rkey: u32) -> SendWork {
        self.raw.opcode = IBV_WR_SEND_WITH_INV;
        self.raw.__bindgen_anon_1.invalidate_rkey = rkey;
        self
    }

    /// Destination of a datagram.
    pub fn to(mut self, ah: *mut ibv_ah, qp_num: u32, q_key: u32) -> SendWork {
        self.raw.wr.ud.ah = ah;
        self.raw.wr.ud.remote_qpn = qp_num;
        self.raw.wr.ud.remote_qkey = q_key;
        self
    }

    /// One more scatter element.
    pub fn sge(mut self, element: ibv_sge) -> SendWork {
        if let List::Elements(elements) = &mut self.list {
            elements.push(element);
        }
        self
    }

    /// Several more scatter elements.
    pub fn sges(self, elements: impl IntoIterator<Item = ibv_sge>) -> SendWork {
        elements.into_iter().fold(self, SendWork::sge)
    }

    /// No elements, but a list pointer that must not be followed.
    pub fn stale_list(mut self, pointer: *mut ibv_sge) -> SendWork {
        self.list = List::Stale(pointer);
        self
    }

    /// No list, though so many elements are counted.
    pub fn missing_list(mut self, counted: i32) -> SendWork {
        self.list = List::Missing(counted);
        self
    }

    /// More `IBV_SEND_*` flags.
    pub fn flags(mut self, flags: u32) -> SendWork {
        self.raw.send_flags |= flags;
        self
    }

    /// Data taken at once.
    pub fn inline(self) -> SendWork {
        self.flags(IBV_SEND_INLINE)
    }

    /// No completion unless it fails.
    pub fn unsignaled(mut self) -> SendWork {
        self.raw.send_flags &= !IBV_SEND_SIGNALED;
        self
    }
}

impl SendWork {
    /// The elements.
    pub fn elements(&self) -> &[ibv_sge] {
        match &self.list {
            List::Elements(elements) => elements,
            List::Stale(_) | List::Missing(_) => &[],
        }
    }
}

/// A receive work request.
pub struct ReceiveWork {
    /// The library's struct; `next` and `sg_list` are set when it is posted.
    pub raw: ibv_recv_wr,
    list: List,
}

impl ReceiveWork {
    /// A receive into nothing.
    pub fn new(wr_id: u64) -> ReceiveWork {
        ReceiveWork { raw: ibv_recv_wr { wr_id, ..ibv_recv_wr::default() }, list: List::Elements(Vec::new()) }
    }

    /// One more scatter element.
    pub fn sge(mut self, element: ibv_sge) -> ReceiveWork {
        if let List::Elements(elements) = &mut self.list {
            elements.push(element);
        }
        self
    }

    /// Several more scatter elements.
    pub fn sges(self, elements: impl IntoIterator<Item = ibv_sge>) -> ReceiveWork {
        elements.into_iter().fold(self, ReceiveWork::sge)
    }

    /// No elements, but a list pointer that must not be followed.
    pub fn stale_list(mut self, pointer: *mut ibv_sge) -> ReceiveWork {
        self.list = List::Stale(pointer);
        self
    }
}

/// A refused post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub errno: i32,
    /// The first request that was not posted.
    pub index: usize,
}

/// Posts `sends` as one list.
pub(crate) fn post_sends(qp: *mut ibv_qp, sends: &mut [SendWork]) -> Result<(), Refused> {
    let mut next = std::ptr::null_mut();
    for send in sends.iter_mut().rev() {
        send.list.fill(&mut send.raw.sg_list, &mut send.raw.num_sge);
        send.raw.next = next;
        next = &mut send.raw;
    }
    let mut bad = std::ptr::null_mut();
    // SAFETY: the list is linked, its scatter lists live in `sends`; the caller's QP is alive.
    let errno = unsafe { ibv_post_send(qp, next, &mut bad) };
    refusal(errno, sends.iter().position(|send| std::ptr::eq(&send.raw, bad)))
}

/// Posts `receives` as one list.
pub(crate) fn post_receives(qp: *mut ibv_qp, receives: &mut [ReceiveWork]) -> Result<(), Refused> {
    refusal_of_receives(receives, |first, bad| {
        // SAFETY: the list is linked, its scatter lists live in `receives`; the caller's QP is alive.
        unsafe { ibv_post_recv(qp, first, bad) }
    })
}

/// Links `receives` and hands the first to `post`, with the place for the refused one.
pub(crate) fn refusal_of_receives(
    receives: &mut [ReceiveWork],
    post: impl FnOnce(*mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> i32,
) -> Result<(), Refused> {
    let mut next = std::ptr::null_mut();
    for receive in receives.iter_mut().rev() {
        receive.list.fill(&mut receive.raw.sg_list, &mut receive.raw.num_sge);
        receive.raw.next = next;
        next = &mut receive.raw;
    }
    let mut bad = std::ptr::null_mut();
    let errno = post(next, &mut bad);
    refusal(errno, receives.iter().position(|receive| std::ptr::eq(&receive.raw, bad)))
}

fn refusal(errno: i32, index: Option<usize>) -> Result<(), Refused> {
    if errno == 0 {
        return Ok(());
    }
    assert!(errno > 0, "a post returned {errno}: error numbers are positive");
    let index = index.unwrap_or_else(|| panic!("errno {errno}, but bad_wr is none of the posted requests"));
    Err(Refused { errno, index })
}

/// A list pointer that no program could follow: not null, not mapped.
pub fn unmapped_list() -> *mut ibv_sge {
    0x10 as *mut ibv_sge
}

/// Address handle of GID `destination`.
pub fn ah_attributes(context: &Context, destination: ibv_gid) -> ibv_ah_attr {
    let grh = ibv_global_route {
        dgid: destination,
        sgid_index: context.gid_index(),
        hop_limit: 64,
        traffic_class: 0,
        flow_label: 0,
    };
    ibv_ah_attr { grh, is_global: 1, port_num: crate::context::PORT, ..ibv_ah_attr::default() }
}
