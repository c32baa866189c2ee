//! Binding, listening, finding the other end and the way to it.
//!
//! Every address of this machine, and every address that belongs to a GID of the card,
//! leads to the card. There is nobody else on the wire: other addresses do not answer.

use std::net::IpAddr;
use std::time::Duration;

use irdma_engine::spec::Gid;
use irdma_uverbs::{Errno, Transport};

use crate::abi::{Bind, BindIp, Listen, ResolveAddr, ResolveIp, ResolveRoute};
use crate::address::{Address, gid_of};
use crate::call::{Call, EINVAL, Result};
use crate::card::Card;
use crate::event::Kind;
use crate::id::{Due, Id, State};
use crate::manager::Manager;
use crate::path::Path;

/// Backlog of listeners that want more, or none in particular (kernel: `max_backlog`).
const MAX_BACKLOG: u32 = 1024;
/// Ports for those who do not care (`net.ipv4.ip_local_port_range`).
const FREE_PORTS: std::ops::RangeInclusive<u16> = 32768..=60999;
/// Ports below take a privilege.
const FIRST_UNPRIVILEGED_PORT: u16 = 1024;

const EADDRINUSE: Errno = Errno(libc::EADDRINUSE);
const EADDRNOTAVAIL: Errno = Errno(libc::EADDRNOTAVAIL);
const ENODEV: Errno = Errno(libc::ENODEV);

/// `RDMA_USER_CM_CMD_BIND_IP`.
pub fn bind_ip(call: &mut Call) -> Result<()> {
    let wanted: BindIp = call.request()?;
    let address = inet(&wanted.addr)?;
    call.id(wanted.id)?;
    bind_to(call.manager, call.card, wanted.id, address)
}

/// `RDMA_USER_CM_CMD_BIND`.
pub fn bind(call: &mut Call) -> Result<()> {
    let wanted: Bind = call.request()?;
    if wanted.reserved != 0 {
        return Err(EINVAL);
    }
    let address = sized(&wanted.addr, wanted.addr_size)?;
    call.id(wanted.id)?;
    bind_to(call.manager, call.card, wanted.id, address)
}

/// `RDMA_USER_CM_CMD_RESOLVE_IP`.
pub fn resolve_ip(call: &mut Call) -> Result<()> {
    let wanted: ResolveIp = call.request()?;
    let source = match wanted.src_addr[..2] {
        [0, 0] => None,
        _ => Some(inet(&wanted.src_addr)?),
    };
    let destination = inet(&wanted.dst_addr)?;
    resolve_to(call, wanted.id, source, destination, wanted.timeout_ms)
}

/// `RDMA_USER_CM_CMD_RESOLVE_ADDR`.
pub fn resolve(call: &mut Call) -> Result<()> {
    let wanted: ResolveAddr = call.request()?;
    if wanted.reserved != 0 {
        return Err(EINVAL);
    }
    let source = match wanted.src_size {
        0 => None,
        size => Some(sized(&wanted.src_addr, size)?),
    };
    let destination = sized(&wanted.dst_addr, wanted.dst_size)?;
    resolve_to(call, wanted.id, source, destination, wanted.timeout_ms)
}

/// `RDMA_USER_CM_CMD_RESOLVE_ROUTE`.
pub fn resolve_route(call: &mut Call) -> Result<()> {
    let wanted: ResolveRoute = call.request()?;
    call.attached_id(wanted.id)?;
    let gids = call.ends(wanted.id)?;
    let table = call.card.gids().to_vec();
    let roce = call.card.transport() == Transport::Roce;
    let id = call.attached_id(wanted.id)?;
    if wanted.timeout_ms == 0 || id.state != State::AddressResolved {
        return Err(EINVAL);
    }
    if roce {
        let service = id.service_type.unwrap_or(0);
        id.take_path(Path::of_ethernet(gids.0, gids.1, service, id.ack_timeout), &table);
    }
    id.state = State::RouteResolved;
    call.manager.emit(wanted.id, Kind::RouteResolved, 0, |event| event);
    Ok(())
}

