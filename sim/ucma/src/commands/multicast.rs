//! Multicast groups. The queue pair joins by a verb; here the program learns how.

use irdma_uverbs::{Errno, Transport};
use zerocopy::FromZeros;

use crate::abi::{AhAttr, DestroyId, EventsReported, JoinIpMcast, JoinMcast, NewId, UdParam};
use crate::address::{Address, gid_of};
use crate::call::{Call, EINVAL, ENOENT, ENOMEM, ENOSYS, Result};
use crate::commands::addresses::{inet, sized};
use crate::commands::queries::DATAGRAM_KEY;
use crate::event::{Event, Kind};
use crate::id::{State, queue_pair};
use crate::manager::Membership;
use crate::path::PORT;

/// `RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER`, the last there is.
const LAST_FLAG: u16 = 1;
/// Multicast packets go to every queue pair of the group.
const ALL_QUEUE_PAIRS: u32 = 0xff_ffff;
/// Hops of packets to a group (`IPV6_DEFAULT_HOPLIMIT`).
const HOPS: u8 = 64;
/// The kernel's own "not supported", which is no errno of programs but reaches them.
const ENOTSUPP: Errno = Errno(524);

/// `RDMA_USER_CM_CMD_JOIN_IP_MCAST`.
pub fn join_ip(call: &mut Call) -> Result<()> {
    let wanted: JoinIpMcast = call.request()?;
    join_group(call, wanted.id, wanted.uid, inet(&wanted.addr)?, wanted.response)
}

/// `RDMA_USER_CM_CMD_JOIN_MCAST`.
pub fn join(call: &mut Call) -> Result<()> {
    let wanted: JoinMcast = call.request()?;
    let address = sized(&wanted.addr, wanted.addr_size)?;
    if wanted.join_flags > LAST_FLAG {
        return Err(EINVAL);
    }
    join_group(call, wanted.id, wanted.uid, address, wanted.response)
}

fn join_group(call: &mut Call, number: u32, user: u64, address: Address, response: u64) -> Result<()> {
    call.need_room(size_of::<NewId>())?;
    let transport = call.card.transport();
    let id = call.attached_id(number)?;
    if !matches!(id.state, State::Bound | State::AddressResolved) || id.kind != queue_pair::UD {
        return Err(EINVAL);
    }
    if transport == Transport::Iwarp {
        return Err(ENOSYS);
    }
    let group = match address {
        _ if address.is_any() => return Err(EINVAL),
        Address::V4 { host, .. } => gid_of(host.into()),
        // There are no such groups in RoCE v2 over IPv6, says the kernel.
        _ => return Err(ENOTSUPP),
    };
    if id.key == 0 {
        id.key = DATAGRAM_KEY;
    }
    let key = id.key;
    let node = id.node;
    let own = call.ends(number)?.0;
    let index = call.card.gids().iter().position(|gid| *gid == own).unwrap_or(0);
    let membership = Membership { id: number, reported: 0 };
    let joined = call.manager.memberships.insert(membership).ok_or(ENOMEM)?;
    let told = call.answer(response, &NewId { id: joined });
    if told.is_err() {
        call.manager.memberships.remove(joined);
        return told;
    }
    let parameters = UdParam {
        qp_num: ALL_QUEUE_PAIRS,
        qkey: key,
        ah_attr: AhAttr {
            dgid: group,
            sgid_index: index as u8,
            hop_limit: HOPS,
            is_global: 1,
            port_num: PORT,
            ..AhAttr::new_zeroed()
        },
        ..UdParam::new_zeroed()
    };
    let mut event = Event::plain(number, user, Kind::MulticastJoin, 0).with_service(parameters, &[], 0);
    event.answer.id = joined;
    event.group = Some(joined);
    if let Some(node) = call.manager.nodes.get_mut(&node) {
        node.push(event);
    }
    Ok(())
}

/// `RDMA_USER_CM_CMD_LEAVE_MCAST`.
pub fn leave(call: &mut Call) -> Result<()> {
    call.need_room(size_of::<EventsReported>())?;
    let wanted: DestroyId = call.request()?;
    let membership = *call.manager.memberships.get(wanted.id).ok_or(ENOENT)?;
    let node = call.id(membership.id)?.node;
    call.manager.memberships.remove(wanted.id);
    if let Some(node) = call.manager.nodes.get_mut(&node) {
        node.take(|event| event.group == Some(wanted.id));
    }
    call.answer(wanted.response, &EventsReported { events_reported: membership.reported })
}
