//! What programs ask of an identifier.

use irdma_uverbs::{Transport, identity, mask};
use zerocopy::FromZeros;

use crate::abi::{
    InitQpAttr, PathData, QpAttr, Query, QueryAddrResp, QueryPathResp, QueryRouteResp, UserPath,
};
use crate::address::{Address, native};
use crate::call::{Call, EINVAL, ENOSYS, Result};
use crate::commands::options::PRIMARY;
use crate::id::{Id, Stage, queue_pair};
use crate::path::PORT;

/// `RDMA_USER_CM_QUERY_*`.
mod option {
    pub const ADDRESS: u32 = 0;
    pub const PATH: u32 = 1;
    pub const GID: u32 = 2;
}

/// Answers without the index of the device, as the oldest programs know them.
const LEAST_ROUTE: usize = size_of::<QueryRouteResp>() - 8;
const LEAST_ADDRESS: usize = size_of::<QueryAddrResp>() - 8;

/// `IB_ACCESS_REMOTE_*`.
mod access {
    pub const WRITE: u32 = 1 << 1;
    pub const READ: u32 = 1 << 2;
    pub const ATOMIC: u32 = 1 << 3;
}

/// `enum ib_qp_state`.
mod state {
    pub const INIT: u32 = 1;
    pub const RTR: u32 = 2;
    pub const RTS: u32 = 3;
    pub const ERR: u32 = 6;
}

/// `RDMA_UDP_QKEY`.
pub const DATAGRAM_KEY: u32 = 0x0123_4567;

/// `RDMA_USER_CM_CMD_QUERY_ROUTE`.
pub fn route(call: &mut Call) -> Result<()> {
    call.need_room(LEAST_ROUTE)?;
    let wanted: Query = call.request()?;
    call.id(wanted.id)?;
    let gids = call.ends(wanted.id)?;
    let id = call.id(wanted.id)?;
    let mut answer = QueryRouteResp::new_zeroed();
    id.source.store(&mut answer.src_addr);
    id.destination.store(&mut answer.dst_addr);
    if id.attached {
        answer.node_guid = identity::NODE_GUID.to_be_bytes();
        answer.port_num = PORT;
        match id.path {
            Some(path) => {
                answer.num_paths = 1;
                answer.ib_route[0] = path.to_user();
            }
            None => {
                answer.ib_route[0] = UserPath {
                    sgid: gids.0,
                    dgid: gids.1,
                    pkey: identity::P_KEY.to_be_bytes(),
                    ..UserPath::new_zeroed()
                };
            }
        }
    }
    call.answer(wanted.response, &answer)
}

/// `RDMA_USER_CM_CMD_QUERY`.
pub fn query(call: &mut Call) -> Result<()> {
    let wanted: Query = call.request()?;
    call.id(wanted.id)?;
    match wanted.option {
        option::ADDRESS => addresses(call, &wanted),
        option::PATH => paths(call, &wanted),
        option::GID => gids(call, &wanted),
        _ => Err(ENOSYS),
    }
}

fn addresses(call: &mut Call, wanted: &Query) -> Result<()> {
    call.need_room(LEAST_ADDRESS)?;
    let id = call.id(wanted.id)?;
    let answer = with_addresses(id, id.source, id.destination);
    call.answer(wanted.response, &answer)
}

fn gids(call: &mut Call, wanted: &Query) -> Result<()> {
    call.need_room(LEAST_ADDRESS)?;
    let (own, other) = call.ends(wanted.id)?;
    let id = call.id(wanted.id)?;
    let whole = |gid, address: Address| match address {
        Address::Ib(_) => address,
        address => {
            let service = u64::from(id.space) << 16 | u64::from(address.port());
            // Nothing is known of it before a card is chosen.
            let (gid, key) = if id.attached { (gid, identity::P_KEY) } else { ([0; 16], 0) };
            Address::Ib(native(&gid, key, service))
        }
    };
    let answer = with_addresses(id, whole(own, id.source), whole(other, id.destination));
    call.answer(wanted.response, &answer)
}

fn with_addresses(id: &Id, source: Address, destination: Address) -> QueryAddrResp {
    let mut answer = QueryAddrResp::new_zeroed();
    answer.src_size = source.size() as u16;
    answer.dst_size = destination.size() as u16;
    source.store(&mut answer.src_addr);
    destination.store(&mut answer.dst_addr);
    if id.attached {
        answer.node_guid = identity::NODE_GUID.to_be_bytes();
        answer.port_num = PORT;
        answer.pkey = identity::P_KEY.to_be_bytes();
    }
    answer
}