/// `RDMA_USER_CM_CMD_LISTEN`.
pub fn listen(call: &mut Call) -> Result<()> {
    let wanted: Listen = call.request()?;
    call.id(wanted.id)?.backlog =
        if (1..=MAX_BACKLOG).contains(&wanted.backlog) { wanted.backlog } else { MAX_BACKLOG };
    if call.id(wanted.id)?.state != State::Bound {
        let any = Address::from_ip(std::net::Ipv4Addr::UNSPECIFIED.into(), 0);
        bind_to(call.manager, call.card, wanted.id, any)?;
    }
    // Who listens shares its port with nobody.
    if call.id(wanted.id)?.reuses_address {
        check_port(call.manager, wanted.id, false)?;
    }
    let id = call.id(wanted.id)?;
    id.reuses_address = false;
    id.state = State::Listen;
    Ok(())
}

/// An IP address of an old command; native ones do not fit.
pub fn inet(bytes: &[u8]) -> Result<Address> {
    Address::parse(bytes).ok_or(EINVAL)
}

/// An address whose size the program says.
pub fn sized(bytes: &[u8], size: u16) -> Result<Address> {
    Address::parse(bytes).filter(|address| address.size() == usize::from(size)).ok_or(EINVAL)
}

/// The GID by which an address is reached: its own, if the card has it, else one of the same family.
fn gid_for(card: &dyn Card, host: Option<IpAddr>) -> Gid {
    let gids = card.gids();
    let wanted = host.map(gid_of);
    if let Some(wanted) = wanted.filter(|gid| gids.contains(gid) || is_group(gid)) {
        return wanted;
    }
    let is_ipv4 = |gid: &Gid| gid[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    let ipv4 = wanted.is_none_or(|gid| is_ipv4(&gid));
    let same = gids.iter().find(|gid| is_ipv4(gid) == ipv4);
    same.or(gids.first()).copied().unwrap_or_default()
}

/// Whether a GID is that of a multicast address.
fn is_group(gid: &Gid) -> bool {
    gid[0] == 0xff || (gid[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff] && gid[12] & 0xf0 == 0xe0)
}

/// GIDs of both ends of an identifier: its own, and the other.
pub fn ends(card: &dyn Card, id: &Id) -> (Gid, Gid) {
    if card.transport() == Transport::Iwarp {
        let own = card.gids().first().copied().unwrap_or_default();
        return (own, own);
    }
    (gid_for(card, id.source.host()), gid_for(card, id.destination.host()))
}

/// Gives an identifier an address of its own (kernel: `rdma_bind_addr`).
fn bind_to(manager: &mut Manager, card: &dyn Card, number: u32, address: Address) -> Result<()> {
    let id = manager.ids.get_mut(number).ok_or(EINVAL)?;
    if id.state != State::Idle {
        return Err(EINVAL);
    }
    if let Address::V6 { host, scope: 0, .. } = address
        && host.is_unicast_link_local()
    {
        return Err(EINVAL);
    }
    let attached = match address.host() {
        _ if address.is_any() => false,
        Some(host) if !card.is_local(host) => return Err(EADDRNOTAVAIL),
        Some(_) if card.is_present() => true,
        // Ethernet ports have no native addresses.
        _ => return Err(ENODEV),
    };
    let before = (id.source, id.only_family);
    id.source = address;
    id.only_family = id.only_family.or(Some(matches!(address, Address::V4 { .. })));
    if let Err(errno) = take_port(manager, number) {
        if let Some(id) = manager.ids.get_mut(number) {
            (id.source, id.only_family) = before;
        }
        return Err(errno);
    }
    let id = manager.ids.get_mut(number).ok_or(EINVAL)?;
    id.attached = attached;
    id.state = State::Bound;
    Ok(())
}

/// Holds the port of an identifier's address, or any port if it names none (kernel: `cma_get_port`).
fn take_port(manager: &mut Manager, number: u32) -> Result<()> {
    let id = manager.ids.get(number).ok_or(EINVAL)?;
    let port = id.source.port();
    if port == 0 {
        return take_any_port(manager, number);
    }
    if port < FIRST_UNPRIVILEGED_PORT && !manager.privileged {
        return Err(Errno(libc::EACCES));
    }
    check_port(manager, number, id.reuses_address)?;
    let id = manager.ids.get_mut(number).ok_or(EINVAL)?;
    id.holds_port = true;
    Ok(())
}

fn take_any_port(manager: &mut Manager, number: u32) -> Result<()> {
    let space = manager.ids.get(number).ok_or(EINVAL)?.space;
    let taken: std::collections::BTreeSet<u16> = manager
        .ids
        .iter()
        .filter(|(_, id)| id.holds_port && id.space == space)
        .map(|(_, id)| id.source.port())
        .collect();
    let count = u32::from(FREE_PORTS.end() - FREE_PORTS.start()) + 1;
    let first = u32::from(manager.next_port);
    let free = (0..count)
        .map(|step| FREE_PORTS.start() + ((first + step) % count) as u16)
        .find(|port| !taken.contains(port))
        .ok_or(EADDRNOTAVAIL)?;
    // A port that has just been given back is not the next to be given out.
    manager.next_port = free - FREE_PORTS.start() + 1;
    let id = manager.ids.get_mut(number).ok_or(EINVAL)?;
    id.source = id.source.with_port(free);
    id.holds_port = true;
    Ok(())
}

/// Refuses a port that another identifier holds (kernel: `cma_check_port`).
fn check_port(manager: &Manager, number: u32, sharing: bool) -> Result<()> {
    let id = manager.ids.get(number).ok_or(EINVAL)?;
    let others = manager.ids.iter().filter(|(other, holder)| {
        *other != number
            && holder.holds_port
            && holder.space == id.space
            && holder.source.port() == id.source.port()
    });
    for (_, holder) in others {
        if sharing && holder.reuses_address {
            continue;
        }
        let apart = id.only_family == Some(true) && holder.only_family == Some(true);
        if apart && !id.source.is_of_family(&holder.source) {
            continue;
        }
        if id.source.is_any() || holder.source.is_any() {
            return Err(EADDRNOTAVAIL);
        }
        if id.source.host() == holder.source.host() {
            return Err(EADDRINUSE);
        }
    }
    Ok(())
}

/// Looks for the other end (kernel: `rdma_resolve_addr`).
fn resolve_to(
    call: &mut Call,
    number: u32,
    source: Option<Address>,
    destination: Address,
    milliseconds: u32,
) -> Result<()> {
    let state = call.id(number)?.state;
    if state != State::Bound {
        let source = source.unwrap_or_else(|| destination.wildcard());
        bind_to(call.manager, call.card, number, source)?;
    }
    let id = call.manager.ids.get_mut(number).ok_or(EINVAL)?;
    if !id.source.is_of_family(&destination) {
        return Err(EINVAL);
    }
    id.destination = destination;
    let host = destination.host().ok_or(ENODEV)?;
    if !destination.is_any() && !host.is_multicast() && !call.card.is_local(host) {
        id.state = State::AddressQuery;
        let delay = Duration::from_millis(milliseconds.into());
        call.manager.schedule(number, delay, Due::AddressFailure);
        return Ok(());
    }
    if !call.card.is_present() {
        call.manager.emit(number, Kind::AddressError, -libc::ENODEV, |event| event);
        return Ok(());
    }
    if id.source.is_any() {
        id.source = id.source.with_host(nearest(call.card, host));
    }
    id.attached = true;
    id.state = State::AddressResolved;
    call.manager.emit(number, Kind::AddressResolved, 0, |event| event);
    Ok(())
}

/// The address from which one talks to `host`: itself, if it is this machine's.
fn nearest(card: &dyn Card, host: IpAddr) -> IpAddr {
    if !host.is_unspecified() && !host.is_multicast() {
        return host;
    }
    let ipv4 = host.is_ipv4();
    let own = card.gids().iter().map(|gid| std::net::Ipv6Addr::from(*gid));
    let mut own = own.map(|address| address.to_ipv4_mapped().map_or(address.into(), IpAddr::from));
    match (host.is_multicast().then(|| own.find(|own| own.is_ipv4() == ipv4)).flatten(), ipv4) {
        (Some(own), _) => own,
        (None, true) => std::net::Ipv4Addr::LOCALHOST.into(),
        (None, false) => std::net::Ipv6Addr::LOCALHOST.into(),
    }
}

impl Manager {
    /// Nobody has answered for an address.
    pub(crate) fn fail_address(&mut self, number: u32) {
        let Some(id) = self.ids.get_mut(number).filter(|id| id.state == State::AddressQuery) else { return };
        id.state = State::Bound;
        self.emit(number, Kind::AddressError, -libc::ETIMEDOUT, |event| event);
    }
}
