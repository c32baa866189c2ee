//! Multicast groups.

use irdma_engine::spec::Gid;

use crate::abi::core::AttachMcast;
use crate::abi::number::CORE_IN;
use crate::answer::Answer;
use crate::call::{Call, Hardware};
use crate::errno::{EINVAL, ENOMEM, EOPNOTSUPP, Result};
use crate::object::{Qp, QpKind};
use crate::profile::{MULTICAST_GROUP_COUNT, QPS_PER_MULTICAST_GROUP, Transport};

/// `IB_USER_VERBS_CMD_ATTACH_MCAST`.
pub fn attach(call: &mut Call) -> Result<Answer> {
    let wanted: AttachMcast = call.request.extensible(CORE_IN)?;
    let hardware = &mut *call.hardware;
    let qp: &mut Qp = call.file.get_mut(wanted.qp_handle)?;
    if qp.groups.contains(&(wanted.gid, wanted.mlid)) {
        return Ok(Answer::new());
    }
    check(hardware, qp, &wanted.gid)?;
    let known = qp.groups.iter().any(|(gid, _)| *gid == wanted.gid);
    if !known {
        let members = hardware.groups.get(&wanted.gid).copied().unwrap_or(0);
        if members >= QPS_PER_MULTICAST_GROUP
            || (members == 0 && hardware.groups.len() >= MULTICAST_GROUP_COUNT as usize)
        {
            return Err(ENOMEM);
        }
        hardware.engine.attach_multicast(qp.id, wanted.gid)?;
        hardware.groups.insert(wanted.gid, members + 1);
    }
    qp.groups.push((wanted.gid, wanted.mlid));
    Ok(Answer::new())
}

/// `IB_USER_VERBS_CMD_DETACH_MCAST`.
pub fn detach(call: &mut Call) -> Result<Answer> {
    let wanted: AttachMcast = call.request.extensible(CORE_IN)?;
    let qp: &mut Qp = call.file.get_mut(wanted.qp_handle)?;
    let place = qp.groups.iter().position(|group| *group == (wanted.gid, wanted.mlid)).ok_or(EINVAL)?;
    check(call.hardware, qp, &wanted.gid)?;
    qp.groups.remove(place);
    leave(call.hardware, qp, wanted.gid);
    Ok(Answer::new())
}

/// What the core asks of QP and group.
fn check(hardware: &Hardware, qp: &Qp, gid: &Gid) -> Result<()> {
    if hardware.profile.transport == Transport::Iwarp {
        return Err(EOPNOTSUPP);
    }
    if qp.kind != QpKind::Ud || !is_multicast(gid) {
        return Err(EINVAL);
    }
    Ok(())
}

/// Whether a GID is a multicast address of IPv6 or of IPv4 mapped into it.
fn is_multicast(gid: &Gid) -> bool {
    let mapped = gid[..10] == [0; 10] && gid[10..12] == [0xff, 0xff];
    gid[0] == 0xff || (mapped && gid[12] & 0xf0 == 0xe0)
}

/// Takes a QP out of a group, unless it is in it under another LID too.
pub fn leave(hardware: &mut Hardware, qp: &Qp, gid: Gid) {
    if qp.groups.iter().any(|(other, _)| *other == gid) {
        return;
    }
    // The device knows the membership because we made it.
    let _ = hardware.engine.detach_multicast(qp.id, gid);
    if let Some(members) = hardware.groups.get_mut(&gid) {
        *members -= 1;
        if *members == 0 {
            hardware.groups.remove(&gid);
        }
    }
}
