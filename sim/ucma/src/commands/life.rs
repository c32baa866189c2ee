//! Making, moving and destroying identifiers; fetching events.

use irdma_uverbs::Errno;

use crate::abi::{CreateId, DestroyId, Ece, EventResp, EventsReported, GetEvent, MigrateId, NewId};
use crate::call::{Call, EINVAL, ENOENT, ENOMEM, Result};
use crate::event::Kind;
use crate::id::{Id, queue_pair, space};

/// What the oldest programs know of an event.
const LEAST_EVENT: usize = size_of::<EventResp>() - size_of::<u32>() - size_of::<Ece>();

/// `RDMA_USER_CM_CMD_CREATE_ID`.
pub fn create(call: &mut Call) -> Result<()> {
    call.need_room(size_of::<NewId>())?;
    let wanted: CreateId = call.request()?;
    let kind = match wanted.ps {
        space::TCP => queue_pair::RC,
        space::UDP | space::IPOIB => queue_pair::UD,
        space::IB => wanted.qp_type,
        _ => return Err(EINVAL),
    };
    let start = call.manager.random() & 0xff_ffff;
    let id = Id::new(call.node, wanted.uid, wanted.ps, kind, start);
    let number = call.manager.ids.insert(id).ok_or(ENOMEM)?;
    let told = call.answer(wanted.response, &NewId { id: number });
    if told.is_err() {
        call.manager.ids.remove(number);
    }
    told
}

/// `RDMA_USER_CM_CMD_DESTROY_ID`.
pub fn destroy(call: &mut Call) -> Result<()> {
    call.need_room(size_of::<EventsReported>())?;
    let wanted: DestroyId = call.request()?;
    match call.id(wanted.id) {
        // What is dead can be buried.
        Ok(_) | Err(Errno(libc::ENXIO)) => {}
        Err(errno) => return Err(errno),
    }
    let events_reported = call.manager.destroy(call.card, wanted.id).ok_or(ENOENT)?;
    call.answer(wanted.response, &EventsReported { events_reported })
}

/// `RDMA_USER_CM_CMD_GET_EVENT`. Whoever has to wait does so on its own side.
pub fn get_event(call: &mut Call) -> Result<()> {
    call.need_room(LEAST_EVENT)?;
    let wanted: GetEvent = call.request()?;
    let node = call.manager.nodes.get(&call.node).ok_or(EINVAL)?;
    let event = node.next().ok_or(Errno(libc::EAGAIN))?.clone();
    call.answer(wanted.response, &event.answer)?;
    if let Some(node) = call.manager.nodes.get_mut(&call.node) {
        node.take_next();
    }
    if let Some(id) = call.manager.ids.get_mut(event.owner) {
        id.reported += 1;
        if event.answer.event == Kind::ConnectRequest as u32 {
            id.backlog += 1;
        }
    }
    if let Some(membership) = event.group.and_then(|group| call.manager.memberships.get_mut(group)) {
        membership.reported += 1;
    }
    Ok(())
}

/// `RDMA_USER_CM_CMD_MIGRATE_ID`: from the node of a descriptor to this one.
pub fn migrate(call: &mut Call) -> Result<()> {
    let wanted: MigrateId = call.request()?;
    let name = call.program.descriptor_name(wanted.fd as i32).ok_or(ENOENT)?;
    let mut nodes = call.manager.nodes.iter();
    let old = nodes.find(|(_, node)| node.is_called(&name)).map(|(token, _)| *token).ok_or(EINVAL)?;
    let new = core::mem::replace(&mut call.node, old);
    let events_reported = call.id(wanted.id)?.reported;
    call.id(wanted.id)?.node = new;
    let events = call.manager.nodes.get_mut(&old).map(|node| node.take(|event| event.owner == wanted.id));
    if let Some(node) = call.manager.nodes.get_mut(&new) {
        events.into_iter().flatten().for_each(|event| node.push(event));
    }
    call.answer(wanted.response, &EventsReported { events_reported })
}