fn paths(call: &mut Call, wanted: &Query) -> Result<()> {
    call.need_room(size_of::<QueryPathResp>())?;
    let path = call.id(wanted.id)?.path;
    call.store(
        wanted.response,
        zerocopy::IntoBytes::as_bytes(&QueryPathResp { num_paths: path.is_some().into(), reserved: 0 }),
    )?;
    let whole = size_of::<QueryPathResp>() + size_of::<PathData>();
    match path {
        Some(path) if call.room >= whole => {
            let record = PathData { flags: PRIMARY, reserved: 0, path_rec: path.pack() };
            let place = wanted.response.wrapping_add(size_of::<QueryPathResp>() as u64);
            call.answer(place, &record)
        }
        _ => Ok(()),
    }
}

/// `RDMA_USER_CM_CMD_INIT_QP_ATTR`: how to bring a queue pair into a state.
pub fn queue_pair(call: &mut Call) -> Result<()> {
    call.need_room(size_of::<QpAttr>())?;
    let wanted: InitQpAttr = call.request()?;
    if wanted.qp_state > state::ERR {
        return Err(EINVAL);
    }
    call.attached_id(wanted.id)?;
    let transport = call.card.transport();
    let id = call.attached_id(wanted.id)?;
    let mut answer = QpAttr { qp_state: wanted.qp_state, ..QpAttr::new_zeroed() };
    match transport {
        Transport::Iwarp => of_stream(id, &mut answer)?,
        Transport::Roce if id.link.is_none() || id.kind == queue_pair::UD => unconnected(id, &mut answer),
        Transport::Roce => connected(id, &mut answer)?,
    }
    if answer.qp_attr_mask & mask::TIMEOUT != 0
        && let Some(timeout) = id.ack_timeout
    {
        answer.timeout = timeout;
    }
    if transport == Transport::Roce && wanted.qp_state == state::RTR {
        answer.rq_psn = id.start;
    }
    call.answer(wanted.response, &answer)
}

/// Without a connection (kernel: `cma_ib_init_qp_attr`).
fn unconnected(id: &mut Id, answer: &mut QpAttr) {
    answer.port_num = PORT;
    answer.qp_attr_mask = mask::STATE | mask::PKEY_INDEX | mask::PORT;
    if id.kind == queue_pair::UD {
        id.key = DATAGRAM_KEY;
        answer.qkey = id.key;
        answer.qp_attr_mask |= mask::QKEY;
    } else {
        answer.qp_attr_mask |= mask::ACCESS_FLAGS;
    }
}

/// For a connection (kernel: `ib_cm_init_qp_attr`).
fn connected(id: &Id, answer: &mut QpAttr) -> Result<()> {
    let (Some(link), Some(path)) = (&id.link, &id.path) else { return Err(EINVAL) };
    let asked = matches!(
        link.stage,
        Stage::RequestReceived | Stage::ReplySent | Stage::ReplyReceived | Stage::Established
    );
    match answer.qp_state {
        state::INIT if asked || link.stage == Stage::RequestSent => {
            answer.qp_attr_mask = mask::STATE | mask::ACCESS_FLAGS | mask::PKEY_INDEX | mask::PORT;
            answer.qp_access_flags = access::WRITE;
            if link.responder_resources > 0 {
                answer.qp_access_flags |= access::READ | access::ATOMIC;
            }
            answer.port_num = PORT;
        }
        state::RTR if asked => {
            answer.qp_attr_mask = mask::STATE
                | mask::AV
                | mask::PATH_MTU
                | mask::DEST_QPN
                | mask::RQ_PSN
                | mask::MAX_DEST_RD_ATOMIC
                | mask::MIN_RNR_TIMER;
            answer.ah_attr = path.address(id.source_index);
            answer.path_mtu = path.mtu.into();
            answer.dest_qp_num = link.remote_queue_pair;
            answer.max_dest_rd_atomic = link.responder_resources;
        }
        state::RTS if asked => {
            answer.qp_attr_mask = mask::STATE
                | mask::SQ_PSN
                | mask::RETRY_CNT
                | mask::RNR_RETRY
                | mask::MAX_QP_RD_ATOMIC
                | mask::TIMEOUT;
            answer.sq_psn = link.remote_start;
            answer.retry_cnt = link.retry_count;
            answer.rnr_retry = link.receiver_retries;
            answer.max_rd_atomic = link.initiator_depth;
            answer.timeout = path.ack_timeout();
        }
        _ => return Err(EINVAL),
    }
    Ok(())
}

/// The kernel connects iWARP queue pairs itself (kernel: `iw_cm_init_qp_attr`).
fn of_stream(id: &Id, answer: &mut QpAttr) -> Result<()> {
    answer.port_num = PORT;
    answer.qp_attr_mask = mask::PORT;
    match (&id.link, answer.qp_state) {
        (None, _) => answer.qp_attr_mask |= mask::STATE | mask::ACCESS_FLAGS,
        (Some(_), state::INIT | state::RTR) => {
            answer.qp_attr_mask |= mask::STATE | mask::ACCESS_FLAGS;
            answer.qp_access_flags = access::WRITE | access::READ;
        }
        (Some(_), state::RTS) => {}
        _ => return Err(EINVAL),
    }
    Ok(())
}
